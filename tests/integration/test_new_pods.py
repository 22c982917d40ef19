"""Pods that come, start, restart, move and go while the fleet is paused."""

import pytest

from llmservice_testing.builders import make_pod
from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, condition, reads
from llmservice_testing.simulator import Fault

pytestmark = pytest.mark.usefixtures("operator")


def test_r9_a_new_pod_is_paused_on_sight(fleet: Fleet) -> None:
    fleet.paused(2)
    newcomer = fleet.add()
    wait_until(lambda: newcomer.engine.paused, PATIENCE_SECONDS, what="the newcomer being paused")
    fleet.wait_for_targets(total=3, paused=3)
    fleet.wait("Paused")
    assert [call.path for call in fleet.posts()] == ["/pause"] * 3


def test_r9_a_new_pod_is_paused_at_once_and_not_at_the_next_resync(fleet: Fleet) -> None:
    fleet.paused(1, resyncSeconds=3600)
    newcomer = fleet.add()
    wait_until(lambda: newcomer.engine.paused, PATIENCE_SECONDS, what="the newcomer being paused")


def test_r9_a_container_that_restarts_in_the_same_pod_is_paused_at_once(fleet: Fleet) -> None:
    (member,) = fleet.paused(1, resyncSeconds=3600).members
    member.engine.restart()
    assert not member.engine.paused
    member.pod.restarted().ready()
    fleet.update(member)
    wait_until(lambda: member.engine.paused, PATIENCE_SECONDS, what="the new container being paused")
    fleet.wait_for_targets(total=1, paused=1)
    assert [call.path for call in member.engine.posts()] == ["/pause", "/pause"]


def test_r9_a_pod_without_an_address_is_starting_and_does_not_hold_the_fleet_back(
    fleet: Fleet, cluster: Cluster
) -> None:
    fleet.add()
    cluster.create_pod(fleet.namespace, make_pod("pending").labels(app="qwen").port(8000))
    fleet.declare("paused")
    service = fleet.wait("Ready", reason="InDesiredState")
    assert service["status"]["paused"] is True
    assert fleet.targets() == {"total": 2, "paused": 1, "starting": 1}


def test_r9_an_engine_that_refuses_while_its_container_is_not_ready_is_starting(fleet: Fleet) -> None:
    fleet.add()
    late = fleet.add(ready=False, start=False)
    fleet.declare("paused")
    fleet.wait("Ready", reason="InDesiredState")
    fleet.wait_for_targets(total=2, paused=1, starting=1)
    assert "reason" not in fleet.target(late)

    late.engine.start()  # it listens before its readiness probe says so: this is the first contact
    wait_until(lambda: late.engine.paused, PATIENCE_SECONDS, what="the late one being paused")
    fleet.wait_for_targets(total=2, paused=2)


def test_r9_a_starting_engine_is_tried_every_second_whatever_the_resync(fleet: Fleet) -> None:
    late = fleet.add(ready=False, start=False)
    fleet.declare("paused", resyncSeconds=3600)
    fleet.wait("Paused", "Unknown", "TargetsStarting")
    late.engine.start()
    wait_until(lambda: late.engine.paused, PATIENCE_SECONDS, what="the late one being paused")


def test_r9_a_fleet_that_is_all_starting_is_neither_paused_nor_settled(fleet: Fleet) -> None:
    fleet.add(ready=False, start=False)
    fleet.declare("paused")
    service = fleet.wait("Paused", "Unknown", "TargetsStarting")
    ready = condition(service, "Ready")
    assert "paused" not in service["status"]
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("False", "Progressing")


