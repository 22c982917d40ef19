"""R14, settled means silent: no engine POST, no API write, no event. And yet everything is looked at."""

from collections.abc import Callable

import pytest

from llmservice_testing.cluster import Cluster
from llmservice_testing.fleet import Fleet
from llmservice_testing.simulator import Fault, Options

pytestmark = pytest.mark.usefixtures("operator")


def assert_silent(fleet: Fleet, resyncs: int = 2) -> None:
    """Nothing was posted or written while every engine was read so many times."""

    def trace() -> tuple[str, int, list[str]]:
        writes = fleet.get()["metadata"]["resourceVersion"]
        return writes, len(fleet.posts()), [event["metadata"]["name"] for event in fleet.events()]

    fleet.let_pass(1)  # events of the last transition are written in the background
    before = trace()
    fleet.let_pass(resyncs)
    assert trace() == before


def test_r14_a_paused_fleet_is_silent_after_one_post_for_each_engine(fleet: Fleet) -> None:
    fleet.paused(3)
    assert_silent(fleet)
    assert [len(engine.posts()) for engine in fleet.engines] == [1, 1, 1]


def test_r14_a_running_fleet_is_silent_without_any_post(fleet: Fleet) -> None:
    fleet.grow(3)
    fleet.declare("running")
    fleet.wait("Ready", reason="InDesiredState")
    assert_silent(fleet)
    assert fleet.posts() == []


def test_r14_an_observed_fleet_is_silent(fleet: Fleet) -> None:
    one, _ = fleet.grow(2)
    one.engine.pause()
    fleet.declare()
    fleet.wait("Ready", reason="Observing")
    assert_silent(fleet)
    assert fleet.posts() == []


def test_case_7_ten_resyncs_bring_no_further_pause(fleet: Fleet) -> None:
    """A pause costs an engine GPU time, so it is not repeated to be sure."""
    (member,) = fleet.paused().members
    assert_silent(fleet, resyncs=10)
    assert len(member.engine.posts("/pause")) == 1


def test_r14_a_fleet_with_a_starting_pod_is_silent(fleet: Fleet) -> None:
    fleet.add(ready=False, start=False)
    fleet.paused(2)
    assert_silent(fleet)


def test_r14_a_fleet_that_is_stalled_is_silent(fleet: Fleet) -> None:
    fleet.add(options=Options(dev_mode=False))
    fleet.declare("paused")
    fleet.wait("Stalled", reason="EndpointMissing")
    assert_silent(fleet)


def test_a_read_that_fails_once_changes_no_condition(fleet: Fleet) -> None:
    """Only the second failure in a row makes a target unreachable."""
    (member,) = fleet.paused().members
    fleet.let_pass(1)
    before = fleet.status()
    member.engine.faults.script("/is_paused", Fault.answering(500, {"error": "hiccup"}))
    fleet.let_pass(3)
    assert fleet.status() == before
    assert len(fleet.posts()) == 1
    assert fleet.events("TargetsUnreachable") == []
    assert_silent(fleet)


def test_r14_what_others_write_to_the_object_does_not_make_it_talk(fleet: Fleet, cluster: Cluster) -> None:
    (member,) = fleet.paused().members
    fleet.let_pass(1)
    cluster.patch_llmservice(fleet.namespace, fleet.name, {"metadata": {"annotations": {"team": "rl"}}})
    assert_silent(fleet)
    assert len(member.engine.posts()) == 1


def test_r15_the_operator_leaves_spec_and_metadata_as_they_are(fleet: Fleet) -> None:
    declared = fleet.paused(2).get()
    managers = {(one["manager"], one.get("subresource")) for one in declared["metadata"]["managedFields"]}
    assert {subresource for manager, subresource in managers if "python" not in manager.lower()} <= {None, "status"}
    assert "annotations" not in declared["metadata"]
    assert "finalizers" not in declared["metadata"]
    assert declared["metadata"]["generation"] == 1


def test_two_fleets_do_not_disturb_each_other(make_fleet: Callable[..., Fleet]) -> None:
    one, other = make_fleet(name="one"), make_fleet(name="other")
    one.paused(2)
    other.grow(2)
    other.declare("running")
    other.wait("Ready", reason="InDesiredState")
    assert_silent(one)
    assert other.posts() == []
