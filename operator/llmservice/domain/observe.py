"""What an answer, an error or a timeout teaches about a target.

A lost answer teaches nothing about the engine, so it never changes what was last validly read. A success teaches nothing
either: it only makes the target be read again. Every control call counts as a setback until a read shows that it worked,
which is how an engine that says 200 and does nothing is called less and less often.
"""

import zlib
from dataclasses import replace

from llmservice.api import Desired
from llmservice.domain import aggregate
from llmservice.domain.fleet import (
    NEVER,
    ControlCall,
    Failure,
    Obstacle,
    OpenCall,
    Reading,
    Refusal,
    Sight,
    Target,
    TargetKey,
    TargetState,
)
from llmservice.domain.policy import Wanted

BACKOFF_SECONDS = (1.0, 10.0)
"""The first and the longest wait before a failed call is tried again; it doubles in between."""
STARTING_RETRY_SECONDS = 1.0
"""How often an engine that is not listening yet is tried."""


def discovered(target: Target, now: float) -> TargetState:
    """A target seen for the first time, or whose container is another one now."""
    return TargetState(target, first_seen=now)


def updated(state: TargetState, target: Target, now: float) -> TargetState:
    """The pod of a known target changed, the container did not. A container that became ready is read at once, and that
    it did not listen before no longer counts."""
    became_ready = (target.ready and not state.target.ready) or (target.started and not state.target.started)
    if not became_ready:
        return replace(state, target=target)
    changed = replace(state, target=target, next_read_at=-NEVER)
    if state.failure is None or state.failure.obstacle is not Obstacle.NOT_LISTENING:
        return changed
    return replace(changed, failures=0, failure=None, first_seen=now if state.sight is None else state.first_seen)


def read_sent(state: TargetState, wanted: Wanted) -> TargetState:
    """A read is on its way."""
    return replace(state, asked_object_generation=wanted.object_generation)


def read_answered(state: TargetState, reading: Reading, sent_for: Wanted, wanted: Wanted, now: float) -> TargetState:
    """A read was answered; ``sent_for`` is what was wanted when it was sent."""
    sight = reading.sight
    undrained = state.undrained and sight is Sight.PAUSED
    # Paused before any wait could reach it: by whom and how is not ours to change. Where one is stored by now, another
    # operator may have sent it.
    is_older = not sent_for.wait_unanswered and not wanted.wait_stored
    drained = sight is Sight.SLEEPING or (sight is Sight.PAUSED and not undrained and (state.drained or is_older))
    is_proven = sight is not Sight.PAUSED or aggregate.is_covered(wanted, state, reading.replicas)
    is_read_as = is_proven and _is_as(wanted, sight, drained, undrained)
    is_settled = is_read_as and sent_for.object_generation >= wanted.object_generation
    refusal = state.refusal if state.refusal is not None and state.refusal.sight is sight else None
    # One replacement and not several: it is the costliest part of a fan-out to many engines.
    return replace(
        state,
        traits=reading.traits,
        sight=sight,
        words=reading.message,
        read_at=now,
        read_object_generation=sent_for.object_generation,
        is_called_since=False,
        failures=0,
        failure=None,
        next_read_at=now + wanted.resync * (1.0 - 0.1 * _jitter(state.target.key, now)),
        drained=drained,
        has_answered=state.has_answered and sight is not Sight.RUNNING,
        undrained=undrained,
        replicas=reading.replicas,
        paused_replicas=None if sight is Sight.RUNNING else state.paused_replicas,
        effective_object_generation=wanted.object_generation if is_settled else state.effective_object_generation,
        setbacks=0 if is_settled else state.setbacks,
        setback=None if is_settled else state.setback,
        next_call_at=-NEVER if is_settled else state.next_call_at,
        refusal=None if is_settled else refusal,
    )


def read_failed(state: TargetState, failure: Failure, sent_for: Wanted, wanted: Wanted, now: float) -> TargetState:
    """A read brought no valid answer; ``sent_for`` is what was wanted when it was sent."""
    failures = state.failures + 1
    if state.failure is not None and failure.is_like(state.failure):
        failure = state.failure  # its words may carry a request id or a time, which would change the status at rest
    is_not_there_yet = failure.obstacle is Obstacle.NOT_LISTENING and not state.target.ready
    if is_not_there_yet or failure.obstacle is Obstacle.STARTING:
        wait = STARTING_RETRY_SECONDS
    elif failure.obstacle is Obstacle.REFUSED:
        wait = wanted.resync
    else:
        wait = backoff(failures, state.target.key, now)
    return replace(
        state,
        failures=failures,
        failure=failure,
        failed_object_generation=sent_for.object_generation,
        next_read_at=now + wait,
    )


