"""Without `spec.generation` states are reported and nothing is called."""

import pytest

from llmservice_testing.cluster import wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, condition

pytestmark = pytest.mark.usefixtures("operator")


def test_an_observed_fleet_is_reported_and_not_called(fleet: Fleet) -> None:
    one, two = fleet.grow(2)
    one.engine.pause()
    fleet.declare()
    service = fleet.wait("Ready", reason="Observing")
    fleet.wait_for_targets(total=2, paused=1, running=1)
    fleet.wait("Paused", "Unknown", "Mixed")
    assert "paused" not in service["status"]

    two.engine.pause()
    fleet.wait("Paused")
    assert fleet.status()["paused"] is True
    one.engine.resume()
    two.engine.resume()
    fleet.wait("Paused", "False")
    assert fleet.status()["paused"] is False
    assert fleet.posts() == []
    assert fleet.events("DriftCorrected") == []


def test_a_generation_that_is_removed_leaves_the_engines_paused_and_says_so(fleet: Fleet) -> None:
    fleet.paused(2)
    fleet.want(None)
    service = fleet.wait("Ready", reason="Observing")
    ready = condition(service, "Ready")
    assert ready is not None
    assert "2 targets paused" in ready["message"]
    assert "nobody will resume" in ready["message"]
    event = fleet.wait_for_event("LeftPaused")
    assert event["type"] == "Warning"
    fleet.let_pass(3)
    assert fleet.all_paused()
    assert len(fleet.posts()) == 2
    assert len(fleet.events("LeftPaused")) == 1
    assert "lastPause" not in fleet.status()


def test_a_generation_that_is_removed_while_running_needs_no_warning(fleet: Fleet) -> None:
    fleet.grow(2)
    fleet.declare("running")
    fleet.wait("Ready", reason="InDesiredState")
    fleet.want(None)
    fleet.wait("Ready", reason="Observing")
    fleet.let_pass(2)
    assert fleet.events("LeftPaused") == []


def test_a_generation_that_comes_back_is_enforced_again(fleet: Fleet) -> None:
    fleet.paused(2)
    fleet.want(None)
    fleet.wait("Ready", reason="Observing")
    fleet.want("running")
    fleet.wait("Ready", reason="InDesiredState")
    assert not any(engine.paused for engine in fleet.engines)


def test_what_an_observer_sees_changes_with_the_engines(fleet: Fleet) -> None:
    member = fleet.add()
    fleet.declare()
    fleet.wait("Paused", "False")
    member.engine.pause("keep")
    wait_until(lambda: fleet.targets() == {"total": 1, "paused": 1}, PATIENCE_SECONDS, what="the pause being seen")
    assert member.engine.paused
