"""One simulated proxy of Ray Serve."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from llmservice_testing.ray_simulator.app import SimulatedApp, cancelled
from llmservice_testing.ray_simulator.routes import Routes
from llmservice_testing.simulator.calls import Call
from llmservice_testing.simulator.faults import Fault
from llmservice_testing.simulator.server import SimulatedServer
from llmservice_testing.simulator.wire import Connection, Reply, Request


class SimulatedProxy(SimulatedServer):
    """A proxy. Made by `RaySimulator.proxy`; to be used in the simulator's event loop alone.

    Attributes:
        app: what it leads to; several proxies lead to the same.
        unready: what it says to `/-/routes` and `/-/healthz`, with a 503; None while it is ready for traffic. Until it
            has a route that is so without being said here.
        has_routes: whether it has received the routes that there are; a proxy that has just started has not.
    """

    def __init__(self, host: str, port: int, app: SimulatedApp) -> None:
        super().__init__(host, port)
        self.app = app
        self.unready: str | None = None
        self.has_routes = True
        self._answering: set[asyncio.Task[Any]] = set()

    async def stop(self) -> None:
        """Stop as a process ends: connections are dropped and new ones refused. The app stays, with what it does."""
        self._listener.close()
        await cancelled(self._answering - {asyncio.current_task()})

    def _handle(self, request: Request, connection: Connection) -> Coroutine[Any, Any, Reply | None]:
        path = request.path.removeprefix(self.app.route.rstrip("/"))
        call = self._log.begin(request, path)
        fault = self.faults.take(path)
        return self._answer(call, fault or Fault(), request, path, connection)

    async def _answer(
        self, call: Call, fault: Fault, request: Request, path: str, connection: Connection
    ) -> Reply | None:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)  # also those whose client is gone are ended with the proxy
        task.add_done_callback(self._answering.discard)
        return await self._play(fault, call, request, path, connection)

    async def _truth(self, request: Request, path: str, connection: Connection) -> Reply | None:
        routes = Routes(self.app, unready=self.unready, has_routes=self.has_routes)
        return await routes.answer(request, connection)

    def _success(self, path: str) -> Reply:
        return Reply(200)

    async def _die(self) -> None:
        await self.stop()
