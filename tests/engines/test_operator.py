"""The operator and an engine, real or simulated, on a real API server: what `kubectl patch` does to a request in flight."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from llmservice_testing.builders import make_llmservice, make_pod
from llmservice_testing.cluster import Cluster
from llmservice_testing.controlplane import ControlPlane, find_assets
from llmservice_testing.fleet import Kubectl
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.vllm.client import Completion, OpenCompletion

from .conftest import ROOT_PATH, Subject

CRD = Path(__file__).parents[2] / "crds" / "llmservices.llmservice.io.yaml"
LONG = 1000
SLOWLY = 20
"""How many times longer a request has to be where tokens are simulated, at 5000 a second: kubectl takes its time."""
"""Tokens of a request that can be paused before it ends."""


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    with ControlPlane(assets=find_assets()) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With the definition served and an operator for all namespaces."""
    with Cluster(control_plane.kubeconfig) as client:
        client.apply_crd(CRD)
        with OperatorProcess(control_plane.kubeconfig, tmp_path_factory.mktemp("operator")):
            yield client


@dataclass(frozen=True)
class Declared:
    """An engine behind a pod, and the LLMService `qwen` that selects it."""

    subject: Subject
    cluster: Cluster
    namespace: str
    kubectl: Kubectl

    async def run(self, *arguments: str) -> str:
        """Kubectl, while engines of this process go on."""
        return (await asyncio.to_thread(self.kubectl, *arguments)).stdout

    async def patch(self, desired: str, **pause: str) -> None:
        """Ask for it as the documentation says."""
        spec = {"generation": desired} | ({"pause": pause} if pause else {})
        text = str({"spec": spec}).replace("'", '"')
        await self.run("patch", "llmservice", "qwen", "--type", "merge", "-p", text)

    @property
    def long(self) -> int:
        """Tokens of a request that lasts for seconds."""
        return LONG * (SLOWLY if self.subject.is_simulated else 1)

    @property
    def long_seconds(self) -> float:
        """Longer than it takes, undisturbed."""
        return self.subject.long_seconds * (SLOWLY if self.subject.is_simulated else 1)

    async def wait(self, condition: str) -> None:
        """Wait for it as the documentation says."""
        await self.run("wait", "llmservice/qwen", f"--for=condition={condition}", "--timeout=60s")

    async def status(self) -> dict[str, object]:
        service = await asyncio.to_thread(self.cluster.get_llmservice, self.namespace, "qwen")
        status: dict[str, object] = service["status"]
        return status


@pytest.fixture
async def declared(subject: Subject, cluster: Cluster, control_plane: ControlPlane) -> AsyncIterator[Declared]:
    namespace = f"test-{uuid.uuid4().hex[:10]}"
    address = urlsplit(subject.client.url)
    pod = make_pod("qwen-0").labels(app="qwen").ip(address.hostname or "").port(address.port or 8000).ready()
    engine: dict[str, object] = {"ports": [address.port or 8000]}
    if subject.frontend == "python":
        engine["rootPath"] = ROOT_PATH
    service = make_llmservice("qwen").selector(app="qwen").engine(**engine).generation("running")
    await asyncio.to_thread(cluster.create_namespace, namespace)
    await asyncio.to_thread(cluster.create_pod, namespace, pod)
    await asyncio.to_thread(cluster.create_llmservice, namespace, service)
    made = Declared(subject, cluster, namespace, Kubectl(control_plane.kubeconfig, namespace))
    await made.wait("Ready")
    yield made
    await asyncio.to_thread(cluster.delete_llmservice, namespace, "qwen")
    await asyncio.to_thread(cluster.delete_namespace, namespace)


@pytest.fixture
async def request_in_flight(declared: Declared) -> OpenCompletion:
    """A request whose first token is there."""
    request = declared.subject.client.begin_completion(declared.long)
    await request.begun()
    return request


