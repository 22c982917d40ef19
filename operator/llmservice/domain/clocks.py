"""The two clocks that outlive an operator, because they stand in ``status``: how long a pause lasts, and how long a change
takes. Both count for one ``metadata.generation`` and start anew with the next. Times are seconds since the epoch, of the
API's own whole seconds (RFC 3339)."""

from dataclasses import dataclass
from datetime import datetime

from llmservice.api import Desired, LLMService, LLMServiceStatus, OnMaxPaused
from llmservice.domain.fleet import NEVER

_ROUNDING_SECONDS = 1.0
"""What is stored was rounded down to a whole second; nothing ends earlier than was asked."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A stored start, and the ``metadata.generation`` it counts for."""

    since: str | None = None
    object_generation: int | None = None


STOPPED = Clock()


def to_seconds(timestamp: str) -> float:
    """Seconds since the epoch of an RFC 3339 timestamp. Raises ValueError."""
    return datetime.fromisoformat(timestamp).timestamp()


def pause_limit_at(service: LLMService) -> float:
    """When the present pause has lasted ``maxPausedSeconds``; NEVER where there is no limit, or no pause yet."""
    limit, status = service.spec.max_paused_seconds, service.status
    if service.spec.generation is not Desired.PAUSED or limit is None or status.paused_since is None:
        return NEVER
    if status.paused_since_generation != service.metadata.object_generation:
        return NEVER
    return to_seconds(status.paused_since) + limit + _ROUNDING_SECONDS


def is_expired(service: LLMService, wall: float) -> bool:
    """Whether the pause has lasted too long and is to end, until the object's generation changes."""
    return service.spec.on_max_paused is OnMaxPaused.RESUME and wall >= pause_limit_at(service)


def is_paused_too_long(service: LLMService, wall: float) -> bool:
    """Whether the pause has lasted too long and goes on with a warning."""
    return service.spec.on_max_paused is OnMaxPaused.WARN and wall >= pause_limit_at(service)


def deadline_at(service: LLMService) -> float:
    """When the fleet has been on its way for ``progressDeadlineSeconds``; NEVER at rest."""
    status = service.status
    if status.progressing_since is None or status.progressing_since_generation != service.metadata.object_generation:
        return NEVER
    return to_seconds(status.progressing_since) + service.spec.progress_deadline_seconds + _ROUNDING_SECONDS


def next_strike(service: LLMService, wall: float) -> float:
    """When the next of these limits is reached; NEVER if none is ahead."""
    ahead = [at for at in (pause_limit_at(service), deadline_at(service)) if at > wall]
    return min(ahead, default=NEVER)


def pause_clock(
    before: LLMServiceStatus, object_generation: int, desired: Desired | None, timestamp: str, *, any_paused: bool
) -> Clock:
    """The clock of ``maxPausedSeconds``: it starts with the first target that is confirmed paused, and goes on whatever
    becomes of it, so that an expired pause stays expired."""
    if desired is not Desired.PAUSED:
        return STOPPED
    if before.paused_since_generation == object_generation:
        return Clock(before.paused_since, object_generation)
    return Clock(timestamp, object_generation) if any_paused else STOPPED


def progress_clock(before: LLMServiceStatus, object_generation: int, timestamp: str, *, is_moving: bool) -> Clock:
    """The clock of ``progressDeadlineSeconds``: it runs while the fleet is not settled and something is expected of it."""
    if not is_moving:
        return STOPPED
    if before.progressing_since_generation == object_generation:
        return Clock(before.progressing_since, object_generation)
    return Clock(timestamp, object_generation)
