"""What every simulated server has: an address, what listens there, a record of what it was asked, and scripts of faults."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

from llmservice_testing.simulator.calls import Call, CallLog
from llmservice_testing.simulator.faults import Dies, Fault, FaultScript
from llmservice_testing.simulator.saying import say
from llmservice_testing.simulator.wire import Connection, Listener, Reply, Request


class SimulatedServer(ABC):
    """To be used in the simulator's event loop alone.

    Attributes:
        host: the address it listens on, an IPv6 one without brackets.
        faults: its scripts; see `FaultScript.script`.
    """

    def __init__(self, host: str, port: int, root: str = "") -> None:
        """`root` is what its URL ends in."""
        self.host = host
        self.faults = FaultScript()
        self._root = root
        self._log = CallLog()
        self._listener = Listener(host, port, self._handle)

    # Where it is, and whether

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def url(self) -> str:
        """Its base URL, with brackets around an IPv6 address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self._root}"

    @property
    def is_up(self) -> bool:
        """Whether it listens."""
        return self._listener.is_open

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be listened on.
        """
        await self._listener.open()

    @abstractmethod
    async def stop(self) -> None:
        """Stop as a process ends: connections are dropped and new ones refused."""

    # What it was asked

    @property
    def calls(self) -> tuple[Call, ...]:
        """Every request so far, oldest first."""
        return self._log.all()

    def posts(self, path: str | None = None) -> list[Call]:
        """The control calls so far: POSTs of /pause, /resume, /sleep and /wake_up, or of one of them."""
        return [call for call in self._log.all() if call.is_control_post and path in (None, call.path)]

    def reset_calls(self) -> None:
        self._log.reset()

    async def asked(self, path: str, *, times: int = 1, within: float = 10.0) -> None:
        """Return once it was asked `path` so many times, since the record began.

        Raises:
            TimeoutError: it was not within so many seconds.
        """
        await self._log.wait_until(lambda calls: sum(1 for call in calls if call.path == path) >= times, within)

    # What it answers

    @abstractmethod
    def _handle(self, request: Request, connection: Connection) -> Reply | Coroutine[Any, Any, Reply | None]:
        """Answer one request; None where the connection was dealt with."""

    @abstractmethod
    async def _truth(self, request: Request, path: str, connection: Connection) -> Reply | None:
        """Do what is asked, and what is answered to it without a fault."""

    @abstractmethod
    def _success(self, path: str) -> Reply:
        """What is answered as if it had been done."""

    @abstractmethod
    async def _die(self) -> None:
        """End as of a crash, now."""

    async def _play(
        self, fault: Fault, call: Call, request: Request, path: str, connection: Connection
    ) -> Reply | None:
        """Answer as the fault says."""
        await asyncio.sleep(fault.delay_before)
        if fault.dies is Dies.AT_ONCE:
            await self._die()
            return None
        does = fault.effect or request.method == "GET"  # which has none
        truth = await self._truth(request, path, connection) if does else self._success(path)
        await asyncio.sleep(fault.delay_after)
        reply = await say(fault, truth, connection)
        if reply is None:
            return None
        call.answer(reply.status)
        if fault.dies is Dies.AFTER_ANSWER:
            await connection.write(reply.encode(keep_alive=False))
            connection.cut()
            await self._die()
            return None
        return reply
