"""Many simulated engines in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from llmservice_testing.simulator.engine import OnDeath, SimulatedEngine
from llmservice_testing.simulator.group import MoeGroup
from llmservice_testing.simulator.life import Options
from llmservice_testing.simulator.versions import Behaviour, Frontend


class Simulator:
    """Owns engines, and stops them when its context ends.

    async with Simulator() as simulator:
        engine = await simulator.engine("127.0.0.7", 8000, version="0.32.0")
        engine.faults.script("/pause", Fault.answering(500, {"error": "no"}))
    """

    def __init__(self) -> None:
        self._engines: dict[tuple[str, int], SimulatedEngine] = {}

    async def __aenter__(self) -> Simulator:
        return self

    async def __aexit__(self, *_: object) -> None:
        for engine in self._engines.values():
            await engine.stop()
        # Connections and their tasks end in the loop's next turn.
        await asyncio.sleep(0)

    def __iter__(self) -> Iterator[SimulatedEngine]:
        return iter(self._engines.values())

    async def engine(
        self,
        host: str,
        port: int = 8000,
        *,
        version: str = "0.32.0",
        frontend: Frontend = "python",
        options: Options | None = None,
        group: MoeGroup | None = None,
        on_death: OnDeath | None = None,
        start: bool = True,
    ) -> SimulatedEngine:
        """Make an engine, and start it unless `start` is false. A pod of several ports is several engines of one host.

        Args:
            host: an address of this machine, such as 127.0.0.7 or ::1.
            port: 0 lets the kernel choose one.
            group: the MoE model that it is a rank of.
            on_death: called after it died of a fault or of what it was asked.

        Raises:
            OSError: the address cannot be listened on.
            ValueError: no version that can be simulated.
        """
        behaviour = Behaviour.of(version, frontend)
        engine = SimulatedEngine(host, port, behaviour, options or Options(), group, on_death)
        if start:
            await engine.start()
        previous = self._engines.get((host, engine.port))
        if previous is not None:
            await previous.stop()
        self._engines[host, engine.port] = engine
        return engine

    async def remove(self, engine: SimulatedEngine) -> None:
        """Stop an engine and forget it, record and all."""
        await engine.stop()
        self._engines.pop((engine.host, engine.port), None)
