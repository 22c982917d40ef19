"""Two operators at once, one that was frozen, and one that is killed at every step: the end is as if there were one."""

import itertools
import time
from collections.abc import Callable

import pytest

from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, nothing_false_is_said, reads
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.reliability import long
from llmservice_testing.simulator import Fault


@pytest.fixture
def pair(make_operator: Callable[..., OperatorProcess]) -> tuple[OperatorProcess, OperatorProcess]:
    """Two operators for the same namespace, running."""
    one, other = make_operator(), make_operator()
    one.start()
    other.start()
    return one, other


def at_rest(fleet: Fleet) -> tuple[str, int, int]:
    """What does not change at rest: the object's version, the number of events, the number of control calls."""
    return fleet.get()["metadata"]["resourceVersion"], len(fleet.events()), len(fleet.posts())


def assert_silent(fleet: Fleet, resyncs: int = 4) -> None:
    """Nothing is written, told or called while every engine is read several times more."""
    wait_until(lambda: _is_quiet_for_a_resync(fleet), PATIENCE_SECONDS, what="silence", last=fleet.events)
    before = at_rest(fleet)
    fleet.let_pass(resyncs)
    assert at_rest(fleet) == before


def _is_quiet_for_a_resync(fleet: Fleet) -> bool:
    before = at_rest(fleet)
    fleet.let_pass(2)
    return at_rest(fleet) == before


# Two at once


@pytest.mark.promise("recovers", "truth", "calm", "silent", fault="two operators at once")
def test_two_operators_converge_agree_and_fall_silent(
    fleet: Fleet, pair: tuple[OperatorProcess, OperatorProcess]
) -> None:
    fleet.grow(4)
    fleet.declare("running")
    fleet.wait("Ready", reason="InDesiredState")
    with nothing_false_is_said(fleet):
        for desired, call in (("paused", "/pause"), ("running", "/resume"), ("paused", "/pause")):
            before = len(fleet.posts())
            fleet.want(desired)
            fleet.wait("Ready", reason="InDesiredState")
            assert {engine.paused for engine in fleet.engines} == {desired == "paused"}
            assert_silent(fleet)
            made = fleet.posts()[before:]
            assert {post.path for post in made} == {call}
            assert 4 <= len(made) <= 8  # each operator calls each engine once at most


@pytest.mark.promise("recovers", "calm", "silent", fault="two operators at once")
def test_two_operators_and_new_pods_drift_and_deletion(
    fleet: Fleet, cluster: Cluster, pair: tuple[OperatorProcess, OperatorProcess]
) -> None:
    strayed, gone = fleet.paused(2).members
    newcomer = fleet.add()
    strayed.engine.resume()
    cluster.delete_pod(fleet.namespace, gone.name)
    wait_until(lambda: strayed.engine.paused and newcomer.engine.paused, PATIENCE_SECONDS, what="both being paused")
    fleet.wait_for_targets(total=2, paused=2)
    assert {post.path for post in fleet.posts()} == {"/pause"}
    assert len(newcomer.engine.posts()) <= 2
    assert len(strayed.engine.posts()) <= 4
    cluster.delete_llmservice(fleet.namespace, fleet.name)
    for operator in pair:
        wait_until(
            lambda one=operator: any(line["message"] == "Forgot an LLMService" for line in one.log_lines()),  # type: ignore[misc]
            PATIENCE_SECONDS,
            what="it being forgotten",
        )
    assert fleet.members[0].engine.paused


@pytest.mark.promise("recovers", "silent", fault="two operators at once")
def test_two_operators_and_a_drain(fleet: Fleet, pair: tuple[OperatorProcess, OperatorProcess]) -> None:
    """`lastPause` of one is read by the other."""
    fleet.grow(2)
    fleet.declare("running", pause={"mode": "wait"})
    fleet.wait("Ready", reason="InDesiredState")
    for member in fleet.members:
        member.engine.faults.script("/pause", Fault.slow(after=1.0, times=2))
    fleet.want("paused")
    fleet.wait("Ready", reason="InDesiredState")
    assert {post.query for post in fleet.posts()} == {"mode=wait&clear_cache=true"}
    assert fleet.status()["lastPause"] == {"mode": "wait", "clearCache": True, "answered": True}
    assert_silent(fleet)


