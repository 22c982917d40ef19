"""`kubectl llm doctor`: what is wrong in a real API server is found there, said with its evidence, and can be mended by the
command that is named. That each check says nothing where nothing is wrong is in tests/plugin."""

import json
import shlex
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from llmservice_testing.builders import Json
from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, Kubectl, allow, to_seconds
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.ports import free_ports
from llmservice_testing.simulator import Fault, Options

from .conftest import Plugin

NEEDS_PERSON = 4


@dataclass(frozen=True)
class Diagnosis:
    """What doctor said."""

    status: int
    findings: dict[str, Json]
    """By cause."""

    def evidence(self, cause: str) -> str:
        """What stands behind a finding."""
        return "\n".join([self.findings[cause]["what"], *self.findings[cause]["how"]])

    def command(self, cause: str) -> list[str]:
        """The first command that is named, in words, without `kubectl`."""
        found = next(line for line in self.findings[cause]["do"] if "kubectl " in line)
        return shlex.split(found[found.index("kubectl ") :], comments=True)[1:]


def diagnose(llm: Plugin, *arguments: str) -> Diagnosis:
    """Runs it, for programs."""
    done = llm("doctor", "qwen", "-o", "json", *arguments)
    assert done.status in (0, NEEDS_PERSON), done
    findings = json.loads(done.output)["findings"]
    return Diagnosis(done.status, {one["cause"]: one for one in findings})


def diagnose_silence(llm: Plugin) -> Diagnosis:
    """The same, as soon as the silence of the operator is long enough to be called one."""

    def look() -> Diagnosis | None:
        found = diagnose(llm)
        assert {"TooEarly", "OperatorSilent"} & found.findings.keys()
        return found if "OperatorSilent" in found.findings else None

    return wait_until(look, PATIENCE_SECONDS, what="the operator being called silent")


def weights(found: Diagnosis, weight: str) -> set[str]:
    """The causes of this weight."""
    return {cause for cause, one in found.findings.items() if one["weight"] == weight}


def apply(fleet: Fleet, api_version: str, kind: str, name: str, **fields: object) -> None:
    """Creates an object in the fleet's namespace."""
    body: Json = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}} | fields
    fleet.cluster.apply(body, namespace=fleet.namespace)


def serve(fleet: Fleet, name: str, *, ready: list[str]) -> None:
    """A Service of the fleet's pods, with these ready; there is no controller here that would do it."""
    apply(fleet, "v1", "Service", name, spec={"selector": {"app": "qwen"}, "ports": [{"port": 80}]})
    endpoints = [
        {
            "addresses": [f"10.0.0.{index + 1}"],
            "conditions": {"ready": member.name in ready},
            "targetRef": {"kind": "Pod", "name": member.name},
        }
        for index, member in enumerate(fleet.members)
    ]
    body: Json = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": endpoints,
    }
    fleet.cluster.apply(body, namespace=fleet.namespace)


# The resource and its operator


@pytest.mark.usefixtures("operator")
def test_a_fleet_that_is_as_asked_has_no_problem(fleet: Fleet, llm: Plugin) -> None:
    fleet.paused(2)
    found = diagnose(llm)
    assert found.status == 0
    assert weights(found, "problem") == set()
    assert "python-httpx" in found.evidence("SetBy")
    said = llm.ok("doctor", "qwen")
    assert said.startswith(f"{fleet.namespace}/qwen: paused is asked for, and it is so\n")


@pytest.mark.usefixtures("without_operator")
def test_no_operator_is_told_by_the_generation_that_nobody_observed(fleet: Fleet, llm: Plugin) -> None:
    fleet.add()
    fleet.declare("paused")
    found = diagnose_silence(llm)
    assert found.status == NEEDS_PERSON
    assert weights(found, "problem") == {"OperatorSilent"}
    assert "status.observedGeneration: -1 (never visited), metadata.generation: 1" in found.evidence("OperatorSilent")
    assert "no Deployment of the cluster has the labels" in found.evidence("OperatorSilent")


def test_an_operator_that_died_is_only_told_by_asking_it(
    fleet: Fleet, llm: Plugin, own_operator: OperatorProcess
) -> None:
    fleet.paused(1)
    assert "OperatorAlive" in diagnose(llm, "--verify").findings
    own_operator.kill()
    assert diagnose(llm).status == 0  # nothing shows it
    found = diagnose(llm, "--verify")
    assert found.status == NEEDS_PERSON
    assert "OperatorSilent" in found.findings


