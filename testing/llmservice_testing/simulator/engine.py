"""One simulated engine."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from llmservice_testing.simulator.calls import Call
from llmservice_testing.simulator.group import MoeGroup
from llmservice_testing.simulator.life import EngineLife, Options
from llmservice_testing.simulator.routes import Routes
from llmservice_testing.simulator.scheduler import Mode
from llmservice_testing.simulator.server import SimulatedServer
from llmservice_testing.simulator.versions import Behaviour
from llmservice_testing.simulator.wire import Connection, Reply, Request

OnDeath = Callable[["SimulatedEngine"], None]


class SimulatedEngine(SimulatedServer):
    """An engine. Made by `Simulator.engine`; to be used in the simulator's event loop alone.

    Attributes:
        on_death: called after it died of a fault or of what it was asked; None for nobody.
        starts: how many times it was started, so that two lives can be told apart.
    """

    def __init__(
        self,
        host: str,
        port: int,
        behaviour: Behaviour,
        options: Options,
        group: MoeGroup | None,
        on_death: OnDeath | None,
    ) -> None:
        if options.root_path and behaviour.frontend == "rust":
            raise ValueError("the Rust frontend refuses to start with --root-path")
        super().__init__(host, port, options.root_path)
        self.behaviour = behaviour
        self.options = options
        self.on_death = on_death
        self.starts = 0
        self._group = group
        self._begin_life()

    def _begin_life(self) -> None:
        self._state = EngineLife(self.behaviour, self.options, self._group, self.die)
        self._routes = Routes(self._state)

    # Its life

    async def start(self) -> None:
        """Listen, in the state of an engine that has just started.

        Raises:
            OSError: the address cannot be listened on.
        """
        await super().start()
        self.starts += 1

    async def stop(self) -> None:
        """Stop as a process ends: connections are dropped, new ones refused, all but the record is forgotten."""
        self._listener.close()
        self._state.end()
        self._begin_life()

    async def restart(self) -> None:
        """Stop, if it is up, and start: it runs, as every engine does that has just started."""
        if self.is_up:
            await self.stop()
        await self.start()

    def die(self) -> None:
        """Die as of a crash, now, and tell `on_death`."""
        self._listener.close()
        self._state.end()
        self._begin_life()
        if self.on_death is not None:
            self.on_death(self)

    async def _die(self) -> None:
        self.die()

    # What it does at the moment

    @property
    def paused(self) -> bool:
        """Whether it makes no tokens because it is paused: the truth, whatever `/is_paused` says."""
        return self._state.control.halted

    @property
    def asleep(self) -> bool:
        return self._state.is_asleep

    @property
    def running_requests(self) -> int:
        """Requests that have begun and not ended; frozen ones too."""
        return self._state.scheduler.running

    @property
    def waiting_requests(self) -> int:
        """Requests in its queue that have not begun."""
        return self._state.scheduler.waiting

    async def pause(self, mode: Mode = "abort", *, clear_cache: bool = True) -> None:
        """Pause it as somebody else would, off the record; returns when `/pause` would have answered."""
        if (pending := self._state.control.pause(mode, clear_cache=clear_cache)) is not None:
            await pending

    async def resume(self) -> None:
        """Resume it as somebody else would, off the record; returns when `/resume` would have answered.

        Raises:
            PauseInFlightError: a rank of a MoE group whose pause is in flight.
        """
        if (pending := self._state.control.resume()) is not None:
            await pending

    def split_ranks(self, *paused: bool) -> None:
        """Let the ranks behind this server disagree, until the next `/pause` or `/resume`."""
        self._state.forced_ranks = paused

    # Requests

    def _handle(self, request: Request, connection: Connection) -> Reply | Coroutine[Any, Any, Reply | None]:
        path = request.path
        root = self.options.root_path
        if root and path.startswith(root):
            path = path[len(root) :] or "/"
        call = self._log.begin(request, path)
        fault = self.faults.take(path)
        if fault is not None:
            return self._play(fault, call, request, path, connection)
        answer = self._routes.answer(request, path, connection)
        if isinstance(answer, Reply):
            call.answer(answer.status)
            return answer
        return self._finish(call, answer)

    @staticmethod
    async def _finish(call: Call, answer: Coroutine[Any, Any, Reply | None]) -> Reply | None:
        reply = await answer
        if reply is not None:
            call.answer(reply.status)
        return reply

    async def _truth(self, request: Request, path: str, connection: Connection) -> Reply | None:
        answer = self._routes.answer(request, path, connection)
        return answer if isinstance(answer, Reply) else await answer

    def _success(self, path: str) -> Reply:
        return self._routes.success(path)
