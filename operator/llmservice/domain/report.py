"""From what is known about every target to ``status`` and its conditions.

A fleet of thousands changes one target at a time, so the report is cut in two. :func:`standing` says of one target what
counts for the fleet; equal standings are counted together, and :func:`decide` draws the conditions from those counts
alone, in time that does not grow with the fleet. :func:`status` adds the words and the list of targets, and is called only
when something is to be written.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from llmservice import api
from llmservice.api import STALLED_REASONS, Condition, ConditionType, Desired, LastPause, LLMServiceStatus, Reason
from llmservice.domain import step
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
    retrying: bool
    """The last call failed and will be tried again."""

    @property
    def is_expected(self) -> bool:
        """Whether the fleet waits for this target."""
        return self.state is not State.STARTING

    def is_effective(self, effective: Desired | None) -> bool:
        """Whether it is confirmed to be as the fleet should be."""
        match effective:
            case Desired.PAUSED:
                return self.confirmed and self.state in (State.PAUSED, State.SLEEPING)
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
        retrying=reason is None and (state.failures > 0 or state.setback is not None) and shown is not State.STARTING,
    )


def is_everything_answered(tally: Tally) -> bool:
    """Whether each target was read or failed since the present spec was seen."""
    return all(each.answered for each in tally)


def decide(effective: Desired | None, tally: Tally, *, claimed: bool) -> Decision:
    """The conditions of a fleet. ``claimed``: another LLMService owns some of the selected pods."""
    expected = [each for each in tally if each.is_expected]
    reasons = {each.reason for each in tally if each.is_expected or each.reason is Reason.ENGINE_DIED} - {None}
    if Reason.ENGINE_DIED in reasons:
        reasons.add(Reason.ENGINE_ERROR)
    if claimed:
        reasons.add(Reason.PODS_CLAIMED)
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
        return "True", Reason.ALL_PAUSED
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


@dataclass(frozen=True, slots=True)
class Fleet:
    """All that a report is made of."""

    wanted: Wanted
    members: tuple[tuple[TargetState, Standing], ...]
    tally: Tally
    claimed_by: Mapping[str, str]
    """Names of selected pods that another LLMService owns, and that one's name."""
    pause: LastPause | None
    """How the present pause is asked."""
    spec_pause_differs: bool
    """``spec.pause`` was changed during the present pause."""

    def decision(self) -> Decision:
        """The conditions of this fleet."""
        return decide(self.wanted.effective, self.tally, claimed=bool(self.claimed_by))


def status(fleet: Fleet, before: LLMServiceStatus, timestamp: str) -> LLMServiceStatus:
    """The status to publish. ``timestamp`` (RFC 3339) is the transition time of every condition whose status differs from
    ``before``; the others keep theirs."""
    decision, wanted = fleet.decision(), fleet.wanted
    words = _Words(fleet)
    conditions = [
        (ConditionType.READY, *decision.ready, words.ready(decision)),
        (ConditionType.PAUSED, *decision.paused, words.of_targets()),
    ]
    if decision.reconciling is not None:
        conditions.append((ConditionType.RECONCILING, "True", decision.reconciling, words.ready(decision)))
    if decision.stalled is not None:
        conditions.append((ConditionType.STALLED, "True", decision.stalled, words.ready(decision)))
    paused = {"True": True, "False": False, "Unknown": None}[decision.paused[0]]
    return LLMServiceStatus(
        observed_generation=wanted.object_generation,
        paused=paused,
        targets=counts(fleet.tally),
        target_states=_target_states(fleet),
        last_pause=fleet.pause,
        conditions=tuple(
            _condition(before, kind, truth, reason, message, wanted.object_generation, timestamp)
            for kind, truth, reason, message in conditions
        ),
    )


def condition(status: LLMServiceStatus, kind: ConditionType) -> Condition | None:
    """The condition of this type, if the status has it."""
    return next((each for each in status.conditions if each.type == kind), None)


def _condition(
    before: LLMServiceStatus,
    kind: ConditionType,
    truth: Truth,
    reason: Reason,
    message: str,
    object_generation: int,
    timestamp: str,
) -> Condition:
    earlier = condition(before, kind)
    unchanged = earlier is not None and earlier.status == truth
    return Condition(
        type=kind,
        status=truth,
        observed_generation=object_generation,
        last_transition_time=earlier.last_transition_time if earlier is not None and unchanged else timestamp,
        reason=reason,
        message=message,
    )


def _target_states(fleet: Fleet) -> tuple[api.TargetStatus, ...]:
    def rank(member: tuple[TargetState, Standing]) -> tuple[int, str, str]:
        state, stands = member
        urgency = 0 if stands.state is State.FAILED else 1 if not stands.is_effective(fleet.wanted.effective) else 2
        return urgency, state.target.pod, state.target.key.port

    listed = heapq.nsmallest(api.MAX_TARGET_STATES, fleet.members, key=rank)
    return tuple(_target_status(fleet.wanted, state, stands) for state, stands in listed)


