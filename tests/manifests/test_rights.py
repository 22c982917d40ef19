"""Least privilege, on a real API server: with the rules of the manifests the operator does all it can be told to do, each
rule is used, and where one is missing the operator says which."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from llmservice_testing.audit import AuditedControlPlane, Right, rights, rules
from llmservice_testing.builders import Json
from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, Member, allow
from llmservice_testing.manifests import INSTALL, MANIFESTS, documents, kustomize
from llmservice_testing.operator_process import OperatorProcess

SYSTEM = "llmservice-system"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:llmservice-operator"

SERVICES, PODS = ("llmservice.io", "llmservices"), ("", "pods")
GRANTED = rights(
    next(
        one["rules"]
        for one in kustomize(MANIFESTS / "base")
        if one["kind"] == "ClusterRole" and one["metadata"]["name"] == "llmservice-operator"
    )
)


# Everything that needs a right


def make_conflicts(fleet: Fleet) -> None:
    """Changes what is wanted, and then the object many times, so that a write of the operator may come too late."""
    fleet.want("running" if fleet.get()["spec"]["generation"] == "paused" else "paused")
    for number in range(20):
        annotations = {"example.com/number": str(number)}
        fleet.cluster.patch_llmservice(fleet.namespace, fleet.name, {"metadata": {"annotations": annotations}})


def take_the_label_off(fleet: Fleet, member: Member) -> None:
    """A pod leaves the selection, and lives."""
    path = f"/api/v1/namespaces/{fleet.namespace}/pods/{member.name}"
    fleet.cluster.merge_patch(path, {"metadata": {"labels": {"app": None}}})


def trust_a_config_map(fleet: Fleet) -> None:
    """Declares the fleet to be checked against certificates of a ConfigMap, which is there and of no use."""
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "trusted"}, "data": {"ca.crt": "none"}}
    fleet.cluster.apply(config_map, namespace=fleet.namespace)
    fleet.grow(1)
    fleet.declare("paused", engine={"scheme": "https", "tls": {"caConfigMap": "trusted"}})


def use_every_right(fleet: Fleet, other: Fleet, used: Callable[[], set[Right]]) -> None:
    """All that the operator can be told to do with one fleet, and with another that speaks TLS."""
    first, second = fleet.grow(2, gated=True)
    fleet.declare("running", deletionPolicy="resume")
    fleet.wait_for_gate(first, "True")
    fleet.want("paused")
    fleet.wait("Paused")
    assert fleet.all_paused()
    assert fleet.finalizers() == ["llmservice.io/resume"]
    fleet.wait_for_gate(second, "False")
    fleet.wait_for_event("Paused")

    take_the_label_off(fleet, second)
    fleet.wait_for_event("LeftSelection")

    def is_read_again() -> bool:
        make_conflicts(fleet)
        return Right("get", *SERVICES) in used()

    wait_until(is_read_again, PATIENCE_SECONDS, what="a status write in conflict")
    fleet.want("paused")
    fleet.wait("Ready", reason="InDesiredState")
    fleet.delete()
    fleet.wait_gone()
    assert not first.engine.paused

    trust_a_config_map(other)
    wait_until(lambda: Right("get", "", "configmaps") in used(), PATIENCE_SECONDS, what="the ConfigMap being read")


@pytest.fixture(params=["cluster", "namespaced"])
def overlay(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[list[Json]]:
    """The objects of an overlay, applied apart from the Deployment, which nothing here would run; for `cluster` those of
    install.yaml. Afterwards its rights are gone again."""
    installed = documents(INSTALL) if request.param == "cluster" else kustomize(MANIFESTS / "overlays" / request.param)
    for one in installed:
        if one["kind"] == "RoleBinding":
            cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": one["metadata"]["namespace"]}})
        if one["kind"] != "Deployment":
            cluster.apply(one)
    yield installed
    for one in installed:
        kind, metadata = one["kind"], one["metadata"]
        if kind in ("RoleBinding", "ClusterRoleBinding"):
            folder = (
                f"namespaces/{metadata['namespace']}/rolebindings" if kind == "RoleBinding" else "clusterrolebindings"
            )
            cluster.request("DELETE", f"/apis/rbac.authorization.k8s.io/v1/{folder}/{metadata['name']}")


def served(installed: list[Json]) -> tuple[str, ...] | None:
    """The namespaces that the Deployment's arguments name; None for all."""
    (deployment,) = [one for one in installed if one["kind"] == "Deployment"]
    arguments: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    named = tuple(one.partition("=")[2] for one in arguments if one.startswith("--namespace="))
    assert bool(named) != ("--all-namespaces" in arguments)
    return named or None


