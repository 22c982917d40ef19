"""From what is known about every target to the conditions of the fleet, without words.

A fleet of thousands changes one target at a time. :func:`standing` says of one target what counts for the fleet; equal
standings are counted together, and :func:`decide` draws the conditions from those counts alone, in time that does not grow
with the fleet. :mod:`llmservice.domain.status` adds the words when something is to be written.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from llmservice import api
from llmservice.api import STALLED_REASONS, Desired, Reason
from llmservice.domain import aggregate, step
from llmservice.domain.fleet import Failure, Obstacle, Sight, State, TargetState
from llmservice.domain.policy import Wanted

Truth: TypeAlias = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class Standing:
    """What of one target counts for the fleet."""

    state: State
    confirmed: bool
    """Read back since the present spec was seen."""
    answered: bool
    """Read or failed since the present spec was seen, or not to be asked at all."""
    reason: Reason | None
    """What a person has to look at."""
    inconsistent: bool
    """The ranks of this engine disagree."""
    retrying: bool
    """The last call failed and will be tried again."""
    due: bool = False
    """A control call is on its way or will be sent."""
    aggregate: bool = False
    """Its answers are about several processes at once."""
    proven: bool = True
    """False for an aggregate that says "paused" where that is not known of all its replicas."""

    @property
    def is_expected(self) -> bool:
        """Whether the fleet waits for this target."""
        return self.state is not State.STARTING

    def is_effective(self, effective: Desired | None) -> bool:
        """Whether it is confirmed to be as the fleet should be."""
        match effective:
            case Desired.PAUSED:
                return self.confirmed and self.proven and self.state in (State.PAUSED, State.SLEEPING)
            case Desired.RUNNING:
                return self.confirmed and self.state is State.RUNNING
            case None:
                return self.confirmed


Tally: TypeAlias = Mapping[Standing, int]
"""How many targets stand equally."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Reasons and states of all conditions, without words."""

    ready: tuple[Truth, Reason]
    paused: tuple[Truth, Reason]
    reconciling: Reason | None
    stalled: Reason | None


def trouble(wanted: Wanted, state: TargetState) -> Failure | None:
    """What a person has to look at for this target; None where nothing, or where time may help."""
    if state.condemned is not None:
        return state.condemned
    if state.target.port_missing:
        name = state.target.key.port
        return Failure(Obstacle.REFUSED, "no port", f"no container declares a port named {name!r}", Reason.PORT_MISSING)
    if state.failure is not None and state.failure.reason is not None:
        return state.failure
    if state.refusal is not None and step.is_standing(wanted, state):
        return state.refusal.failure
    if (hindrance := step.unsupported(wanted, state)) is not None:
        return hindrance
    if state.sight is Sight.SLEEPING and wanted.effective is Desired.RUNNING:
        words = "is asleep; wake it up with POST /wake_up, which also resumes it"
        return Failure(Obstacle.REFUSED, "asleep", words, Reason.TARGETS_SLEEPING)
    return None


def standing(wanted: Wanted, state: TargetState, now: float) -> Standing:
    """What of this target counts for the fleet at ``now``."""
    shown = step.state_of(wanted, state, now)
    reason = None
    problem = trouble(wanted, state)
    if problem is not None and (shown is not State.STARTING or problem is state.condemned):
        reason = problem.reason
    answered_for = max(state.read_object_generation, state.failed_object_generation)
    return Standing(
        state=shown,
        confirmed=state.read_object_generation >= wanted.object_generation and not state.is_called_since,
        answered=not state.target.started
        or state.target.key.url is None
        or state.condemned is not None
        or answered_for >= wanted.object_generation,
        reason=reason,
        inconsistent=state.sight is Sight.INCONSISTENT,
        due=state.open_call is not None
        or (step.due_call(wanted, state) is not None and not step.is_standing(wanted, state)),
        retrying=reason is None and (state.failures > 0 or state.setback is not None) and shown is not State.STARTING,
        aggregate=state.target.is_aggregate,
        proven=aggregate.is_proven(wanted, state),
    )


