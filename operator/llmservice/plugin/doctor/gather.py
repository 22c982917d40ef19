"""Reads all facts about one fleet, at once, each with a bound of its own. What cannot be read is a fact, too."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from llmservice import api
from llmservice.client import operations
from llmservice.client.errors import FleetError, OperatorSilentError
from llmservice.client.remote import RemoteFleet
from llmservice.client.snapshot import Snapshot
from llmservice.domain import ownership
from llmservice.domain.fleet import Pod
from llmservice.kube import schema
from llmservice.kube.client import ApiError, Kubernetes, KubernetesError
from llmservice.kube.pods import to_pod
from llmservice.plugin.doctor.facts import OPERATOR_LABELS, Facts, Looked, Probe, Verification

PROBES = 8
"""How many engines are asked through the API server at most; those that are not as they should be first."""
_PROBE_SECONDS = 5.0
VERIFY_SECONDS = 15.0
"""How long an operator that is alive may take for a fresh read. It waits up to ``requestTimeoutSeconds`` for engines."""
_NOT_THERE = (
    "error trying to reach service",
    "address not allowed",
    "is forbidden",
    "not found",
    "no preferred address",
)


async def gather(
    kubernetes: Kubernetes, snapshot: Snapshot, *, flags: str, probe: bool, verify: bool, manager: str
) -> Facts:
    """Everything that the checks look at."""
    verification = await _verify(kubernetes, snapshot, manager) if verify else None
    if verify:
        snapshot = await _again(kubernetes, snapshot, manager)
    service = snapshot.service
    core = f"/api/v1/namespaces/{service.metadata.namespace}"
    query = {"labelSelector": ownership.to_query(service.spec.selector)}

    def named(group: str, plural: str) -> str:
        return f"/apis/{group}/namespaces/{service.metadata.namespace}/{plural}"

    tls = service.spec.engine.tls
    async with asyncio.TaskGroup() as group:
        asked = {
            "siblings": _list(kubernetes, "llmservices.llmservice.io", named(api.API_VERSION, api.PLURAL)),
            "pods": _list(kubernetes, "pods", f"{core}/pods", query),
            "services": _list(kubernetes, "services", f"{core}/services"),
            "slices": _list(
                kubernetes, "endpointslices.discovery.k8s.io", named("discovery.k8s.io/v1", "endpointslices")
            ),
            "policies": _list(
                kubernetes, "networkpolicies.networking.k8s.io", named("networking.k8s.io/v1", "networkpolicies")
            ),
            "autoscalers": _list(
                kubernetes,
                "horizontalpodautoscalers.autoscaling",
                named("autoscaling/v2", "horizontalpodautoscalers"),
            ),
            "budgets": _list(kubernetes, "poddisruptionbudgets.policy", named("policy/v1", "poddisruptionbudgets")),
            "replicasets": _list(kubernetes, "replicasets.apps", named("apps/v1", "replicasets")),
            "operators": _list(
                kubernetes,
                "deployments.apps of all namespaces (to find the operator)",
                "/apis/apps/v1/deployments",
                {"labelSelector": OPERATOR_LABELS},
            ),
            "schema": _schema(kubernetes),
        }
        if tls is not None and tls.ca_config_map is not None:
            asked["trust"] = _one(
                kubernetes, f"configmaps/{tls.ca_config_map}", f"{core}/configmaps/{tls.ca_config_map}"
            )
        tasks = {name: group.create_task(question) for name, question in asked.items()}
    found: dict[str, Any] = {name: task.result() for name, task in tasks.items()}
    if found["pods"].is_known and not found["pods"].items:
        found["others"] = await _list(kubernetes, "pods", f"{core}/pods")
    if probe and found["pods"].items:
        found["probes"], found["unprobed"] = await _probe(kubernetes, snapshot, found["pods"])
    return Facts(snapshot, time.time(), flags, verification=verification, **found)


async def _list(kubernetes: Kubernetes, resource: str, path: str, query: Mapping[str, str] | None = None) -> Looked:
    try:
        items, _ = await kubernetes.list(path, query)
    except KubernetesError as error:
        return _lacking(resource, error)
    return Looked(resource, tuple(items))


async def _one(kubernetes: Kubernetes, resource: str, path: str) -> Looked:
    try:
        return Looked(resource, (await kubernetes.request("GET", path),))
    except KubernetesError as error:
        return _lacking(resource, error)


async def _schema(kubernetes: Kubernetes) -> Looked:
    try:
        missing = await schema.missing_fields(kubernetes)
    except KubernetesError as error:
        return _lacking("the served schema", error)
    return Looked("the served schema", tuple({"path": path} for path in missing))


def _lacking(resource: str, error: KubernetesError) -> Looked:
    if isinstance(error, ApiError) and error.status == 404:
        return Looked(resource, is_served=False)
    return Looked(resource, lack=str(error))


async def _verify(kubernetes: Kubernetes, snapshot: Snapshot, manager: str) -> Verification:
    metadata = snapshot.service.metadata
    remote = RemoteFleet(kubernetes, metadata.namespace, metadata.name, manager)
    began = asyncio.get_running_loop().time()
    try:
        await operations.carry_out(remote, operations.verifying(), began + VERIFY_SECONDS)
    except OperatorSilentError:
        return Verification(False, f"it did not answer to a request for a fresh read within {VERIFY_SECONDS:g} s")
    except FleetError as error:
        return Verification(False, str(error))
    return Verification(True, f"answered after {asyncio.get_running_loop().time() - began:.1f} s")


async def _again(kubernetes: Kubernetes, snapshot: Snapshot, manager: str) -> Snapshot:
    metadata = snapshot.service.metadata
    remote = RemoteFleet(kubernetes, metadata.namespace, metadata.name, manager)
    return await remote.get(asyncio.get_running_loop().time() + _PROBE_SECONDS)


async def _probe(kubernetes: Kubernetes, snapshot: Snapshot, pods: Looked) -> tuple[tuple[Probe, ...], str]:
    """Ask some engines. The API server goes to the pod itself, so it shows whether the engine answers at all; the operator's
    way is another one."""
    service = snapshot.service
    if service.spec.engine.type is not api.EngineType.VLLM:
        return (), ""
    chosen = _to_probe(snapshot, [to_pod(item) for item in pods.items])
    found = await asyncio.gather(*(_ask(kubernetes, snapshot, pod, port) for pod, port in chosen))
    if found and not any(each.is_from_engine for each in found):
        return tuple(found), found[0].words
    return tuple(found), ""


def _to_probe(snapshot: Snapshot, pods: list[Pod]) -> list[tuple[Pod, int]]:
    listed = [each.pod for each in snapshot.service.status.target_states]
    rank = {name: index for index, name in reversed(list(enumerate(listed)))}
    chosen: list[tuple[Pod, int]] = []
    for pod in sorted((each for each in pods if each.counts and each.ip), key=lambda each: rank.get(each.name, -1)):
        numbers = {name: number for container in pod.containers for name, number in container.ports.items()}
        for port in snapshot.service.spec.engine.ports:
            number = numbers.get(port, port)
            if isinstance(number, int):
                chosen.append((pod, number))
    return chosen[:PROBES]


async def _ask(kubernetes: Kubernetes, snapshot: Snapshot, pod: Pod, port: int) -> Probe:
    engine = snapshot.service.spec.engine
    scheme = "https:" if engine.scheme is api.Scheme.HTTPS else ""
    namespace = snapshot.service.metadata.namespace
    path = f"/api/v1/namespaces/{namespace}/pods/{scheme}{pod.name}:{port}/proxy{engine.root_path}/is_paused"
    try:
        answer = await kubernetes.request("GET", path, timeout=_PROBE_SECONDS)
    except ApiError as error:
        is_there = not any(words in str(error) for words in _NOT_THERE) or "Not Found" in str(error)
        return Probe(pod.name, port, None, str(error), is_there)
    except KubernetesError as error:
        return Probe(pod.name, port, None, str(error), False)
    value = answer.get("is_paused") if isinstance(answer, dict) else None
    return Probe(pod.name, port, value if isinstance(value, bool) else None, str(answer)[:300], True)
