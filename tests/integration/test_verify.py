"""The annotation `llmservice.io/verify-requested-at`: a barrier when the spec did not change. The echo stands for fresh reads
of all targets, and comes together with what they showed."""

import time
from pathlib import Path

import pytest

from llmservice_testing.builders import Json
from llmservice_testing.cluster import wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, VERIFY, Fleet, History, condition
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.simulator import Fault

SELDOM = 3600
"""A resync that no test sees: every read is then one that was asked for."""


def wait_for_echo(fleet: Fleet, token: str) -> Json:
    return fleet.wait_for(lambda status: status.get("lastHandledVerify") == token, f"the echo of {token}")


def echoed(versions: list[Json], token: str) -> Json:
    """The first version that carries the echo."""
    return next(one for one in versions if one.get("status", {}).get("lastHandledVerify") == token)


def fresh_reads(fleet: Fleet, since: float) -> list[int]:
    """How often each engine was asked for its state after a time of `time.monotonic()`."""
    return [
        sum(1 for call in engine.calls if call.path == "/is_paused" and call.at >= since) for engine in fleet.engines
    ]


@pytest.mark.usefixtures("operator")
def test_the_echo_comes_after_a_fresh_read_of_every_engine(fleet: Fleet) -> None:
    fleet.paused(3, resyncSeconds=SELDOM)
    fleet.members[1].engine.faults.script("/is_paused", Fault.slow(before=1.0))
    asked_at = time.monotonic()
    fleet.verify("step-1")
    status = wait_for_echo(fleet, "step-1")
    assert time.monotonic() - asked_at >= 1.0
    assert all(number >= 1 for number in fresh_reads(fleet, asked_at))
    assert status["paused"] is True
    asked_at = time.monotonic()
    fleet.verify("step-2")
    wait_for_echo(fleet, "step-2")
    assert all(number >= 1 for number in fresh_reads(fleet, asked_at))


@pytest.mark.usefixtures("operator")
def test_the_echo_outlives_the_annotation(fleet: Fleet) -> None:
    """It is the last value that was handled, whatever becomes of the request."""
    fleet.paused(1)
    fleet.verify("step-1")
    wait_for_echo(fleet, "step-1")
    fleet.cluster.patch_llmservice(fleet.namespace, fleet.name, {"metadata": {"annotations": {VERIFY: None}}})
    fleet.patch(resyncSeconds=9)
    status = fleet.wait_for(lambda status: status.get("observedGeneration") == 2, "the next spec")
    assert status["lastHandledVerify"] == "step-1"


@pytest.mark.usefixtures("operator")
def test_nothing_but_the_echo_changes_at_rest(fleet: Fleet, tmp_path: Path) -> None:
    before = fleet.paused(2, resyncSeconds=SELDOM).get()
    fleet.wait_for_event("Paused")  # they are written after the status
    events = len(fleet.events())
    with History(fleet, tmp_path) as history:
        fleet.verify("step-1")
        wait_for_echo(fleet, "step-1")
        versions = history.versions()
    assert len(versions) == 3  # as it was, with the annotation, with the echo
    after = versions[-1]
    assert after["status"] == before["status"] | {"lastHandledVerify": "step-1"}
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["metadata"]["annotations"] == {VERIFY: "step-1"}
    assert len(fleet.events()) == events
    assert len(fleet.posts()) == 2


@pytest.mark.usefixtures("operator")
def test_the_echo_comes_with_the_fresh_truth(fleet: Fleet, tmp_path: Path) -> None:
    """The engine was resumed by somebody else and cannot be paused again: no `paused: true` stands beside the echo."""
    strayed, _ = fleet.paused(2, resyncSeconds=SELDOM).members
    strayed.engine.faults.script("/pause", Fault.lie(times=None))
    strayed.engine.resume()
    assert fleet.status()["paused"] is True  # an old word: nobody looked since
    with History(fleet, tmp_path) as history:
        fleet.verify("step-1")
        wait_for_echo(fleet, "step-1")
        found = echoed(history.versions(), "step-1")
    assert "paused" not in found["status"]
    paused = condition(found, "Paused")
    assert paused is not None
    assert paused["status"] == "Unknown"


