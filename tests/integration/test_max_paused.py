"""`maxPausedSeconds`: a trainer that died must not hold GPUs for ever. The clock stands in the object, for one generation."""

import time
from collections.abc import Iterator

import pytest

from llmservice_testing.builders import Json
from llmservice_testing.cluster import wait_until
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, condition, to_seconds
from llmservice_testing.operator_process import OperatorProcess


def ready_message(service: Json) -> str:
    ready = condition(service, "Ready")
    assert ready is not None
    return str(ready["message"])


def too_long(operator: OperatorProcess, fleet: Fleet) -> float:
    """The metric that says so."""
    labels = f'namespace="{fleet.namespace}"'
    (line,) = [
        line
        for line in operator.metrics().splitlines()
        if line.startswith("llmservice_paused_too_long{") and labels in line and f'name="{fleet.name}"' in line
    ]
    return float(line.rpartition(" ")[2])


def wait_for_limit(status: Json, seconds: int) -> None:
    """Until a pause of this status has lasted so long; what is stored was rounded down to a whole second."""
    limit = to_seconds(status["pausedSince"]) + 1 + seconds
    wait_until(lambda: time.time() > limit, PATIENCE_SECONDS, what="the limit being over")


def wait_until_expired(fleet: Fleet) -> Json:
    service = fleet.wait("Stalled", reason="PauseExpired")
    wait_until(lambda: not any(engine.paused for engine in fleet.engines), PATIENCE_SECONDS, what="all being resumed")
    return service


def expired(fleet: Fleet) -> tuple[Json, Json]:
    """A fleet of two whose pause expired, as it was declared and as it is."""
    fleet.grow(2)
    declared = fleet.declare("paused", maxPausedSeconds=1, onMaxPaused="resume")
    return declared, wait_until_expired(fleet)


# warn


def test_warn_says_so_once_in_event_message_and_metric_and_the_fleet_stays_paused(
    fleet: Fleet, operator: OperatorProcess
) -> None:
    fleet.paused(2, maxPausedSeconds=2)
    assert too_long(operator, fleet) == 0
    assert fleet.events("PausedTooLong") == []
    event = fleet.wait_for_event("PausedTooLong")
    assert event["type"] == "Warning"
    service = fleet.wait("Ready", reason="InDesiredState")
    assert "maxPausedSeconds" in ready_message(service)
    assert condition(service, "Stalled") is None
    assert service["status"]["paused"] is True
    assert too_long(operator, fleet) == 1
    fleet.let_pass(2)
    assert fleet.get()["metadata"]["resourceVersion"] == service["metadata"]["resourceVersion"]
    assert len(fleet.events("PausedTooLong")) == 1
    assert fleet.all_paused()
    assert len(fleet.posts()) == 2


def test_warn_is_over_when_the_fleet_is_resumed(fleet: Fleet, operator: OperatorProcess) -> None:
    fleet.paused(maxPausedSeconds=1)
    fleet.wait_for_event("PausedTooLong")
    fleet.want("running")
    service = fleet.wait("Ready", reason="InDesiredState")
    assert "maxPausedSeconds" not in ready_message(service)
    assert "pausedSince" not in service["status"]
    assert "pausedSinceGeneration" not in service["status"]
    assert too_long(operator, fleet) == 0


def test_the_clock_and_its_warning_survive_a_restart_of_the_operator(
    fleet: Fleet, own_operator: OperatorProcess
) -> None:
    fleet.paused(maxPausedSeconds=3)
    before = fleet.status()
    assert before["pausedSinceGeneration"] == 1
    own_operator.kill()
    own_operator.start()
    fleet.wait_for_event("PausedTooLong")
    assert fleet.status()["pausedSince"] == before["pausedSince"]
    assert time.time() >= to_seconds(before["pausedSince"]) + 3
    own_operator.kill()
    own_operator.start()
    fleet.let_pass(2)
    assert len(fleet.events("PausedTooLong")) == 1
    assert too_long(own_operator, fleet) == 1
    assert len(fleet.posts()) == 1


