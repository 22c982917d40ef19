"""The pure core against a small world in which everything goes wrong, and simple properties of its parts.

`LLMSERVICE_SOAK=1` runs many more and longer examples, chosen anew each time.
"""

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from llmservice.api import STALLED_REASONS, Desired, LabelSelector, Reason
from llmservice.domain import observe, ownership
from llmservice.domain.fleet import State, TargetKey, Traits
from llmservice.domain.report import Circumstances, Standing, counts, decide
from llmservice.runtime.slots import Slot, Slots
from llmservice_testing.domain import make_target

from .world import VERSIONS, Behaviour, Engine, Pod, World, promise

SOAK = os.environ.get("LLMSERVICE_SOAK") == "1"
PODS = ("a", "b", "c")

pods = st.sampled_from(PODS)
versions = st.sampled_from([VERSIONS[0], VERSIONS[0], *VERSIONS])
drains = st.sampled_from([0.0, 0.5, 8.0, 45.0])
desires = st.sampled_from(["paused", "paused", "running", "running", None])
modes = st.sampled_from(["abort", "wait", "wait", "keep"])
durations = st.sampled_from([0.0, 0.015, 0.03, 0.06, 0.5, 1.1, 4.0, 11.0, 33.0])


@dataclass(frozen=True)
class Happening:
    """A method of Fleet and its arguments. One rule draws them all, so that every example is a rich mixture."""

    what: str
    how: dict[str, Any]


def happening(what: str, **how: st.SearchStrategy[Any]) -> st.SearchStrategy[Happening]:
    """One kind of thing that happens."""
    return st.builds(Happening, st.just(what), st.fixed_dictionaries(how))


spec_changes = happening("the_spec_changes", desired=desires, mode=modes)
happenings = st.one_of(
    happening("a_pod_comes", pod=pods, traits=versions, ready=st.booleans(), listens=st.booleans(), drain=drains),
    happening("a_pod_goes", pod=pods),
    happening("a_container_restarts", pod=pods),
    happening("readiness_changes", pod=pods, ready=st.booleans(), listens=st.booleans()),
    happening(
        "an_engine_behaves_otherwise",
        pod=pods,
        behaviour=st.sampled_from(list(Behaviour)),
        latency=st.sampled_from([0.01, 0.01, 0.8, 4.9, 6.0]),
    ),
    happening("its_ranks_disagree", pod=pods),
    happening("somebody_pauses_it", pod=pods, drain=drains),
    happening("somebody_resumes_it", pod=pods),
    happening("it_sleeps_or_wakes", pod=pods, is_asleep=st.booleans()),
    spec_changes,
    spec_changes,
    spec_changes,
    happening("the_spec_is_touched"),
    happening("the_api_server_fails_or_recovers", answers=st.booleans()),
    happening("the_view_of_the_pods_breaks_or_is_complete", is_complete=st.booleans()),
    happening("the_operator_crashes"),
)