@pytest.mark.promise("recovers", "calm", "silent", fault="a rolling update of the operator")
def test_a_rolling_update_in_the_middle_of_a_fan_out(
    fleet: Fleet, make_operator: Callable[..., OperatorProcess]
) -> None:
    old, new = make_operator(), make_operator()
    old.start()
    for number, member in enumerate(fleet.grow(6)):
        member.engine.faults.script("/pause", Fault.slow(before=0.3 * number, times=None))
    fleet.declare("running")
    fleet.wait("Ready", reason="InDesiredState")
    fleet.want("paused")
    wait_until(lambda: len(fleet.posts()) >= 1, PATIENCE_SECONDS, what="a first call")
    new.start()
    assert old.stop() == 0
    fleet.wait("Ready", reason="InDesiredState")
    assert fleet.all_paused()
    assert {post.path for post in fleet.posts()} == {"/pause"}
    assert len(fleet.posts()) <= 12
    assert_silent(fleet)


# Frozen


@pytest.mark.promise("recovers", "calm", "silent", fault="the operator is frozen, and the world goes on")
def test_an_operator_that_was_frozen_makes_good_what_it_missed(
    fleet: Fleet, make_fleet: Callable[..., Fleet], cluster: Cluster, own_operator: OperatorProcess
) -> None:
    """Missed: the spec was changed twice, pods went and came, one fleet was deleted, and one made."""
    doomed, late = make_fleet(name="doomed"), make_fleet(name="late")
    _, gone = fleet.paused(2).members
    doomed.paused(1)
    own_operator.freeze()
    start = time.monotonic()
    fleet.want("running")
    fleet.want("paused")
    fleet.want("running")
    cluster.delete_pod(fleet.namespace, gone.name)
    newcomer = fleet.add()
    newcomer.engine.pause()
    cluster.delete_llmservice(fleet.namespace, doomed.name)
    doomed.engines[0].resume()
    late.grow(1)
    late.declare("paused")
    wait_until(lambda: time.monotonic() - start > 6, 10, what="a gap of seconds")
    own_operator.thaw()
    fleet.wait("Ready", reason="InDesiredState")
    fleet.wait_for_targets(total=2, running=2)
    late.wait("Ready", reason="InDesiredState")
    assert gone.engine.paused  # not ours to call any more
    assert len(fleet.posts()) == 4
    assert [len(engine.posts()) for engine in doomed.engines] == [1]
    assert not doomed.engines[0].paused
    fleet.members.remove(gone)  # nobody reads it any more
    assert_silent(fleet)


@pytest.mark.promise("recovers", "calm", fault="the operator is frozen, and the world goes on")
def test_r8_an_operator_that_was_frozen_does_not_call_who_took_over_an_address(
    fleet: Fleet, cluster: Cluster, own_operator: OperatorProcess
) -> None:
    """The pod is another, with other labels, at the old one's address."""
    staying, gone = fleet.paused(2).members
    own_operator.freeze()
    cluster.delete_pod(fleet.namespace, gone.name)
    stranger = fleet.add(labels={"app": "stranger"}, create=False, address="127.0.0.1", start=False)
    stranger.pod.ip(gone.engine.host)
    cluster.create_pod(fleet.namespace, stranger.pod)
    gone.engine.resume()
    gone.engine.reset_calls()
    fleet.members.remove(stranger)
    own_operator.thaw()
    fleet.wait_for_targets(total=1, paused=1)
    staying.engine.asked("/is_paused", times=reads(staying.engine) + 3, within=PATIENCE_SECONDS)
    assert gone.engine.posts() == []
    assert not gone.engine.paused


# Killed at every step of a fan-out of eight


