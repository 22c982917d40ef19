"""Out of service while paused: the readiness gate `llmservice.io/serving`, on pods that declare it and on no others."""

import time
from collections.abc import Callable

import pytest

from llmservice_testing.builders import Json
from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import (
    PATIENCE_SECONDS,
    RIGHTS,
    Fleet,
    Member,
    OpenRequest,
    allow,
    began_at,
    condition,
    to_seconds,
)
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.simulator import Fault

MAY_WRITE_GATES = {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}


def running(fleet: Fleet, count: int = 1, **spec: object) -> list[Member]:
    """Members with the gate, all running and in service."""
    members = fleet.grow(count, gated=True)
    fleet.declare("running", **spec)
    for member in members:
        fleet.wait_for_gate(member, "True")
    fleet.wait("Ready", reason="InDesiredState")
    return members


def version_of(fleet: Fleet, member: Member) -> str:
    return str(fleet.cluster.get_pod(fleet.namespace, member.name)["metadata"]["resourceVersion"])


@pytest.mark.usefixtures("operator")
def test_the_gate_is_opened_when_the_engine_runs(fleet: Fleet) -> None:
    (member,) = running(fleet)
    found = fleet.gate(member)
    assert found is not None
    assert found["reason"]
    assert found["message"]
    assert abs(to_seconds(found["lastTransitionTime"]) - time.time()) < PATIENCE_SECONDS
    version = version_of(fleet, member)
    fleet.let_pass(2)
    assert version_of(fleet, member) == version  # R14: and is left alone


@pytest.mark.usefixtures("operator")
def test_the_gate_is_closed_before_the_pause_and_opened_after_the_resume(fleet: Fleet) -> None:
    (member,) = running(fleet)
    member.engine.faults.script("/pause", Fault.slow(before=0.5))
    member.engine.faults.script("/resume", Fault.slow(after=0.5))
    fleet.want("paused")
    member.engine.asked("/pause")
    assert not member.engine.paused  # the call has done nothing yet
    assert not fleet.is_open(member)
    fleet.wait("Paused")
    assert not fleet.is_open(member)

    fleet.want("running")
    member.engine.asked("/resume")
    assert not fleet.is_open(member)
    fleet.wait_for_gate(member, "True")
    assert not member.engine.paused
    fleet.wait("Ready", reason="InDesiredState")
    assert [post.path for post in fleet.posts()] == ["/pause", "/resume"]


@pytest.mark.usefixtures("operator")
def test_the_drain_delay_lies_between_the_gate_and_the_pause(fleet: Fleet) -> None:
    gated = running(fleet, 1, pause={"drainDelaySeconds": 3})[0]
    plain = fleet.add()
    fleet.wait_for_targets(total=2, running=2)
    asked_at = time.time()
    fleet.want("paused")
    closed = fleet.wait_for_gate(gated, "False")
    wait_until(lambda: plain.engine.paused, PATIENCE_SECONDS, what="the one without a gate being paused at once")
    assert gated.engine.posts() == []
    fleet.wait("Reconciling")
    fleet.wait("Ready", reason="InDesiredState")
    (pause,) = gated.engine.posts()
    assert began_at(pause) >= to_seconds(closed["lastTransitionTime"]) + 3
    assert began_at(pause) >= asked_at + 3
    assert began_at(plain.engine.posts()[0]) < began_at(pause)


@pytest.mark.usefixtures("operator")
def test_a_change_of_mind_during_the_drain_delay_opens_the_gate_and_calls_nobody(fleet: Fleet) -> None:
    (member,) = running(fleet, 1, pause={"drainDelaySeconds": 600})
    fleet.want("paused")
    fleet.wait_for_gate(member, "False")
    fleet.want("running")
    fleet.wait_for_gate(member, "True")
    fleet.wait("Ready", reason="InDesiredState")
    assert fleet.posts() == []


@pytest.mark.usefixtures("operator")
def test_the_drain_delay_counts_once_however_often_the_spec_changes(fleet: Fleet) -> None:
    """It counts from the transition of the condition, which stays closed."""
    (member,) = running(fleet, 1, pause={"drainDelaySeconds": 3})
    fleet.want("paused")
    closed = fleet.wait_for_gate(member, "False")
    fleet.patch(resyncSeconds=2)
    fleet.wait("Ready", reason="InDesiredState")
    assert fleet.gate(member) == closed
    (pause,) = member.engine.posts()
    assert began_at(pause) >= to_seconds(closed["lastTransitionTime"]) + 3


