"""What one LLMService wants at present, and on which terms.

Everything here is read from the object (its spec, and what its status stores), so that it survives a restart of the
operator. The two facts that only the operator's process knows are passed in: whether its view of the cluster is complete
enough to act on, and how the present pause is asked while that is not stored yet.
"""

from dataclasses import dataclass

from llmservice.api import FINALIZER, DeletionPolicy, Desired, LastPause, LLMService, LLMServiceSpec, PauseMode
from llmservice.domain import clocks
from llmservice.domain.fleet import NEVER, PauseParameters

RELEASE_SECONDS = 60.0
"""How long a deleted LLMService is held for its engines to run again."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The terms on which every target of a fleet is stepped and reported."""

    object_generation: int
    """The ``metadata.generation`` that these terms come from."""
    desired: Desired | None
    """What ``spec.generation`` asks for."""
    effective: Desired | None
    """What the fleet should be now; None means observe only."""
    pause: PauseParameters
    """How any pause is asked."""
    wait_unanswered: bool
    """The present pause is a ``wait`` that not every engine has answered: "paused" may still mean "draining"."""
    is_held: bool
    """The finalizer that ``deletionPolicy: resume`` needs is in place, or none is needed; no pause is sent without it."""
    wait_stored: bool
    """That fact is stored in the object, without which no ``wait`` is sent: a restarted operator must know it."""
    paused_replicas: str | None
    """Of an aggregate: the digest of replicas for which the present pause was answered, as the status tells."""
    may_call: bool
    """Control calls may begin. False while the view of pods or LLMServices is incomplete; reads go on."""
    request_timeout: float
    """Seconds for any call but a pause."""
    pause_timeout: float
    """Seconds for a pause."""
    drain_delay: float
    """Seconds between leaving the Service and a pause, for pods with the readiness gate."""
    resync: float
    """Seconds between reads of a target at rest."""


def effective(service: LLMService, wall: float) -> Desired | None:
    """What the fleet should be at ``wall`` (seconds since the epoch): what is desired, unless the pause has expired or the
    object is being deleted, with ``resume``. Nothing where ``spec.generation`` is absent."""
    spec = service.spec
    if spec.generation is None:
        return None
    if clocks.is_expired(service, wall) or is_released(service):
        return Desired.RUNNING
    return spec.generation


def is_released(service: LLMService) -> bool:
    """Whether the object is being deleted and its engines are to be resumed before."""
    deleted = service.metadata.deletion_timestamp is not None
    return deleted and service.spec.deletion_policy is DeletionPolicy.RESUME


def release_ends_at(service: LLMService) -> float:
    """When a deleted object is let go whatever its engines do, in seconds since the epoch; NEVER while it is not deleted."""
    deleted_at = service.metadata.deletion_timestamp
    return clocks.to_seconds(deleted_at) + RELEASE_SECONDS if deleted_at is not None else NEVER


def is_release_over(service: LLMService, wall: float) -> bool:
    """Whether the time to resume the engines of a deleted object is over."""
    return wall >= release_ends_at(service)


def wanted_finalizers(service: LLMService, wall: float, *, is_released_done: bool) -> tuple[str, ...]:
    """The finalizers that the object should have. Ours is there before the first pause, and goes when the policy no longer
    asks for it, or when the engines of a deleted object run (``is_released_done``)."""
    metadata, spec = service.metadata, service.spec
    others = tuple(name for name in metadata.finalizers if name != FINALIZER)
    has = FINALIZER in metadata.finalizers
    if spec.deletion_policy is not DeletionPolicy.RESUME:
        return others
    if metadata.deletion_timestamp is None:
        return (*others, FINALIZER) if has or effective(service, wall) is Desired.PAUSED else others
    return (*others, FINALIZER) if has and spec.generation is not None and not is_released_done else others


def present_pause(spec: LLMServiceSpec, aim: Desired | None, previous: LastPause | None) -> LastPause | None:
    """How the present pause is asked: as it began, or, where none is under way, as the spec says now.

    None when the fleet is not to be paused: the next pause then begins anew. A ``wait`` that still drains gives way to an
    ``abort`` that is asked for meanwhile.
    """
    if aim is not Desired.PAUSED:
        return None
    if previous is not None and (previous.answered or spec.pause.mode is not PauseMode.ABORT):
        return previous
    mode = spec.pause.mode
    clear_cache = spec.pause.clear_cache
    if clear_cache is None:
        clear_cache = mode is not PauseMode.KEEP
    is_taken_over = (
        previous is not None
    )  # an engine may drain on until it answers the abort, which the object has to tell
    return LastPause(mode=mode, clear_cache=clear_cache, answered=not is_taken_over)


def with_stored(pause: LastPause, stored: LastPause | None) -> LastPause:
    """``pause``, as far as another operator has not stored that it is still unanswered."""
    return stored if stored is not None and unanswered(pause) == stored else pause


def unanswered(pause: LastPause) -> LastPause:
    """The same pause, where an engine that was sent a ``wait``, by it or before it, may still be draining."""
    return pause.model_copy(update={"answered": False})


def wanted(
    service: LLMService,
    aim: Desired | None,
    pause: LastPause | None,
    *,
    may_call: bool,
    is_storing: bool = False,
) -> Wanted:
    """The terms of this moment. ``aim`` is :func:`effective`; ``pause`` is :func:`present_pause` as the operator's process
    holds it; ``is_storing``: a write of another one is under way."""
    spec = service.spec
    asked = pause or LastPause(mode=spec.pause.mode, clear_cache=True, answered=True)
    unanswered = not asked.answered
    return Wanted(
        object_generation=service.metadata.object_generation,
        desired=spec.generation,
        effective=aim,
        pause=PauseParameters(asked.mode, asked.clear_cache),
        wait_unanswered=unanswered,
        is_held=spec.deletion_policy is not DeletionPolicy.RESUME or FINALIZER in service.metadata.finalizers,
        wait_stored=unanswered and not is_storing and service.status.last_pause == asked,
        paused_replicas=_stored_replicas(service) if aim is Desired.PAUSED else None,
        may_call=may_call,
        request_timeout=spec.request_timeout_seconds,
        pause_timeout=spec.pause.timeout_seconds,
        drain_delay=spec.pause.drain_delay_seconds,
        resync=spec.resync_seconds,
    )


def _stored_replicas(service: LLMService) -> str | None:
    """Only a status about the present spec counts: under an older one a resume may have been sent since."""
    is_current = service.status.observed_generation == service.metadata.object_generation
    return service.status.paused_replicas if is_current else None


def spec_pause_differs(spec: LLMServiceSpec, pause: LastPause | None) -> bool:
    """Whether ``spec.pause`` was changed during the present pause, which it does not touch."""
    fresh = present_pause(spec, Desired.PAUSED, None)
    return (
        pause is not None and fresh is not None and (fresh.mode, fresh.clear_cache) != (pause.mode, pause.clear_cache)
    )
