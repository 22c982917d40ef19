"""`deletionPolicy`: what becomes of paused engines when their LLMService is deleted."""

import time
import uuid
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import PATIENCE_SECONDS, RIGHTS, Addresses, Fleet, History, allow, condition, to_seconds
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.simulator import Fault, Options, SimulatorThread

FINALIZER = "llmservice.io/resume"
OTHER = "example.com/other"
MAY_SET_FINALIZERS = {"apiGroups": ["llmservice.io"], "resources": ["llmservices"], "verbs": ["patch"]}


def paths(fleet: Fleet) -> list[str]:
    return [post.path for post in fleet.posts()]


# leave


@pytest.mark.usefixtures("operator")
def test_leave_has_no_finalizer_ever_and_leaves_the_engines(fleet: Fleet, tmp_path: Path) -> None:
    fleet.declare("running")
    with History(fleet, tmp_path) as history:
        fleet.grow(2)
        fleet.want("paused")
        fleet.wait("Paused")
        fleet.let_pass(2)
        versions = history.versions()
    assert len(versions) >= 3
    assert [one["metadata"].get("finalizers") for one in versions] == [None] * len(versions)
    fleet.delete()
    assert fleet.is_gone()  # at once: nothing holds it
    # Another one proves that the operator has seen the deletion: it finds the engines paused.
    fleet.declare()
    fleet.wait("Ready", reason="Observing")
    assert fleet.all_paused()
    assert paths(fleet) == ["/pause"] * 2


# resume


@pytest.mark.usefixtures("operator")
def test_the_finalizer_comes_with_the_first_pause_and_not_before(fleet: Fleet, tmp_path: Path) -> None:
    member = fleet.add()
    fleet.declare("running", deletionPolicy="resume")
    fleet.wait("Ready", reason="InDesiredState")
    fleet.let_pass(2)
    assert fleet.finalizers() == []
    member.engine.faults.script("/pause", Fault.slow(before=0.5, times=None))
    with History(fleet, tmp_path) as history:
        fleet.want("paused")
        member.engine.asked("/pause")
        assert fleet.finalizers() == [FINALIZER]  # while the call has done nothing yet
        fleet.wait("Paused")
        versions = history.versions()
    touched = [one for one in versions if one["status"]["targets"].get("pausing") or one["status"].get("paused")]
    assert touched
    assert all(one["metadata"].get("finalizers") == [FINALIZER] for one in touched)
    fleet.want("running")
    fleet.wait("Paused", "False")
    assert fleet.finalizers() == [FINALIZER]


def test_no_pause_is_sent_before_the_finalizer_could_be_set(
    fleet: Fleet, cluster: Cluster, control_plane: ControlPlane, make_operator: Callable[..., OperatorProcess]
) -> None:
    """The promise to resume can only be kept by a finalizer, so without the right to set one nothing is paused. That is
    said, and the status stays true all the same."""
    allow(cluster, fleet.namespace, "nobody", RIGHTS)
    make_operator(control_plane.user_kubeconfig("nobody")).start()
    fleet.grow(2)
    fleet.declare("paused", deletionPolicy="resume")
    fleet.let_pass(3)
    assert fleet.posts() == []
    fleet.wait("Ready", "False")
    fleet.wait("Paused", "False")
    allow(cluster, fleet.namespace, "nobody", [*RIGHTS, MAY_SET_FINALIZERS])
    fleet.wait("Ready", reason="InDesiredState")
    assert fleet.finalizers() == [FINALIZER]
    assert paths(fleet) == ["/pause"] * 2


def test_r18_a_true_is_withdrawn_though_the_finalizer_cannot_be_set(
    fleet: Fleet, cluster: Cluster, control_plane: ControlPlane, make_operator: Callable[..., OperatorProcess]
) -> None:
    allow(cluster, fleet.namespace, "nobody", RIGHTS)
    make_operator(control_plane.user_kubeconfig("nobody")).start()
    strayed, _ = fleet.paused(2).members
    fleet.patch(deletionPolicy="resume")
    strayed.engine.resume()
    fleet.wait_for(lambda status: "paused" not in status, "paused: true being withdrawn")
    assert fleet.status()["observedGeneration"] == 2


