"""R13: the operator can be killed at any instant, and the end is the same: no contrary call, no false `paused`."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.fleet import (
    PATIENCE_SECONDS,
    Fleet,
    History,
    OpenRequest,
    condition,
    nothing_false_is_said,
    reads,
)
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.simulator import Fault


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.promise("recovers", "truth", "calm", fault="kill -9 at a random point of a fan-out")
def test_r13_killed_at_random_points_of_a_fan_out_the_end_is_the_same(
    fleet: Fleet, own_operator: OperatorProcess, seed: int
) -> None:
    chance = random.Random(seed)
    for number, member in enumerate(fleet.grow(8)):
        for route in ("/pause", "/resume"):  # spread, so that a kill hits the middle
            member.engine.faults.script(route, Fault.slow(before=0.05 * number, after=0.1, times=None))
    fleet.declare("running")
    fleet.wait("Ready", reason="InDesiredState")
    with nothing_false_is_said(fleet):
        for desired, call in (("paused", "/pause"), ("running", "/resume"), ("paused", "/pause")):
            before = len(fleet.posts())
            fleet.want(desired)
            point = chance.randint(1, 8)
            wait_until(
                lambda seen=before + point: len(fleet.posts()) >= seen,  # type: ignore[misc]
                PATIENCE_SECONDS,
                what=f"{point} calls",
            )
            own_operator.kill()
            own_operator.start()
            fleet.wait("Ready", reason="InDesiredState")
            assert {engine.paused for engine in fleet.engines} == {desired == "paused"}
            assert {post.path for post in fleet.posts()[before:]} == {call}
            # Each is called again at most once: its call was under way, or its answer was not read back.
            assert len(fleet.posts()) - before <= 16


@pytest.mark.promise("recovers", "calm", fault="kill -9 before the first call")
def test_r13_killed_before_the_first_call_the_end_is_the_same(fleet: Fleet, own_operator: OperatorProcess) -> None:
    fleet.grow(3)
    fleet.declare("running")
    fleet.wait("Ready", reason="InDesiredState")
    own_operator.kill()
    fleet.want("paused")
    own_operator.start()
    fleet.wait("Ready", reason="InDesiredState")
    assert [post.path for post in fleet.posts()] == ["/pause"] * 3


@pytest.mark.promise("recovers", "calm", fault="the operator is away, and the world goes on")
def test_r13_what_happened_while_the_operator_was_away_is_made_good(
    fleet: Fleet, cluster: Cluster, own_operator: OperatorProcess
) -> None:
    """Case 1: states are read from engines, never remembered."""
    staying, strayed, gone = fleet.paused(3).members
    own_operator.kill()
    strayed.engine.resume()
    cluster.delete_pod(fleet.namespace, gone.name)
    newcomer = fleet.add()
    own_operator.start()
    wait_until(
        lambda: strayed.engine.paused and newcomer.engine.paused,
        PATIENCE_SECONDS,
        what="both running ones being paused",
    )
    fleet.wait_for_targets(total=3, paused=3)
    assert len(staying.engine.posts()) == 1
    assert gone.engine.paused


@pytest.mark.promise("recovers", "calm", fault="the operator is away, and the world goes on")
def test_r13_an_edge_that_was_missed_twice_is_not_needed(fleet: Fleet, own_operator: OperatorProcess) -> None:
    """Resumed and paused again while the operator was away: for it nothing has happened but a new generation."""
    fleet.paused(2)
    own_operator.kill()
    fleet.want("running")
    fleet.want("paused")
    own_operator.start()
    fleet.wait("Ready", reason="InDesiredState")
    assert len(fleet.posts()) == 2


@pytest.mark.promise("calm", "silent", fault="the operator is restarted at rest")
def test_r14_a_restart_at_rest_changes_nothing(fleet: Fleet, own_operator: OperatorProcess) -> None:
    fleet.paused(3)
    fleet.wait_for_event("Paused")
    fleet.let_pass(1)
    before = fleet.get()["metadata"]["resourceVersion"], [event["reason"] for event in fleet.events()]
    own_operator.kill()
    own_operator.start()
    fleet.let_pass(3)
    assert (fleet.get()["metadata"]["resourceVersion"], [event["reason"] for event in fleet.events()]) == before
    assert len(fleet.posts()) == 3


@pytest.mark.promise("recovers", "truth", fault="kill -9 in the middle of a drain")
def test_case_40_r5_killed_in_the_middle_of_a_drain_it_never_says_paused_too_early(
    fleet: Fleet, own_operator: OperatorProcess, tmp_path: Path
) -> None:
    idle, busy = fleet.grow(2)
    fleet.declare("running", pause={"mode": "wait"})
    fleet.wait("Ready", reason="InDesiredState")
    with History(fleet, tmp_path) as history, OpenRequest(busy.engine):
        fleet.want("paused")
        fleet.wait_for_targets(total=2, paused=1, pausing=1)
        own_operator.kill()
        assert fleet.status()["lastPause"] == {"mode": "wait", "clearCache": True, "answered": False}
        assert busy.engine.paused  # a read alone would say so
        own_operator.start()
        busy.engine.asked("/pause", times=2, within=PATIENCE_SECONDS)  # asked again, which waits for the drain
        fleet.wait_for_targets(total=2, paused=1, pausing=1)
        idle.engine.asked("/is_paused", times=reads(idle.engine) + 2)
        said = [version["status"].get("paused") for version in history.versions()]
        assert True not in said
    fleet.wait("Ready", reason="InDesiredState")
    assert {post.query for post in fleet.posts()} == {"mode=wait&clear_cache=true"}
    assert fleet.status()["lastPause"]["answered"] is True


def test_r5_before_0_17_a_drain_that_was_lost_with_the_operator_is_never_called_paused(
    fleet: Fleet, own_operator: OperatorProcess
) -> None:
    member = fleet.add(version="0.14.1")
    with OpenRequest(member.engine):
        fleet.declare("paused", pause={"mode": "wait"})
        member.engine.asked("/pause")
        own_operator.kill()
        own_operator.start()
        fleet.wait("Stalled", reason="UnsupportedMode")
        fleet.let_pass(2)
        assert "paused" not in fleet.status()
        assert len(member.engine.posts()) == 1


def test_case_41_a_restart_does_not_forget_how_the_present_pause_was_asked(
    fleet: Fleet, own_operator: OperatorProcess
) -> None:
    fleet.paused(1, pause={"mode": "keep"})
    fleet.patch(pause={"mode": "wait"})
    fleet.wait("Ready", reason="InDesiredState")
    own_operator.kill()
    own_operator.start()
    newcomer = fleet.add()
    wait_until(lambda: newcomer.engine.paused, PATIENCE_SECONDS, what="the newcomer being paused")
    fleet.wait_for_targets(total=2, paused=2)
    assert [post.parameters["mode"] for post in fleet.posts()] == ["keep", "keep"]


@pytest.mark.promise("calm", fault="an engine dies of our calls")
def test_r21_the_verdict_on_an_engine_that_dies_survives_a_restart(fleet: Fleet, own_operator: OperatorProcess) -> None:
    fleet.add()
    fragile = fleet.add()
    fragile.engine.faults.script("/pause", Fault.death(times=None))
    fleet.declare("paused")
    for _ in range(2):
        wait_until(lambda: not fragile.engine.is_up, PATIENCE_SECONDS, what="the engine dying")
        fragile.engine.start()
        fragile.pod.restarted().ready()
        fleet.update(fragile)
    fleet.wait("Stalled", reason="EngineError")
    own_operator.kill()
    own_operator.start()
    fleet.members[0].engine.asked("/is_paused", times=reads(fleet.members[0].engine) + 3)
    assert len(fragile.engine.posts()) == 2
    assert fragile.engine.is_up
    stalled = condition(fleet.get(), "Stalled")
    assert stalled is not None
    assert stalled["reason"] == "EngineError"


def test_r12_no_call_is_made_to_a_pod_of_another_after_a_restart(
    fleet: Fleet, make_fleet: Callable[..., Fleet], own_operator: OperatorProcess
) -> None:
    """Ownership is not remembered either: it is computed from a complete list before anything is called."""
    young = make_fleet(name="young")
    fleet.add(labels={"app": "qwen", "team": "rl"})
    fleet.declare("paused")
    fleet.wait("Paused")
    own_operator.kill()
    wait_until(lambda: made_later(fleet, young), PATIENCE_SECONDS, what="a later second")
    own_operator.start()
    young.wait("Stalled", reason="PodsClaimed")
    fleet.let_pass(2)
    assert [post.path for post in fleet.posts()] == ["/pause"]


def made_later(fleet: Fleet, young: Fleet) -> bool:
    """Makes the second LLMService again and again until it is a second younger; deletes what is not."""
    first = fleet.get()["metadata"]["creationTimestamp"]
    second = young.declare("running", selector={"matchLabels": {"team": "rl"}})["metadata"]["creationTimestamp"]
    if second > first:
        return True
    young.cluster.delete_llmservice(young.namespace, young.name)
    return False