STEPS = {
    "before the spec is seen": "spec",
    "in the first read": "read",
    "with every call open": "open",
    "with every call done and unanswered": "done",
    "with half of the calls answered": "half",
    "after the calls and before they are read back": "read back",
    "before the status is written": "status",
    "after the status is written": "written",
}


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, id=name, marks=long if step in ("spec", "half", "written") else ())
        for name, step in STEPS.items()
    ],
)
@pytest.mark.promise("recovers", "truth", "calm", "silent", fault="kill -9 at each step of a fan-out of 8")
def test_r13_killed_at_each_step_of_a_fan_out_of_eight_the_end_is_the_same(
    fleet: Fleet, own_operator: OperatorProcess, step: str
) -> None:
    fleet.grow(8)
    fleet.declare("running", resyncSeconds=2)
    fleet.wait("Ready", reason="InDesiredState")
    halted = fleet.engines[4:] if step == "half" else fleet.engines
    if step == "spec":
        own_operator.freeze()
    for engine in halted:
        if step in ("open", "half"):
            engine.faults.script("/pause", Fault.hang(effect=False))
        elif step == "done":
            engine.faults.script("/pause", Fault.hang(effect=True))
        elif step == "read":
            engine.faults.script("/is_paused", Fault.hang())
        elif step == "status":  # one is not called yet, so that nothing final can be written
            engine.faults.script("/pause", Fault.slow(after=0.2))
        elif step == "read back":
            engine.faults.script("/pause", Fault.slow(after=0.3))
    with nothing_false_is_said(fleet):
        fleet.want("paused")
        if step in ("open", "done", "half", "status", "read back"):
            wait_until(lambda: len(fleet.posts()) == 8, PATIENCE_SECONDS, what="eight calls")
        if step == "half":
            wait_until(lambda: sum(e.paused for e in fleet.engines) == 4, PATIENCE_SECONDS, what="four paused")
        if step == "read":
            wait_until(lambda: _open_reads(fleet) == 8, PATIENCE_SECONDS, what="eight reads that hang")
        if step == "read back":
            for engine in fleet.engines:
                engine.faults.script("/is_paused", Fault.hang())
            wait_until(lambda: _open_reads(fleet) == 8, PATIENCE_SECONDS, what="eight reads that hang")
        if step == "status":
            wait_until(lambda: all(post.status == 200 for post in fleet.posts()), PATIENCE_SECONDS, what="answers")
        if step == "written":
            fleet.wait("Paused")
        own_operator.kill()
        for engine in fleet.engines:
            engine.faults.clear()
        own_operator.start()
        fleet.wait("Ready", reason="InDesiredState")
    assert fleet.all_paused()
    assert {post.path for post in fleet.posts()} == {"/pause"}
    expected = {"open": 16, "half": 12}
    assert len(fleet.posts()) == expected.get(step, 8)  # what was done is read, and not done again
    assert_silent(fleet, resyncs=2)


def _open_reads(fleet: Fleet) -> int:
    return sum(
        1 for engine in fleet.engines if any(call.path == "/is_paused" and call.status is None for call in engine.calls)
    )


# The API server


@pytest.mark.timeout(240)
@pytest.mark.promise("recovers", "calm", fault="the API server is restarted five times")
def test_r16_five_restarts_of_the_api_server(
    fleet: Fleet, control_plane: ControlPlane, own_operator: OperatorProcess
) -> None:
    fleet.paused(2)
    for number in range(5):
        control_plane.restart_apiserver(grace_seconds=5 if number % 2 else 0)
        fleet.want("running" if number % 2 == 0 else "paused")
    fleet.wait("Ready", reason="InDesiredState")
    assert not any(engine.paused for engine in fleet.engines)
    newcomer = fleet.add()
    newcomer.engine.pause()
    wait_until(lambda: not newcomer.engine.paused, PATIENCE_SECONDS, what="the newcomer being resumed")
    for engine in fleet.engines[:2]:  # once for each spec that it saw, at most
        assert len(engine.posts()) <= 6
        paths = [post.path for post in engine.posts()]
        assert all(before != after for before, after in itertools.pairwise(paths))
    assert own_operator.liveness() == 200