@pytest.mark.usefixtures("operator")
def test_a_new_pod_without_a_condition_is_paused_at_once_and_not_written(fleet: Fleet) -> None:
    """Without the condition the kubelet takes the gate for closed: the pod was in no Service yet."""
    fleet.paused(1, pause={"drainDelaySeconds": 600})
    newcomer = fleet.add(gated=True)
    version = version_of(fleet, newcomer)
    wait_until(lambda: newcomer.engine.paused, PATIENCE_SECONDS, what="the new pod being paused")
    fleet.wait_for_targets(total=2, paused=2)
    assert fleet.gate(newcomer) is None
    assert version_of(fleet, newcomer) == version


@pytest.mark.usefixtures("operator")
def test_nothing_is_ever_written_to_pods_without_the_gate(fleet: Fleet) -> None:
    plain, other = fleet.add(), fleet.add(create=False)
    other.pod.readiness_gate("example.com/other")
    fleet.cluster.create_pod(fleet.namespace, other.pod)
    before = [version_of(fleet, member) for member in (plain, other)]
    fleet.declare("running", pause={"drainDelaySeconds": 600})
    fleet.wait("Ready", reason="InDesiredState")
    fleet.want("paused")
    fleet.wait("Paused")
    fleet.want("running")
    fleet.wait("Paused", "False")
    fleet.want(None)
    fleet.wait("Ready", reason="Observing")
    assert [version_of(fleet, member) for member in (plain, other)] == before


@pytest.mark.usefixtures("operator")
def test_the_conditions_of_others_stay(fleet: Fleet) -> None:
    member = fleet.add(gated=True, create=False)
    member.pod.readiness_gate("example.com/other").condition("example.com/other", "True")
    fleet.cluster.create_pod(fleet.namespace, member.pod)

    def others() -> list[Json]:
        conditions = fleet.cluster.get_pod(fleet.namespace, member.name)["status"]["conditions"]
        return sorted(
            (one for one in conditions if one["type"] != "llmservice.io/serving"), key=lambda one: str(one["type"])
        )

    before = others()
    fleet.declare("running")
    fleet.wait_for_gate(member, "True")
    fleet.want("paused")
    fleet.wait_for_gate(member, "False")
    assert others() == before


@pytest.mark.usefixtures("operator")
def test_a_pod_of_several_ports_is_served_when_all_its_engines_run(make_fleet: Callable[..., Fleet]) -> None:
    fleet = make_fleet(ports=(8000, 8001))
    (member,) = running(fleet)
    one, two = member.engines
    fleet.want("paused")
    fleet.wait("Paused")
    assert not fleet.is_open(member)
    two.faults.script("/resume", Fault.lie(times=2))
    fleet.want("running")
    wait_until(lambda: not one.paused, PATIENCE_SECONDS, what="the first being resumed")
    fleet.wait_for_targets(total=2, running=1, paused=1)
    assert not fleet.is_open(member)
    fleet.wait_for_gate(member, "True")
    assert not two.paused
    fleet.wait("Ready", reason="InDesiredState")


@pytest.mark.usefixtures("operator")
def test_without_generation_the_gate_opens_where_running_is_read_and_stays_otherwise(fleet: Fleet) -> None:
    runs, paused = fleet.grow(2, gated=True)
    paused.engine.pause()
    fleet.declare()
    fleet.wait_for_gate(runs, "True")
    fleet.wait("Ready", reason="Observing")
    assert fleet.gate(paused) is None
    runs.engine.pause()
    fleet.wait_for_targets(total=2, paused=2)
    assert fleet.is_open(runs)
    paused.engine.resume()
    fleet.wait_for_gate(paused, "True")
    assert fleet.posts() == []


@pytest.mark.usefixtures("operator")
def test_a_gate_that_somebody_opens_while_paused_is_closed_again(fleet: Fleet) -> None:
    (member,) = running(fleet)
    fleet.want("paused")
    fleet.wait("Paused")
    member.pod.condition("llmservice.io/serving", "True")
    fleet.update(member)
    fleet.wait_for_gate(member, "False")
    assert len(fleet.posts()) == 1


@pytest.mark.usefixtures("operator")
def test_the_gate_stays_closed_while_a_long_drain_goes_on(fleet: Fleet) -> None:
    (member,) = running(fleet, 1, pause={"mode": "wait"})
    with OpenRequest(member.engine):
        fleet.want("paused")
        fleet.wait_for_targets(total=1, pausing=1)
        assert not fleet.is_open(member)
    fleet.wait("Ready", reason="InDesiredState")
    assert not fleet.is_open(member)


def test_opening_gates_is_the_first_work_after_a_start(fleet: Fleet, own_operator: OperatorProcess) -> None:
    """A gate must not outlive its operator longer than needed: nothing waits for engines that do not answer."""
    member, hung = running(fleet, 2, requestTimeoutSeconds=20)
    fleet.want("paused")
    fleet.wait_for_gate(member, "False")
    fleet.wait("Paused")
    own_operator.kill()
    fleet.want("running")
    member.engine.resume()  # by hand, as nobody else was there
    hung.engine.faults.script("/is_paused", Fault.hang(times=None))
    own_operator.start()
    fleet.wait_for_gate(member, "True")
    service = fleet.get()
    assert service["status"]["observedGeneration"] < service["metadata"]["generation"]  # nothing was reported yet
    assert not fleet.is_open(hung)


