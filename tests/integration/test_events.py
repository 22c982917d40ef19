"""Events: one for each transition, about the right object, none at rest."""

import pytest

from llmservice_testing.fleet import Fleet
from llmservice_testing.simulator import Options

pytestmark = pytest.mark.usefixtures("operator")


def reasons(fleet: Fleet) -> list[str]:
    return [event["reason"] for event in fleet.events()]


def test_a_pause_and_a_resume_leave_one_event_for_each_transition(fleet: Fleet) -> None:
    fleet.paused(4)
    fleet.wait_for_event("Paused")
    fleet.want("running")
    fleet.wait("Ready", reason="InDesiredState")
    fleet.wait_for_event("Resumed")
    fleet.let_pass(2)
    assert reasons(fleet) == ["PauseStarted", "Paused", "ResumeStarted", "Resumed"]
    assert {event["type"] for event in fleet.events()} == {"Normal"}


def test_a_pause_with_wait_says_that_it_started_too(fleet: Fleet) -> None:
    fleet.paused(2, pause={"mode": "wait"})
    fleet.wait_for_event("Paused")
    fleet.let_pass(1)
    assert reasons(fleet) == ["PauseStarted", "Paused"]
    assert "wait" in fleet.events("PauseStarted")[0]["message"]


def test_an_event_is_about_the_llmservice_and_says_who_wrote_it(fleet: Fleet) -> None:
    service = fleet.paused().get()
    event = fleet.wait_for_event("Paused")
    about = event["involvedObject"]
    assert (about["apiVersion"], about["kind"]) == ("llmservice.io/v1alpha1", "LLMService")
    assert about["uid"] == service["metadata"]["uid"]
    assert event["source"]["component"] == "llmservice"
    assert event["message"]


def test_a_fleet_that_becomes_unreachable_and_returns_says_so_once(fleet: Fleet) -> None:
    lost, _ = fleet.paused(2).members
    lost.engine.stop()
    fleet.wait("Ready", "False", "TargetsUnreachable")
    event = fleet.wait_for_event("TargetsUnreachable")
    assert event["type"] == "Warning"
    assert lost.name in event["message"]
    assert "paused" not in fleet.status()
    lost.engine.start()
    fleet.wait("Ready", reason="InDesiredState")
    fleet.let_pass(2)
    assert len(fleet.events("TargetsUnreachable")) == 1


def test_a_stall_is_said_once_with_its_reason(fleet: Fleet) -> None:
    closed = fleet.add(options=Options(dev_mode=False))
    fleet.declare("paused")
    fleet.wait("Stalled")
    event = fleet.wait_for_event("Stalled")
    fleet.let_pass(3)
    assert event["type"] == "Warning"
    assert event["message"].startswith(f"EndpointMissing: {closed.name}")
    assert len(fleet.events("Stalled")) == 1


def test_a_new_pod_in_a_paused_fleet_is_no_pause_of_its_own(fleet: Fleet) -> None:
    fleet.paused(2)
    fleet.wait_for_event("Paused")
    fleet.add()
    fleet.wait_for_targets(total=3, paused=3)
    fleet.let_pass(2)
    assert reasons(fleet).count("PauseStarted") == 1
    assert "DriftCorrected" not in reasons(fleet)