def _target_status(wanted: Wanted, state: TargetState, stands: Standing) -> api.TargetStatus:
    reason: Reason | None = stands.reason
    message: str | None = None
    if reason is not None:
        problem = trouble(wanted, state)
        message = problem.message if problem is not None else None
    elif stands.inconsistent:
        reason, message = Reason.INCONSISTENT, state.words
    elif stands.state is State.UNREACHABLE:
        reason = Reason.TARGETS_UNREACHABLE
        message = state.failure.message if state.failure is not None else "no answer yet"
    elif stands.retrying:
        last = state.failure or state.setback
        reason, message = Reason.PROGRESSING_WITH_RETRY, last.message if last is not None else None
    return api.TargetStatus(
        pod=state.target.pod,
        pod_uid=state.target.key.pod_uid,
        url=state.target.key.url,
        state=stands.state,
        version=(state.traits.version or None) if state.traits is not None else None,
        reason=reason,
        message=message,
    )


@dataclass(frozen=True, slots=True)
class _Words:
    """The sentences of the conditions. They name the first pod concerned, and nothing that changes at rest."""

    fleet: Fleet

    def ready(self, decision: Decision) -> str:
        reason = decision.ready[1]
        if reason is Reason.PODS_CLAIMED:
            pod, owner = next(iter(self.fleet.claimed_by.items()))
            more = _and_more(len(self.fleet.claimed_by))
            return (
                f"{pod}{more}: selected by the older LLMService {owner} too, which owns it. Make the selectors disjoint"
            )
        if decision.stalled is not None:
            reasons = (Reason.ENGINE_DIED, reason) if reason is Reason.ENGINE_ERROR else (reason,)
            return self._first(lambda each: each.reason in reasons)
        if reason is Reason.OBSERVING:
            return self._observing()
        if reason is Reason.NO_PODS:
            return "No pod matches spec.selector"
        if reason is Reason.TARGETS_UNREACHABLE:
            return self._first(lambda each: each.state is State.UNREACHABLE)
        if reason is Reason.IN_DESIRED_STATE:
            return self._in_desired_state()
        return self._progressing(decision)

    def of_targets(self) -> str:
        """How many targets are in which state."""
        number = counts(self.fleet.tally)
        if number.total == 0:
            return "No pod matches spec.selector"
        by_state = number.model_dump(exclude={"total"})
        parts = [f"{count} {state}" for state, count in by_state.items() if count]
        unread = number.total - sum(by_state.values())
        if unread:
            parts.append(f"{unread} not read yet")
        return f"Of {_targets(number.total)}: " + ", ".join(parts)

    def _observing(self) -> str:
        paused = counts(self.fleet.tally).paused
        if paused:
            return f"spec.generation is absent: {_targets(paused)} paused, and nobody will resume them"
        return "spec.generation is absent: states are reported, and no engine is called"

    def _in_desired_state(self) -> str:
        effective, number = self.fleet.wanted.effective, counts(self.fleet.tally)
        expected = number.total - number.starting
        sentence = f"{'Every one of ' if expected > 1 else ''}{_targets(expected)} confirmed {effective}"
        if number.sleeping:
            sentence += f", {number.sleeping} of them asleep"
        if number.starting:
            sentence += f"; {number.starting} starting"
        if self.fleet.spec_pause_differs:
            sentence += ". spec.pause was changed during this pause and applies to the next one"
        return sentence

    def _progressing(self, decision: Decision) -> str:
        effective = self.fleet.wanted.effective
        number = counts(self.fleet.tally)
        done = sum(
            count for each, count in self.fleet.tally.items() if each.is_expected and each.is_effective(effective)
        )
        sentence = f"{done} of {_targets(number.total - number.starting)} confirmed {effective}"
        if number.starting:
            sentence += f"; {number.starting} starting"
        if decision.reconciling is Reason.PROGRESSING_WITH_RETRY:
            sentence += f". Trying again: {self._first(lambda each: each.retrying)}"
        return sentence

    def _first(self, is_concerned: Callable[[Standing], bool]) -> str:
        """Of the targets concerned: the first pod's name, how many more there are, and the engine's own words."""
        concerned = [member for member in self.fleet.members if is_concerned(member[1])]
        state, stands = min(concerned, key=lambda member: (member[0].target.pod, member[0].target.key.port))
        entry = _target_status(self.fleet.wanted, state, stands)
        return f"{entry.pod}{_and_more(len(concerned))}: {entry.message}"


def _and_more(number: int) -> str:
    return f" (and {number - 1} more)" if number > 1 else ""


def _targets(number: int) -> str:
    return f"{number} target" if number == 1 else f"{number} targets"
