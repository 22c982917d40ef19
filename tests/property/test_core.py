"""The operator in a small world in which everything goes wrong, on virtual time, and simple properties of its core.

`LLMSERVICE_SOAK=1` runs many more and longer examples, chosen anew each time.
"""

import itertools
import os
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from llmservice.api import STALLED_REASONS, VERIFY_ANNOTATION, Desired, LabelSelector, Reason
from llmservice.domain import observe, ownership
from llmservice.domain.fleet import Gate, State, TargetKey
from llmservice.domain.report import Circumstances, Standing, counts, decide
from llmservice.runtime.slots import Slot, Slots
from llmservice_testing.domain import make_target

from .engines import BUILDS, Behaviour, Build, Engine, Pod
from .judge import aim_of
from .promises import broken, promise
from .world import Api, World

SOAK = os.environ.get("LLMSERVICE_SOAK") == "1"
PODS = ("a", "b", "c")
ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3")

pods = st.sampled_from(PODS)
builds = st.sampled_from([BUILDS[0], BUILDS[1], *BUILDS])
drains = st.sampled_from([0.0, 0.5, 8.0, 45.0])
desires = st.sampled_from(["paused", "paused", "running", "running", None])
modes = st.sampled_from(["abort", "wait", "wait", "keep"])
limits = st.sampled_from([None, None, 5, 40])
whats = st.sampled_from(["warn", "resume", "resume"])
policies = st.sampled_from(["leave", "resume"])
delays = st.sampled_from([0, 0, 3])
places = st.sampled_from([0, 1])
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
    happening(
        "a_pod_comes",
        pod=pods,
        build=builds,
        ready=st.booleans(),
        listens=st.booleans(),
        drain=drains,
        is_gated=st.booleans(),
    ),
    happening("a_pod_goes", pod=pods),
    happening("a_container_restarts", pod=pods),
    happening("two_pods_swap_addresses", one=pods, other=pods),
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
    happening("the_terms_change", limit=limits, then_what=whats, deletion_policy=policies, delay=delays),
    happening("the_spec_is_touched", deadline=st.sampled_from([3, 20, 600])),
    happening("a_fresh_read_is_asked_for"),
    happening("the_object_is_deleted"),
    happening("the_api_server_fails_or_recovers", api=st.sampled_from(list(Api))),
    happening("writes_of_gates_are_refused_or_not", refused=st.booleans()),
    happening("the_view_of_the_pods_breaks_or_is_complete", is_complete=st.booleans()),
    happening("the_watches_of_pods_are_too_old"),
    happening(
        "nothing_runs_for_a_while",
        seconds=st.sampled_from([4.0, 11.0, 90.0]),
        is_suspended=st.booleans(),
        desired=desires,
    ),
    happening("an_older_service_comes_or_goes", comes=st.booleans()),
    happening("an_operator_crashes", place=places),
    happening("a_second_operator_starts", lag=st.sampled_from([0.0, 0.0, 0.03, 0.5, 3.0])),
    happening("one_of_two_operators_stops", place=places),
)


_examples = itertools.count(1)


def _tell_progress() -> None:
    """A soak says every now and then that it lives."""
    number = next(_examples)
    if SOAK and number % 20 == 0:
        sys.stdout.write(f"{number} fleets came to rest\n")
        sys.stdout.flush()


