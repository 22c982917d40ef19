"""Drift: somebody else changed an engine, and it is brought back to what the spec says."""

import pytest

from llmservice_testing.cluster import wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet
from llmservice_testing.simulator import Fault

pytestmark = pytest.mark.usefixtures("operator")


def test_a_stray_resume_is_corrected_at_the_next_resync_with_an_event(fleet: Fleet) -> None:
    strayed, other = fleet.paused(2).members
    strayed.engine.resume()
    wait_until(lambda: strayed.engine.paused, PATIENCE_SECONDS, what="the stray resume being corrected")
    event = fleet.wait_for_event("DriftCorrected")
    assert strayed.name in event["message"]
    fleet.wait("Ready", reason="InDesiredState")
    fleet.let_pass(2)
    assert len(fleet.events("DriftCorrected")) == 1
    assert [call.path for call in strayed.engine.posts()] == ["/pause", "/pause"]
    assert [call.path for call in other.engine.posts()] == ["/pause"]


def test_drift_is_corrected_as_the_present_pause_was_asked(fleet: Fleet) -> None:
    (member,) = fleet.paused(1, pause={"mode": "keep", "clearCache": True}).members
    fleet.patch(pause={"mode": "abort"})
    member.engine.resume()
    wait_until(lambda: member.engine.paused, PATIENCE_SECONDS, what="the stray resume being corrected")
    assert [call.parameters for call in member.engine.posts()] == [{"mode": "keep", "clear_cache": "true"}] * 2


def test_running_is_enforced_as_well(fleet: Fleet) -> None:
    member = fleet.add()
    fleet.declare("running")
    fleet.wait("Ready", reason="InDesiredState")
    assert member.engine.posts() == []
    member.engine.pause("keep")
    wait_until(lambda: not member.engine.paused, PATIENCE_SECONDS, what="the pause of others being undone")
    fleet.wait_for_event("DriftCorrected")
    assert [call.path for call in member.engine.posts()] == ["/resume"]


def test_r18_a_true_that_became_false_is_withdrawn(fleet: Fleet) -> None:
    """The engine goes on running whatever it is told; the status must not go on saying that it is paused."""
    _, strayed = fleet.paused(2).members
    strayed.engine.faults.script("/pause", Fault.lie(times=None))
    strayed.engine.resume()
    status = fleet.wait_for(lambda status: "paused" not in status, "paused being withdrawn")
    assert status["targets"]["paused"] == 1
    fleet.wait("Paused", "Unknown", "Mixed")

    strayed.engine.faults.clear()
    fleet.wait("Paused")


def test_ranks_that_disagree_are_brought_to_agree(fleet: Fleet) -> None:
    """R1: a 500 that says that the ranks of one engine differ is a difference, and no error."""
    (member,) = fleet.paused().members
    member.engine.split_ranks(True, False)
    wait_until(lambda: len(member.engine.posts("/pause")) == 2, PATIENCE_SECONDS, what="a second pause")
    fleet.wait("Ready", reason="InDesiredState")


def test_ranks_that_disagree_and_cannot_be_changed_are_inconsistent(fleet: Fleet) -> None:
    member = fleet.add()
    member.engine.split_ranks(True, False)
    fleet.declare()
    service = fleet.wait("Paused", "Unknown", "Inconsistent")
    assert "paused" not in service["status"]
    assert fleet.targets() == {"total": 1, "failed": 1}
    assert "different is_scheduler_paused results" in fleet.target(member)["message"]
    assert member.engine.posts() == []
