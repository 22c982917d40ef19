"""R2's exception: a long drain can be called off where the engine lets another call overtake it, and nowhere else."""

import contextlib
from collections.abc import Iterator

import pytest

from llmservice_testing.cluster import wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, Member, OpenRequest, reads
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.simulator import Fault, Options

WAIT = {"mode": "wait"}


@contextlib.contextmanager
def draining(fleet: Fleet, member: Member) -> Iterator[OpenRequest]:
    """The fleet is being paused, and this member has a request that does not end by itself."""
    with OpenRequest(member.engine) as request:
        fleet.declare("paused", pause=WAIT)
        member.engine.asked("/pause")
        fleet.wait_for(lambda status: status.get("targets", {}).get("pausing") == 1, "the drain being reported")
        yield request


def modes(member: Member) -> list[str]:
    return [call.parameters.get("mode", "resume") for call in member.engine.posts()]


def let_others_pass(fleet: Fleet, idle: Member, resyncs: int = 2) -> None:
    """So much time passes by the reads of a member that does not drain."""
    idle.engine.asked("/is_paused", times=reads(idle.engine) + resyncs, within=PATIENCE_SECONDS)


@pytest.mark.usefixtures("operator")
def test_r2_running_overtakes_a_drain_and_the_requests_go_on(fleet: Fleet) -> None:
    idle, busy = fleet.grow(2)
    with draining(fleet, busy) as request:
        fleet.want("running")
        fleet.wait("Paused", "False")
        assert busy.engine.running_requests == 1  # it was not harmed
        assert not busy.engine.paused
        pause, resume = busy.engine.posts()
        assert (pause.path, resume.path) == ("/pause", "/resume")
        assert pause.answered_at is None or pause.answered_at > resume.at
        assert "lastPause" not in fleet.status()
        before = fleet.get()["metadata"]["resourceVersion"]
        request.end()  # the drain is over now, and its late 200 changes nothing
        wait_until(lambda: busy.engine.running_requests == 0, PATIENCE_SECONDS, what="the request being over")
        fleet.let_pass(2)
        assert fleet.get()["metadata"]["resourceVersion"] == before
    assert modes(busy) == ["wait", "resume"]
    assert modes(idle) == ["wait", "resume"]


@pytest.mark.usefixtures("operator")
def test_r2_abort_overtakes_a_drain_and_ends_the_requests(fleet: Fleet) -> None:
    idle, busy = fleet.grow(2)
    with draining(fleet, busy):
        fleet.patch(pause={"mode": "abort"})
        service = fleet.wait("Ready", reason="InDesiredState")
        assert busy.engine.running_requests == 0
        assert service["status"]["lastPause"] == {"mode": "abort", "clearCache": True, "answered": True}
        assert fleet.all_paused()
        pause, abort = busy.engine.posts()
        assert pause.answered_at is None or pause.answered_at >= abort.at
    fleet.let_pass(2)
    assert modes(busy) == ["wait", "abort"]
    assert modes(idle) == ["wait"]  # it was paused, and is not touched


@pytest.mark.usefixtures("operator")
def test_r5_a_drain_that_was_called_off_and_is_wanted_again_is_drained_anew(fleet: Fleet) -> None:
    """What the first one is answered says nothing about the second."""
    busy = fleet.add()
    with draining(fleet, busy):
        fleet.want("running")
        fleet.wait("Paused", "False")
        fleet.want("paused")
        fleet.wait_for_targets(total=1, pausing=1)
        assert "paused" not in fleet.status()
        assert fleet.status()["lastPause"] == {"mode": "wait", "clearCache": True, "answered": False}
        assert busy.engine.running_requests == 1
    fleet.wait("Ready", reason="InDesiredState")
    assert modes(busy) == ["wait", "resume", "wait"]
    assert fleet.status()["lastPause"]["answered"] is True


