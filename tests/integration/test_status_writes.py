"""How the status is written: whole, against the version that was read, never ahead of the spec, and not for nothing."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from llmservice_testing.builders import Json
from llmservice_testing.cluster import Cluster, ConflictError
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import Fleet, History, condition
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.simulator import Fault


def put_status(cluster: Cluster, service: Json) -> Json:
    """Writes the status of an object as it was read, as the operator does."""
    metadata = service["metadata"]
    path = f"/apis/llmservice.io/v1alpha1/namespaces/{metadata['namespace']}/llmservices/{metadata['name']}/status"
    return cluster.request("PUT", path, body=service)


def statuses(history: History) -> list[Json]:
    """Every version that carries a written status."""
    return [version for version in history.versions() if version["status"].get("conditions")]


@pytest.mark.usefixtures("operator")
def test_r18_r19_every_status_ever_stored_keeps_its_promises(fleet: Fleet, tmp_path: Path) -> None:
    """Every version is looked at: what stands for a millisecond is seen by whoever watches."""
    fleet.grow(6)
    for number, member in enumerate(fleet.members):
        member.engine.faults.script("/pause", Fault.slow(before=0.1 * number, times=None))
    fleet.declare()
    with History(fleet, tmp_path) as history:
        for generation in ("paused", "running", "paused", None, "running", "paused"):
            fleet.want(generation)
            fleet.wait("Ready")
            if generation == "paused":
                fleet.add()
                fleet.wait_for_targets(total=len(fleet.members), paused=len(fleet.members))
        fleet.want("running")
        fleet.want("paused")
        fleet.wait("Ready", reason="InDesiredState")
        versions = statuses(history)
    observed = [version["status"]["observedGeneration"] for version in versions]
    assert observed == sorted(observed)
    assert all(version["status"]["observedGeneration"] <= version["metadata"]["generation"] for version in versions)
    for version in versions:
        status = version["status"]
        targets, paused = status["targets"], condition(version, "Paused")
        assert paused is not None
        expected = targets["total"] - targets["starting"]
        assert {"True": True, "False": False}.get(paused["status"]) == status.get("paused")
        if status.get("paused") is True:
            assert targets["paused"] + targets["sleeping"] == expected
        if status.get("paused") is False:
            assert targets["running"] == expected
        assert all(one["observedGeneration"] == status["observedGeneration"] for one in status["conditions"])
        kinds = [one["type"] for one in status["conditions"]]
        assert kinds[:2] == ["Ready", "Paused"]
        assert not {"Reconciling", "Stalled"} <= set(kinds)
        assert sum(number for state, number in targets.items() if state != "total") <= targets["total"]


@pytest.mark.usefixtures("operator")
def test_last_transition_times_move_only_with_the_status_of_their_condition(fleet: Fleet, tmp_path: Path) -> None:
    fleet.grow(2)
    fleet.declare("running")
    fleet.wait("Ready", reason="InDesiredState")
    with History(fleet, tmp_path) as history:
        fleet.add()
        fleet.wait_for_targets(total=3, running=3)
        fleet.patch(resyncSeconds=2)
        fleet.wait("Ready", reason="InDesiredState")
        for generation in ("paused", "running"):
            fleet.want(generation)
            fleet.wait("Ready", reason="InDesiredState")
        fleet.want(None)
        fleet.wait("Ready", reason="Observing")
        versions = statuses(history)
    for kind in ("Ready", "Paused"):
        seen = [found for version in versions if (found := condition(version, kind)) is not None]
        for earlier, later in itertools.pairwise(seen):
            if earlier["status"] == later["status"]:
                assert earlier["lastTransitionTime"] == later["lastTransitionTime"]
            assert earlier["lastTransitionTime"] <= later["lastTransitionTime"]


@pytest.mark.usefixtures("operator")
def test_paused_is_absent_while_the_fleet_is_mixed(fleet: Fleet) -> None:
    fleet.grow(2)
    fleet.engines[0].faults.script("/pause", Fault.answering(500, {"error": "no"}, times=None))
    fleet.declare("paused")
    service = fleet.wait("Paused", "Unknown", "Mixed")
    fleet.wait_for_targets(total=2, paused=1, running=1)
    assert "paused" not in service["status"]
    assert "paused" not in fleet.status()


@pytest.mark.usefixtures("operator")
def test_target_states_are_bounded_and_name_what_is_wrong_first(fleet: Fleet, cluster: Cluster) -> None:
    for number in range(70):
        cluster.create_pod(fleet.namespace, fleet.add(name=f"a-{number:02}", create=False).pod)
    culprit = fleet.add(name="z-last")
    culprit.engine.faults.script("/is_paused", Fault.answering(401, {"error": "no"}, times=None))
    fleet.declare("paused")
    service = fleet.wait("Stalled", reason="Unauthorized")
    fleet.wait_for_targets(total=71, paused=70, failed=1)
    states = fleet.status()["targetStates"]
    assert len(states) == 64
    assert states[0]["pod"] == "z-last"
    stalled = condition(service, "Stalled")
    assert stalled is not None
    assert stalled["message"].startswith("z-last")


@pytest.mark.usefixtures("operator")
@pytest.mark.promise("truth", fault="an old status is written")
def test_case_47_a_status_written_with_an_old_version_is_refused(fleet: Fleet, cluster: Cluster) -> None:
    fleet.paused(2)
    old = fleet.get()
    fleet.want("running")
    fleet.wait("Paused", "False")
    with pytest.raises(ConflictError):
        put_status(cluster, old)
    assert fleet.status()["paused"] is False


@pytest.mark.usefixtures("operator")
@pytest.mark.promise("truth", "recovers", "calm", fault="somebody writes an old status back")
def test_case_47_old_conditions_that_somebody_writes_back_do_not_stand(fleet: Fleet, cluster: Cluster) -> None:
    """A second loop that writes what it once read, with the version of now."""
    fleet.paused(2)
    old = fleet.get()["status"]
    fleet.want("running")
    fleet.wait("Paused", "False")
    put_status(cluster, fleet.get() | {"status": old})
    status = fleet.wait_for(lambda status: status.get("paused") is False, "the truth being written again")
    assert status["observedGeneration"] == fleet.get()["metadata"]["generation"]
    assert len(fleet.posts()) == 4


@pytest.mark.promise("recovers", "calm", fault="status writes are in conflict")
def test_a_conflict_makes_the_operator_read_and_compute_again(
    fleet: Fleet, cluster: Cluster, own_operator: OperatorProcess
) -> None:
    """While it is frozen, others write: what it then writes against the old version is refused, and is not sent again."""
    member = fleet.add()
    fleet.declare("running")
    fleet.wait("Ready", reason="InDesiredState")
    own_operator.freeze()
    fleet.want("paused")
    for number in range(3):
        cluster.patch_llmservice(fleet.namespace, fleet.name, {"metadata": {"annotations": {"writer": str(number)}}})
    member.engine.pause()
    own_operator.thaw()
    fleet.wait("Ready", reason="InDesiredState")
    assert fleet.get()["metadata"]["annotations"] == {"writer": "2"}
    assert member.engine.paused
    assert member.engine.posts() == []


@pytest.mark.promise("recovers", "truth", fault="two operators at once")
def test_an_operator_that_was_frozen_past_its_successor_ends_in_agreement(
    fleet: Fleet, make_operator: Callable[..., OperatorProcess]
) -> None:
    old, new = make_operator(), make_operator()
    old.start()
    fleet.paused(2)
    old.freeze()
    new.start()
    fleet.want("running")
    fleet.wait("Paused", "False")
    old.thaw()
    fleet.let_pass(3)
    service = fleet.wait("Ready", reason="InDesiredState")
    assert service["status"]["paused"] is False
    assert not any(engine.paused for engine in fleet.engines)
    new.kill()
    old.kill()


def test_r5_last_pause_is_stored_before_the_first_wait_is_sent(
    fleet: Fleet,
    cluster: Cluster,
    control_plane: ControlPlane,
    make_operator: Callable[..., OperatorProcess],
) -> None:
    """An operator that may not write the status (yet) does not send what only a stored fact makes safe.

    An abort needs no such fact, and is sent.
    """
    rights = [
        {"apiGroups": ["llmservice.io"], "resources": ["llmservices"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods", "configmaps"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    ]
    writing = {"apiGroups": ["llmservice.io"], "resources": ["llmservices/status"], "verbs": ["get", "update", "patch"]}

    def allow(rules: list[Json]) -> None:
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "operator"}}
        cluster.apply(role | {"rules": rules}, namespace=fleet.namespace)

    allow(rights)
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"},
        "subjects": [{"kind": "User", "name": "nobody", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    cluster.apply(binding, namespace=fleet.namespace)
    operator = make_operator(control_plane.user_kubeconfig("nobody"))
    operator.start()
    fleet.grow(2)
    fleet.declare("paused", pause={"mode": "wait"})
    fleet.let_pass(4)
    assert fleet.posts() == []

    allow([*rights, writing])
    fleet.wait("Ready", reason="InDesiredState")
    assert [post.parameters["mode"] for post in fleet.posts()] == ["wait", "wait"]
