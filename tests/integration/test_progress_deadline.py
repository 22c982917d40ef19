"""`progressDeadlineSeconds`: a fleet that does not get there says so, by a clock that stands in the object, and goes on."""

import time
from collections.abc import Callable

import pytest

from llmservice_testing.builders import Json
from llmservice_testing.cluster import wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, OpenRequest, condition, to_seconds
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.simulator import Fault

LATE = "ProgressDeadlineExceeded"


def stalled_message(service: Json) -> str:
    stalled = condition(service, "Stalled")
    assert stalled is not None
    return str(stalled["message"])


@pytest.mark.usefixtures("operator")
def test_a_late_fleet_is_stalled_in_words_and_tried_further_until_it_recovers(fleet: Fleet) -> None:
    good, stubborn = fleet.grow(2)
    stubborn.engine.faults.script("/pause", Fault.answering(500, {"error": "not in the mood"}, times=None))
    fleet.declare("paused", progressDeadlineSeconds=1)
    service = fleet.wait("Stalled", reason=LATE)
    assert stalled_message(service).startswith("Not done within spec.progressDeadlineSeconds")
    assert stubborn.name in stalled_message(service)
    assert "not in the mood" in stalled_message(service)
    assert condition(service, "Reconciling") is None
    assert "paused" not in service["status"]
    fleet.wait("Ready", "False", LATE)
    since = service["status"]["progressingSince"]
    assert time.time() >= to_seconds(since) + 1
    assert service["status"]["progressingSinceGeneration"] == 1

    tried = len(stubborn.engine.posts())
    wait_until(lambda: len(stubborn.engine.posts()) > tried, PATIENCE_SECONDS, what="it being tried further")
    assert good.engine.paused  # what is paused stays paused
    assert len(good.engine.posts()) == 1
    assert fleet.status()["progressingSince"] == since

    stubborn.engine.faults.clear()
    service = fleet.wait("Ready", reason="InDesiredState")
    assert condition(service, "Stalled") is None
    assert "progressingSince" not in service["status"]
    assert "progressingSinceGeneration" not in service["status"]
    assert len([event for event in fleet.events("Stalled") if LATE in event["message"]]) == 1


@pytest.mark.usefixtures("operator")
def test_an_engine_that_does_not_answer_is_named_with_what_is_in_the_way(fleet: Fleet) -> None:
    good, hung = fleet.grow(2)
    hung.engine.faults.script("/is_paused", Fault.hang(times=None))
    fleet.declare("paused", progressDeadlineSeconds=1, requestTimeoutSeconds=1)
    fleet.wait_for_targets(total=2, paused=1, unreachable=1)
    service = fleet.wait("Stalled", reason=LATE)
    assert hung.name in stalled_message(service)
    assert "/is_paused" in stalled_message(service) or "answer" in stalled_message(service)
    assert good.engine.paused
    fleet.wait("Paused", "Unknown", "TargetsUnreachable")


@pytest.mark.usefixtures("operator")
def test_a_drain_that_takes_too_long_is_stalled_and_not_given_up(fleet: Fleet) -> None:
    idle, busy = fleet.grow(2)
    with OpenRequest(busy.engine):
        fleet.declare("paused", progressDeadlineSeconds=1, pause={"mode": "wait"})
        fleet.wait("Stalled", reason=LATE)
        assert busy.engine.running_requests == 1
        assert idle.engine.paused
        assert fleet.targets() == {"total": 2, "paused": 1, "pausing": 1}
    fleet.wait("Ready", reason="InDesiredState")


@pytest.mark.usefixtures("operator")
def test_a_new_generation_restarts_the_clock(fleet: Fleet) -> None:
    member = fleet.add()
    member.engine.faults.script("/pause", Fault.lie(times=None))
    fleet.declare("paused", progressDeadlineSeconds=1)
    fleet.wait("Stalled", reason=LATE)
    before = fleet.status()
    fleet.patch(progressDeadlineSeconds=600)
    service = fleet.wait("Reconciling")
    assert condition(service, "Stalled") is None
    after = service["status"]
    assert after["progressingSinceGeneration"] == 2
    assert to_seconds(after["progressingSince"]) > to_seconds(before["progressingSince"])


def test_the_clock_survives_a_restart_of_the_operator(fleet: Fleet, own_operator: OperatorProcess) -> None:
    member = fleet.add()
    member.engine.faults.script("/pause", Fault.lie(times=None))
    fleet.declare("paused", progressDeadlineSeconds=3)
    before = fleet.wait_for(lambda status: "progressingSince" in status, "the clock running")
    own_operator.kill()
    own_operator.start()
    after = fleet.wait("Stalled", reason=LATE)["status"]
    assert after["progressingSince"] == before["progressingSince"]
    assert after["progressingSinceGeneration"] == before["progressingSinceGeneration"] == 1
    fleet.wait_for_event("Stalled")
    own_operator.kill()
    own_operator.start()
    fleet.let_pass(2)
    assert fleet.status()["progressingSince"] == before["progressingSince"]
    assert len([event for event in fleet.events("Stalled") if LATE in event["message"]]) == 1


@pytest.mark.usefixtures("operator")
def test_a_deadline_that_passed_at_rest_means_nothing(fleet: Fleet) -> None:
    fleet.paused(1, progressDeadlineSeconds=1)
    assert "progressingSince" not in fleet.status()
    fleet.let_pass(2)
    fleet.wait("Ready", reason="InDesiredState")
    assert fleet.events("Stalled") == []


@pytest.mark.usefixtures("operator")
def test_what_is_starting_is_not_late(fleet: Fleet, make_fleet: Callable[..., Fleet]) -> None:
    fleet.add(ready=False, start=False)
    fleet.declare("paused", progressDeadlineSeconds=1)
    fleet.wait("Paused", "Unknown", "TargetsStarting")
    other = make_fleet(name="other")
    other.paused()
    other.let_pass(2)  # so much time has passed
    assert condition(fleet.get(), "Stalled") is None
    assert fleet.events("Stalled") == []


@pytest.mark.usefixtures("operator")
def test_a_stall_that_needs_a_person_has_no_clock(fleet: Fleet) -> None:
    """Settled is Ready, or Stalled with nothing due."""
    fleet.add(version="0.16.0")
    fleet.declare("paused", progressDeadlineSeconds=1, pause={"mode": "keep"})
    service = fleet.wait("Stalled", reason="UnsupportedMode")
    assert "progressingSince" not in service["status"]
    fleet.let_pass(2)
    service = fleet.wait("Stalled", reason="UnsupportedMode")
    assert fleet.posts() == []
