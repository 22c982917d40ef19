"""The operator and an app, real or simulated, on a real API server: what `kubectl patch` does to it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from llmservice_testing.builders import Json, make_llmservice, make_pod
from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import Kubectl, condition
from llmservice_testing.vllm.client import DEADLINE_SECONDS, Completion, OpenCompletion

from .conftest import Subject

pytestmark = pytest.mark.usefixtures("operator")


@dataclass(frozen=True)
class Declared:
    """An app whose proxy is a pod, and the LLMService `qwen` that selects it."""

    subject: Subject
    cluster: Cluster
    namespace: str
    kubectl: Kubectl

    async def run(self, *arguments: str) -> str:
        """Kubectl, while the app of this process goes on."""
        return (await asyncio.to_thread(self.kubectl, *arguments)).stdout

    async def patch(self, desired: str, **pause: str) -> None:
        """Ask for it as the documentation says."""
        spec = {"generation": desired} | ({"pause": pause} if pause else {})
        text = str({"spec": spec}).replace("'", '"')
        await self.run("patch", "llmservice", "qwen", "--type", "merge", "-p", text)

    async def wait(self, condition: str) -> None:
        """Wait for it as the documentation says."""
        await self.run("wait", "llmservice/qwen", f"--for=condition={condition}", "--timeout=60s")

    async def get(self) -> Json:
        return await asyncio.to_thread(self.cluster.get_llmservice, self.namespace, "qwen")

    async def until_all_replicas_are_paused(self) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not all((await self.subject.replicas.paused()).values()):  # noqa: ASYNC110  # nothing announces it
                await asyncio.sleep(0.05)

    async def until_settled(self) -> None:
        """Return once the status says that all that was asked is so."""

        def is_settled() -> bool:
            ready = condition(self.cluster.get_llmservice(self.namespace, "qwen"), "Ready")
            return ready is not None and ready["reason"] == "InDesiredState"

        await asyncio.to_thread(lambda: wait_until(is_settled, DEADLINE_SECONDS, what="being settled"))


@pytest.fixture
async def declared(
    subject: Subject, cluster: Cluster, control_plane: ControlPlane, namespace: str
) -> AsyncIterator[Declared]:
    address = urlsplit(subject.client.url)
    host, port = address.hostname or "", address.port or 8000
    service = (
        make_llmservice("qwen")
        .selector(app="qwen")
        .engine(type="ray-serve", model="tiny", ports=[port])
        .generation("running")
        .spec(resyncSeconds=1)
    )
    await asyncio.to_thread(
        cluster.create_pod, namespace, make_pod("head").labels(app="qwen").ip(host).port(port).ready()
    )
    await asyncio.to_thread(cluster.create_llmservice, namespace, service)
    made = Declared(subject, cluster, namespace, Kubectl(control_plane.kubeconfig, namespace))
    await made.wait("Ready")
    yield made
    await asyncio.to_thread(cluster.delete_llmservice, namespace, "qwen")


@pytest.fixture
async def request_in_flight(declared: Declared) -> OpenCompletion:
    """A request whose first token is there."""
    request = declared.subject.client.begin_completion(declared.subject.longest_tokens)
    await request.begun()
    return request


@pytest.mark.parametrize("mode", ["abort", "wait", "keep"])
async def test_a_patch_pauses_every_replica_and_another_resumes_them(declared: Declared, mode: str) -> None:
    await declared.patch("paused", mode=mode)
    await declared.wait("Paused")
    assert set((await declared.subject.replicas.paused()).values()) == {True}
    service = await declared.get()
    assert service["status"]["paused"] is True
    assert service["status"]["targets"]["total"] == 1
    paused = condition(service, "Paused")
    assert paused is not None
    assert paused["reason"] == "AggregatePaused"

    await declared.patch("running")
    await declared.wait("Paused=False")
    assert set((await declared.subject.replicas.paused()).values()) == {False}
    assert (await declared.get())["status"]["paused"] is False
    assert await declared.subject.client.begin_completion(5) == Completion(5, "length")


async def test_abort_ends_the_request(declared: Declared, request_in_flight: OpenCompletion) -> None:
    await declared.patch("paused", mode="abort")
    await declared.wait("Paused")

    ended = await request_in_flight
    assert ended.finish_reason == "abort"
    assert ended.tokens < declared.subject.longest_tokens


async def test_wait_is_reported_as_paused_only_when_the_request_is_finished(
    declared: Declared, request_in_flight: OpenCompletion
) -> None:
    await declared.patch("paused", mode="wait")
    await declared.wait("Paused")

    assert request_in_flight.done()
    assert await request_in_flight == Completion(declared.subject.longest_tokens, "length")
    assert set((await declared.subject.replicas.paused()).values()) == {True}


async def test_keep_freezes_the_request_until_it_is_resumed(
    declared: Declared, request_in_flight: OpenCompletion
) -> None:
    await declared.patch("paused", mode="keep")
    await declared.wait("Paused")
    assert await request_in_flight.stays_open(declared.subject.longest_seconds)

    await declared.patch("running")
    await declared.wait("Paused=False")

    assert await request_in_flight == Completion(declared.subject.longest_tokens, "length")


async def test_a_stray_resume_is_corrected(declared: Declared) -> None:
    await declared.patch("paused")
    await declared.wait("Paused")

    await declared.subject.client.resume()

    await declared.until_all_replicas_are_paused()


async def test_r1_a_replica_that_is_added_during_a_pause_is_paused(declared: Declared) -> None:
    await declared.patch("paused", mode="keep")
    await declared.wait("Paused")

    await declared.subject.replicas.scale(3)

    await declared.until_all_replicas_are_paused()
    await declared.until_settled()
    assert len(await declared.subject.replicas.paused()) == 3