@pytest.mark.usefixtures("without_operator")
def test_what_keeps_a_deleted_object_is_named_with_the_command_that_frees_it(
    fleet: Fleet, llm: Plugin, kubectl: Kubectl
) -> None:
    fleet.declare("paused")
    fleet.cluster.patch_llmservice(fleet.namespace, "qwen", {"metadata": {"finalizers": ["llmservice.io/resume"]}})
    fleet.delete()
    found = diagnose(llm)
    assert found.findings["KeptByFinalizer"]["weight"] == "problem"
    do = found.findings["KeptByFinalizer"]["do"]
    patch = next(line for line in do if "kubectl patch" in line)
    kubectl(*shlex.split(patch[patch.index("kubectl patch") :])[1:])
    fleet.wait_gone()


@pytest.mark.usefixtures("operator")
def test_pods_of_an_older_fleet_are_found_with_their_owner(
    make_fleet: Callable[..., Fleet], fleet: Fleet, llm: Plugin
) -> None:
    older = make_fleet(name="older")
    created = older.cluster.create_llmservice(
        older.namespace,
        {
            "apiVersion": "llmservice.io/v1alpha1",
            "kind": "LLMService",
            "metadata": {"name": "older"},
            "spec": {"selector": {"matchLabels": {"app": "qwen"}}},
        },
    )
    fleet.add()
    older.wait("Ready")
    second = to_seconds(created["metadata"]["creationTimestamp"])  # the one of the same second may be the older, too
    wait_until(lambda: time.time() >= second + 1.5, PATIENCE_SECONDS, what="another second")
    fleet.declare("paused")
    fleet.wait("Stalled", reason="PodsClaimed")
    found = diagnose(llm)
    assert weights(found, "problem") == {"PodsClaimed"}
    assert "older LLMService older" in found.evidence("PodsClaimed")


# Pods


@pytest.mark.usefixtures("operator")
def test_a_selector_without_pods_is_found_with_the_labels_that_are_there(fleet: Fleet, llm: Plugin) -> None:
    fleet.add(labels={"app": "qwen2"})
    fleet.declare("paused")
    fleet.wait("Ready", reason="NoPods")
    found = diagnose(llm)
    assert weights(found, "problem") == {"NoPods"}
    assert "other pods of the namespace have app=qwen2 (1)" in found.evidence("NoPods")


@pytest.mark.usefixtures("without_operator")
def test_a_gate_that_no_operator_opened_is_found(fleet: Fleet, llm: Plugin) -> None:
    fleet.add(gated=True)
    fleet.declare("running")
    found = diagnose_silence(llm)
    assert {"OperatorSilent", "GateWithoutOperator"} <= weights(found, "problem")
    assert "pod/qwen-0 spec.readinessGates: llmservice.io/serving" in found.evidence("GateWithoutOperator")


# Engines


@pytest.mark.usefixtures("operator")
def test_dev_mode_that_is_off_is_told_from_a_wrong_port_by_the_pods_environment(fleet: Fleet, llm: Plugin) -> None:
    member = fleet.add(options=Options(dev_mode=False), create=False)
    member.pod.owner("StatefulSet", "qwen")
    fleet.cluster.create_pod(fleet.namespace, member.pod)
    fleet.declare("paused")
    fleet.wait("Stalled", reason="EndpointMissing")
    off = diagnose(llm)
    assert weights(off, "problem") == {"DevModeOff"}
    assert "spec.containers[engine].env: no VLLM_SERVER_DEV_MODE=1" in off.evidence("DevModeOff")
    assert off.command("DevModeOff")[:5] == ["set", "env", "statefulset/qwen", "VLLM_SERVER_DEV_MODE=1", "-c"]


