"""Installing, upgrading and removing the operator: engines do not notice, and nothing is left that cannot be removed."""

import copy
import json
from collections.abc import Callable, Iterator

import pytest

from llmservice_testing.builders import Json
from llmservice_testing.cluster import NotFoundError, wait_until
from llmservice_testing.helm import Helm
from llmservice_testing.kind import cluster as kind
from llmservice_testing.kind.client import Client
from llmservice_testing.kind.images import OPERATOR
from llmservice_testing.kind.installation import DEFINITION, NAMESPACE, Installation, exists, objects
from llmservice_testing.kind.pods import PATIENCE_SECONDS, Called, PodFleet
from llmservice_testing.kind.running import output_of
from llmservice_testing.manifests import MANIFESTS, kustomize

PAUSE = Called("/pause", "mode=abort&clear_cache=true")
KEEP = Called("/pause", "mode=keep&clear_cache=false")
PREVIOUS = f"{OPERATOR.partition(':')[0]}:previous"
DEFINITION_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/llmservices.llmservice.io"


@pytest.fixture
def changed(installation: Installation) -> Iterator[Installation]:
    """The installation, for a test that changes it; afterwards it is again as in manifests/install.yaml."""
    yield installation
    installation.apply()


def previous_manifest() -> list[Json]:
    """The manifest of the release before this one. There was none yet: it is this one, with an image of another name."""
    output_of(["docker", "tag", OPERATOR, PREVIOUS])
    kind.load([PREVIOUS])
    manifest = objects()
    (deployment,) = [each for each in manifest if each["kind"] == "Deployment"]
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = PREVIOUS
    return manifest


def test_an_operator_that_starts_has_nothing_to_complain_of_and_hears_of_a_change_at_once(
    installation: Installation, fleet: PodFleet
) -> None:
    # A pod's user has a number and no name, for one thing, which some libraries do not expect.
    installation.delete_pod()
    wait_until(lambda: len(installation.pods()) == 1, PATIENCE_SECONDS, what="the next operator")
    installation.wait_until_ready()
    fleet.deploy(1)
    fleet.declare("paused")
    fleet.wait("Paused")
    levels = {json.loads(line)["level"] for line in installation.log().splitlines()}
    assert levels == {"info"}, installation.log()


def test_an_upgrade_calls_no_engine_of_a_settled_fleet_restarts_no_pod_and_changes_no_status(
    changed: Installation, fleet: PodFleet
) -> None:
    changed.apply(previous_manifest())
    fleet.deploy(3, gated=True)
    fleet.declare("paused", pause={"mode": "keep"})
    fleet.wait("Ready")
    posts, pods, status = fleet.posts(), _containers(fleet), fleet.status()
    old = changed.pod()

    changed.apply()
    assert changed.pod()["spec"]["containers"][0]["image"] != old["spec"]["containers"][0]["image"]
    fleet.let_pass(2)
    assert fleet.posts() == posts
    assert _containers(fleet) == pods
    assert fleet.status() == status

    fleet.want("running")
    fleet.wait("Paused", "False")


def _containers(fleet: PodFleet) -> list[tuple[str, str]]:
    """What tells each pod and its container from those that might replace them."""
    return [(pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["containerID"]) for pod in fleet.pods()]