@pytest.mark.usefixtures("operator")
def test_what_strayed_is_corrected_at_once(fleet: Fleet) -> None:
    strayed, _ = fleet.paused(2, resyncSeconds=SELDOM).members
    strayed.engine.resume()
    fleet.verify("step-1")
    wait_until(lambda: strayed.engine.paused, PATIENCE_SECONDS, what="it being paused again")
    wait_for_echo(fleet, "step-1")
    fleet.wait("Ready", reason="InDesiredState")


@pytest.mark.usefixtures("operator")
def test_a_read_that_was_under_way_does_not_count(fleet: Fleet) -> None:
    (member,) = fleet.paused().members
    # Its truth is of the moment it was received, and comes late.
    member.engine.faults.script("/is_paused", Fault.slow(after=2.0))
    before = sum(1 for call in member.engine.calls if call.path == "/is_paused")
    member.engine.asked("/is_paused", times=before + 1)
    member.engine.faults.script("/pause", Fault.lie(times=None))
    member.engine.resume()
    asked_at = time.monotonic()
    fleet.verify("step-1")
    status = wait_for_echo(fleet, "step-1")
    assert fresh_reads(fleet, asked_at) != [0]
    assert status.get("paused") is not True


@pytest.mark.usefixtures("operator")
def test_with_a_hung_target_the_echo_comes_after_it_failed_and_says_unknown(fleet: Fleet, tmp_path: Path) -> None:
    hung, _ = fleet.paused(2, resyncSeconds=SELDOM, requestTimeoutSeconds=2).members
    hung.engine.faults.script("/is_paused", Fault.hang(times=None))
    asked_at = time.monotonic()
    with History(fleet, tmp_path) as history:
        fleet.verify("step-1")
        wait_for_echo(fleet, "step-1")
        found = echoed(history.versions(), "step-1")
    assert time.monotonic() - asked_at >= 2  # not before its time was up
    assert "paused" not in found["status"]
    fleet.wait("Paused", "Unknown")
    hung.engine.faults.clear()
    fleet.wait("Paused")
    assert len(fleet.posts()) == 2


def test_a_request_outlives_the_operator(fleet: Fleet, own_operator: OperatorProcess) -> None:
    fleet.paused(2, resyncSeconds=SELDOM)
    own_operator.kill()
    asked_at = time.monotonic()
    fleet.verify("step-1")
    assert "lastHandledVerify" not in fleet.status()
    own_operator.start()
    wait_for_echo(fleet, "step-1")
    assert all(number >= 1 for number in fresh_reads(fleet, asked_at))
    assert len(fleet.posts()) == 2


def test_a_request_that_was_answered_is_not_answered_again_after_a_restart(
    fleet: Fleet, own_operator: OperatorProcess
) -> None:
    fleet.paused(2)
    fleet.verify("step-1")
    wait_for_echo(fleet, "step-1")
    before = fleet.get()["metadata"]["resourceVersion"]
    own_operator.kill()
    own_operator.start()
    fleet.let_pass(2)
    assert fleet.get()["metadata"]["resourceVersion"] == before


@pytest.mark.usefixtures("operator")
def test_a_request_together_with_a_change_of_the_spec_is_about_the_new_spec(fleet: Fleet, tmp_path: Path) -> None:
    fleet.paused(2, resyncSeconds=SELDOM)
    with History(fleet, tmp_path) as history:
        patch = {"metadata": {"annotations": {VERIFY: "step-1"}}, "spec": {"generation": "running"}}
        fleet.cluster.patch_llmservice(fleet.namespace, fleet.name, patch)
        wait_for_echo(fleet, "step-1")
        found = echoed(history.versions(), "step-1")
    assert found["status"]["observedGeneration"] == 2
    assert found["status"].get("paused") is not True
    fleet.wait("Paused", "False")


@pytest.mark.usefixtures("operator")
def test_an_observed_and_an_empty_fleet_are_verified_too(fleet: Fleet) -> None:
    fleet.declare(resyncSeconds=SELDOM)
    fleet.wait("Ready")
    fleet.verify("empty")
    wait_for_echo(fleet, "empty")
    member = fleet.add()
    fleet.wait_for_targets(total=1, running=1)
    member.engine.pause()
    fleet.verify("one")
    assert wait_for_echo(fleet, "one")["paused"] is True
    assert fleet.posts() == []
