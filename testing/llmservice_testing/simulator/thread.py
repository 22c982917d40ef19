"""The simulator for synchronous code: the same operations, run in the event loop of a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from llmservice_testing.simulator.calls import Call
from llmservice_testing.simulator.engine import SimulatedEngine
from llmservice_testing.simulator.faults import Fault, FaultScript
from llmservice_testing.simulator.group import MoeGroup
from llmservice_testing.simulator.life import Options
from llmservice_testing.simulator.scheduler import Mode
from llmservice_testing.simulator.server import SimulatedServer
from llmservice_testing.simulator.simulator import Simulator
from llmservice_testing.simulator.versions import Frontend

_T = TypeVar("_T")
_S = TypeVar("_S", bound=SimulatedServer)

_OPERATION_SECONDS: Final = 30.0
"""How long one operation may take before it counts as hung; those that wait by design say their own time."""


class LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, _T], within: float = _OPERATION_SECONDS) -> _T:
        """Run a coroutine in the loop and wait for it.

        Raises:
            TimeoutError: it did not end within so many seconds; it is cancelled.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(within)
        except TimeoutError:
            future.cancel()
            raise

    def call(self, function: Callable[[], _T]) -> _T:
        """Call a function in the loop and wait for what it returns."""

        async def call() -> _T:
            return function()

        return self.run(call())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_OPERATION_SECONDS)
        self._loop.close()


class ThreadedFaults:
    """The fault scripts of a server; see `FaultScript`."""

    def __init__(self, loop: LoopThread, script: FaultScript) -> None:
        self._loop = loop
        self._script = script

    def script(self, route: str, *faults: Fault) -> None:
        self._loop.call(lambda: self._script.script(route, *faults))

    def clear(self, route: str | None = None) -> None:
        self._loop.call(lambda: self._script.clear(route))


class ThreadedServer(Generic[_S]):
    """A simulated server, for any thread; see `SimulatedServer` for what each operation does."""

    def __init__(self, loop: LoopThread, server: _S) -> None:
        self._loop = loop
        self._server = server
        self.faults = ThreadedFaults(loop, server.faults)

    @property
    def host(self) -> str:
        return self._server.host

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def is_up(self) -> bool:
        return self._loop.call(lambda: self._server.is_up)

    @property
    def calls(self) -> tuple[Call, ...]:
        return self._loop.call(lambda: self._server.calls)

    def posts(self, path: str | None = None) -> list[Call]:
        return self._loop.call(lambda: self._server.posts(path))

    def reset_calls(self) -> None:
        self._loop.call(self._server.reset_calls)

    def asked(self, path: str, *, times: int = 1, within: float = 10.0) -> None:
        self._loop.run(self._server.asked(path, times=times, within=within), within + _OPERATION_SECONDS)

    def start(self) -> None:
        self._loop.run(self._server.start())

    def stop(self) -> None:
        self._loop.run(self._server.stop())


class ThreadedEngine(ThreadedServer[SimulatedEngine]):
    """A simulated engine, for any thread; see `SimulatedEngine` for what each operation does."""

    @property
    def starts(self) -> int:
        return self._loop.call(lambda: self._server.starts)

    @property
    def paused(self) -> bool:
        return self._loop.call(lambda: self._server.paused)

    @property
    def asleep(self) -> bool:
        return self._loop.call(lambda: self._server.asleep)

    @property
    def running_requests(self) -> int:
        return self._loop.call(lambda: self._server.running_requests)

    @property
    def waiting_requests(self) -> int:
        return self._loop.call(lambda: self._server.waiting_requests)

    def restart(self) -> None:
        self._loop.run(self._server.restart())

    def die(self) -> None:
        self._loop.call(self._server.die)

    def pause(self, mode: Mode = "abort", *, clear_cache: bool = True) -> None:
        self._loop.run(self._server.pause(mode, clear_cache=clear_cache))

    def resume(self) -> None:
        self._loop.run(self._server.resume())

    def split_ranks(self, *paused: bool) -> None:
        self._loop.call(lambda: self._server.split_ranks(*paused))


class SimulatorThread:
    """A simulator in a thread of its own.

    with SimulatorThread() as simulator:
        engine = simulator.engine("127.0.0.7", 8000)
        engine.pause("keep")
    """

    def __init__(self) -> None:
        self._loop = LoopThread("simulator")
        self._simulator = Simulator()

    def __enter__(self) -> SimulatorThread:
        self._loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._loop.run(self._simulator.__aexit__())
        finally:
            self._loop.close()

    def engine(
        self,
        host: str,
        port: int = 8000,
        *,
        version: str = "0.32.0",
        frontend: Frontend = "python",
        options: Options | None = None,
        group: MoeGroup | None = None,
        on_death: Callable[[ThreadedEngine], None] | None = None,
        start: bool = True,
    ) -> ThreadedEngine:
        """Make an engine; see `Simulator.engine`. `on_death` is called in the simulator's thread: it must not block."""
        engine = self._loop.run(
            self._simulator.engine(
                host, port, version=version, frontend=frontend, options=options, group=group, start=start
            )
        )
        threaded = ThreadedEngine(self._loop, engine)
        if on_death is not None:
            engine.on_death = lambda _: on_death(threaded)
        return threaded

    def remove(self, engine: ThreadedEngine) -> None:
        """Stop an engine and forget it."""
        self._loop.run(self._simulator.remove(engine._server))
