"""R7 in depth: a sleeping engine is never sent `/pause` or `/resume` (which crash it), wherever the fleet is going."""

import httpx
import pytest

from llmservice_testing.cluster import wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, Member, OpenRequest, condition
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.simulator import Fault, Options

SLEEP_MODE = Options(sleep_mode=True)


def sleeper(fleet: Fleet, *, asleep: bool = True) -> Member:
    """A member that can sleep, with the Python frontend; and does, unless told otherwise."""
    member = fleet.add(options=SLEEP_MODE)
    if asleep:
        send(member, "/sleep?level=1")
    return member


def send(member: Member, path: str) -> None:
    httpx.post(f"{member.engine.url}{path}").raise_for_status()


def asked(member: Member) -> list[str]:
    """What it was sent of the two calls that would crash it asleep."""
    return [post.path for post in member.engine.posts() if post.path in ("/pause", "/resume")]


def assert_unharmed(fleet: Fleet) -> None:
    """No engine died of a call."""
    assert [engine.starts for engine in fleet.engines] == [1] * len(fleet.engines)
    assert all(engine.is_up for engine in fleet.engines)


@pytest.mark.usefixtures("operator")
def test_r7_running_resumes_the_others_and_names_the_sleeper(fleet: Fleet) -> None:
    asleep, other = sleeper(fleet), fleet.add()
    other.engine.pause()
    fleet.declare("running")
    service = fleet.wait("Stalled", reason="TargetsSleeping")
    fleet.wait_for_targets(total=2, running=1, sleeping=1)
    assert not other.engine.paused
    stalled = condition(service, "Stalled")
    assert stalled is not None
    assert stalled["message"].startswith(asleep.name)
    assert "/wake_up" in stalled["message"]
    assert condition(service, "Reconciling") is None
    fleet.wait("Ready", "False", "TargetsSleeping")
    fleet.wait("Paused", "Unknown", "Mixed")
    fleet.let_pass(2)
    assert asked(asleep) == []
    assert asleep.engine.asleep

    send(asleep, "/wake_up")
    service = fleet.wait("Ready", reason="InDesiredState")
    assert condition(service, "Stalled") is None
    fleet.wait("Paused", "False")
    assert_unharmed(fleet)


@pytest.mark.usefixtures("operator")
def test_r7_a_fleet_that_sleeps_as_a_whole_is_paused_without_a_call(fleet: Fleet) -> None:
    sleepers = [sleeper(fleet), sleeper(fleet)]
    fleet.declare("paused")
    service = fleet.wait("Ready", reason="InDesiredState")
    assert service["status"]["paused"] is True
    assert service["status"]["targets"]["paused"] == 0
    fleet.wait("Paused", "True", "AllPaused")
    fleet.let_pass(2)
    assert [asked(member) for member in sleepers] == [[], []]
    assert fleet.targets() == {"total": 2, "sleeping": 2}
    assert_unharmed(fleet)


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("level", [1, 2])
def test_r7_woken_in_the_middle_of_a_pause_it_is_paused_at_once(fleet: Fleet, level: int) -> None:
    asleep, _ = sleeper(fleet, asleep=False), fleet.add()
    send(asleep, f"/sleep?level={level}")
    fleet.declare("paused")
    fleet.wait("Paused")
    send(asleep, "/wake_up")
    assert not asleep.engine.paused
    wait_until(lambda: asleep.engine.paused, PATIENCE_SECONDS, what="the woken one being paused")
    fleet.wait_for_targets(total=2, paused=2)
    fleet.wait("Ready", reason="InDesiredState")
    assert asked(asleep) == ["/pause"]
    assert_unharmed(fleet)


@pytest.mark.usefixtures("operator")
def test_r7_an_engine_of_which_only_a_part_is_awake_is_not_called(fleet: Fleet) -> None:
    asleep = sleeper(fleet)
    fleet.declare("paused")
    fleet.wait("Paused")
    send(asleep, "/wake_up?tags=weights")
    fleet.let_pass(2)
    assert asked(asleep) == []
    fleet.want("running")
    fleet.wait("Stalled", reason="TargetsSleeping")
    assert asked(asleep) == []
    send(asleep, "/wake_up?tags=kv_cache")
    fleet.wait("Ready", reason="InDesiredState")
    assert_unharmed(fleet)


@pytest.mark.usefixtures("operator")
def test_case_13_toggling_the_spec_while_it_sleeps_calls_nobody(fleet: Fleet) -> None:
    asleep = sleeper(fleet)
    fleet.declare("paused")
    fleet.wait("Paused")
    for _ in range(2):
        fleet.want("running")
        fleet.wait("Stalled", reason="TargetsSleeping")
        fleet.want("paused")
        fleet.wait("Ready", reason="InDesiredState")
    assert asked(asleep) == []
    assert_unharmed(fleet)


@pytest.mark.usefixtures("operator")
def test_r7_an_engine_that_falls_asleep_while_running_is_wanted_is_told(fleet: Fleet) -> None:
    member = sleeper(fleet, asleep=False)
    fleet.declare("running")
    fleet.wait("Ready", reason="InDesiredState")
    send(member, "/sleep?level=1")
    fleet.wait("Stalled", reason="TargetsSleeping")
    fleet.wait("Paused", "True", "AllPaused")  # it cannot generate
    assert asked(member) == []
    assert_unharmed(fleet)


