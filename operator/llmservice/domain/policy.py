"""What one LLMService wants at present, and on which terms.

Everything here is read from the object (its spec, and what its status stores), so that it survives a restart of the
operator. The two facts that only the operator's process knows are passed in: whether its view of the cluster is complete
enough to act on, and how the present pause is asked while that is not stored yet.
"""

from dataclasses import dataclass

from llmservice.api import Desired, LastPause, LLMService, LLMServiceSpec, PauseMode
from llmservice.domain.fleet import PauseParameters


@dataclass(frozen=True, slots=True)
class Wanted:
    """The terms on which every target of a fleet is stepped and reported."""

    object_generation: int
    """The ``metadata.generation`` that these terms come from."""
    effective: Desired | None
    """What the fleet should be now; None means observe only."""
    pause: PauseParameters
    """How any pause is asked."""
    wait_unanswered: bool
    """The present pause is a ``wait`` that not every engine has answered: "paused" may still mean "draining"."""
    wait_stored: bool
    """That fact is stored in the object, without which no ``wait`` is sent: a restarted operator must know it."""
    may_call: bool
    """Control calls may begin. False while the view of pods or LLMServices is incomplete; reads go on."""
    request_timeout: float
    """Seconds for any call but a pause."""
    pause_timeout: float
    """Seconds for a pause."""
    resync: float
    """Seconds between reads of a target at rest."""


def present_pause(spec: LLMServiceSpec, previous: LastPause | None) -> LastPause | None:
    """How the present pause is asked: as it began, or, where none is under way, as the spec says now.

    None when the fleet is not to be paused: the next pause then begins anew.
    """
    if spec.generation is not Desired.PAUSED:
        return None
    if previous is not None:
        return previous
    mode = spec.pause.mode
    clear_cache = spec.pause.clear_cache
    if clear_cache is None:
        clear_cache = mode is not PauseMode.KEEP
    return LastPause(mode=mode, clear_cache=clear_cache, answered=True)


def unanswered(pause: LastPause) -> LastPause:
    """The same pause, where an engine that was sent a ``wait`` may still be draining; other modes need no answer."""
    return pause.model_copy(update={"answered": pause.mode is not PauseMode.WAIT})


def wanted(service: LLMService, pause: LastPause | None, *, may_call: bool, is_storing: bool = False) -> Wanted:
    """The terms of this moment. ``pause`` is :func:`present_pause` as the operator's process holds it; ``is_storing``: a
    write of another one is under way."""
    spec = service.spec
    asked = pause or LastPause(mode=spec.pause.mode, clear_cache=True, answered=True)
    unanswered = asked.mode is PauseMode.WAIT and not asked.answered
    return Wanted(
        object_generation=service.metadata.object_generation,
        effective=spec.generation,
        pause=PauseParameters(asked.mode, asked.clear_cache),
        wait_unanswered=unanswered,
        wait_stored=unanswered and not is_storing and service.status.last_pause == asked,
        may_call=may_call,
        request_timeout=spec.request_timeout_seconds,
        pause_timeout=spec.pause.timeout_seconds,
        resync=spec.resync_seconds,
    )


def spec_pause_differs(spec: LLMServiceSpec, pause: LastPause | None) -> bool:
    """Whether ``spec.pause`` was changed during the present pause, which it does not touch."""
    fresh = present_pause(spec, None)
    return (
        pause is not None and fresh is not None and (fresh.mode, fresh.clear_cache) != (pause.mode, pause.clear_cache)
    )
