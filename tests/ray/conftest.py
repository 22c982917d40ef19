"""One app for each test, simulated or real: the same assertions hold for both.

A real app takes a minute and a half to start, so the tests of a session share one; each gets it running, with two
replicas and nothing in flight.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx
import pytest

from llmservice_testing.cluster import Cluster
from llmservice_testing.controlplane import ControlPlane, find_assets
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.ray import RealApp
from llmservice_testing.ray.client import AppClient
from llmservice_testing.ray_simulator import RaySimulator, SimulatedApp, SimulatedReplica, Stage

CRD = Path(__file__).parents[2] / "crds" / "llmservices.llmservice.io.yaml"
REPLICAS = 2
LONG, LONGEST = 1900, 4000
"""Tokens of requests to a real replica, which makes 400 to 1000 a second."""

SIMULATED_HOST, REAL_HOST = "127.0.0.150", "127.0.0.151"

REAL = [pytest.mark.real_ray, pytest.mark.timeout(1800)]
"""The first test that needs the real app may have to install Ray, and waits for it to start."""

BACKENDS = [pytest.param("simulated", id="simulated"), pytest.param("real", id="real", marks=REAL)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", BACKENDS)


class Replicas(Protocol):
    """The replicas of the app under test, past its public routes."""

    async def paused(self) -> dict[str, bool]:
        """The replicas by name, and whether each is paused: the truth."""

    async def pause(self, name: str) -> None:
        """Pause one alone."""

    async def resume(self, name: str) -> None:
        """Resume one alone."""

    async def scale(self, number: int) -> None:
        """Have so many, and return once they run."""

    async def replace(self, name: str) -> None:
        """Have one crash, and return once another runs in its place."""


@dataclass(frozen=True)
class SimulatedReplicas:
    app: SimulatedApp

    async def paused(self) -> dict[str, bool]:
        return {replica.name: replica.paused for replica in self.app.replicas()}

    async def pause(self, name: str) -> None:
        await self._named(name).pause("abort", clear_cache=False)

    async def resume(self, name: str) -> None:
        await self._named(name).resume()

    async def scale(self, number: int) -> None:
        while len(self.app.replicas()) < number:
            self.app.add_replica()
        while len(self.app.replicas()) > number:
            self.app.remove_replica(self.app.replicas()[-1])

    async def replace(self, name: str) -> None:
        self.app.replace_replica(self._named(name))

    def _named(self, name: str) -> SimulatedReplica:
        return next(replica for replica in self.app.replicas() if replica.name == name)


@dataclass(frozen=True)
class RealReplicas:
    app: RealApp

    async def paused(self) -> dict[str, bool]:
        return await asyncio.to_thread(self.app.replicas)

    async def pause(self, name: str) -> None:
        await asyncio.to_thread(lambda: self.app.call_replica(name, "pause", mode="abort", clear_cache=False))

    async def resume(self, name: str) -> None:
        await asyncio.to_thread(lambda: self.app.call_replica(name, "resume"))

    async def scale(self, number: int) -> None:
        await asyncio.to_thread(lambda: self.app.deploy(number))

    async def replace(self, name: str) -> None:
        await asyncio.to_thread(lambda: self.app.kill_replica(name))
        await asyncio.to_thread(lambda: self.app.wait_for_replicas(REPLICAS, without=name))


@dataclass(frozen=True)
class Subject:
    """An app under test: running, with two replicas, nothing in flight.

    Attributes:
        client: talks to its proxy.
        long_tokens: tokens of a request that can be paused before it ends.
        long_seconds: longer than that takes, undisturbed.
        longest_tokens: tokens of a request that takes seconds, so that kubectl comes in time.
        longest_seconds: longer than that takes, undisturbed.
    """

    client: AppClient
    replicas: Replicas
    long_tokens: int
    long_seconds: float
    longest_tokens: int
    longest_seconds: float


@dataclass(frozen=True)
class Birth:
    """What a proxy said before its app ran: status and body by path, and None for what it left unanswered."""

    without_routes: dict[str, tuple[int, str] | None]
    deploying: dict[str, tuple[int, str] | None]


LOOKS = ("/-/routes", "/-/healthz", "/is_paused?model=tiny", "/v1/models", "/openapi.json")


def _looks(url: str, within: float) -> dict[str, tuple[int, str] | None]:
    """What a proxy says to each look, all asked at once, with so many seconds to answer."""

    def look(path: str) -> tuple[int, str] | None:
        try:
            answer = httpx.get(f"{url}{path}", timeout=within, trust_env=False)
        except httpx.ReadTimeout:
            return None
        return answer.status_code, answer.text

    with ThreadPoolExecutor(len(LOOKS)) as pool:
        return dict(zip(LOOKS, pool.map(look, LOOKS), strict=True))


@dataclass(frozen=True)
class Started:
    app: RealApp
    birth: Birth


@pytest.fixture(scope="session")
def real_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    app = RealApp(host=REAL_HOST, log=tmp_path_factory.mktemp("ray") / "app.log")
    try:
        app.launch()
        app.wait_until_started()
        without_routes = _looks(app.url, within=30)
        app.begin_deploy(REPLICAS)
        app.wait_for_route()
        deploying = _looks(app.url, within=1)
        app.deploy(REPLICAS)
        yield Started(app, Birth(without_routes, deploying))
    finally:
        app.stop()


@pytest.fixture
async def subject(backend: str, request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    if backend == "real":
        app: RealApp = request.getfixturevalue("real_app").app
        replicas = RealReplicas(app)
        await replicas.scale(REPLICAS)
        async with AppClient(app.url) as client:
            await _reset(client)
            yield Subject(client, replicas, LONG, 6.0, LONGEST, 12.0)
            await _reset(client)
        return
    async with RaySimulator() as simulator:
        simulated = simulator.app(replicas=REPLICAS, tokens_per_second=2000)
        proxy = await simulator.proxy(SIMULATED_HOST, 0, simulated)
        async with AppClient(proxy.url) as client:
            replicas_of_it = SimulatedReplicas(simulated)
            yield Subject(client, replicas_of_it, 1000, 0.7, 8_000, 4.5)


async def _reset(client: AppClient) -> None:
    """End what there is: requests, a pause."""
    (await client.pause(mode="abort")).raise_for_status()
    (await client.resume()).raise_for_status()
    await client.until_paused(False)


@pytest.fixture
async def birth(backend: str, request: pytest.FixtureRequest) -> Birth:
    """What a proxy said while its app was not there yet, or just being deployed."""
    if backend == "real":
        born: Birth = request.getfixturevalue("real_app").birth
        return born
    async with RaySimulator() as simulator:
        app = simulator.app(replicas=0)
        proxy = await simulator.proxy(SIMULATED_HOST, 0, app)
        app.stage = Stage.NOT_DEPLOYED
        without_routes = await asyncio.to_thread(_looks, proxy.url, 30)
        app.stage, app.ingress_runs = Stage.DEPLOYED, False
        return Birth(without_routes, await asyncio.to_thread(_looks, proxy.url, 0.3))


@pytest.fixture
async def plain(backend: str, request: pytest.FixtureRequest) -> AsyncIterator[AppClient]:
    """A client of an app that was built without the control routes."""
    if backend == "real":
        app: RealApp = request.getfixturevalue("real_app").app
        async with AppClient(await asyncio.to_thread(app.add_plain)) as client:
            yield client
        await asyncio.to_thread(app.remove_plain)
        return
    async with RaySimulator() as simulator:
        proxy = await simulator.proxy(SIMULATED_HOST, 0, simulator.app(dev=False))
        async with AppClient(proxy.url) as client:
            yield client


# The operator


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    with ControlPlane(assets=find_assets()) as running:
        yield running


@pytest.fixture(scope="session")
def cluster(control_plane: ControlPlane) -> Iterator[Cluster]:
    """With the definition served."""
    with Cluster(control_plane.kubeconfig) as client:
        client.apply_crd(CRD)
        yield client


@pytest.fixture(scope="session")
def operator(
    control_plane: ControlPlane, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """For all namespaces."""
    with OperatorProcess(control_plane.kubeconfig, tmp_path_factory.mktemp("operator")) as running:
        yield running
