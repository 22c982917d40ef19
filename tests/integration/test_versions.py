"""R6: what an engine can do depends on its version, and nothing else than what was asked is ever done silently."""

import pytest

from llmservice_testing.fleet import Fleet, OpenRequest, condition
from llmservice_testing.simulator import Fault, MoeGroup

pytestmark = pytest.mark.usefixtures("operator")

PYTHON = ("0.12.0", "0.13.0", "0.14.1", "0.16.0", "0.17.0", "0.21.0", "0.24.0", "0.31.0", "0.32.0", "0.33.0")
RUST = ("0.24.0", "0.32.0", "0.33.0")


def test_r6_every_version_and_frontend_is_paused_and_resumed(fleet: Fleet) -> None:
    for version in PYTHON:
        fleet.add(version=version)
    for version in RUST:
        fleet.add(version=version, frontend="rust")
    fleet.declare("paused")
    fleet.wait("Ready", reason="InDesiredState")
    assert fleet.all_paused()
    seen = {one["pod"]: one["version"] for one in fleet.status()["targetStates"]}
    assert [seen[member.name] for member in fleet.members] == [*PYTHON, *RUST]
    fleet.want("running")
    fleet.wait("Ready", reason="InDesiredState")
    assert not any(engine.paused for engine in fleet.engines)
    assert [len(engine.posts()) for engine in fleet.engines] == [2] * len(fleet.engines)


@pytest.mark.parametrize("version", ["0.12.0", "0.14.1", "0.16.0"])
def test_case_2_r6_keep_is_unsupported_before_0_17_and_nothing_is_sent(fleet: Fleet, version: str) -> None:
    old = fleet.add(version=version)
    new = fleet.add()
    fleet.declare("paused", pause={"mode": "keep"})
    service = fleet.wait("Stalled", reason="UnsupportedMode")
    stalled = condition(service, "Stalled")
    assert stalled is not None
    assert stalled["message"].startswith(old.name)
    assert version in stalled["message"]
    assert "keep" in stalled["message"]
    fleet.wait_for_targets(total=2, paused=1, running=1)
    fleet.let_pass(3)
    assert old.engine.posts() == []
    assert [call.parameters["mode"] for call in new.engine.posts()] == ["keep"]


def test_r6_another_mode_helps_at_once_where_nothing_is_paused(fleet: Fleet) -> None:
    fleet.grow(2, version="0.14.1")
    fleet.declare("paused", pause={"mode": "keep"})
    fleet.wait("Stalled", reason="UnsupportedMode")
    fleet.patch(pause={"mode": "abort"})
    fleet.wait("Ready", reason="InDesiredState")
    assert fleet.all_paused()
    assert fleet.status()["lastPause"] == {"mode": "abort", "clearCache": True, "answered": True}


def test_r6_unsupported_mode_does_not_hinder_running(fleet: Fleet) -> None:
    fleet.add(version="0.16.0")
    fleet.declare("paused", pause={"mode": "keep"})
    fleet.wait("Stalled", reason="UnsupportedMode")
    fleet.want("running")
    service = fleet.wait("Ready", reason="InDesiredState")
    assert condition(service, "Stalled") is None


@pytest.mark.parametrize(("mode", "waits"), [("wait", "true"), ("abort", "false")])
def test_r6_before_0_16_the_mode_is_said_in_the_older_words(fleet: Fleet, mode: str, waits: str) -> None:
    member = fleet.add(version="0.14.1")
    fleet.declare("paused", pause={"mode": mode, "clearCache": False})
    fleet.wait("Paused")
    (call,) = member.engine.posts()
    assert call.parameters == {"wait_for_inflight_requests": waits, "clear_cache": "false"}


@pytest.mark.parametrize("version", ["0.14.1", "0.16.0", "0.17.0", "0.33.0"])
def test_r6_wait_drains_in_every_version(fleet: Fleet, version: str) -> None:
    member = fleet.add(version=version)
    with OpenRequest(member.engine):
        fleet.declare("paused", pause={"mode": "wait"})
        fleet.wait_for_targets(total=1, pausing=1)
        assert member.engine.running_requests == 1
    fleet.wait("Ready", reason="InDesiredState")
    assert len(member.engine.posts()) == 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"version": "0.99.0"}, id="newer than known"),
        pytest.param({"version": "0.9.2"}, id="older than known"),
        pytest.param({"version": "main"}, id="no version"),
        pytest.param(["0.32.0"], id="wrong shape"),
    ],
)
def test_r6_an_unknown_version_is_treated_as_the_newest_and_said_once(fleet: Fleet, answer: object) -> None:
    for member in fleet.grow(2):
        member.engine.faults.script("/version", Fault.answering(200, answer, times=None))
    fleet.declare("paused", pause={"mode": "keep"})
    fleet.wait("Ready", reason="InDesiredState")
    event = fleet.wait_for_event("VersionAssumed")
    fleet.let_pass(2)
    assert event["type"] == "Warning"
    assert len(fleet.events("VersionAssumed")) == 1
    assert {call.query for call in fleet.posts()} == {"mode=keep&clear_cache=false"}


def test_r6_a_missing_version_route_is_an_unknown_version(fleet: Fleet) -> None:
    member = fleet.add()
    member.engine.faults.script("/version", Fault.answering(404, {"detail": "Not Found"}, times=None))
    fleet.declare("paused")
    fleet.wait("Ready", reason="InDesiredState")
    fleet.wait_for_event("VersionAssumed")
    assert "version" not in fleet.target(member)


def test_case_5_r3_a_group_that_answers_only_when_all_were_asked_is_paused_and_resumed(fleet: Fleet) -> None:
    group = MoeGroup()
    fleet.grow(2, group=group)
    fleet.declare("paused")
    fleet.wait("Paused")
    fleet.want("running")
    fleet.wait("Paused", "False")
    assert [[call.path for call in engine.posts()] for engine in fleet.engines] == [["/pause", "/resume"]] * 2


def test_a_fleet_of_mixed_versions_pauses_each_in_its_own_words(fleet: Fleet) -> None:
    old, new = fleet.add(version="0.14.1"), fleet.add(version="0.33.0")
    fleet.declare("paused", pause={"mode": "wait"})
    fleet.wait("Paused")
    assert old.engine.posts()[0].query == "wait_for_inflight_requests=true&clear_cache=true"
    assert new.engine.posts()[0].query == "mode=wait&clear_cache=true"
