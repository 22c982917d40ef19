"""R5: with `mode: wait` an engine says that it is paused as soon as it begins to drain. Only the answer says that it has."""

import pytest

from llmservice_testing.cluster import wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, OpenRequest
from llmservice_testing.simulator import Fault, Options

pytestmark = pytest.mark.usefixtures("operator")

WAIT = {"mode": "wait"}


def test_r5_a_draining_engine_is_pausing_until_its_pause_is_answered(fleet: Fleet) -> None:
    idle, busy = fleet.grow(2)
    with OpenRequest(busy.engine):
        fleet.declare("paused", pause=WAIT)
        fleet.wait_for_targets(total=2, paused=1, pausing=1)
        assert busy.engine.paused  # so says the engine, and still works
        assert busy.engine.running_requests == 1
        service = fleet.wait("Paused", "Unknown", "Mixed")
        assert "paused" not in service["status"]
        assert service["status"]["lastPause"] == {"mode": "wait", "clearCache": True, "answered": False}
        idle.engine.asked("/is_paused", times=5)
        assert "paused" not in fleet.status()
    fleet.wait("Ready", reason="InDesiredState")
    assert fleet.status()["lastPause"] == {"mode": "wait", "clearCache": True, "answered": True}
    assert [call.parameters["mode"] for call in fleet.posts()] == ["wait", "wait"]


def test_r5_an_unanswered_wait_is_asked_again_with_the_same_parameters(fleet: Fleet) -> None:
    member = fleet.add()
    with OpenRequest(member.engine):
        fleet.declare("paused", pause={"mode": "wait", "clearCache": False, "timeoutSeconds": 1})
        wait_until(lambda: len(member.engine.posts()) >= 2, PATIENCE_SECONDS, what="the wait being repeated")
        status = fleet.wait_for(lambda status: status["targets"]["pausing"] == 1, "pausing")
        assert "paused" not in status
    fleet.wait("Ready", reason="InDesiredState")
    assert {call.query for call in member.engine.posts()} == {"mode=wait&clear_cache=false"}
    fleet.let_pass(3)
    assert member.engine.posts()[-1].status == 200  # answered, and then not asked again


def test_r5_an_answer_that_was_lost_is_had_again(fleet: Fleet) -> None:
    member = fleet.add()
    member.engine.faults.script("/pause", Fault.cut(effect=True))
    fleet.declare("paused", pause=WAIT)
    fleet.wait("Ready", reason="InDesiredState")
    assert [call.parameters["mode"] for call in member.engine.posts()] == ["wait", "wait"]
    assert fleet.status()["lastPause"]["answered"] is True


def test_r5_before_0_17_a_lost_wait_cannot_be_confirmed(fleet: Fleet) -> None:
    """There a second wait answers at once though the first still drains: a retry would be a false "paused"."""
    member = fleet.add(version="0.14.1")
    with OpenRequest(member.engine):
        fleet.declare("paused", pause={"mode": "wait", "timeoutSeconds": 1})
        service = fleet.wait("Stalled", reason="UnsupportedMode")
        assert "paused" not in service["status"]
        fleet.let_pass(3)
        assert len(member.engine.posts()) == 1
        assert "paused" not in fleet.status()


def test_r5_after_a_settled_wait_a_read_of_true_is_paused_and_nothing_is_sent(fleet: Fleet) -> None:
    fleet.paused(2, pause=WAIT)
    fleet.let_pass(3)
    assert len(fleet.posts()) == 2


def test_r2_resume_waits_for_the_open_pause_to_be_answered(fleet: Fleet) -> None:
    member = fleet.add(
        options=Options(data_parallel_size=2)
    )  # one that stands alone may be overtaken: test_long_drain.py
    with OpenRequest(member.engine):
        fleet.declare("paused", pause=WAIT)
        member.engine.asked("/pause")
        fleet.want("running")
    fleet.wait("Paused", "False")
    pause, resume = member.engine.posts()
    assert (pause.path, resume.path) == ("/pause", "/resume")
    assert pause.answered_at is not None
    assert resume.at >= pause.answered_at
    assert "lastPause" not in fleet.status()


def test_r5_a_pod_that_appears_during_the_drain_is_paused_at_once_in_the_same_mode(fleet: Fleet) -> None:
    busy = fleet.add()
    with OpenRequest(busy.engine):
        fleet.declare("paused", pause=WAIT)
        busy.engine.asked("/pause")
        newcomer = fleet.add()
        fleet.wait_for_targets(total=2, paused=1, pausing=1)
        assert [call.parameters["mode"] for call in newcomer.engine.posts()] == ["wait"]
    fleet.wait("Ready", reason="InDesiredState")


def test_r5_a_pod_that_appears_after_the_drain_is_drained_too(fleet: Fleet) -> None:
    fleet.paused(1, pause=WAIT)
    newcomer = fleet.add(create=False)
    with OpenRequest(newcomer.engine):
        fleet.cluster.create_pod(fleet.namespace, newcomer.pod)
        fleet.wait_for_targets(total=2, paused=1, pausing=1)
        assert "paused" not in fleet.status()
        assert fleet.status()["lastPause"]["answered"] is False
    fleet.wait("Ready", reason="InDesiredState")
    assert len(fleet.posts()) == 2


def test_r5_an_abort_needs_no_stored_fact_and_says_so(fleet: Fleet) -> None:
    fleet.paused(1)
    assert fleet.status()["lastPause"] == {"mode": "abort", "clearCache": True, "answered": True}