@pytest.mark.usefixtures("operator")
def test_deletion_resumes_the_engines_and_then_lets_the_object_go(fleet: Fleet) -> None:
    fleet.paused(3, deletionPolicy="resume")
    fleet.members[0].engine.faults.script("/resume", Fault.slow(before=1.0))
    fleet.delete()
    fleet.members[0].engine.asked("/resume")
    assert not fleet.is_gone()
    fleet.wait_gone()
    assert not any(engine.paused for engine in fleet.engines)
    assert sorted(paths(fleet)) == ["/pause"] * 3 + ["/resume"] * 3


@pytest.mark.usefixtures("operator")
def test_deletion_takes_a_finalizer_of_others_for_what_it_is(fleet: Fleet, cluster: Cluster) -> None:
    fleet.grow(2)
    fleet.declare("running", deletionPolicy="resume")
    cluster.patch_llmservice(fleet.namespace, fleet.name, {"metadata": {"finalizers": [OTHER]}})
    fleet.want("paused")
    fleet.wait("Paused")
    assert fleet.finalizers() == [OTHER, FINALIZER]
    fleet.delete()
    wait_until(lambda: fleet.finalizers() == [OTHER], PATIENCE_SECONDS, what="ours being gone")
    assert not any(engine.paused for engine in fleet.engines)
    fleet.let_pass(2)
    assert fleet.finalizers() == [OTHER]
    assert sorted(paths(fleet)) == ["/pause"] * 2 + ["/resume"] * 2
    cluster.patch_llmservice(fleet.namespace, fleet.name, {"metadata": {"finalizers": None}})
    fleet.wait_gone()


@pytest.mark.usefixtures("operator")
def test_an_engine_that_hangs_holds_up_neither_the_others_nor_the_object(fleet: Fleet) -> None:
    good, hung = fleet.grow(2)
    fleet.declare("paused", deletionPolicy="resume", requestTimeoutSeconds=1)
    fleet.wait("Paused")
    for route in ("/is_paused", "/resume", "/version"):
        hung.engine.faults.script(route, Fault.hang(times=None))
    fleet.delete()
    wait_until(lambda: not good.engine.paused, PATIENCE_SECONDS, what="the readable one being resumed")
    fleet.wait_gone()  # PATIENCE_SECONDS are less than the 60 s that it may be held


@pytest.mark.usefixtures("operator")
def test_an_engine_that_is_down_or_asleep_does_not_hold_the_object(fleet: Fleet) -> None:
    good, down, sleeper = fleet.add(), fleet.add(), fleet.add(options=Options(sleep_mode=True))
    fleet.declare("paused", deletionPolicy="resume", requestTimeoutSeconds=1)
    fleet.wait("Paused")
    httpx.post(f"{sleeper.engine.url}/sleep?level=1").raise_for_status()
    fleet.wait_for_targets(total=3, paused=2, sleeping=1)
    down.engine.stop()
    fleet.delete()
    fleet.wait_gone()
    assert not good.engine.paused
    assert sleeper.engine.posts("/resume") == []


@pytest.mark.usefixtures("operator")
def test_a_pod_that_appears_during_the_deletion_is_not_paused(fleet: Fleet) -> None:
    fleet.paused(1, deletionPolicy="resume")
    fleet.members[0].engine.faults.script("/resume", Fault.slow(before=2.0))
    fleet.delete()
    fleet.members[0].engine.asked("/resume")
    newcomer = fleet.add()
    fleet.wait_gone()
    assert newcomer.engine.posts() == []


@pytest.mark.usefixtures("operator")
def test_a_policy_changed_to_leave_removes_the_finalizer(fleet: Fleet) -> None:
    fleet.paused(2, deletionPolicy="resume")
    assert fleet.finalizers() == [FINALIZER]
    fleet.patch(deletionPolicy="leave")
    wait_until(lambda: fleet.finalizers() == [], PATIENCE_SECONDS, what="the finalizer being gone")
    fleet.wait("Ready", reason="InDesiredState")
    assert fleet.all_paused()
    fleet.delete()
    assert fleet.is_gone()
    assert paths(fleet) == ["/pause"] * 2


@pytest.mark.usefixtures("operator")
def test_a_policy_changed_to_resume_while_paused_sets_the_finalizer_and_calls_nobody(fleet: Fleet) -> None:
    fleet.paused(2)
    fleet.patch(deletionPolicy="resume")
    wait_until(lambda: fleet.finalizers() == [FINALIZER], PATIENCE_SECONDS, what="the finalizer")
    fleet.wait("Ready", reason="InDesiredState")
    assert paths(fleet) == ["/pause"] * 2