class Fleet(RuleBasedStateMachine):
    """One LLMService whose spec, pods, engines, API server and operator change as they like."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.made = 0

    @initialize(fleet=st.lists(st.tuples(versions, drains), min_size=1, max_size=3), desired=desires, mode=modes)
    def a_fleet_is_there(self, fleet: list[tuple[Traits, float]], desired: str | None, mode: str) -> None:
        for pod, (traits, drain) in zip(PODS, fleet, strict=False):
            self.a_pod_comes(pod, traits, ready=True, listens=True, drain=drain)
        self.world.advance(1.0)
        self.world.respec(desired, mode)

    @rule(happening=happenings, then=durations)
    def something_happens(self, happening: Happening, then: float) -> None:
        getattr(self, happening.what)(**happening.how)
        self.world.advance(then)

    @rule()
    def all_is_mended(self) -> None:
        self._comes_to_rest()

    def teardown(self) -> None:
        self._comes_to_rest()

    # The world

    def a_pod_comes(self, pod: str, traits: Traits, ready: bool, listens: bool, drain: float) -> None:
        if pod in self.world.pods:
            return
        self.made += 1
        engine = Engine(f"containerd://{pod}/{self.made * 1000}", traits, drain_seconds=drain)
        self.world.pods[pod] = Pod(pod, engine, ready=ready, listens=listens)
        self.world.operator.see(pod)

    def a_pod_goes(self, pod: str) -> None:
        if self.world.pods.pop(pod, None) is not None:
            self.world.operator.see(pod)

    def a_container_restarts(self, pod: str) -> None:
        if pod in self.world.pods:
            self.world.restart(self.world.pods[pod])

    def readiness_changes(self, pod: str, ready: bool, listens: bool) -> None:
        if found := self.world.pods.get(pod):
            found.ready, found.listens = ready, listens
            self.world.operator.see(pod)

    def an_engine_behaves_otherwise(self, pod: str, behaviour: Behaviour, latency: float) -> None:
        if found := self.world.pods.get(pod):
            found.engine.behaviour, found.engine.latency = behaviour, latency

    def its_ranks_disagree(self, pod: str) -> None:
        if found := self.world.pods.get(pod):
            found.engine.disagrees = True

    def somebody_pauses_it(self, pod: str, drain: float) -> None:
        if found := self.world.pods.get(pod):
            found.engine.is_paused, found.engine.is_ours = True, False
            found.engine.works_until = self.world.now + drain

    def somebody_resumes_it(self, pod: str) -> None:
        if found := self.world.pods.get(pod):
            found.engine.is_paused, found.engine.is_ours = False, False

    def it_sleeps_or_wakes(self, pod: str, is_asleep: bool) -> None:
        if found := self.world.pods.get(pod):
            if found.engine.is_asleep and not is_asleep:
                self.somebody_resumes_it(pod)  # /wake_up resumes, too
            if is_asleep and not found.engine.is_asleep:
                found.engine.asleep_since = self.world.now
            found.engine.is_asleep = is_asleep

    # The object, the API server and the operator

    def the_spec_changes(self, desired: str | None, mode: str) -> None:
        self.world.respec(desired, mode)

    def the_spec_is_touched(self) -> None:
        self.world.touch()

    def the_api_server_fails_or_recovers(self, answers: bool) -> None:
        self.world.api_answers = answers

    def the_view_of_the_pods_breaks_or_is_complete(self, is_complete: bool) -> None:
        self.world.view_is_complete = is_complete

    def the_operator_crashes(self) -> None:
        self.world.crash()

    # What is promised

    def _comes_to_rest(self) -> None:
        """R20, R14 and R13: after the faults every fleet comes to rest, says so, and is as it says."""
        world = self.world
        world.mend()
        world.advance(200)
        stored = world.stored
        conditions = {each.type: each for each in stored.conditions}
        promise(stored.observed_generation == world.object_generation, "R20", "the status is of an older spec")
        is_ready, is_stalled = conditions["Ready"].status == "True", "Stalled" in conditions
        promise(is_ready or is_stalled, "R20", f"it does not come to rest: {conditions['Ready']}")
        self._is_as_it_says()
        posts, writes = world.posts, world.writes
        world.advance(100)
        promise(world.posts == posts, "R14", f"{world.posts - posts} control calls at rest")
        promise(world.writes == writes, "R14", f"{world.writes - writes} writes at rest")

    def _is_as_it_says(self) -> None:
        world = self.world
        needs_a_person = {entry.pod for entry in world.stored.target_states if entry.reason is not None}
        for uid, pod in world.pods.items():
            if uid in needs_a_person:
                continue
            generates = pod.engine.generates(world.now)
            if world.desired is not None:
                promise(generates is (world.desired == "running"), "R13", f"{uid} is not {world.desired} at rest")
            promise(world.stored.paused is not True or not generates, "R18", f"{uid} generates, and paused is true")


TestFleet = Fleet.TestCase
TestFleet.settings = settings(
    derandomize=not SOAK,
    database=None,
    deadline=None,
    max_examples=5000 if SOAK else 200,
    stateful_step_count=60 if SOAK else 25,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    print_blob=True,
)

quick = settings(derandomize=not SOAK, database=None, deadline=None, max_examples=2000 if SOAK else 200)

# Selectors

keys = st.sampled_from(["app", "tier", "llmservice.io/part"])
values = st.sampled_from(["", "x", "y", "a-b.c_d"])
labels = st.dictionaries(keys, values)
requirements = st.one_of(
    st.builds(
        lambda key, operator, chosen: {"key": key, "operator": operator, "values": chosen},
        keys,
        st.sampled_from(["In", "NotIn"]),
        st.lists(values, min_size=1, max_size=3),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator}, keys, st.sampled_from(["Exists", "DoesNotExist"])
    ),
)
selectors = st.builds(
    lambda matched, expressions: LabelSelector.model_validate(
        {"matchLabels": matched, "matchExpressions": expressions}
    ),
    labels,
    st.lists(requirements, max_size=3),
).filter(lambda selector: selector.match_labels or selector.match_expressions)

_PART = re.compile(
    r"(?P<absent>!)?(?P<key>[^\s=,!]+)(?:=(?P<value>[^,]*)| (?P<operator>in|notin) \((?P<values>[^)]*)\))?(?:,|$)"
)


def api_server_selects(query: str, of: Mapping[str, str]) -> bool:
    """What the API server makes of a ``labelSelector``, by the grammar of k8s.io/apimachinery/pkg/labels."""
    position, selected = 0, True
    while position < len(query):
        part = _PART.match(query, position)
        assert part is not None, f"not understood: {query[position:]!r}"
        position = part.end()
        value, among = of.get(part["key"]), (part["values"] or "").split(",")
        if part["absent"]:
            selected &= value is None
        elif part["value"] is not None:
            selected &= value == part["value"]
        elif part["operator"] == "in":
            selected &= value is not None and value in among
        elif part["operator"] == "notin":
            selected &= value is None or value not in among
        else:
            selected &= value is not None
    return selected


@quick
@given(selectors, labels)
def test_the_operator_and_the_api_server_select_the_same_pods(selector: LabelSelector, of: dict[str, str]) -> None:
    assert ownership.selects(selector, of) is api_server_selects(ownership.to_query(selector), of)


# Backoff

times = st.floats(min_value=0, max_value=1e9)


@quick
@given(st.integers(1, 10**6), st.text(max_size=8), times)
def test_r4_every_backoff_is_between_one_and_ten_seconds(attempt: int, uid: str, now: float) -> None:
    key = TargetKey(uid, "c", "8000", "http://x")
    assert 1.0 <= observe.backoff(attempt, key, now) <= 10.0


@quick
@given(st.integers(1, 20), times)
def test_r4_a_later_attempt_never_waits_less(attempt: int, now: float) -> None:
    key = TargetKey("u", "c", "8000", "http://x")
    assert observe.backoff(attempt, key, now) <= observe.backoff(attempt + 1, key, now)


def test_r4_the_waits_of_a_fleet_are_spread() -> None:
    waits = {observe.backoff(1, TargetKey(f"u{number}", "c", "8000", "http://x"), 5.0) for number in range(100)}
    assert len(waits) > 90
    assert max(waits) - min(waits) > 0.2


# Conditions

standings = st.builds(
    Standing,
    state=st.sampled_from(list(State)),
    confirmed=st.booleans(),
    answered=st.booleans(),
    reason=st.none() | st.sampled_from([*STALLED_REASONS, Reason.ENGINE_DIED]),
    inconsistent=st.booleans(),
    retrying=st.booleans(),
)
tallies = st.dictionaries(standings, st.integers(1, 1000), max_size=5)
effectives = st.none() | st.sampled_from(list(Desired))


@quick
@given(effectives, tallies, st.booleans())
def test_there_is_a_decision_for_every_fleet_and_it_keeps_its_promises(
    effective: Desired | None, tally: dict[Standing, int], claimed: bool
) -> None:
    decision = decide(effective, tally, Circumstances(claimed=claimed))
    expected = [each for each in tally if each.is_expected]
    assert not (decision.stalled and decision.reconciling)
    assert decision.stalled is None or decision.ready == ("False", decision.stalled)
    assert decision.stalled is None or decision.stalled in STALLED_REASONS
    assert (decision.ready[0] == "False") is bool(decision.stalled or decision.reconciling)
    if decision.paused[0] == "True":
        assert expected
        assert all(each.confirmed and each.state in (State.PAUSED, State.SLEEPING) for each in expected)
    if decision.paused[0] == "False":
        assert expected
        assert all(each.confirmed and each.state is State.RUNNING for each in expected)
    if decision.ready[1] is Reason.IN_DESIRED_STATE and not any(each.inconsistent for each in expected):
        assert decision.paused[0] == {Desired.PAUSED: "True", Desired.RUNNING: "False"}[Desired(effective or "")]


@quick
@given(effectives, tallies, st.booleans(), st.integers(2, 50))
def test_how_many_stand_equally_decides_nothing(
    effective: Desired | None, tally: dict[Standing, int], claimed: bool, factor: int
) -> None:
    many = {standing: number * factor for standing, number in tally.items()}
    assert decide(effective, many, Circumstances(claimed=claimed)) == decide(
        effective, tally, Circumstances(claimed=claimed)
    )


@quick
@given(tallies)
def test_each_target_is_counted_in_one_state(tally: dict[Standing, int]) -> None:
    number = counts(tally)
    unread = sum(count for standing, count in tally.items() if standing.state is State.UNREAD)
    assert number.total == sum(tally.values())
    assert sum(number.model_dump(exclude={"total"}).values()) + unread == number.total


# Slots


@quick
@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["stand", "schedule", "pop", "replace"]), st.integers(0, 9)))
)
def test_tally_and_order_of_slots_are_those_made_anew(steps: list[tuple[int, str, int]]) -> None:
    def fresh(place: int) -> Slot:
        return Slot((str(place), "8000"), observe.discovered(make_target(str(place)), 0.0))

    held = Slots()
    for place in range(4):
        held.put(fresh(place))
    kinds = [Standing(state, True, True, None, False, False) for state in State]
    for place, what, number in steps:
        slot = held.get((str(place), "8000"))
        assert slot is not None
        if what == "stand":
            held.stand(slot, kinds[number % len(kinds)])
        elif what == "schedule":
            held.schedule(slot, float(number))
        elif what == "pop":
            due = {each for each in held if each.due <= number}
            assert set(held.pop_due(float(number))) == due
        else:
            held.remove(slot)
            held.put(fresh(place))
        assert held.tally == Counter(each.standing for each in held if each.standing is not None)
        assert held.next_due() == min(each.due for each in held)