class Fleet(RuleBasedStateMachine):
    """One LLMService whose spec, pods, engines, API server and operators change as they like."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.made = 0

    @initialize(
        fleet=st.lists(st.tuples(builds, drains, st.booleans()), min_size=1, max_size=3),
        desired=desires,
        mode=modes,
        deletion_policy=policies,
        are_two=st.booleans(),
    )
    def a_fleet_is_there(
        self,
        fleet: list[tuple[Build, float, bool]],
        desired: str | None,
        mode: str,
        deletion_policy: str,
        are_two: bool,
    ) -> None:
        for pod, (build, drain, is_gated) in zip(PODS, fleet, strict=False):
            self.a_pod_comes(pod, build, ready=True, listens=True, drain=drain, is_gated=is_gated)
        if are_two:
            self.world.join()
        self.world.advance(1.0)
        self.world.respec(replace(self.world.spec, desired=desired, mode=mode, deletion_policy=deletion_policy))

    @rule(happening=happenings, then=durations)
    def something_happens(self, happening: Happening, then: float) -> None:
        getattr(self, happening.what)(**happening.how)
        self.world.advance(then)

    @rule()
    def all_is_mended(self) -> None:
        self._comes_to_rest()

    def teardown(self) -> None:
        try:
            if not broken:
                self._comes_to_rest()
        finally:
            self.world.close()
        _tell_progress()

    # The world

    def a_pod_comes(
        self, pod: str, build: Build, ready: bool, listens: bool, drain: float, is_gated: bool = False
    ) -> None:
        if pod in self.world.pods:
            return
        if len(self.world.processes) > 1 and not build.confirms_wait:
            build = BUILDS[0]
        self.made += 1
        uid = f"{pod}-{self.made}"
        used = {each.address for each in self.world.pods.values()}
        address = next(each for each in ADDRESSES if each not in used)
        engine = Engine(f"containerd://{uid}/1", build, drain_seconds=drain)
        gate = Gate(None) if is_gated else None
        self.world.add(Pod(pod, uid, engine, address, gate, ready=ready, listens=listens))

    def a_pod_goes(self, pod: str) -> None:
        if pod in self.world.pods:
            self.world.remove(pod)

    def a_container_restarts(self, pod: str) -> None:
        if pod in self.world.pods:
            self.world.restart(self.world.pods[pod])

    def two_pods_swap_addresses(self, one: str, other: str) -> None:
        if one != other and {one, other} <= self.world.pods.keys():
            self.world.swap_addresses(one, other)

    def readiness_changes(self, pod: str, ready: bool, listens: bool) -> None:
        if found := self.world.pods.get(pod):
            found.ready, found.listens = ready, listens
            found.engine.touched_at = self.world.now
            self.world.show(found)

    def an_engine_behaves_otherwise(self, pod: str, behaviour: Behaviour, latency: float) -> None:
        if found := self._engine(pod):
            found.behaviour, found.latency = behaviour, latency

    def its_ranks_disagree(self, pod: str) -> None:
        found = self._engine(pod)
        if found is not None and found.build.ranks > 1 and found.build.confirms_wait:
            found.disagrees = True

    def somebody_pauses_it(self, pod: str, drain: float) -> None:
        if found := self._engine(pod):
            found.is_paused, found.is_in_the_object = True, False
            found.asked_by.clear()
            found.works_until = self.world.now + drain

    def somebody_resumes_it(self, pod: str) -> None:
        if found := self._engine(pod):
            found.is_paused, found.is_in_the_object = False, False
            found.asked_by.clear()

    def it_sleeps_or_wakes(self, pod: str, is_asleep: bool) -> None:
        found = self._engine(pod)
        if found is not None and found.build.can_sleep:
            if found.is_asleep and not is_asleep:
                self.somebody_resumes_it(pod)  # /wake_up resumes, too
            if is_asleep and not found.is_asleep:
                found.asleep_since = self.world.now
            found.is_asleep = is_asleep

    def _engine(self, pod: str) -> Engine | None:
        """The engine of this pod, which somebody is about to touch."""
        found = self.world.pods.get(pod)
        if found is None:
            return None
        found.engine.touched_at = self.world.now
        return found.engine

    # The object, the API server and the operators

    def the_spec_changes(self, desired: str | None, mode: str) -> None:
        self.world.respec(replace(self.world.spec, desired=desired, mode=mode))

    def the_terms_change(self, limit: int | None, then_what: str, deletion_policy: str, delay: int) -> None:
        spec = replace(self.world.spec, max_paused=limit, on_max_paused=then_what)
        self.world.respec(replace(spec, deletion_policy=deletion_policy, drain_delay=delay))

    def the_spec_is_touched(self, deadline: int) -> None:
        spec = self.world.spec
        self.world.respec(replace(spec, deadline=deadline, resync=19 - spec.resync))

    def a_fresh_read_is_asked_for(self) -> None:
        self.world.ask_to_verify()

    def the_object_is_deleted(self) -> None:
        self.world.delete()

    def the_api_server_fails_or_recovers(self, api: Api) -> None:
        self.world.api = api

    def writes_of_gates_are_refused_or_not(self, refused: bool) -> None:
        self.world.gates_are_refused = refused

    def the_view_of_the_pods_breaks_or_is_complete(self, is_complete: bool) -> None:
        if self.world.view_is_complete and not is_complete:
            self.world.cut_watches()
        self.world.view_is_complete = is_complete

    def the_watches_of_pods_are_too_old(self) -> None:
        self.world.cut_watches(compact=True)

    def nothing_runs_for_a_while(self, seconds: float, is_suspended: bool, desired: str | None) -> None:
        self.world.stand_still(seconds, is_suspended=is_suspended)
        self.world.respec(replace(self.world.spec, desired=desired))  # which the operators have yet to hear

    def an_older_service_comes_or_goes(self, comes: bool) -> None:
        if comes:
            self.world.elder_comes()
        else:
            self.world.elder_goes()

    def an_operator_crashes(self, place: int) -> None:
        self.world.crash(place if place < len(self.world.processes) else 0)

    def a_second_operator_starts(self, lag: float) -> None:
        self.world.join(lag)

    def one_of_two_operators_stops(self, place: int) -> None:
        self.world.leave(place)

    # What is promised

    def _comes_to_rest(self) -> None:
        """R20, R14 and R13: after the faults every fleet comes to rest, says so, and is as it says."""
        world = self.world
        world.mend()
        world.advance(300)
        stored = world.stored
        conditions = {each.type: each for each in stored.conditions}
        promise(world.main.deleted is None, "deletionPolicy", "a deleted object is still there after a minute")
        promise(stored.observed_generation == world.main.object_generation, "R20", "the status is of an older spec")
        is_ready, stalled = conditions["Ready"].status == "True", conditions.get("Stalled")
        promise(is_ready or stalled is not None, "R20", f"it does not come to rest: {conditions['Ready']}")
        is_late = stalled is not None and stalled.reason == Reason.PROGRESS_DEADLINE_EXCEEDED
        promise(not is_late, "R20", f"it does not come to rest, and is late: {stalled}")
        promise(stored.last_handled_verify == world.main.annotations.get(VERIFY_ANNOTATION), "verify", "lost")
        self._is_as_it_says()
        before = world.posts, world.writes, world.gate_writes, world.events
        world.advance(100)
        promise(world.posts == before[0], "R14", f"{world.posts - before[0]} control calls at rest")
        promise(world.writes == before[1], "R14", f"{world.writes - before[1]} writes at rest")
        promise(world.gate_writes == before[2], "R14", f"{world.gate_writes - before[2]} writes of gates at rest")
        promise(world.events == before[3], "R14", f"{world.events - before[3]} Events at rest")

    def _is_as_it_says(self) -> None:
        world = self.world
        needs_a_person = {entry.pod for entry in world.stored.target_states if entry.reason is not None}
        aim = aim_of(world.main.service, world.wall)
        if world.elder is not None and "a" in world.pods:
            needs_a_person.add("a")
            stalled = {each.type: each.reason for each in world.stored.conditions}.get("Stalled")
            promise(stalled == Reason.PODS_CLAIMED, "R12", f"a pod is claimed, and the status says {stalled}")
            listed = {entry.pod for entry in world.stored.target_states}
            promise("a" not in listed, "R12", "a pod is listed that an older LLMService owns")
        for name, pod in world.pods.items():
            if name in needs_a_person:
                continue
            generates = pod.engine.generates(world.now)
            if aim is not None:
                promise(generates is (aim == "running"), "R13", f"{name} is not {aim} at rest")
            promise(world.stored.paused is not True or not generates, "R18", f"{name} generates, and paused is true")
            if pod.gate is not None and aim is not None:
                promise(bool(pod.gate.serving) is generates, "readiness gate", f"{name} has {pod.gate} at rest")


TestFleet = pytest.mark.timeout(0 if SOAK else 600)(Fleet.TestCase)
TestFleet.settings = settings(
    derandomize=not SOAK,
    database=None,
    deadline=None,
    max_examples=5000 if SOAK else 60,
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
