"""R16: outages of the API server end in recovery without a restart by hand; meanwhile engines are left as they are."""

from collections.abc import Iterator

import pytest

from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet
from llmservice_testing.operator_process import OperatorProcess


@pytest.fixture
def outage(control_plane: ControlPlane, own_operator: OperatorProcess, fleet: Fleet) -> Iterator[ControlPlane]:
    """The control plane, which is whole again afterwards, before anybody else has to clean up."""
    yield control_plane
    if len(control_plane.pids) < 2:
        control_plane.start_apiserver()
    control_plane.continue_apiserver()


def lose_sight(operator: OperatorProcess, times: int = 1) -> None:
    """Waits until the operator has noticed the outage."""
    wait_until(
        lambda: sum(1 for line in operator.log_lines() if line["message"] == "Lost sight of pods") >= times,
        PATIENCE_SECONDS,
        what="the operator noticing the outage",
    )


@pytest.mark.promise("recovers", "calm", fault="the API server is away")
def test_r16_engines_are_left_as_they_are_while_the_api_server_is_away(
    fleet: Fleet, outage: ControlPlane, own_operator: OperatorProcess
) -> None:
    strayed, _ = fleet.paused(2).members
    outage.stop_apiserver()
    lose_sight(own_operator)
    strayed.engine.resume()
    fleet.let_pass(3)  # reads go on
    assert not strayed.engine.paused
    assert len(fleet.posts()) == 2

    outage.start_apiserver()
    wait_until(lambda: strayed.engine.paused, PATIENCE_SECONDS, what="the drift being corrected after the outage")
    fleet.wait("Ready", reason="InDesiredState")
    assert [post.path for post in fleet.posts()] == ["/pause"] * 3


@pytest.mark.promise("recovers", fault="the API server is away")
def test_r16_what_changed_during_and_after_the_outage_is_seen(
    fleet: Fleet, cluster: Cluster, outage: ControlPlane, own_operator: OperatorProcess
) -> None:
    fleet.paused(2)
    outage.restart_apiserver()
    newcomer = fleet.add()
    fleet.want("running")
    fleet.wait("Ready", reason="InDesiredState")
    assert not any(engine.paused for engine in fleet.engines)
    fleet.want("paused")
    fleet.wait("Ready", reason="InDesiredState")
    assert newcomer.engine.paused
    cluster.delete_pod(fleet.namespace, newcomer.name)
    fleet.wait_for_targets(total=2, paused=2)
    assert own_operator.liveness() == 200


@pytest.mark.promise("recovers", fault="the API server is frozen")
def test_r16_an_api_server_that_hangs_holds_up_no_reads_and_is_survived(
    fleet: Fleet, outage: ControlPlane, own_operator: OperatorProcess
) -> None:
    fleet.paused(2)
    outage.pause_apiserver()
    fleet.let_pass(3)
    assert own_operator.liveness() == 200
    outage.continue_apiserver()
    fleet.want("running")
    fleet.wait("Ready", reason="InDesiredState")


@pytest.mark.promise("recovers", "calm", fault="the API server is away when the operator starts")
def test_r16_an_operator_that_starts_during_the_outage_waits_for_its_end(
    fleet: Fleet, outage: ControlPlane, own_operator: OperatorProcess
) -> None:
    fleet.paused(2)
    own_operator.kill()
    fleet.want("running")
    outage.stop_apiserver()
    own_operator.start_soon()
    wait_until(
        lambda: any(line["message"] == "Waiting for the resource" for line in own_operator.log_lines()),
        PATIENCE_SECONDS,
        what="the operator saying that it waits",
    )
    assert fleet.all_paused()
    outage.start_apiserver()
    fleet.wait("Ready", reason="InDesiredState")
    assert not any(engine.paused for engine in fleet.engines)


@pytest.mark.promise("ends", "calm", fault="the API server is away")
def test_it_ends_in_seconds_when_told_to_while_the_api_server_is_away(
    fleet: Fleet, outage: ControlPlane, own_operator: OperatorProcess
) -> None:
    fleet.paused(2)
    outage.stop_apiserver()
    lose_sight(own_operator)
    assert own_operator.stop(within=15) == 0
    assert fleet.all_paused()


@pytest.mark.promise("ends", fault="the API server is frozen")
def test_it_ends_in_seconds_when_told_to_while_the_api_server_hangs(
    fleet: Fleet, outage: ControlPlane, own_operator: OperatorProcess
) -> None:
    fleet.paused(2)
    outage.pause_apiserver()
    fleet.let_pass(1)
    assert own_operator.stop(within=15) == 0