def test_r9_a_ready_container_that_refuses_is_unreachable_and_holds_the_fleet_back(fleet: Fleet) -> None:
    fleet.add()
    fenced = fleet.add(start=False)
    fleet.declare("paused")
    service = fleet.wait("Ready", "False", "TargetsUnreachable")
    assert "paused" not in service["status"]
    fleet.wait_for_targets(total=2, paused=1, unreachable=1)
    fleet.wait("Paused", "Unknown", "TargetsUnreachable")
    assert "refused" in fleet.target(fenced)["message"]
    assert condition(service, "Stalled") is None
    assert condition(service, "Reconciling") is not None

    fenced.engine.start()  # R20: it ends well after the fault has stopped
    fleet.wait("Ready", reason="InDesiredState")


def test_r8_a_pod_that_takes_over_the_address_of_another_is_a_target_of_its_own(fleet: Fleet, cluster: Cluster) -> None:
    (old,) = fleet.paused().members
    cluster.delete_pod(fleet.namespace, old.name)
    fleet.wait("Ready", reason="NoPods")
    old.engine.restart()
    cluster.create_pod(fleet.namespace, make_pod("heir").labels(app="qwen").ip(old.engine.host).port(8000).ready())
    wait_until(lambda: old.engine.paused, PATIENCE_SECONDS, what="the heir being paused")
    status = fleet.wait("Paused")["status"]
    assert [one["pod"] for one in status["targetStates"]] == ["heir"]


def test_r8_a_pod_of_the_same_name_and_address_but_another_uid_is_another_target(
    fleet: Fleet, cluster: Cluster
) -> None:
    (member,) = fleet.paused().members
    before = fleet.target(member)["podUID"]
    cluster.delete_pod(fleet.namespace, member.name)
    member.engine.restart()
    cluster.create_pod(fleet.namespace, member.pod)
    wait_until(lambda: member.engine.paused, PATIENCE_SECONDS, what="the second pod being paused")
    status = fleet.wait_for(lambda status: status.get("paused") is True, "the fleet being paused again")
    assert [one["podUID"] for one in status["targetStates"]] != [before]


def test_r10_terminating_succeeded_and_failed_pods_are_neither_called_nor_counted(
    fleet: Fleet, cluster: Cluster
) -> None:
    living, terminating, succeeded, failed = (fleet.add(create=False) for _ in range(4))
    for member in (living, terminating):
        cluster.create_pod(fleet.namespace, member.pod)
    cluster.create_pod(fleet.namespace, succeeded.pod.phase("Succeeded"))
    cluster.create_pod(fleet.namespace, failed.pod.phase("Failed"))
    cluster.terminate_pod(fleet.namespace, terminating.name)
    fleet.declare("paused")
    fleet.wait("Ready", reason="InDesiredState")
    assert fleet.targets() == {"total": 1, "paused": 1}
    living.engine.asked("/is_paused", times=4)
    assert [member.engine.calls for member in (terminating, succeeded, failed)] == [(), (), ()]


def test_r10_a_pod_that_begins_to_terminate_is_left_alone_from_then_on(fleet: Fleet, cluster: Cluster) -> None:
    staying, going = fleet.paused(2).members
    cluster.terminate_pod(fleet.namespace, going.name)
    fleet.wait_for_targets(total=1, paused=1)
    going.engine.reset_calls()
    going.engine.resume()
    staying.engine.asked("/is_paused", times=4)
    assert going.engine.calls == ()


def test_r11_a_fleet_without_pods_says_so(fleet: Fleet) -> None:
    fleet.declare("paused")
    service = fleet.wait("Ready", reason="NoPods")
    fleet.wait("Paused", "Unknown", "NoPods")
    assert "paused" not in service["status"]
    assert fleet.targets() == {}


def test_a_live_pod_that_loses_its_labels_is_left_as_it_is_with_one_warning(fleet: Fleet, cluster: Cluster) -> None:
    staying, leaving = fleet.paused(2).members
    cluster.patch_pod(fleet.namespace, leaving.name, {"metadata": {"labels": {"app": "other"}}})
    fleet.wait_for_targets(total=1, paused=1)
    event = fleet.wait_for_event("LeftSelection")
    assert event["type"] == "Warning"
    assert leaving.name in event["message"]
    leaving.engine.reset_calls()
    staying.engine.asked("/is_paused", times=5)
    assert leaving.engine.paused
    assert leaving.engine.calls == ()
    assert len(fleet.events("LeftSelection")) == 1