@pytest.mark.usefixtures("operator")
def test_without_generation_deletion_does_nothing_to_engines(fleet: Fleet) -> None:
    """Observe only: no control call, on deletion neither."""
    fleet.paused(2, deletionPolicy="resume")
    fleet.want(None)
    fleet.wait("Ready", reason="Observing")
    fleet.delete()
    fleet.wait_gone()
    fleet.declare()
    fleet.wait("Ready", reason="Observing")
    assert fleet.all_paused()
    assert paths(fleet) == ["/pause"] * 2


def test_an_object_that_is_deleted_while_no_operator_is_there_is_held_until_one_is(
    fleet: Fleet, own_operator: OperatorProcess
) -> None:
    fleet.paused(2, deletionPolicy="resume")
    own_operator.kill()
    fleet.delete()
    assert not fleet.is_gone()
    assert fleet.all_paused()
    own_operator.start()
    fleet.wait_gone()
    assert not any(engine.paused for engine in fleet.engines)
    assert sorted(paths(fleet)) == ["/pause"] * 2 + ["/resume"] * 2


def test_without_an_operator_the_finalizer_can_be_removed_by_hand(fleet: Fleet, own_operator: OperatorProcess) -> None:
    """As the README says: the engines then stay as they are."""
    fleet.paused(1, deletionPolicy="resume")
    own_operator.kill()
    fleet.delete()
    fleet.cluster.patch_llmservice(fleet.namespace, fleet.name, {"metadata": {"finalizers": None}})
    assert fleet.is_gone()
    assert fleet.all_paused()


@pytest.mark.usefixtures("operator")
def test_r12_deleting_the_younger_with_resume_touches_nothing_of_the_older(
    fleet: Fleet, make_fleet: Callable[..., Fleet]
) -> None:
    shared = fleet.add(labels={"app": "qwen", "team": "rl"})
    fleet.declare("paused")
    fleet.wait("Paused")
    created = to_seconds(fleet.get()["metadata"]["creationTimestamp"])
    wait_until(lambda: time.time() > created + 1, PATIENCE_SECONDS, what="another second")
    young = make_fleet(name="young")
    own = young.add(labels={"team": "rl"})
    young.declare("paused", selector={"matchLabels": {"team": "rl"}}, deletionPolicy="resume")
    young.wait("Stalled", reason="PodsClaimed")
    wait_until(lambda: own.engine.paused, PATIENCE_SECONDS, what="its own being paused")
    young.delete()
    young.wait_gone()
    assert not own.engine.paused
    assert [post.path for post in shared.engine.posts()] == ["/pause"]


def test_a_namespace_that_goes_is_not_held_and_nothing_is_resumed_in_it(
    cluster: Cluster,
    simulator: SimulatorThread,
    addresses: Addresses,
    operator: OperatorProcess,
) -> None:
    """No controller empties namespaces here, so the test does what it does: it deletes what is in it."""
    namespace = f"test-{uuid.uuid4().hex[:10]}"
    cluster.create_namespace(namespace)
    fleet = Fleet(cluster, simulator, addresses, namespace)
    try:
        fleet.paused(2, deletionPolicy="resume")
        cluster.delete_namespace(namespace)
        assert "deletionTimestamp" in cluster.get(f"/api/v1/namespaces/{namespace}")["metadata"]
        for engine in fleet.engines:  # these would hold it for 60 s
            engine.faults.script("/resume", Fault.answering(500, {"error": "no"}, times=None))
        fleet.delete()
        fleet.wait_gone()
        assert fleet.all_paused()
        assert paths(fleet) == ["/pause"] * 2
    finally:
        fleet.close()


@pytest.mark.usefixtures("operator")
def test_a_deleted_object_that_waits_for_an_engine_says_so(fleet: Fleet) -> None:
    fleet.paused(1, deletionPolicy="resume")
    fleet.members[0].engine.faults.script("/resume", Fault.answering(500, {"error": "not now"}, times=3))
    fleet.delete()
    status = fleet.wait_for(lambda status: status["observedGeneration"] == 2, "the deletion being reported")
    ready = condition({"status": status}, "Ready")
    assert ready is not None
    assert ready["status"] == "False"
    fleet.wait_gone()
    assert not fleet.members[0].engine.paused