def call_sent(state: TargetState, call: ControlCall, wanted: Wanted, now: float) -> TargetState:
    """A control call is on its way."""
    return replace(
        state,
        open_call=OpenCall(call, wanted.object_generation),
        called_at=now,
        is_called_since=True,
        undrained=state.undrained or call.is_wait,
        paused_replicas=None if call.aim is Desired.RUNNING else state.paused_replicas,
    )


def call_ended(state: TargetState, failure: Failure | None, wanted: Wanted, now: float) -> TargetState:
    """The open control call was answered with success (``failure`` None), refused, or lost. In any case: read again."""
    if state.open_call is None:
        raise ValueError("no control call is open")
    call, sent_for = state.open_call.call, state.open_call.object_generation
    # Whatever the mode of a pause: a wait is answered after the drain, an abort ends it, a keep freezes it.
    is_drain_over = failure is None and call.aim is Desired.PAUSED
    setbacks, setback, next_call_at, refusal = 0, None, -NEVER, None
    if sent_for >= wanted.object_generation:  # otherwise, whatever became of it was about an older spec
        if failure is not None and failure.obstacle is Obstacle.REFUSED:
            if state.refusal is not None and failure.is_like(state.refusal.failure):
                failure = state.refusal.failure  # for the same reason as the words of a read
            refusal = Refusal(call, sent_for, state.sight, now, failure)
        setbacks, setback = state.setbacks + 1, failure
        next_call_at = now + backoff(setbacks, state.target.key, now)
    return replace(
        state,
        open_call=None,
        setbacks=setbacks,
        setback=setback,
        next_call_at=next_call_at,
        refusal=refusal,
        drained=is_drain_over,
        has_answered=is_drain_over,
        undrained=state.undrained and not is_drain_over,
        paused_replicas=state.replicas if is_drain_over else state.paused_replicas,
        next_read_at=now,
    )


def call_given_up(state: TargetState, now: float) -> TargetState:
    """The open ``wait`` was given up for another call; the engine may drain on, and is read at once."""
    return replace(state, open_call=None, setbacks=0, setback=None, next_call_at=-NEVER, refusal=None, next_read_at=now)


def wait_adopted(state: TargetState) -> TargetState:
    """Another operator has stored that a ``wait`` is not answered: what was read meanwhile may have been its drain."""
    return replace(state, drained=state.has_answered)


def verify_requested(state: TargetState) -> TargetState:
    """Nothing that was read counts as fresh any more."""
    return replace(
        state, asked_object_generation=-1, read_object_generation=-1, failed_object_generation=-1, next_read_at=-NEVER
    )


def spec_changed(state: TargetState) -> TargetState:
    """Something else is wanted now: earlier trouble does not delay it, and to differ from it is no drift."""
    return replace(
        state,
        setbacks=0,
        setback=None,
        next_call_at=-NEVER,
        refusal=None,
        effective_object_generation=-1,
    )


def is_as(wanted: Wanted, state: TargetState) -> bool:
    """Whether the last valid read shows the engine as it should be; where nothing is wanted it always does."""
    return aggregate.is_proven(wanted, state) and _is_as(wanted, state.sight, state.drained, state.undrained)


def _is_as(wanted: Wanted, sight: Sight | None, drained: bool, undrained: bool) -> bool:
    match wanted.effective:
        case Desired.PAUSED:
            is_drained = not undrained and (drained or not wanted.wait_unanswered)
            return sight is Sight.SLEEPING or (sight is Sight.PAUSED and is_drained)
        case Desired.RUNNING:
            return sight is Sight.RUNNING
        case None:
            return True


def backoff(attempt: int, key: TargetKey, now: float) -> float:
    """Seconds to wait after the ``attempt``-th failure in a row: doubling, within BACKOFF_SECONDS, and spread by a fifth."""
    first, longest = BACKOFF_SECONDS
    return min(longest, 1.25 * first * 2.0 ** min(attempt - 1, 16)) * (1.0 - 0.2 * _jitter(key, now))


def _jitter(key: TargetKey, now: float) -> float:
    """A number from 0 to 1 that differs between targets and calls, and is the same in a replay."""
    return zlib.crc32(f"{key.pod_uid}{key.port}{now}".encode()) / 2**32