@pytest.mark.usefixtures("operator")
def test_r2_changed_again_and_again_the_last_word_holds(fleet: Fleet) -> None:
    busy = fleet.add()
    with draining(fleet, busy):
        for _ in range(3):
            fleet.want("running")
            fleet.want("paused")
        fleet.wait_for_targets(total=1, pausing=1)
        assert "paused" not in fleet.status()
        fleet.want("running")
        fleet.wait("Paused", "False")
        assert busy.engine.running_requests == 1
    fleet.let_pass(2)
    assert not busy.engine.paused


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    ("version", "options"),
    [
        pytest.param("0.32.0", Options(data_parallel_size=2), id="a data-parallel group"),
        pytest.param("0.16.0", Options(), id="version 0.16"),
    ],
)
def test_r2_elsewhere_the_answer_of_the_drain_is_awaited(fleet: Fleet, version: str, options: Options) -> None:
    busy = fleet.add(version=version, options=options)
    idle = fleet.add()
    with draining(fleet, busy):
        fleet.want("running")
        wait_until(lambda: not idle.engine.paused, PATIENCE_SECONDS, what="the other being resumed at once")
        let_others_pass(fleet, idle)
        assert modes(busy) == ["wait"]
    fleet.wait("Paused", "False")
    pause, resume = busy.engine.posts()
    assert pause.answered_at is not None
    assert resume.at >= pause.answered_at


@pytest.mark.usefixtures("operator")
def test_r2_abort_does_not_overtake_in_a_data_parallel_group(fleet: Fleet) -> None:
    busy, idle = fleet.add(options=Options(data_parallel_size=2)), fleet.add()
    with draining(fleet, busy):
        fleet.patch(pause={"mode": "abort"})
        let_others_pass(fleet, idle)
        assert modes(busy) == ["wait"]
        assert busy.engine.running_requests == 1
    fleet.wait("Ready", reason="InDesiredState")
    assert fleet.all_paused()


@pytest.mark.usefixtures("operator")
def test_r2_an_engine_that_does_not_tell_its_size_is_not_overtaken(fleet: Fleet) -> None:
    busy, idle = fleet.grow(2)
    busy.engine.faults.script("/server_info", Fault.answering(404, {"detail": "Not Found"}, times=None))
    with draining(fleet, busy):
        fleet.want("running")
        wait_until(lambda: not idle.engine.paused, PATIENCE_SECONDS, what="the other being resumed at once")
        let_others_pass(fleet, idle)
        assert modes(busy) == ["wait"]
    fleet.wait("Paused", "False")


@pytest.mark.usefixtures("operator")
def test_r2_keep_does_not_overtake_a_drain(fleet: Fleet) -> None:
    """It would freeze what the drain was to finish: nobody asked for that."""
    busy, idle = fleet.grow(2)
    with draining(fleet, busy):
        fleet.patch(pause={"mode": "keep"})
        let_others_pass(fleet, idle)
        assert modes(busy) == ["wait"]
        assert fleet.targets() == {"total": 2, "paused": 1, "pausing": 1}
    fleet.wait("Ready", reason="InDesiredState")
    assert fleet.status()["lastPause"]["mode"] == "wait"


@pytest.mark.usefixtures("operator")
def test_a_drain_is_called_off_by_the_end_of_maxpausedseconds(fleet: Fleet) -> None:
    """Another engine was paused long enough ago: effective is running then, and running overtakes."""
    _, busy = fleet.grow(2)
    with OpenRequest(busy.engine):
        fleet.declare("paused", pause=WAIT, maxPausedSeconds=2, onMaxPaused="resume")
        busy.engine.asked("/pause")
        fleet.wait("Stalled", reason="PauseExpired")
        wait_until(lambda: not busy.engine.paused, PATIENCE_SECONDS, what="the drain being called off")
        assert busy.engine.running_requests == 1


@pytest.mark.usefixtures("operator")
def test_a_drain_is_called_off_by_deletion_with_resume(fleet: Fleet) -> None:
    busy = fleet.add()
    with OpenRequest(busy.engine):
        fleet.declare("paused", pause=WAIT, deletionPolicy="resume")
        busy.engine.asked("/pause")
        fleet.delete()
        fleet.wait_gone()
        assert not busy.engine.paused
        assert busy.engine.running_requests == 1


def test_a_drain_of_an_operator_that_died_is_called_off_by_the_next(
    fleet: Fleet, own_operator: OperatorProcess
) -> None:
    busy = fleet.add()
    with draining(fleet, busy):
        own_operator.kill()
        fleet.want("running")
        own_operator.start()
        fleet.wait("Paused", "False")
        assert busy.engine.running_requests == 1
    fleet.let_pass(2)
    assert modes(busy) == ["wait", "resume"]
    assert not busy.engine.paused