def test_a_change_of_the_spec_restarts_the_clock(fleet: Fleet, operator: OperatorProcess) -> None:
    fleet.paused(maxPausedSeconds=1)
    fleet.wait_for_event("PausedTooLong")
    before = fleet.status()
    fleet.patch(maxPausedSeconds=600)
    service = fleet.wait("Ready", reason="InDesiredState")
    after = service["status"]
    assert after["pausedSinceGeneration"] == service["metadata"]["generation"] == 2
    assert to_seconds(after["pausedSince"]) > to_seconds(before["pausedSince"])
    assert "maxPausedSeconds" not in ready_message(service)
    assert too_long(operator, fleet) == 0
    assert len(fleet.posts()) == 1  # and nothing else: it was paused and still is


# resume


@pytest.mark.usefixtures("operator")
def test_resume_resumes_and_says_so_and_leaves_the_spec(fleet: Fleet) -> None:
    declared, service = expired(fleet)
    status = fleet.wait("Paused", "False")["status"]
    assert service["spec"] == declared["spec"]
    assert service["metadata"]["generation"] == 1
    assert status["paused"] is False
    assert "lastPause" not in status
    fleet.wait("Ready", "False", "PauseExpired")
    assert "maxPausedSeconds" in ready_message(service)
    assert condition(service, "Reconciling") is None
    assert [event["message"] for event in fleet.events("Stalled") if "PauseExpired" in event["message"]]
    before = fleet.get()["metadata"]["resourceVersion"]
    fleet.let_pass(2)
    assert fleet.get()["metadata"]["resourceVersion"] == before
    pauses, resumes = fleet.posts()[:2], fleet.posts()[2:]
    assert {post.path for post in pauses} == {"/pause"}
    assert [post.path for post in resumes] == ["/resume"] * 2
    # Times in status are whole seconds; a pause is not cut short by that.
    assert resumes[0].at - pauses[0].at >= 1


@pytest.mark.usefixtures("operator")
def test_the_next_generation_pauses_anew(fleet: Fleet) -> None:
    expired(fleet)
    fleet.patch(maxPausedSeconds=600)
    service = fleet.wait("Ready", reason="InDesiredState")
    assert fleet.all_paused()
    assert service["status"]["pausedSinceGeneration"] == 2
    assert condition(service, "Stalled") is None


def test_an_expired_pause_stays_resumed_over_a_restart_of_the_operator(
    fleet: Fleet, own_operator: OperatorProcess
) -> None:
    expired(fleet)
    status = fleet.wait("Paused", "False")["status"]
    own_operator.kill()
    own_operator.start()
    newcomer = fleet.add()
    fleet.wait_for_targets(total=3, running=3)
    fleet.let_pass(2)
    assert newcomer.engine.posts() == []
    assert [post.path for post in fleet.posts()] == ["/pause"] * 2 + ["/resume"] * 2
    assert fleet.status()["pausedSince"] == status["pausedSince"]
    fleet.wait("Stalled", reason="PauseExpired")


def test_a_pause_that_expires_while_no_operator_is_there_is_ended_by_the_next(
    fleet: Fleet, own_operator: OperatorProcess
) -> None:
    status = fleet.paused(1, maxPausedSeconds=2, onMaxPaused="resume").status()
    own_operator.kill()
    newcomer = fleet.add()
    wait_for_limit(status, 2)
    assert fleet.members[0].engine.paused
    own_operator.start()
    wait_until_expired(fleet)
    fleet.let_pass(2)
    assert newcomer.engine.posts() == []  # not paused first


@pytest.fixture
def outage(control_plane: ControlPlane, own_operator: OperatorProcess, fleet: Fleet) -> Iterator[ControlPlane]:
    """The control plane, which is whole again before anybody has to clean up."""
    yield control_plane
    if len(control_plane.pids) < 2:
        control_plane.start_apiserver()


def test_r16_no_pause_expires_while_the_api_server_is_away(
    fleet: Fleet, outage: ControlPlane, own_operator: OperatorProcess
) -> None:
    """Nobody knows then whether the spec is still what it was."""
    status = fleet.paused(2, maxPausedSeconds=6, onMaxPaused="resume").status()
    outage.stop_apiserver()
    wait_until(
        lambda: any(line["message"] == "Lost sight of pods" for line in own_operator.log_lines()),
        PATIENCE_SECONDS,
        what="the operator noticing the outage",
    )
    wait_for_limit(status, 6)
    fleet.let_pass(2)
    assert fleet.all_paused()
    assert len(fleet.posts()) == 2
    outage.start_apiserver()
    wait_until_expired(fleet)
