"""Who may do what: operators of one namespace, and people."""

from collections.abc import Callable, Iterator

import pytest

from llmservice_testing.builders import Json
from llmservice_testing.cluster import Cluster
from llmservice_testing.fleet import Kubectl
from llmservice_testing.kind.installation import DEPLOYMENT, NAMESPACE, Installation
from llmservice_testing.kind.pods import PodFleet
from llmservice_testing.manifests import MANIFESTS, kustomize

EVERYWHERE = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{DEPLOYMENT}"


@pytest.fixture
def served(installation: Installation, make_namespace: Callable[[], str]) -> Iterator[str]:
    """A namespace that the operator serves while it serves no other: the overlay `namespaced`."""
    namespace = make_namespace()
    try:
        installation.cluster.request("DELETE", EVERYWHERE)
        installation.apply([_for(namespace, each) for each in kustomize(MANIFESTS / "overlays" / "namespaced")])
        yield namespace
    finally:
        installation.apply()


def _for(namespace: str, manifest: Json) -> Json:
    """As the overlay's comment says: the name `models`, changed in its two places."""
    if manifest["kind"] == "RoleBinding":
        manifest["metadata"]["namespace"] = namespace
    if manifest["kind"] == "Deployment":
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        container["args"] = [word.replace("=models", f"={namespace}") for word in container["args"]]
    return manifest


def test_an_operator_of_one_namespace_pauses_there_and_touches_nothing_elsewhere(
    served: str, namespace: str, cluster: Cluster, kubectl: Kubectl, watched: list[str]
) -> None:
    watched += [served, namespace]
    ours, theirs = PodFleet(cluster, served), PodFleet(cluster, namespace)
    for fleet in (ours, theirs):
        fleet.deploy(2)
        fleet.declare("paused")

    ours.wait("Paused")
    ours.let_pass(2)
    assert all(engine.is_paused() for engine in ours.engines())
    assert theirs.status() == {"conditions": [], "observedGeneration": -1, "targetStates": []}
    assert [engine.reads() for engine in theirs.engines()] == [0, 0], "not even read"
    assert not any(theirs.posts().values())

    operator = f"--as=system:serviceaccount:{NAMESPACE}:{DEPLOYMENT}"
    for verb, resource in (("list", "pods"), ("list", "llmservices"), ("get", "configmaps")):
        asked = ("auth", "can-i", verb, resource, operator)
        assert kubectl(*asked, "--namespace", served).stdout.strip() == "yes", (verb, resource)
        assert kubectl(*asked, check=False).stdout.strip() == "no", (verb, resource)


@pytest.mark.parametrize("role", [None, "view"])
def test_who_has_no_right_to_edit_cannot_pause(fleet: PodFleet, kubectl: Kubectl, role: str | None) -> None:
    fleet.deploy(1)
    fleet.declare("running")
    fleet.wait("Ready")
    person = _person(kubectl, role)

    refused = kubectl(*_pause, person, check=False)
    assert refused.returncode != 0
    assert "Forbidden" in refused.stderr
    assert fleet.get()["spec"]["generation"] == "running"
    assert (kubectl("get", "llms", person, check=False).returncode == 0) is (role == "view")
    (posts,) = fleet.posts().values()
    assert posts == []


def test_who_may_edit_in_a_namespace_can_pause_there_and_cannot_forge_what_the_status_says(
    fleet: PodFleet, kubectl: Kubectl
) -> None:
    fleet.deploy(1)
    fleet.declare("running")
    fleet.wait("Ready")
    person = _person(kubectl, "edit")

    forged = kubectl(*_pause[:-1], '{"status":{"paused":true}}', "--subresource=status", person, check=False)
    assert "Forbidden" in forged.stderr
    assert kubectl(*_pause, person, "--namespace", "default", check=False).returncode != 0
    kubectl(*_pause, person)
    fleet.wait("Paused")


_pause = ("patch", "llmservice", "qwen", "--type", "merge", "-p", '{"spec":{"generation":"paused"}}')


def _person(kubectl: Kubectl, role: str | None) -> str:
    """The flag that makes kubectl speak for somebody with this role in the test's namespace."""
    if role is not None:
        kubectl("create", "rolebinding", f"ann-may-{role}", f"--clusterrole={role}", "--user=ann")
    return "--as=ann"