def test_beside_a_definition_that_is_too_old_the_operator_refuses_to_act_and_acts_once_it_is_upgraded(
    changed: Installation, fleet: PodFleet
) -> None:
    # Helm does not upgrade what is in a chart's folder `crds`, so an old definition may outlive many operators.
    fleet.deploy(2)
    fleet.declare("running")
    fleet.wait("Ready")
    changed.scale(0)
    changed.apply_objects([_definition_without_pause_mode()])
    wait_until(lambda: _drops_the_mode(fleet), PATIENCE_SECONDS, what="the old definition being in force")

    changed.cluster.merge_patch(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/llmservice-operator", _ONE)
    wait_until(
        lambda: "spec.pause.mode" in changed.log(),
        PATIENCE_SECONDS,
        what="the operator saying which field the definition lacks",
        last=changed.log,
    )
    assert not changed.is_ready()
    # It was asked for `keep`, which the API server dropped without a word: to obey would be to abort every request.
    assert fleet.get()["spec"]["generation"] == "paused"
    assert "mode" not in fleet.get()["spec"]["pause"]
    assert set(map(len, fleet.posts().values())) == {0}

    fleet.want("running")  # or else the mode would now be the default one, which is not what was asked for
    changed.apply_objects(DEFINITION)
    changed.wait_until_ready()
    fleet.want("paused", pause={"mode": "keep"})
    fleet.wait("Paused")
    assert set(map(tuple, fleet.posts().values())) == {(KEEP,)}


_ONE = {"spec": {"replicas": 1}}


def _definition_without_pause_mode() -> Json:
    (definition,) = objects(DEFINITION)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    pause = schema["properties"]["spec"]["properties"]["pause"]
    del pause["properties"]["mode"], pause["default"]["mode"]
    return definition


def _drops_the_mode(fleet: PodFleet) -> bool:
    """Asks for a pause that keeps requests; whether the API server has dropped that word."""
    return "mode" not in fleet.want("paused", pause={"mode": "keep"})["spec"]["pause"]


def test_removing_the_operator_leaves_engines_as_they_are_and_no_object_behind(
    changed: Installation, fleet: PodFleet
) -> None:
    fleet.deploy(2)
    fleet.declare("paused")
    fleet.wait("Paused")
    before = _containers(fleet)

    changed.remove()
    assert not exists(changed.cluster, DEFINITION_PATH)
    assert not exists(changed.cluster, f"/api/v1/namespaces/{NAMESPACE}")
    assert all(engine.is_paused() for engine in fleet.engines())
    assert set(map(tuple, fleet.posts().values())) == {(PAUSE,)}
    assert _containers(fleet) == before

    # Who installs it again goes on where he was.
    changed.apply()
    fleet.declare("running")
    fleet.wait("Paused", "False")


def test_with_deletion_policy_resume_engines_run_again_when_llmservices_go_before_the_operator(
    changed: Installation, fleet: PodFleet
) -> None:
    fleet.deploy(2)
    fleet.declare("paused", deletionPolicy="resume")
    fleet.wait("Paused")

    changed.kubectl("delete", "llmservices.llmservice.io", "--all", "--all-namespaces", "--timeout=60s")
    assert not any(engine.is_paused() for engine in fleet.engines())
    changed.remove()
    assert not exists(changed.cluster, DEFINITION_PATH)


def test_a_namespace_can_be_deleted_with_a_paused_fleet_in_it(installation: Installation, fleet: PodFleet) -> None:
    fleet.deploy(2)
    fleet.declare("paused", deletionPolicy="resume")
    fleet.wait("Paused")

    installation.kubectl("delete", "namespace", fleet.namespace, "--timeout=90s")
    assert not exists(installation.cluster, f"/api/v1/namespaces/{fleet.namespace}")


def test_the_overlay_with_monitoring_has_a_service_through_which_metrics_are_read(
    changed: Installation, client: Client
) -> None:
    # Without the Prometheus Operator there are no definitions for its own kinds.
    ours = [
        manifest
        for manifest in kustomize(MANIFESTS / "overlays" / "monitoring")
        if not manifest["apiVersion"].startswith("monitoring.coreos.com/")
    ]
    changed.apply(ours)
    url = f"http://llmservice-operator-metrics.{NAMESPACE}:9090/metrics"
    wait_until(lambda: "llmservice_" in client.fetch(url), PATIENCE_SECONDS, what="metrics")
    changed.cluster.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/services/llmservice-operator-metrics")


def test_the_chart_installs_an_operator_that_pauses_and_leaves_definition_and_engines_when_it_is_removed(
    changed: Installation, fleet: PodFleet, helm: Helm
) -> None:
    changed.remove()
    kubeconfig = changed.cluster.kubeconfig
    changed.cluster.create_namespace(NAMESPACE)
    helm.install(kubeconfig, "llmservice", NAMESPACE, {})
    changed.wait_until_ready()
    fleet.deploy(2)
    fleet.declare("paused")
    fleet.wait("Paused")
    before = copy.deepcopy(fleet.get())

    helm.uninstall(kubeconfig, "llmservice", NAMESPACE)
    wait_until(lambda: not changed.pods(), PATIENCE_SECONDS, what="the operator being gone")
    assert fleet.get() == before, "helm keeps the definition, and with it every LLMService"
    assert all(engine.is_paused() for engine in fleet.engines())
    assert set(map(tuple, fleet.posts().values())) == {(PAUSE,)}


def test_at_rest_the_operator_needs_less_memory_than_it_asks_for(
    installation: Installation, fleet: PodFleet, record_figure: Callable[[str, object], None]
) -> None:
    fleet.deploy(3)
    fleet.declare("paused")
    fleet.wait("Paused")
    fleet.let_pass(2)
    used = wait_until(lambda: _memory(installation), PATIENCE_SECONDS, what="the kubelet having counted")
    record_figure("memory of the operator at rest, MiB", round(used / 2**20))
    requested = installation.pod()["spec"]["containers"][0]["resources"]["requests"]["memory"]
    assert requested.endswith("Mi")
    assert used < int(requested.removesuffix("Mi")) * 2**20


def _memory(installation: Installation) -> int | None:
    try:
        return installation.memory_bytes()
    except (NotFoundError, KeyError, ValueError):
        return None  # the kubelet looks every ten seconds