@pytest.mark.usefixtures("operator")
def test_a_wrong_path_is_told_from_dev_mode_that_is_off_by_the_pods_environment(fleet: Fleet, llm: Plugin) -> None:
    member = fleet.add(create=False)
    pod = member.pod.obj()
    pod["spec"]["containers"][0]["env"] = [{"name": "VLLM_SERVER_DEV_MODE", "value": "1"}]
    fleet.cluster.create_pod(fleet.namespace, pod)
    fleet.declare("paused", engine={"rootPath": "/elsewhere"})
    fleet.wait("Stalled", reason="EndpointMissing")
    found = diagnose(llm)
    assert weights(found, "problem") == {"WrongPort"}
    assert "rootPath: '/elsewhere'; pod/qwen-0 declares ports 8000" in found.evidence("WrongPort")
    assert "env VLLM_SERVER_DEV_MODE: on" in found.evidence("WrongPort")


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (Fault.answering(401, {"error": "Unauthorized"}, times=None), "KeyDemanded"),
        (Fault.answering(400, {"error": "never"}, times=None), "EngineError"),
    ],
    ids=["key", "refusal"],
)
def test_what_an_engine_refuses_is_found_with_its_own_words(
    fleet: Fleet, llm: Plugin, fault: Fault, cause: str
) -> None:
    member = fleet.add()
    member.engine.faults.script("/is_paused", fault)
    fleet.declare("paused")
    fleet.wait("Stalled")
    found = diagnose(llm)
    assert weights(found, "problem") == {cause}
    assert f"status.targetStates[{member.name}]: failed" in found.evidence(cause)


@pytest.mark.usefixtures("operator")
def test_a_mode_that_the_version_cannot_do_is_found_and_the_command_mends_it(
    fleet: Fleet, llm: Plugin, kubectl: Kubectl
) -> None:
    fleet.add(version="0.15.1")
    fleet.declare("paused", pause={"mode": "keep"})
    fleet.wait("Stalled", reason="UnsupportedMode")
    found = diagnose(llm)
    assert weights(found, "problem") == {"UnsupportedMode"}
    kubectl(*found.command("UnsupportedMode"))
    fleet.wait("Paused")


@pytest.mark.usefixtures("operator")
def test_an_engine_that_does_not_answer_behind_a_network_policy_makes_that_suspect(fleet: Fleet, llm: Plugin) -> None:
    member = fleet.add()
    fleet.declare("paused", requestTimeoutSeconds=1)
    fleet.wait("Paused")
    member.engine.faults.script("/is_paused", Fault.hang(times=None))
    fleet.wait_for_targets(total=1, unreachable=1)
    assert weights(diagnose(llm), "problem") == {"NoAnswer", "ProbeMissing"}
    policy = {"podSelector": {"matchLabels": {"app": "qwen"}}, "policyTypes": ["Ingress"], "ingress": []}
    apply(fleet, "networking.k8s.io/v1", "NetworkPolicy", "lockdown", spec=policy)
    apply(
        fleet,
        "networking.k8s.io/v1",
        "NetworkPolicy",
        "others",
        spec=policy | {"podSelector": {"matchLabels": {"app": "x"}}},
    )
    found = diagnose(llm)
    assert weights(found, "problem") == {"NetworkPolicySuspected", "ProbeMissing"}
    assert "networkpolicy/lockdown spec.podSelector selects pod/qwen-0" in found.evidence("NetworkPolicySuspected")
    assert "others" not in found.evidence("NetworkPolicySuspected")


@pytest.mark.usefixtures("operator")
def test_a_port_on_which_nothing_listens_is_found(fleet: Fleet, llm: Plugin) -> None:
    fleet.add(start=False)
    fleet.declare("paused")
    fleet.wait_for_targets(total=1, unreachable=1)
    found = diagnose(llm)
    assert weights(found, "problem") == {"NotListening", "ProbeMissing"}
    assert "was refused" in found.evidence("NotListening")


@pytest.mark.usefixtures("operator")
def test_a_port_name_that_no_container_has_is_found(fleet: Fleet, llm: Plugin) -> None:
    fleet.add()
    fleet.declare("paused", engine={"ports": ["http"]})
    fleet.wait("Stalled", reason="PortMissing")
    found = diagnose(llm)
    assert weights(found, "problem") == {"PortMissing"}
    assert "pod/qwen-0 declares ports 8000" in found.evidence("PortMissing")


@pytest.mark.usefixtures("operator")
def test_an_engine_is_asked_through_the_api_server_or_it_is_said_why_not(
    make_fleet: Callable[..., Fleet], llm: Plugin
) -> None:
    (port,) = free_ports(1)
    outward = _outward_address()
    fleet = make_fleet(ports=(port,))
    member = fleet.add(address=outward)
    fleet.declare("running")
    fleet.wait("Ready")
    member.engine.reset_calls()
    said = llm.ok("doctor", "qwen")
    if outward.startswith("127."):  # an API server asks nobody at such an address
        assert "address not allowed" in said
    else:
        assert "asked 1 engine through the API server" in said
        member.engine.asked("/is_paused", within=PATIENCE_SECONDS)
    member.engine.reset_calls()
    assert "through the API server" not in llm.ok("doctor", "qwen", "--no-probe")