async def test_abort_ends_the_request(declared: Declared, request_in_flight: OpenCompletion) -> None:
    await declared.patch("paused", mode="abort")
    await declared.wait("Paused")

    ended = await request_in_flight
    assert ended.finish_reason == "abort"
    assert ended.tokens < declared.long
    assert await declared.subject.client.is_paused()


async def test_wait_is_reported_as_paused_only_when_the_request_is_finished(
    declared: Declared, request_in_flight: OpenCompletion
) -> None:
    await declared.patch("paused", mode="wait")
    await declared.wait("Paused")

    assert request_in_flight.done()
    assert await request_in_flight == Completion(declared.long, "length")
    assert await declared.subject.client.is_paused()


async def test_keep_freezes_the_request_until_it_is_resumed(
    declared: Declared, request_in_flight: OpenCompletion
) -> None:
    await declared.patch("paused", mode="keep")
    await declared.wait("Paused")
    assert await request_in_flight.stays_open(declared.long_seconds)

    await declared.patch("running")
    await declared.wait("Paused=False")

    assert await request_in_flight == Completion(declared.long, "length")


@pytest.fixture
async def drain(declared: Declared, backend: tuple[str, str]) -> AsyncIterator[tuple[int, list[OpenCompletion]]]:
    """Requests of so many tokens that the engine finishes because it is being paused with `wait`. They are several, which
    makes each slower, and as long as an engine allows: there has to be time to call the drain off."""
    client, tokens = declared.subject.client, 2000 if backend[0] == "real" else 20_000
    requests = [client.begin_completion(tokens) for _ in range(6)]
    for request in requests:
        await request.begun()
    await declared.patch("paused", mode="wait")
    await client.until_paused(True)
    yield tokens, requests
    for request in requests:
        await request.close()


async def test_r2_running_calls_a_long_drain_off_and_the_requests_go_on(
    declared: Declared, drain: tuple[int, list[OpenCompletion]]
) -> None:
    tokens, requests = drain
    await declared.patch("running")
    await declared.wait("Paused=False")

    assert not any(request.done() for request in requests)
    assert not await declared.subject.client.is_paused()
    ends = [await request for request in requests]
    assert ends == [Completion(tokens, "length")] * len(requests)
    assert await declared.subject.client.begin_completion(5) == Completion(5, "length")
    status = await declared.status()  # the late answer of the drain changed nothing
    assert status["paused"] is False


async def test_r2_abort_calls_a_long_drain_off_and_ends_the_requests(
    declared: Declared, drain: tuple[int, list[OpenCompletion]]
) -> None:
    tokens, requests = drain
    await declared.patch("paused", mode="abort")
    await declared.wait("Paused")

    ends = [await request for request in requests]
    assert {ended.finish_reason for ended in ends} == {"abort"}
    assert all(ended.tokens < tokens for ended in ends)
    assert await declared.subject.client.is_paused()
    assert (await declared.status())["lastPause"] == {"mode": "abort", "clearCache": True, "answered": True}


@pytest.mark.parametrize("mode", ["abort", "wait", "keep"])
async def test_it_generates_again_after_the_resume(declared: Declared, mode: str) -> None:
    await declared.patch("paused", mode=mode)
    await declared.wait("Paused")
    assert (await declared.status())["paused"] is True

    await declared.patch("running")
    await declared.wait("Paused=False")

    assert (await declared.status())["paused"] is False
    assert await declared.subject.client.begin_completion(5) == Completion(5, "length")


async def test_a_stray_resume_is_corrected(declared: Declared) -> None:
    await declared.run("patch", "llmservice", "qwen", "--type", "merge", "-p", '{"spec":{"resyncSeconds":1}}')
    await declared.patch("paused")
    await declared.wait("Paused")

    await declared.subject.client.post("/resume")

    await declared.subject.client.until_paused(True)


async def test_the_version_is_told(declared: Declared) -> None:
    states = (await declared.status())["targetStates"]
    assert isinstance(states, list)
    assert [entry["version"] for entry in states] == [declared.subject.version]