@pytest.mark.usefixtures("operator")
def test_r7_a_pause_under_the_name_of_sleep_level_0_is_a_pause(fleet: Fleet) -> None:
    """Nothing of its memory is gone, and a resume is all that it needs."""
    member = sleeper(fleet, asleep=False)
    send(member, "/sleep?level=0")
    fleet.declare()
    fleet.wait_for_targets(total=1, paused=1)
    fleet.want("running")
    fleet.wait("Ready", reason="InDesiredState")
    assert not member.engine.paused
    assert asked(member) == ["/resume"]
    assert_unharmed(fleet)


@pytest.mark.usefixtures("operator")
def test_r7_an_engine_without_sleep_mode_counts_as_awake(fleet: Fleet) -> None:
    """It answers `/sleep` all the same, and keeps its memory: calls do not harm it."""
    member = fleet.add()
    send(member, "/sleep?level=1")
    fleet.declare("running")
    fleet.wait("Ready", reason="InDesiredState")
    assert asked(member) == ["/resume"]
    assert "/metrics" not in {call.path for call in member.engine.calls}
    assert_unharmed(fleet)


@pytest.mark.usefixtures("operator")
def test_r7_a_sleeper_is_observed_as_such(fleet: Fleet) -> None:
    sleeper(fleet)
    fleet.declare()
    fleet.wait_for_targets(total=1, sleeping=1)
    assert fleet.wait("Ready", reason="Observing")["status"]["paused"] is True
    assert_unharmed(fleet)


@pytest.mark.usefixtures("operator")
def test_r7_a_new_pod_that_sleeps_joins_a_paused_fleet_without_a_call(fleet: Fleet) -> None:
    fleet.paused(1)
    newcomer = fleet.add(options=SLEEP_MODE, create=False)
    send(newcomer, "/sleep?level=1")
    fleet.cluster.create_pod(fleet.namespace, newcomer.pod)
    fleet.wait_for_targets(total=2, paused=1, sleeping=1)
    fleet.wait("Ready", reason="InDesiredState")
    assert asked(newcomer) == []
    assert_unharmed(fleet)


@pytest.mark.usefixtures("operator")
def test_r7_a_drain_beside_a_sleeper_is_confirmed_without_it(fleet: Fleet) -> None:
    asleep, busy = sleeper(fleet), fleet.add()
    with OpenRequest(busy.engine):
        fleet.declare("paused", pause={"mode": "wait"})
        fleet.wait_for_targets(total=2, pausing=1, sleeping=1)
        assert "paused" not in fleet.status()
    fleet.wait("Ready", reason="InDesiredState")
    assert fleet.status()["lastPause"]["answered"] is True
    assert asked(asleep) == []
    assert_unharmed(fleet)


@pytest.mark.usefixtures("operator")
def test_r7_the_end_of_maxpausedseconds_does_not_call_a_sleeper(fleet: Fleet) -> None:
    asleep, other = sleeper(fleet), fleet.add()
    fleet.declare("paused", maxPausedSeconds=2, onMaxPaused="resume")
    wait_until(lambda: len(asked(other)) == 2, PATIENCE_SECONDS, what="the other being resumed")
    fleet.wait("Stalled", reason="TargetsSleeping")
    assert asked(asleep) == []
    send(asleep, "/wake_up")
    fleet.wait("Stalled", reason="PauseExpired")
    fleet.wait("Paused", "False")
    assert_unharmed(fleet)


def test_r7_a_restarted_operator_knows_a_sleeper_from_a_paused_engine(
    fleet: Fleet, own_operator: OperatorProcess
) -> None:
    asleep, other = sleeper(fleet), fleet.add()
    fleet.declare("paused")
    fleet.wait("Paused")
    own_operator.kill()
    fleet.want("running")
    own_operator.start()
    fleet.wait("Stalled", reason="TargetsSleeping")
    wait_until(lambda: not other.engine.paused, PATIENCE_SECONDS, what="the other being resumed")
    assert asked(asleep) == []
    assert_unharmed(fleet)


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("fault", [Fault.answering(503, {"error": "busy"}), Fault.cut()], ids=["503", "cut"])
def test_r7_a_sleeper_that_could_not_be_asked_once_is_not_called_meanwhile(fleet: Fleet, fault: Fault) -> None:
    """Unknown is not awake: what may crash an engine waits for the answer."""
    asleep = sleeper(fleet)
    asleep.engine.faults.script("/server_info", fault)
    fleet.declare("running")
    fleet.wait("Stalled", reason="TargetsSleeping")
    assert asked(asleep) == []
    assert_unharmed(fleet)


@pytest.mark.usefixtures("operator")
def test_r7_an_engine_that_can_never_be_asked_is_paused_all_the_same(fleet: Fleet) -> None:
    member = fleet.add()
    member.engine.faults.script("/server_info", Fault.answering(500, {"error": "broken"}, times=None))
    fleet.declare("paused")
    fleet.wait("Ready", reason="InDesiredState")
    assert asked(member) == ["/pause"]