def _outward_address() -> str:
    """An address of this machine that is not of the loopback, if it has one; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(one.getsockname()[0])


# Services, and what else acts on the pods


@pytest.mark.usefixtures("operator")
def test_a_service_that_still_routes_to_paused_pods_is_found(fleet: Fleet, llm: Plugin) -> None:
    fleet.paused(2)
    serve(fleet, "qwen", ready=["qwen-0", "qwen-1"])
    apply(
        fleet,
        "v1",
        "Service",
        "control",
        spec={"selector": {"app": "qwen"}, "ports": [{"port": 80}], "publishNotReadyAddresses": True},
    )
    found = diagnose(llm)
    assert found.status == 0
    assert weights(found, "warning") >= {"ServiceRoutesToPaused"}
    assert "Service qwen still sends requests to qwen-0 (and 1 more)" in found.evidence("ServiceRoutesToPaused")
    assert "no llmservice.io/serving" in found.evidence("ServiceRoutesToPaused")


@pytest.mark.usefixtures("operator")
def test_a_service_without_endpoints_is_a_problem_unless_the_gates_are_closed_on_purpose(
    fleet: Fleet, llm: Plugin
) -> None:
    fleet.add(gated=True)
    fleet.declare("running")
    fleet.wait("Ready")
    serve(fleet, "qwen", ready=[])
    assert "ServiceWithoutEndpoints" in weights(diagnose(llm), "problem")
    llm.ok("pause", "qwen")
    found = diagnose(llm)
    assert weights(found, "problem") == set()
    assert "ServiceEmptied" in weights(found, "note")


@pytest.mark.usefixtures("operator")
def test_an_autoscaler_and_a_budget_that_will_suffer_are_found_and_the_commands_mend_it(
    fleet: Fleet, llm: Plugin, kubectl: Kubectl
) -> None:
    replicas = fleet.cluster.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": "qwen-abc",
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "Deployment", "name": "qwen", "uid": "1", "controller": True}
                ],
            },
            "spec": {
                "selector": {"matchLabels": {"app": "qwen"}},
                "template": {
                    "metadata": {"labels": {"app": "qwen"}},
                    "spec": {"containers": [{"name": "engine", "image": "x"}]},
                },
            },
        },
        namespace=fleet.namespace,
    )
    for _ in range(2):
        member = fleet.add(gated=True, create=False)
        member.pod.owner("ReplicaSet", "qwen-abc", uid=replicas["metadata"]["uid"])
        fleet.cluster.create_pod(fleet.namespace, member.pod)
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "qwen"}
    for name, reference in {"ours": target, "theirs": target | {"name": "other"}}.items():
        apply(
            fleet,
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            name,
            spec={"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 8, "metrics": [metric]},
        )
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "qwen"}}}
    apply(fleet, "policy/v1", "PodDisruptionBudget", "qwen", spec=budget)
    fleet.declare("paused")
    fleet.wait("Paused")

    found = diagnose(llm)
    assert weights(found, "warning") == {"AutoscalerShrinks", "BudgetBlocksDrains", "ProbeMissing"}
    assert "horizontalpodautoscaler/ours" in found.evidence("AutoscalerShrinks")
    kubectl(*found.command("AutoscalerShrinks"))
    kubectl(*found.command("BudgetBlocksDrains"))
    assert weights(diagnose(llm), "warning") == {"ProbeMissing"}


# Rights


@pytest.mark.usefixtures("operator")
def test_what_may_not_be_looked_at_is_said_and_the_rest_is_found_all_the_same(
    fleet: Fleet, make_llm: Callable[..., Plugin], control_plane: ControlPlane, cluster: Cluster
) -> None:
    fleet.add(options=Options(dev_mode=False))
    fleet.declare("paused")
    fleet.wait("Stalled")
    rules: list[Json] = [
        {"apiGroups": ["llmservice.io"], "resources": ["llmservices"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    ]
    allow(cluster, fleet.namespace, "nobody", rules)
    nobody = make_llm(control_plane.user_kubeconfig("nobody"))
    found = diagnose(nobody)
    assert weights(found, "problem") == {"DevModeOff"}
    said = nobody("doctor", "qwen").output
    for resource in ("services", "networkpolicies", "horizontalpodautoscalers", "poddisruptionbudgets"):
        assert f"could not look at {resource}" in said
    assert 'cannot get resource "pods/proxy"' in said
    assert nobody("doctor", "missing").status == 6
