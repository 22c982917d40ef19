"""One simulated proxy of Ray Serve: an address, what listens there, its record and its faults."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from llmservice_testing.ray_simulator.app import SimulatedApp, cancelled
from llmservice_testing.ray_simulator.routes import Routes
from llmservice_testing.simulator.calls import Call, CallLog
from llmservice_testing.simulator.faults import Dies, Fault, FaultScript
from llmservice_testing.simulator.saying import say
from llmservice_testing.simulator.wire import Connection, Listener, Reply, Request


class SimulatedProxy:
    """A proxy. Made by `RaySimulator.proxy`; to be used in the simulator's event loop alone.

    Attributes:
        host: the address it listens on, an IPv6 one without brackets.
        app: what it leads to; several proxies lead to the same.
        faults: its scripts; see `FaultScript.script`.
        unready: what it says to `/-/routes` and `/-/healthz`, with a 503; None while it is ready for traffic. Until it
            has a route that is so without being said here.
        has_routes: whether it has received the routes that there are; a proxy that has just started has not.
    """

    def __init__(self, host: str, port: int, app: SimulatedApp) -> None:
        self.host = host
        self.app = app
        self.faults = FaultScript()
        self.unready: str | None = None
        self.has_routes = True
        self._log = CallLog()
        self._listener = Listener(host, port, self._handle)
        self._answering: set[asyncio.Task[Any]] = set()

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def is_up(self) -> bool:
        """Whether it listens."""
        return self._listener.is_open

    async def start(self) -> None:
        """Raises OSError: the address cannot be listened on."""
        await self._listener.open()

    async def stop(self) -> None:
        """Stop as a process ends: connections are dropped and new ones refused. The app stays, with what it does."""
        self._listener.close()
        await cancelled(self._answering - {asyncio.current_task()})

    @property
    def calls(self) -> tuple[Call, ...]:
        """Every request so far, oldest first."""
        return self._log.all()

    def posts(self, path: str | None = None) -> list[Call]:
        """The control calls so far: POSTs of /pause and /resume, or of one of them."""
        return [call for call in self._log.all() if call.is_control_post and path in (None, call.path)]

    def reset_calls(self) -> None:
        self._log.reset()

    async def asked(self, path: str, *, times: int = 1, within: float = 10.0) -> None:
        """Return once it was asked `path` so many times, since the record began.

        Raises:
            TimeoutError: it was not within so many seconds.
        """
        await self._log.wait_until(lambda calls: sum(1 for call in calls if call.path == path) >= times, within)

    def _handle(self, request: Request, connection: Connection) -> Coroutine[Any, Any, Reply | None]:
        path = request.path.removeprefix(self.app.route.rstrip("/"))
        call = self._log.begin(request, path)
        fault = self.faults.take(path)
        return self._answer(call, fault, request, connection)

    async def _answer(self, call: Call, fault: Fault | None, request: Request, connection: Connection) -> Reply | None:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)  # also those whose client is gone are ended with the proxy
        task.add_done_callback(self._answering.discard)
        fault = fault or Fault()
        await asyncio.sleep(fault.delay_before)
        if fault.dies is Dies.AT_ONCE:
            await self.stop()
            return None
        routes = Routes(self.app, unready=self.unready, has_routes=self.has_routes)
        truth: Reply | None
        if fault.effect or request.method == "GET":
            truth = await routes.answer(request, connection)
        else:
            truth = Reply(200)
        await asyncio.sleep(fault.delay_after)
        reply = await say(fault, truth, connection)
        if reply is None:
            return None
        call.answer(reply.status)
        if fault.dies is Dies.AFTER_ANSWER:
            await connection.write(reply.encode(keep_alive=False))
            connection.cut()
            await self.stop()
            return None
        return reply
