"""The samples fit together, and a trainer has just the rights that it needs."""

from collections.abc import Callable

import pytest

from llmservice_testing.audit import AuditedControlPlane
from llmservice_testing.builders import Json
from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, Kubectl
from llmservice_testing.manifests import INSTALL, MANIFESTS, documents, kustomize
from llmservice_testing.operator_process import OperatorProcess

SAMPLES = kustomize(MANIFESTS / "samples")


def sample(kind: str, name: str = "qwen") -> Json:
    (found,) = [one for one in SAMPLES if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def labels_of(deployment: Json) -> dict[str, str]:
    found: dict[str, str] = deployment["spec"]["template"]["metadata"]["labels"]
    return found


def selects(selector: Json, labels: dict[str, str]) -> bool:
    wanted: dict[str, str] = selector.get("matchLabels", selector)
    return bool(wanted) and wanted.items() <= labels.items()


ENGINES = sample("Deployment")
(ENGINE,) = ENGINES["spec"]["template"]["spec"]["containers"]


@pytest.mark.parametrize(
    "selector",
    [
        pytest.param(sample("LLMService")["spec"]["selector"], id="LLMService"),
        pytest.param(sample("Service")["spec"]["selector"], id="Service"),
        pytest.param(sample("Service", "qwen-control")["spec"]["selector"], id="control Service"),
        pytest.param(sample("PodDisruptionBudget")["spec"]["selector"], id="PodDisruptionBudget"),
        pytest.param(sample("NetworkPolicy")["spec"]["podSelector"], id="NetworkPolicy"),
    ],
)
def test_everything_selects_the_engines_and_not_the_gateway(selector: Json) -> None:
    assert selects(selector, labels_of(ENGINES))
    assert not selects(selector, labels_of(sample("Deployment", "qwen-gateway")))


def test_the_engines_can_be_paused_and_leave_their_service() -> None:
    spec = ENGINES["spec"]["template"]["spec"]
    assert spec["readinessGates"] == [{"conditionType": "llmservice.io/serving"}]
    assert {"name": "VLLM_SERVER_DEV_MODE", "value": "1"} in ENGINE["env"]
    assert {probe for probe in ENGINE if probe.endswith("Probe")} == {"startupProbe", "readinessProbe", "livenessProbe"}
    (named,) = ENGINE["ports"]
    assert sample("LLMService")["spec"]["engine"]["ports"] == [named["name"]]


def test_a_trainer_finds_engines_that_are_not_ready_and_a_client_does_not() -> None:
    control, client = sample("Service", "qwen-control")["spec"], sample("Service")["spec"]
    assert (control["publishNotReadyAddresses"], control["clusterIP"]) == (True, "None")
    assert "publishNotReadyAddresses" not in client


def test_the_network_lets_the_operator_in_and_no_client() -> None:
    (operator,) = [one for one in documents(INSTALL) if one["kind"] == "Deployment"]
    system = operator["metadata"]["namespace"]
    peers = [peer for rule in sample("NetworkPolicy")["spec"]["ingress"] for peer in rule["from"]]
    admitted = [peer for peer in peers if selects(peer["podSelector"], labels_of(operator))]
    assert [peer["namespaceSelector"]["matchLabels"] for peer in admitted] == [{"kubernetes.io/metadata.name": system}]
    assert not [peer for peer in peers if selects(peer["podSelector"], {"qwen-client": "true"})]
    gateway = [peer for rule in sample("NetworkPolicy", "qwen-gateway")["spec"]["ingress"] for peer in rule["from"]]
    assert {"podSelector": {"matchLabels": {"qwen-client": "true"}}} in gateway


def test_a_trainer_may_pause_its_fleet_and_nothing_more(
    control_plane: AuditedControlPlane,
    cluster: Cluster,
    make_fleet: Callable[..., Fleet],
    namespace: str,
    run_operator: Callable[..., OperatorProcess],
) -> None:
    fleet, other = make_fleet(), make_fleet("other")
    run_operator(control_plane.kubeconfig, (namespace,))
    fleet.grow(2)
    fleet.declare("running")
    other.declare("running")
    for one in (sample("ServiceAccount", "trainer"), sample("Role", "qwen-pause"), sample("RoleBinding", "qwen-pause")):
        moved = {**one, "metadata": {"name": one["metadata"]["name"], "namespace": namespace}}
        if "subjects" in moved:
            moved["subjects"] = [{**moved["subjects"][0], "namespace": namespace}]
        cluster.apply(moved, namespace=namespace)
    token = cluster.service_account_token(namespace, "trainer")
    trainer = Kubectl(control_plane.user_kubeconfig(f"trainer-{namespace}", token=token), namespace)
    pause = ("--type", "merge", "-p", '{"spec":{"generation":"paused"}}')

    trainer("patch", "llmservice", "qwen", *pause)
    trainer("wait", "llmservice/qwen", "--for=condition=Paused", "--timeout=30s")
    assert fleet.all_paused()

    for refused in (
        ("patch", "llmservice", "other", *pause),
        ("delete", "llmservice", "qwen"),
        ("get", "llmservices"),
        ("patch", "llmservice", "qwen", "--subresource=status", "--type", "merge", "-p", '{"status":{"paused":false}}'),
    ):
        answer = trainer(*refused, check=False)
        assert answer.returncode != 0, refused
        assert "Forbidden" in answer.stderr, refused


def test_in_a_protected_namespace_only_pausers_change_generation(
    control_plane: AuditedControlPlane,
    cluster: Cluster,
    make_fleet: Callable[..., Fleet],
    namespace: str,
    kubectl: Kubectl,
    run_operator: Callable[..., OperatorProcess],
) -> None:
    """And the operator, which changes the finalizers only, is not hindered."""
    for one in kustomize(MANIFESTS / "base"):
        if one["kind"] == "ClusterRole":
            cluster.apply(one)
    kubectl("apply", "-f", str(MANIFESTS / "samples" / "who-may-pause.yaml"))
    kubectl("label", "namespace", namespace, "llmservice.io/protected=true")
    for role, subject in (("edit", "--user=editor"), ("operator", f"--serviceaccount={namespace}:operator")):
        kubectl("create", "rolebinding", role, f"--clusterrole=llmservice-{role}", subject)
    token = cluster.service_account_token(namespace, "operator")
    run_operator(control_plane.user_kubeconfig(f"operator-{namespace}", token=token), (namespace,))
    fleet = make_fleet()
    fleet.grow(1)
    fleet.declare("running", deletionPolicy="resume")
    fleet.wait("Ready", reason="InDesiredState")

    def patch(spec: str, *who: str) -> str:
        done = kubectl("patch", "llmservice", "qwen", "--type", "merge", "-p", f'{{"spec":{spec}}}', *who, check=False)
        return done.stderr

    def is_in_force() -> bool:  # a policy takes a moment
        return "only the group pausers may change" in patch('{"generation":"paused"}', "--as=editor")

    wait_until(is_in_force, PATIENCE_SECONDS, what="the policy being in force")
    fleet.want("running")  # as it was before the moment
    assert patch('{"resyncSeconds":2}', "--as=editor") == ""
    assert "only the group pausers" in patch('{"generation":null}', "--as=editor")
    assert kubectl("delete", "llmservice", "qwen", "--as=editor", check=False).returncode != 0

    assert patch('{"generation":"paused"}', "--as=editor", "--as-group=pausers") == ""
    fleet.wait("Paused")
    assert fleet.finalizers() == ["llmservice.io/resume"]
    fleet.delete()
    fleet.wait_gone()