def is_everything_answered(tally: Tally) -> bool:
    """Whether each target was read or failed since the present spec was seen."""
    return all(each.answered for each in tally)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What decides conditions beside the targets."""

    claimed: bool = False
    """Another LLMService owns some of the selected pods."""
    expired: bool = False
    """The pause lasted too long and was ended."""
    overdue: bool = False
    """``progressDeadlineSeconds`` have passed since the fleet was settled."""


def is_released(tally: Tally) -> bool:
    """Whether every target that can be read runs: all that can be done for a fleet whose object is deleted."""
    beyond_reach = (State.STARTING, State.UNREACHABLE, State.FAILED, State.SLEEPING)
    return all(
        each.is_effective(Desired.RUNNING)
        or (each.answered and not each.due and not each.inconsistent and each.state in beyond_reach)
        for each in tally
    )


def decide(effective: Desired | None, tally: Tally, around: Circumstances) -> Decision:
    """The conditions of a fleet."""
    decision = _decide(effective, tally, around, overdue=False)
    if around.overdue and not is_settled(decision, tally):
        return _decide(effective, tally, around, overdue=True)
    return decision


def is_settled(decision: Decision, tally: Tally) -> bool:
    """Whether nothing more happens by itself: Ready, or Stalled (for another reason than time) with no call due."""
    if decision.ready[0] == "True":
        return True
    is_late = decision.stalled is Reason.PROGRESS_DEADLINE_EXCEEDED
    return decision.stalled is not None and not is_late and not any(each.due for each in tally)


def _decide(effective: Desired | None, tally: Tally, around: Circumstances, *, overdue: bool) -> Decision:
    expected = [each for each in tally if each.is_expected]
    reasons = {each.reason for each in tally if each.is_expected or each.reason is Reason.ENGINE_DIED} - {None}
    if Reason.ENGINE_DIED in reasons:
        reasons.add(Reason.ENGINE_ERROR)
    if around.claimed:
        reasons.add(Reason.PODS_CLAIMED)
    if around.expired:
        reasons.add(Reason.PAUSE_EXPIRED)
    if overdue:
        reasons.add(Reason.PROGRESS_DEADLINE_EXCEEDED)
    stalled = next((reason for reason in STALLED_REASONS if reason in reasons), None)
    ready = _ready(effective, tally, expected, stalled)
    reconciling = None
    if ready[1] in (Reason.TARGETS_UNREACHABLE, Reason.PROGRESSING):
        retrying = any(each.retrying for each in expected)
        reconciling = Reason.PROGRESSING_WITH_RETRY if retrying else Reason.PROGRESSING
    return Decision(ready, _paused(tally, expected), reconciling, stalled)


def _ready(
    effective: Desired | None, tally: Tally, expected: list[Standing], stalled: Reason | None
) -> tuple[Truth, Reason]:
    if stalled is not None:
        return "False", stalled
    if effective is None:
        return "True", Reason.OBSERVING
    if not tally:
        return "True", Reason.NO_PODS
    if any(each.state is State.UNREACHABLE for each in expected):
        return "False", Reason.TARGETS_UNREACHABLE
    if expected and all(each.is_effective(effective) for each in expected):
        return "True", Reason.IN_DESIRED_STATE
    return "False", Reason.PROGRESSING


def _paused(tally: Tally, expected: list[Standing]) -> tuple[Truth, Reason]:
    if not tally:
        return "Unknown", Reason.NO_PODS
    if not expected:
        return "Unknown", Reason.TARGETS_STARTING
    if any(each.inconsistent for each in expected):
        return "Unknown", Reason.INCONSISTENT
    if any(each.state in (State.UNREACHABLE, State.FAILED) for each in expected):
        return "Unknown", Reason.TARGETS_UNREACHABLE
    if all(each.is_effective(Desired.PAUSED) for each in expected):
        return "True", Reason.AGGREGATE_PAUSED if any(each.aggregate for each in expected) else Reason.ALL_PAUSED
    if all(each.is_effective(Desired.RUNNING) for each in expected):
        return "False", Reason.ALL_RUNNING
    return "Unknown", Reason.MIXED


def counts(tally: Tally) -> api.TargetCounts:
    """How many targets are in which state."""
    by_state = dict.fromkeys(State, 0)
    for each, number in tally.items():
        by_state[each.state] += number
    del by_state[State.UNREAD]
    return api.TargetCounts(total=sum(tally.values()), **{state.value: number for state, number in by_state.items()})
