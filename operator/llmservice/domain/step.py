"""The next thing to do with one target: the whole behaviour, as a function of what is wanted and what is known.

The order of the checks is the rule. A target that cannot be called is left to the watch. Then comes the truth: unless
there was a valid read since the present spec was seen, read. Then the difference: unless the engine is as it should be,
call it, but only right after a read (another process may have acted meanwhile), and never twice at once. An engine that
was called is read again before anything is believed. Everything else is waiting, for a time that is said.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from llmservice.api import Desired, PauseMode, Reason
from llmservice.domain import aggregate
from llmservice.domain.fleet import NEVER, ControlCall, Failure, Obstacle, Sight, State, TargetState
from llmservice.domain.policy import Wanted

FRESH_SECONDS = 1.0
"""A control call follows a read that is at most this old."""
FIRST_CONTACT_SECONDS = 1.0
"""How long an engine whose container is not ready may leave its first read unanswered and still count as starting."""


@dataclass(frozen=True, slots=True)
class Read:
    """Ask the engine for its state; also for its traits where they are not known."""

    identify: bool


@dataclass(frozen=True, slots=True)
class Until:
    """Nothing to do before this time, unless something changes."""

    at: float


class Prepare(Enum):
    """A pause is due, and something has to be in place before it is sent."""

    STORE_PAUSE = "store the pause"
    """The object must say that a ``wait`` is not answered."""
    ADD_FINALIZER = "add the finalizer"
    """The object must not go away before its engines run again."""


Action: TypeAlias = Read | ControlCall | Prepare | Until


def next_action(wanted: Wanted, state: TargetState, now: float) -> Action:
    """What to do with this target at ``now``."""
    target = state.target
    if state.open_call is not None or target.key.url is None or not target.started or state.condemned is not None:
        return Until(NEVER)
    if is_read_due(wanted, state, now):
        return Read(identify=state.traits is None or state.traits.sleep_mode is None)
    call = due_call(wanted, state)
    if call is None or not wanted.may_call:
        return Until(state.next_read_at)
    if call.aim is Desired.PAUSED and not wanted.is_held:
        return Prepare.ADD_FINALIZER
    at = earliest_call(wanted, state, call)
    if now < at:
        return Until(min(at, state.next_read_at))
    if now - state.read_at > FRESH_SECONDS:
        return Read(identify=False)
    if call.is_wait and not wanted.wait_stored:
        return Prepare.STORE_PAUSE
    return call


def may_call_off(wanted: Wanted, state: TargetState) -> bool:
    """Whether the drain that is under way is no longer wanted, and the engine lets another call overtake it.

    Our call is then given up, which the engine does not notice; its late answer is never seen."""
    if state.open_call is None or not state.open_call.call.is_wait or not wanted.may_call:
        return False
    if state.traits is None or not state.traits.can_overtake:
        return False
    is_abort_wanted = wanted.effective is Desired.PAUSED and wanted.pause.mode is PauseMode.ABORT
    return wanted.effective is Desired.RUNNING or is_abort_wanted


def is_read_due(wanted: Wanted, state: TargetState, now: float) -> bool:
    """Whether the target was not asked since the present spec was seen, or its time has come."""
    return state.asked_object_generation < wanted.object_generation or now >= state.next_read_at


def difference(wanted: Wanted, state: TargetState) -> ControlCall | None:
    """The call that would make the engine as it should be, by the last valid read; None if it is, or must not be called."""
    match wanted.effective, state.sight:
        case Desired.PAUSED, Sight.RUNNING | Sight.INCONSISTENT:
            return ControlCall(wanted.pause)
        case Desired.PAUSED, Sight.PAUSED if is_draining(wanted, state) or not aggregate.is_proven(wanted, state):
            return ControlCall(wanted.pause)
        case Desired.RUNNING, Sight.PAUSED | Sight.INCONSISTENT:
            return ControlCall(None)
        case _:
            return None


def due_call(wanted: Wanted, state: TargetState) -> ControlCall | None:
    """:func:`difference`, where it rests on a valid last read of the present spec and the engine can do it."""
    if state.failures or state.read_object_generation < wanted.object_generation or unsupported(wanted, state):
        return None
    return difference(wanted, state)


def is_draining(wanted: Wanted, state: TargetState) -> bool:
    """An engine says paused as soon as a pause begins: with an unanswered ``wait`` it may still be working."""
    may_work = state.undrained or (wanted.wait_unanswered and not state.drained)
    return wanted.effective is Desired.PAUSED and state.sight is Sight.PAUSED and may_work


def unsupported(wanted: Wanted, state: TargetState) -> Failure | None:
    """Why the pause that is due cannot be asked of this engine's version; None if it can, or none is due."""
    call, traits = difference(wanted, state), state.traits
    if call is None or call.pause is None or traits is None:
        return None
    mode, name = call.pause.mode, f"{traits.product} {traits.version or 'of unknown version'}"
    if mode not in traits.modes:
        return Failure(
            Obstacle.REFUSED,
            "unsupported",
            f"{name} cannot pause with mode {mode}; nothing was sent. Use a newer {traits.product}, or another "
            "spec.pause.mode, which takes effect at the next pause where other engines are paused already",
            Reason.UNSUPPORTED_MODE,
        )
    if is_draining(wanted, state) and not traits.confirms_wait:
        return Failure(
            Obstacle.REFUSED,
            "unconfirmed",
            f"the answer to a pause with mode wait was lost, and {name} cannot say whether requests still run. "
            "Set spec.generation to running and pause again",
            Reason.UNSUPPORTED_MODE,
        )
    return None


