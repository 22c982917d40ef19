"""One engine for each test, simulated or real: the same assertions hold for all four.

Real engines take about 40 seconds to start, so those that a session needs are started together, at the first test that
needs one, and each test gets a running and idle one.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Literal

import pytest

from llmservice_testing.simulator import Options, Simulator
from llmservice_testing.vllm import RealEngine
from llmservice_testing.vllm.client import EngineClient

Frontend = Literal["python", "rust"]

API_KEY = "secret"
ROOT_PATH = "/engines/a"

_ADDRESSES: dict[Frontend, str] = {"python": "127.0.0.141", "rust": "127.0.0.142"}
_HIDDEN_ADDRESSES: dict[Frontend, str] = {"python": "127.0.0.143", "rust": "127.0.0.144"}


@dataclass(frozen=True)
class Subject:
    """An engine under test.

    Attributes:
        client: talks to it; sends the API key with requests for tokens.
        version: what it is meant to be.
        long_seconds: longer than it takes for the 1000 tokens of a long request, undisturbed.
    """

    client: EngineClient
    frontend: Frontend
    version: str
    long_seconds: float
    is_simulated: bool = False


REAL = [pytest.mark.real_engine, pytest.mark.timeout(1800)]
"""The first test that needs a real engine may have to install vLLM, and waits for it to start."""

BACKENDS = [
    pytest.param(("simulated", "python"), id="simulated-python"),
    pytest.param(("simulated", "rust"), id="simulated-rust"),
    pytest.param(("real", "python"), id="real-python", marks=REAL),
    pytest.param(("real", "rust"), id="real-rust", marks=REAL),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", BACKENDS)


def _wanted_frontends(request: pytest.FixtureRequest) -> list[Frontend]:
    """The frontends whose real engine a test of this session needs."""
    backends = {item.callspec.params["backend"] for item in request.session.items if hasattr(item, "callspec")}
    return [frontend for frontend in _ADDRESSES if ("real", frontend) in backends]


@pytest.fixture(scope="session")
def real_engines(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Frontend, RealEngine]]:
    """Real engines with the control routes, an API key and, with the Python frontend, a root path."""
    folder = tmp_path_factory.mktemp("engines")
    engines = {
        frontend: RealEngine(
            frontend,
            host=_ADDRESSES[frontend],
            extra_args=["--api-key", API_KEY, *(["--root-path", ROOT_PATH] if frontend == "python" else [])],
            log=folder / f"{frontend}.log",
        )
        for frontend in _wanted_frontends(request)
    }
    yield from _started(engines)


@pytest.fixture(scope="module")
def hidden_engines(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Frontend, RealEngine]]:
    """Real engines that were started without development mode."""
    folder = tmp_path_factory.mktemp("hidden-engines")
    engines = {
        frontend: RealEngine(
            frontend,
            host=_HIDDEN_ADDRESSES[frontend],
            environment={"VLLM_SERVER_DEV_MODE": "0"},
            log=folder / f"{frontend}.log",
        )
        for frontend in _wanted_frontends(request)
    }
    yield from _started(engines)


def _started(engines: dict[Frontend, RealEngine]) -> Iterator[dict[Frontend, RealEngine]]:
    """All of them, started at the same time."""
    try:
        for engine in engines.values():
            engine.launch()
        for engine in engines.values():
            engine.wait_until_ready()
        yield engines
    finally:
        for engine in engines.values():
            engine.stop()


@pytest.fixture
async def subject(backend: tuple[str, Frontend], request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    """A running, idle engine of vLLM 0.32.0."""
    kind, frontend = backend
    version = "0.32.0"
    if kind == "real":
        engine = request.getfixturevalue("real_engines")[frontend]
        async with EngineClient(engine.url, API_KEY) as client:
            await _reset(client)
            yield Subject(client, frontend, version, long_seconds=3.0)
        return
    options = Options(tokens_per_second=5000, api_key=API_KEY, root_path=ROOT_PATH if frontend == "python" else "")
    async with Simulator() as simulator:
        simulated = await simulator.engine("127.0.0.140", 0, version=version, frontend=frontend, options=options)
        async with EngineClient(simulated.url.removesuffix(ROOT_PATH), API_KEY) as client:
            yield Subject(client, frontend, version, long_seconds=0.3, is_simulated=True)


@pytest.fixture
async def hidden(backend: tuple[str, Frontend], request: pytest.FixtureRequest) -> AsyncIterator[EngineClient]:
    """A client of an engine that was started without development mode."""
    kind, frontend = backend
    if kind == "real":
        async with EngineClient(request.getfixturevalue("hidden_engines")[frontend].url) as client:
            yield client
        return
    async with Simulator() as simulator:
        options = Options(dev_mode=False)
        simulated = await simulator.engine("127.0.0.140", 0, frontend=frontend, options=options)
        async with EngineClient(simulated.url) as client:
            yield client


async def _reset(client: EngineClient) -> None:
    """End what earlier tests left: requests, a pause, sleep."""
    (await client.post("/wake_up")).raise_for_status()
    (await client.post("/pause", mode="abort", clear_cache="true")).raise_for_status()
    (await client.post("/resume")).raise_for_status()
    await client.until_paused(False)
