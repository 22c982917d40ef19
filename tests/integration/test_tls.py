"""Engines that answer over TLS. Their certificate is the API server's own, which every control plane makes for itself:
it carries NAME, and none of the addresses that engines have here."""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator

import certifi
import pytest

from llmservice_testing.cluster import Cluster
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import Fleet, Member
from llmservice_testing.simulator import ThreadedEngine

pytestmark = pytest.mark.usefixtures("operator")

PORT = 8443
NAME = "kubernetes.default.svc"


class Terminator:
    """Ends TLS in front of an engine, at another port of its address."""

    def __init__(self, engine: ThreadedEngine, context: ssl.SSLContext) -> None:
        self._engine = engine
        self._context = context
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, self._engine.host, PORT, ssl=self._context)

    async def _end(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()  # which ends what serves it: cancelled, it would be reported as an error
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks, timeout=5)
        await asyncio.sleep(0)  # transports end in the loop's next turn

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        engine_reader, engine_writer = await asyncio.open_connection(self._engine.host, self._engine.port)
        writers = {writer, engine_writer}
        self._writers |= writers
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, engine_writer))
                group.create_task(_pump(engine_reader, writer))
        finally:
            for each in writers:
                each.transport.abort()
            self._writers -= writers


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()


@pytest.fixture
def member(fleet: Fleet, control_plane: ControlPlane) -> Iterator[Member]:
    """The fleet's only one, behind TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(control_plane.ca_file, control_plane.ca_file.with_suffix(".key"))
    member = fleet.add(create=False)
    member.pod.port(PORT)
    fleet.cluster.create_pod(fleet.namespace, member.pod)
    terminator = Terminator(member.engine, context)
    terminator.start()
    yield member
    terminator.stop()


@pytest.fixture
def certificate(control_plane: ControlPlane) -> str:
    """What has to be trusted."""
    return control_plane.ca_file.read_text()


def trust(cluster: Cluster, namespace: str, certificates: str, *, key: str = "ca.crt") -> None:
    """Lets the ConfigMap `ca` hold these certificates, and nothing else."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    body = {"metadata": {"name": "ca"}, "data": {key: certificates}}
    exists = any(item["metadata"]["name"] == "ca" for item in cluster.get(path)["items"])
    cluster.request("PUT" if exists else "POST", f"{path}/ca" if exists else path, body=body)


def declare(fleet: Fleet, **tls: object) -> None:
    engine = {"ports": [PORT], "scheme": "https"} | ({"tls": tls} if tls else {})
    fleet.declare("paused", engine=engine)


def test_an_engine_with_a_trusted_certificate_is_paused(fleet: Fleet, member: Member, certificate: str) -> None:
    trust(fleet.cluster, fleet.namespace, certificate)
    declare(fleet, caConfigMap="ca", serverName=NAME)
    fleet.wait("Paused")
    assert member.engine.paused
    assert fleet.target(member)["url"] == f"https://{member.engine.host}:{PORT}"


def test_without_server_name_the_certificate_must_carry_the_address(
    fleet: Fleet, member: Member, certificate: str
) -> None:
    trust(fleet.cluster, fleet.namespace, certificate)
    declare(fleet, caConfigMap="ca")
    fleet.wait("Ready", "False", "TargetsUnreachable")
    fleet.wait_for(lambda status: "TLS" in str(status["targetStates"]), "a message about TLS")
    assert not member.engine.paused


def test_an_engine_that_nobody_vouches_for_is_unreachable_and_says_why(fleet: Fleet, member: Member) -> None:
    declare(fleet)
    fleet.wait("Ready", "False", "TargetsUnreachable")
    status = fleet.wait_for(lambda status: "TLS" in str(status["targetStates"]), "a message about TLS")
    assert "certificate" in status["targetStates"][0]["message"]
    assert member.engine.calls == ()


def test_insecure_skip_verify_accepts_any_certificate(fleet: Fleet, member: Member) -> None:
    declare(fleet, insecureSkipVerify=True)
    fleet.wait("Paused")
    assert member.engine.paused


def test_case_51_certificates_are_read_again_when_they_change(fleet: Fleet, member: Member, certificate: str) -> None:
    stranger = certifi.contents().split("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----\n"
    trust(fleet.cluster, fleet.namespace, stranger)
    declare(fleet, caConfigMap="ca", serverName=NAME)
    fleet.wait("Ready", "False", "TargetsUnreachable")
    trust(fleet.cluster, fleet.namespace, certificate)
    fleet.wait("Paused")
    trust(fleet.cluster, fleet.namespace, stranger)
    fleet.wait("Ready", "False", "TargetsUnreachable")
    trust(fleet.cluster, fleet.namespace, certificate)
    fleet.want("running")
    fleet.wait("Paused", "False")
    assert not member.engine.paused


def test_a_ca_that_cannot_be_had_is_named(fleet: Fleet, member: Member, certificate: str) -> None:
    declare(fleet, caConfigMap="ca", serverName=NAME)
    fleet.wait("Ready", "False", "TargetsUnreachable")
    fleet.wait_for(lambda status: "ConfigMap ca" in str(status["targetStates"]), "the ConfigMap being named")
    trust(fleet.cluster, fleet.namespace, certificate, key="wrong.crt")
    fleet.wait_for(lambda status: "ca.crt" in str(status["targetStates"]), "the missing key being named")
    trust(fleet.cluster, fleet.namespace, "no certificate at all")
    fleet.wait_for(lambda status: "no usable PEM" in str(status["targetStates"]), "what is wrong with it")
    assert member.engine.calls == ()
    trust(fleet.cluster, fleet.namespace, f"# für qwen\n{certificate}")
    fleet.wait("Paused")


def test_tls_can_be_added_to_a_fleet_that_is_there(fleet: Fleet, member: Member) -> None:
    """scheme and tls are no part of what an engine is: they may change."""
    fleet.declare("paused", engine={"ports": [PORT]})
    fleet.wait("Ready", "False", "TargetsUnreachable")
    fleet.patch(engine={"scheme": "https", "tls": {"insecureSkipVerify": True}})
    fleet.wait("Paused")
    assert member.engine.paused