def test_the_operator_does_everything_with_just_these_rights_and_uses_each(
    overlay: list[Json],
    control_plane: AuditedControlPlane,
    cluster: Cluster,
    namespace: str,
    make_fleet: Callable[..., Fleet],
    run_operator: Callable[..., OperatorProcess],
) -> None:
    namespaces = served(overlay)
    place = namespaces[0] if namespaces is not None else namespace
    fleet, other = make_fleet(namespace=place), make_fleet("other", namespace=place)
    mark = control_plane.mark()
    token = cluster.service_account_token(SYSTEM, "llmservice-operator")
    operator = run_operator(control_plane.user_kubeconfig("operator", token=token), namespaces)

    use_every_right(fleet, other, lambda: control_plane.rights_used(ACCOUNT, since=mark))
    operator.stop()

    seen = control_plane.requests(ACCOUNT, since=mark)
    assert [one for one in seen if one.status in (401, 403)] == []
    assert {one.right for one in seen if one.right is not None} == GRANTED
    for one in seen:
        if one.right is None:  # what system:discovery lets every service account read
            assert one.path.startswith(("/api", "/apis", "/openapi/v3", "/version")), one
        elif namespaces is not None:
            assert one.namespace in namespaces, one


# Each right taken away


@dataclass(frozen=True)
class Case:
    """What is done where a right is missing, and what that costs.

    Attributes:
        deed: needs the right.
        again: is done before each look at the log, where the deed is not sure to need the right.
        cost: true, or raises, once the world shows what the missing right costs; None where nothing but the log does.
    """

    deed: Callable[[Fleet], object]
    again: Callable[[Fleet], object] | None = None
    cost: Callable[[Fleet], object] | None = None


def pause(fleet: Fleet) -> None:
    fleet.grow(1)
    fleet.declare("paused")


def run_gated(fleet: Fleet) -> None:
    fleet.grow(1, gated=True)
    fleet.declare("running")


def pause_and_relabel(fleet: Fleet) -> None:
    fleet.paused(2)
    take_the_label_off(fleet, fleet.members[0])


def promise_to_resume(fleet: Fleet) -> None:
    fleet.grow(1)
    fleet.declare("paused", deletionPolicy="resume")


def delete_with_the_namespace(fleet: Fleet) -> None:
    fleet.paused(1, deletionPolicy="resume")
    fleet.cluster.delete_namespace(fleet.namespace)
    fleet.delete()


def nothing_is_paused(fleet: Fleet) -> bool:
    return fleet.posts() == []


def a_change_is_not_noticed(fleet: Fleet) -> bool:
    fleet.wait("Paused")
    fleet.want("running")
    fleet.let_pass(2)
    return fleet.all_paused()


def ready_says_that_finalizers_are_forbidden(fleet: Fleet) -> bool:
    conditions = fleet.wait("Ready", "False")["status"]["conditions"]
    return any("finalizers" in one["message"] and "forbidden" in one["message"] for one in conditions)


def the_target_says_that_the_config_map_is_forbidden(fleet: Fleet) -> bool:
    message = fleet.target(fleet.members[0]).get("message", "")
    return "ConfigMap trusted" in message and "forbidden" in message