@pytest.mark.usefixtures("operator")
def test_deletion_of_the_llmservice_opens_the_gates_of_pods_that_run(fleet: Fleet) -> None:
    (member,) = running(fleet, 1, pause={"drainDelaySeconds": 600})
    fleet.want("paused")
    fleet.wait_for_gate(member, "False")
    fleet.delete()
    fleet.wait_for_gate(member, "True")
    assert fleet.posts() == []


@pytest.mark.usefixtures("operator")
def test_deletion_with_resume_opens_the_gates_of_what_it_resumed(fleet: Fleet) -> None:
    members = running(fleet, 3, deletionPolicy="resume")
    fleet.want("paused")
    fleet.wait("Paused")
    fleet.delete()
    for member in members:
        fleet.wait_for_gate(member, "True")
    fleet.wait_gone()


@pytest.mark.usefixtures("operator")
def test_a_pause_that_expired_opens_the_gates(fleet: Fleet) -> None:
    (member,) = running(fleet, 1, maxPausedSeconds=1, onMaxPaused="resume")
    fleet.want("paused")
    fleet.wait_for_gate(member, "False")
    fleet.wait("Stalled", reason="PauseExpired")
    fleet.wait_for_gate(member, "True")
    assert not member.engine.paused


@pytest.mark.usefixtures("operator")
def test_r12_the_gate_is_the_owners_alone(fleet: Fleet, make_fleet: Callable[..., Fleet]) -> None:
    """Two LLMServices that want the opposite do not fight over it."""
    shared = fleet.add(gated=True, labels={"app": "qwen", "team": "rl"})
    created = fleet.declare("running")["metadata"]["creationTimestamp"]
    wait_until(lambda: time.time() > to_seconds(created) + 1, PATIENCE_SECONDS, what="another second")
    fleet.wait_for_gate(shared, "True")
    version = version_of(fleet, shared)
    young = make_fleet(name="young")
    young.declare("paused", selector={"matchLabels": {"team": "rl"}})
    young.wait("Stalled", reason="PodsClaimed")
    fleet.let_pass(2)
    assert version_of(fleet, shared) == version
    young.delete()
    fleet.let_pass(2)
    assert version_of(fleet, shared) == version


@pytest.mark.usefixtures("operator")
def test_deletion_with_leave_keeps_paused_pods_out_of_service(fleet: Fleet) -> None:
    (member,) = running(fleet)
    fleet.want("paused")
    fleet.wait("Paused")
    fleet.delete()
    fleet.declare()
    fleet.wait("Ready", reason="Observing")
    assert member.engine.paused
    assert not fleet.is_open(member)


def test_a_refused_write_delays_the_pause_by_no_more_than_the_delay(
    fleet: Fleet, cluster: Cluster, control_plane: ControlPlane, make_operator: Callable[..., OperatorProcess]
) -> None:
    allow(cluster, fleet.namespace, "nobody", [*RIGHTS, MAY_WRITE_GATES])
    make_operator(control_plane.user_kubeconfig("nobody")).start()
    (member,) = running(fleet, 1, pause={"drainDelaySeconds": 3})
    allow(cluster, fleet.namespace, "nobody", RIGHTS)
    wanted_at = time.time()
    fleet.want("paused")
    fleet.wait("Ready", reason="InDesiredState")
    (pause,) = member.engine.posts()
    assert began_at(pause) >= wanted_at + 2.9  # it is kept here, too
    assert fleet.is_open(member)
    allow(cluster, fleet.namespace, "nobody", [*RIGHTS, MAY_WRITE_GATES])
    fleet.wait_for_gate(member, "False")  # and made up for
    assert len(member.engine.posts()) == 1


def test_a_refused_write_without_a_delay_does_not_delay_the_pause(
    fleet: Fleet, cluster: Cluster, control_plane: ControlPlane, make_operator: Callable[..., OperatorProcess]
) -> None:
    """And without the gate no right to write pods is needed at all."""
    allow(cluster, fleet.namespace, "nobody", RIGHTS)
    make_operator(control_plane.user_kubeconfig("nobody")).start()
    gated, plain = fleet.add(gated=True, create=False), fleet.add()
    gated.pod.condition("llmservice.io/serving", "True")
    cluster.create_pod(fleet.namespace, gated.pod)
    fleet.declare("paused")
    service = fleet.wait("Ready", reason="InDesiredState")
    assert service["status"]["paused"] is True
    assert condition(service, "Stalled") is None
    assert gated.engine.paused
    assert plain.engine.paused