def earliest_call(wanted: Wanted, state: TargetState, call: ControlCall) -> float:
    """When ``call`` may be sent: later than now only after a setback, or after a refusal of the very same thing."""
    gate_opens_at = state.may_pause_at if call.aim is Desired.PAUSED else -NEVER
    refusal = state.refusal
    if refusal is not None and refusal.call == call and is_standing(wanted, state):
        return max(refusal.at + REFUSED_RETRY_SECONDS, gate_opens_at)
    return max(state.next_call_at, gate_opens_at)


REFUSED_RETRY_SECONDS = 60.0
"""A call that was refused for good is tried again this often while nothing changes."""


def is_standing(wanted: Wanted, state: TargetState) -> bool:
    """Whether the last refusal still applies: same spec, same answer to the read. (Another container is another target.)"""
    refusal = state.refusal
    return refusal is not None and (refusal.object_generation, refusal.sight) == (wanted.object_generation, state.sight)


def state_of(wanted: Wanted, state: TargetState, now: float) -> State:
    """The target's state as people see it; the first that fits."""
    target = state.target
    if not target.started or _is_not_listening_yet(state, now):
        return State.STARTING
    if state.sight is Sight.SLEEPING and not state.failures:
        return State.SLEEPING
    if state.open_call is not None:
        return State.PAUSING if state.open_call.call.aim is Desired.PAUSED else State.RESUMING
    if state.condemned or target.port_missing or (state.failure and state.failure.obstacle is Obstacle.REFUSED):
        return State.FAILED
    if state.failures >= 2 or (state.sight is None and now >= state.first_seen + wanted.request_timeout):
        return State.UNREACHABLE
    match state.sight:
        case Sight.INCONSISTENT:
            return State.FAILED
        case Sight.PAUSED:
            is_under_way = wanted.effective is Desired.PAUSED and not aggregate.is_proven(wanted, state)
            return State.PAUSING if is_draining(wanted, state) or is_under_way else State.PAUSED
        case Sight.RUNNING:
            return State.RUNNING
        case Sight.SLEEPING:
            return State.SLEEPING
        case None:
            return State.UNREAD


def next_change_at(wanted: Wanted, state: TargetState, now: float) -> float:
    """When :func:`state_of` will change by time alone; NEVER if it will not."""
    if state.sight is not None or not state.target.started:
        return NEVER
    times = (state.first_seen + FIRST_CONTACT_SECONDS, state.first_seen + wanted.request_timeout)
    return min((at for at in times if at > now), default=NEVER)


def _is_not_listening_yet(state: TargetState, now: float) -> bool:
    if state.failure is not None and state.failure.obstacle is Obstacle.STARTING:
        return True
    if state.target.ready or state.target.port_missing:
        return False
    if state.failure is not None and state.failure.obstacle is Obstacle.NOT_LISTENING:
        return True
    return _is_unasked(state) and now < state.first_seen + FIRST_CONTACT_SECONDS


def _is_unasked(state: TargetState) -> bool:
    return not state.target.ready and state.sight is None and not state.failures