CASES = {
    Right("list", *SERVICES): Case(pause, cost=nothing_is_paused),
    Right("watch", *SERVICES): Case(pause, cost=a_change_is_not_noticed),
    Right("get", *SERVICES): Case(pause, again=make_conflicts),
    Right("update", "llmservice.io", "llmservices/status"): Case(
        pause, cost=lambda fleet: fleet.all_paused() and "paused" not in fleet.status()
    ),
    Right("patch", *SERVICES): Case(promise_to_resume, cost=ready_says_that_finalizers_are_forbidden),
    Right("get", "", "namespaces"): Case(
        delete_with_the_namespace, cost=lambda fleet: fleet.is_gone() and not fleet.all_paused()
    ),
    Right("list", *PODS): Case(pause, cost=nothing_is_paused),
    Right("watch", *PODS): Case(pause),
    Right("get", *PODS): Case(pause_and_relabel, cost=lambda fleet: fleet.events("LeftSelection") == []),
    Right("patch", "", "pods/status"): Case(run_gated, cost=lambda fleet: fleet.gate(fleet.members[0]) is None),
    Right("get", "", "configmaps"): Case(trust_a_config_map, cost=the_target_says_that_the_config_map_is_forbidden),
    Right("list", "autoscaling", "horizontalpodautoscalers"): Case(pause),
    Right("create", "", "events"): Case(pause, cost=lambda fleet: fleet.events() == []),
}


def test_every_right_is_taken_away_once() -> None:
    assert set(CASES) == GRANTED


def refusals(operator: OperatorProcess, right: Right) -> list[str]:
    """The lines of its log that tell people which right is missing, in the API server's own words."""
    words = f'cannot {right.verb} resource \\"{right.resource}\\"'
    lines = [json.dumps(line) for line in operator.log_lines() if line.get("level") in ("warning", "error")]
    return [line for line in lines if words in line.replace('\\\\"', '\\"')]


@pytest.mark.parametrize("missing", [pytest.param(right, id=str(right)) for right in sorted(CASES)])
def test_a_missing_right_is_named_and_costs_what_it_is_for(
    missing: Right,
    fleet: Fleet,
    control_plane: AuditedControlPlane,
    cluster: Cluster,
    run_operator: Callable[..., OperatorProcess],
) -> None:
    case = CASES[missing]
    kubeconfig = account_with(GRANTED - {missing}, cluster, control_plane, fleet.namespace)
    operator = run_operator(kubeconfig, (fleet.namespace,))
    case.deed(fleet)

    def is_named() -> bool:
        if case.again is not None:
            case.again(fleet)
        return bool(refusals(operator, missing))

    wait_until(is_named, PATIENCE_SECONDS, what=f"the log naming {missing}", last=operator.log_tail)
    if case.cost is not None:
        cost = case.cost
        wait_until(lambda: cost(fleet), PATIENCE_SECONDS, what=f"what it costs not to {missing}", last=fleet.get)


def test_in_a_namespace_that_ends_engines_are_left_paused_with_the_right_to_look(
    fleet: Fleet, control_plane: AuditedControlPlane, cluster: Cluster, run_operator: Callable[..., OperatorProcess]
) -> None:
    """The other side of the case of `get namespaces` above."""
    run_operator(account_with(GRANTED, cluster, control_plane, fleet.namespace), (fleet.namespace,))
    delete_with_the_namespace(fleet)
    fleet.wait_gone()
    assert fleet.all_paused()


def account_with(granted: set[Right], cluster: Cluster, plane: AuditedControlPlane, namespace: str) -> Path:
    """A kubeconfig of a service account of the namespace that has just these rights in it."""
    token = cluster.service_account_token(namespace, "operator")
    allow(cluster, namespace, f"system:serviceaccount:{namespace}:operator", rules(granted))
    return plane.user_kubeconfig(f"operator-{namespace}", token=token)