def test_a_deleted_pod_is_not_reported_as_having_left(fleet: Fleet, cluster: Cluster) -> None:
    staying, going = fleet.paused(2).members
    cluster.delete_pod(fleet.namespace, going.name)
    fleet.wait_for_targets(total=1, paused=1)
    staying.engine.asked("/is_paused", times=reads(staying.engine) + 2)
    assert staying.engine.paused
    assert fleet.events("LeftSelection") == []


@pytest.mark.parametrize("status", [502, 503])
def test_case_39_r9_a_sidecar_that_answers_in_place_of_a_starting_engine_is_starting(fleet: Fleet, status: int) -> None:
    fleet.add()
    meshed = fleet.add(ready=False)
    meshed.engine.faults.script("*", Fault.answering(status, b"upstream connect error", times=None))
    fleet.declare("paused")
    fleet.wait("Ready", reason="InDesiredState")
    fleet.wait_for_targets(total=2, paused=1, starting=1)
    meshed.engine.faults.clear()
    fleet.wait_for_targets(total=2, paused=2)


def test_case_39_r9_the_same_answer_of_a_ready_container_holds_the_fleet_back(fleet: Fleet) -> None:
    meshed = fleet.add()
    meshed.engine.faults.script("*", Fault.answering(503, b"upstream connect error", times=None))
    fleet.declare("paused")
    fleet.wait("Ready", "False", "TargetsUnreachable")
    assert "upstream connect error" in fleet.target(meshed)["message"]


def test_r9_a_container_that_crashes_in_a_loop_is_starting(fleet: Fleet) -> None:
    crashing, _ = fleet.paused(2).members
    crashing.engine.stop()
    crashing.pod.waiting("CrashLoopBackOff")
    fleet.update(crashing)
    fleet.wait_for_targets(total=2, paused=1, starting=1)
    fleet.wait("Ready", reason="InDesiredState")


def test_r9_an_engine_that_listens_before_it_is_ready_is_paused_all_the_same(fleet: Fleet) -> None:
    """Readiness of a container decides only what a refused connection means."""
    early = fleet.add(ready=False)
    fleet.declare("paused")
    fleet.wait("Paused")
    assert early.engine.paused
    assert fleet.targets() == {"total": 1, "paused": 1}


def test_r8_a_sidecar_that_restarts_is_not_the_engine(fleet: Fleet, cluster: Cluster) -> None:
    member = fleet.add(create=False)
    member.pod.container("sidecar").ready()
    cluster.create_pod(fleet.namespace, member.pod)
    fleet.declare("paused")
    fleet.wait("Ready", reason="InDesiredState")
    before = sum(1 for call in member.engine.calls if call.path == "/version")
    member.pod.restarted("sidecar").ready()
    fleet.update(member)
    fleet.let_pass(3)
    assert sum(1 for call in member.engine.calls if call.path == "/version") == before  # no new acquaintance
    assert len(member.engine.posts()) == 1


def test_r8_a_pod_that_gets_another_address_is_paused_there(fleet: Fleet) -> None:
    member = fleet.paused().members[0]
    moved = fleet.add(create=False)
    member.pod.ip(moved.engine.host)
    fleet.update(member)
    wait_until(lambda: moved.engine.paused, PATIENCE_SECONDS, what="the engine at the new address being paused")
    fleet.wait_for_targets(total=1, paused=1)
    assert len(member.engine.posts()) == 1


def test_pods_that_come_to_an_empty_fleet_are_paused(fleet: Fleet) -> None:
    fleet.declare("paused")
    fleet.wait("Ready", reason="NoPods")
    fleet.grow(3)
    fleet.wait_for_targets(total=3, paused=3)
    fleet.wait("Paused")
