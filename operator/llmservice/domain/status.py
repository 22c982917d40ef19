"""The whole of ``status``: conditions with their sentences, counts, the list of targets, and the clocks.

Made only when something may have to be written. Sentences name the first pod concerned, and nothing that changes at rest.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from llmservice import api
from llmservice.api import Condition, ConditionType, Desired, LastPause, LLMServiceStatus, Reason
from llmservice.domain import clocks
from llmservice.domain.fleet import Obstacle, Sight, State, TargetState
from llmservice.domain.policy import Wanted
from llmservice.domain.report import (
    Circumstances,
    Decision,
    Standing,
    Tally,
    Truth,
    counts,
    decide,
    is_settled,
    trouble,
)

PAUSED_TOO_LONG = "Paused for longer than spec.maxPausedSeconds"
"""How Ready's message says that a pause goes on beyond its limit."""


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
    around: Circumstances
    max_paused: int | None
    """``spec.maxPausedSeconds`` where the pause has lasted longer and goes on."""
    verify: str | None
    """The verify annotation whose full fresh read is done."""
    hindrance: str | None = None
    """Why the object's finalizers could not be written, which holds a pause."""

    def decision(self) -> Decision:
        """The conditions of this fleet."""
        return decide(self.wanted.effective, self.tally, self.around)


def compose(fleet: Fleet, before: LLMServiceStatus, timestamp: str) -> LLMServiceStatus:
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
    any_paused = any(each.is_effective(Desired.PAUSED) for each in fleet.tally)
    pause_clock = clocks.pause_clock(before, wanted.object_generation, wanted.desired, timestamp, any_paused=any_paused)
    is_moving = any(each.is_expected for each in fleet.tally) and not is_settled(decision, fleet.tally)
    progress_clock = clocks.progress_clock(before, wanted.object_generation, timestamp, is_moving=is_moving)
    return LLMServiceStatus(
        observed_generation=wanted.object_generation,
        paused=paused,
        targets=counts(fleet.tally),
        target_states=_target_states(fleet),
        last_pause=fleet.pause,
        paused_replicas=_paused_replicas(fleet),
        paused_since=pause_clock.since,
        paused_since_generation=pause_clock.object_generation,
        progressing_since=progress_clock.since,
        progressing_since_generation=progress_clock.object_generation,
        last_handled_verify=fleet.verify,
        conditions=tuple(
            _condition(before, kind, truth, reason, message, wanted.object_generation, timestamp)
            for kind, truth, reason, message in conditions
        ),
    )


def _paused_replicas(fleet: Fleet) -> str | None:
    """Of the aggregate, if the fleet is one: the replicas for which the present pause is known to be answered."""
    if fleet.wanted.effective is not Desired.PAUSED:
        return None
    proven = (
        state.replicas
        for state, stands in fleet.members
        if stands.aggregate and state.sight is Sight.PAUSED and stands.is_effective(Desired.PAUSED)
    )
    return next(proven, fleet.wanted.paused_replicas)


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
    elif _tells_that_it_starts(state, stands) and state.failure is not None:
        reason, message = Reason.TARGETS_STARTING, state.failure.message
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


def _tells_that_it_starts(state: TargetState, stands: Standing) -> bool:
    is_told = state.failure is not None and state.failure.obstacle is Obstacle.STARTING
    return is_told and stands.state is State.STARTING


@dataclass(frozen=True, slots=True)
class _Words:
    """The sentences of the conditions. They name the first pod concerned, and nothing that changes at rest."""

    fleet: Fleet

    def ready(self, decision: Decision) -> str:
        sentence = self._ready(decision)
        if self.fleet.max_paused is not None:
            sentence += f". {PAUSED_TOO_LONG} ({self.fleet.max_paused} s)"
        return sentence

    def _ready(self, decision: Decision) -> str:
        reason = decision.ready[1]
        if reason is Reason.PODS_CLAIMED:
            pod, owner = next(iter(self.fleet.claimed_by.items()))
            more = _and_more(len(self.fleet.claimed_by))
            return (
                f"{pod}{more}: selected by the older LLMService {owner} too, which owns it. Make the selectors disjoint"
            )
        if reason is Reason.PAUSE_EXPIRED:
            return (
                "The pause lasted longer than spec.maxPausedSeconds and was ended; change the spec to pause again. "
                + self.of_targets()
            )
        if reason is Reason.PROGRESS_DEADLINE_EXCEEDED:
            return "Not done within spec.progressDeadlineSeconds, still trying: " + self._unfinished(decision)
        if decision.stalled is not None:
            reasons = (Reason.ENGINE_DIED, reason) if reason is Reason.ENGINE_ERROR else (reason,)
            return self._first(lambda each: each.reason in reasons)
        if reason is Reason.OBSERVING:
            return self._observing()
        if reason is Reason.NO_PODS:
            return "No pod matches spec.selector"
        if reason is Reason.IN_DESIRED_STATE:
            return self._in_desired_state()
        return self._unfinished(decision)

    def _unfinished(self, decision: Decision) -> str:
        if any(each.state is State.UNREACHABLE for each in self.fleet.tally):
            return self._first(lambda each: each.state is State.UNREACHABLE)
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
        told = next(
            (state.failure for state, stands in self.fleet.members if _tells_that_it_starts(state, stands)), None
        )
        if told is not None:
            sentence += f": {told.message}"
        if self.fleet.hindrance is not None:
            sentence += f". {self.fleet.hindrance}"
        if any(each.retrying for each in self.fleet.tally):
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
