"""The engines of the demo: a handful of simulated ones, or real vLLM on the CPU with either frontend."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import httpx

from llmservice_testing.demo.addresses import free_addresses
from llmservice_testing.demo.errors import DemoError
from llmservice_testing.demo.progress import working
from llmservice_testing.simulator import Options, SimulatorThread, ThreadedEngine
from llmservice_testing.simulator.versions import Frontend
from llmservice_testing.vllm import RealEngine, ensure_installed

SIMULATED: Final[tuple[tuple[str, Frontend], ...]] = (
    ("0.32.0", "python"),
    ("0.32.0", "rust"),
    ("0.31.0", "python"),
    ("0.20.0", "python"),
    ("0.17.0", "python"),
)
"""Version and frontend of each; the fleet is mixed on purpose."""
REAL: Final[tuple[Frontend, ...]] = ("python", "rust")

_ANSWER_SECONDS: Final = 2.0


@dataclass(frozen=True)
class Engine:
    """Where one engine is, and what it is in a word."""

    host: str
    port: int
    kind: str

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://{self.address}"


class Engines(Protocol):
    """All engines of the demo."""

    what: str
    """In a few words."""
    fleet: tuple[Engine, ...]
    """Those that are there from the beginning."""
    tokens: int
    """How many tokens a request asks for that shall run for a few seconds."""
    start_at_once: bool
    """Whether an engine answers as soon as it was begun to start."""

    def begin_newcomer(self) -> Engine:
        """Begins to start one more engine, and returns at once."""

    def finish_newcomer(self) -> None:
        """Returns once that engine answers. Raises EngineNotReadyError where it does not."""

    def control_calls(self) -> tuple[int, int] | None:
        """How many POSTs of /pause and of /resume the engines have received; None where they keep no record."""


class SimulatedEngines:
    """Simulated engines in this process."""

    what = "simulated engines"
    tokens = 60
    start_at_once = True

    def __init__(self, simulator: SimulatorThread) -> None:
        self._simulator = simulator
        self._engines: list[ThreadedEngine] = []
        self._hosts, self._port = free_addresses(len(SIMULATED) + 1)
        self.fleet = tuple(self._start(version, frontend) for version, frontend in SIMULATED)

    def begin_newcomer(self) -> Engine:
        return self._start("0.32.0", "rust")

    def finish_newcomer(self) -> None:
        """It answers from the beginning."""

    def control_calls(self) -> tuple[int, int] | None:
        pauses, resumes = ([engine.posts(path) for engine in self._engines] for path in ("/pause", "/resume"))
        return sum(map(len, pauses)), sum(map(len, resumes))

    def _start(self, version: str, frontend: Frontend) -> Engine:
        host = self._hosts[len(self._engines)]
        options = Options(tokens_per_second=20)  # slow enough to be caught in the middle
        self._engines.append(
            self._simulator.engine(host, self._port, version=version, frontend=frontend, options=options)
        )
        return Engine(host, self._port, frontend.capitalize())


class RealEngines:
    """Real vLLM engines as child processes."""

    what = "real vLLM engines on the CPU"
    tokens = 2000
    start_at_once = False

    def __init__(self, stack: contextlib.ExitStack, folder: Path) -> None:
        """Starts one engine of each frontend, which takes a minute; `stack` ends them."""
        self._stack = stack
        self._folder = folder
        self._installation = ensure_installed()
        self._engines: list[RealEngine] = []
        self._hosts, self._port = free_addresses(len(REAL) + 1)
        self.fleet = tuple(self._launch(frontend) for frontend in REAL)
        with working(f"Starting {len(REAL)} vLLM engines, one of each frontend"):
            for engine in self._engines:
                engine.wait_until_ready()

    def begin_newcomer(self) -> Engine:
        return self._launch("rust")

    def finish_newcomer(self) -> None:
        self._engines[-1].wait_until_ready()

    def control_calls(self) -> tuple[int, int] | None:
        return None

    def _launch(self, frontend: Frontend) -> Engine:
        host = self._hosts[len(self._engines)]
        log = self._folder / f"vllm-{len(self._engines)}.log"
        engine = RealEngine(
            frontend,
            host=host,
            port=self._port,
            environment={"TMPDIR": str(self._folder)},  # it leaves its sockets there when it is killed
            log=log,
            installation=self._installation,
        )
        self._engines.append(engine)
        self._stack.callback(engine.kill)  # one that is paused takes its time on SIGTERM
        engine.launch()
        return Engine(host, self._port, frontend.capitalize())


@contextlib.contextmanager
def simulated_engines() -> Iterator[Engines]:
    """Simulated engines, gone at the end of the block."""
    with SimulatorThread() as simulator:
        yield SimulatedEngines(simulator)


@contextlib.contextmanager
def real_engines(folder: Path) -> Iterator[Engines]:
    """Real engines, installed first if need be, gone at the end of the block; their logs go to `folder`."""
    with contextlib.ExitStack() as stack:
        yield RealEngines(stack, folder)


class EngineReader:
    """Asks engines themselves, past the operator. Thread-safe; close it."""

    def __init__(self) -> None:
        self._client = httpx.Client(timeout=_ANSWER_SECONDS, trust_env=False)

    def says(self, engine: Engine) -> str:
        """`paused`, `running`, or in a few words why it says neither."""
        try:
            answer = self._client.get(f"{engine.url}/is_paused")
        except httpx.TransportError:
            return "no answer"
        if not answer.is_success:
            return f"HTTP {answer.status_code}"
        try:
            return "paused" if answer.json()["is_paused"] else "running"
        except (ValueError, KeyError, TypeError):
            return f"nonsense: {answer.text[:20]!r}"

    def resume(self, engine: Engine) -> None:
        """Resumes it by hand, as whoever bypasses the operator would. Raises DemoError where that fails."""
        try:
            self._client.post(f"{engine.url}/resume").raise_for_status()
        except httpx.HTTPError as error:
            raise DemoError(f"POST {engine.url}/resume failed: {error}") from error

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()
