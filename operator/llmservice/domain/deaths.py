"""Never a crash loop of our making: an engine that dies of our calls is left alone.

Pausing an idle engine has crashed engines, and a controller that pauses on first contact then drives the loop. So two
deaths within DEATH_SECONDS of a control call, in the same pod and under the same spec, condemn the pod's engine: it is not
called again until the spec or the pod changes. The count is memory; the verdict is read back from ``status``.
"""

from dataclasses import dataclass

from llmservice.api import LLMServiceStatus, Reason
from llmservice.domain.fleet import Failure, Obstacle, Target, TargetState

DEATH_SECONDS = 30.0
DEATHS = 2


@dataclass(frozen=True, slots=True)
class Deaths:
    """How often the engine on one port of one pod died of our calls since ``object_generation``."""

    object_generation: int
    count: int


def is_death(before: TargetState, after: Target | None, now: float) -> bool:
    """Whether the container that ``before`` is about ended soon after our call. ``after`` is what its pod shows now: None
    when it has no such container any more, otherwise the same or a later one."""
    if before.target.is_aggregate:  # its proxies come and go, and none of them is the engine
        return False
    ended = after is None or not after.started or after.key.container_id != before.target.key.container_id
    return before.target.started and ended and now - before.called_at <= DEATH_SECONDS


def counted(deaths: Deaths | None, object_generation: int) -> Deaths:
    """One death more; deaths under an older spec do not count."""
    if deaths is None or deaths.object_generation != object_generation:
        return Deaths(object_generation, 1)
    return Deaths(object_generation, deaths.count + 1)


def verdict(deaths: Deaths | None, object_generation: int) -> Failure | None:
    """Why this engine is not called any more; None if it may be."""
    if deaths is None or deaths.object_generation != object_generation or deaths.count < DEATHS:
        return None
    return Failure(
        Obstacle.REFUSED,
        "died",
        f"died {DEATHS} times within {DEATH_SECONDS:.0f} s of a control call; it is not called again until the spec or the "
        "pod changes",
        Reason.ENGINE_DIED,
    )


def stored_verdicts(status: LLMServiceStatus, object_generation: int) -> dict[tuple[str, str | None], Deaths]:
    """The verdicts that an earlier operator left in ``status``, by pod UID and URL, as far as they are about this spec."""
    if status.observed_generation != object_generation:
        return {}
    return {
        (entry.pod_uid, entry.url): Deaths(object_generation, DEATHS)
        for entry in status.target_states
        if entry.reason == Reason.ENGINE_DIED
    }
