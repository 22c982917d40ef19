"""Many simulated apps and their proxies in one event loop."""

from __future__ import annotations

import asyncio

from llmservice_testing.ray_simulator.app import SimulatedApp
from llmservice_testing.ray_simulator.proxy import SimulatedProxy
from llmservice_testing.ray_simulator.versions import Behaviour


class RaySimulator:
    """Owns apps and proxies, and stops them when its context ends.

    async with RaySimulator() as simulator:
        app = simulator.app(version="2.60.0", replicas=2)
        proxy = await simulator.proxy("127.0.0.7", 8000, app)
        app.replicas()[0].failure = "the engine is dead"
    """

    def __init__(self) -> None:
        self._apps: list[SimulatedApp] = []
        self._proxies: list[SimulatedProxy] = []

    async def __aenter__(self) -> RaySimulator:
        return self

    async def __aexit__(self, *_: object) -> None:
        for proxy in self._proxies:
            await proxy.stop()
        for app in self._apps:
            await app.end()
        # Connections and their tasks end in the loop's next turn.
        await asyncio.sleep(0)

    def app(
        self,
        *,
        version: str = "2.60.0",
        models: tuple[str, ...] = ("tiny",),
        replicas: int = 2,
        dev: bool = True,
        route: str = "/",
        tokens_per_second: float = 1000.0,
    ) -> SimulatedApp:
        """Make an app that runs, with so many replicas of each model.

        Raises:
            ValueError: no version that can be simulated.
        """
        app = SimulatedApp(Behaviour.of(version), models, dev=dev, route=route, tokens_per_second=tokens_per_second)
        for model in models:
            for _ in range(replicas):
                app.add_replica(model)
        self._apps.append(app)
        return app

    async def proxy(self, host: str, port: int, app: SimulatedApp, *, start: bool = True) -> SimulatedProxy:
        """Make a proxy that leads to an app, and start it unless `start` is false.

        Args:
            host: an address of this machine, such as 127.0.0.7 or ::1.
            port: 0 lets the kernel choose one.

        Raises:
            OSError: the address cannot be listened on.
        """
        proxy = SimulatedProxy(host, port, app)
        if start:
            await proxy.start()
        self._proxies.append(proxy)
        return proxy
