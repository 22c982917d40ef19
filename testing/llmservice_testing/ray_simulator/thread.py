"""The simulator for synchronous code: the same objects, run in the event loop of a thread."""

from __future__ import annotations

from llmservice_testing.ray_simulator.app import SimulatedApp, Stage
from llmservice_testing.ray_simulator.proxy import SimulatedProxy
from llmservice_testing.ray_simulator.replica import SimulatedReplica
from llmservice_testing.ray_simulator.simulator import RaySimulator
from llmservice_testing.simulator.scheduler import Mode
from llmservice_testing.simulator.thread import LoopThread, ThreadedServer


class ThreadedReplica:
    """A simulated replica, for any thread; see `SimulatedReplica`."""

    def __init__(self, loop: LoopThread, replica: SimulatedReplica) -> None:
        self._loop = loop
        self._replica = replica

    @property
    def name(self) -> str:
        return self._replica.name

    @property
    def paused(self) -> bool:
        return self._loop.call(lambda: self._replica.paused)

    @property
    def running_requests(self) -> int:
        return self._loop.call(lambda: self._replica.running_requests)

    def pause(self, mode: Mode = "abort", *, clear_cache: bool = True) -> None:
        """Pause it alone, past the ingress."""
        self._loop.run(self._replica.pause(mode, clear_cache=clear_cache))

    def resume(self) -> None:
        """Resume it alone, past the ingress."""
        self._loop.run(self._replica.resume())

    def hide(self, *, hidden: bool = True) -> None:
        """Have broadcasts skip it, though it is there and serves."""
        self._loop.call(lambda: setattr(self._replica, "is_found", not hidden))

    def fail(self, words: str | None) -> None:
        """Have it fail at whatever a broadcast asks, with these words; None ends that."""
        self._loop.call(lambda: setattr(self._replica, "failure", words))

    def delay(self, seconds: float) -> None:
        """Have it take so long for whatever a broadcast asks."""
        self._loop.call(lambda: setattr(self._replica, "delay", seconds))


class ThreadedApp:
    """A simulated app, for any thread; see `SimulatedApp`."""

    def __init__(self, loop: LoopThread, app: SimulatedApp) -> None:
        self._loop = loop
        self._app = app

    def replicas(self, model: str | None = None) -> list[ThreadedReplica]:
        replicas = self._loop.call(lambda: self._app.replicas(model))
        return [ThreadedReplica(self._loop, replica) for replica in replicas]

    def paused(self, model: str | None = None) -> list[bool]:
        """Which replicas are paused: the truth, which no public route tells."""
        return self._loop.call(lambda: [replica.paused for replica in self._app.replicas(model)])

    def add_replica(self, model: str | None = None) -> ThreadedReplica:
        return ThreadedReplica(self._loop, self._loop.call(lambda: self._app.add_replica(model)))

    def remove_replica(self, replica: ThreadedReplica) -> None:
        self._loop.call(lambda: self._app.remove_replica(replica._replica))

    def replace_replica(self, replica: ThreadedReplica) -> ThreadedReplica:
        return ThreadedReplica(self._loop, self._loop.call(lambda: self._app.replace_replica(replica._replica)))

    def set_stage(self, stage: Stage) -> None:
        self._loop.call(lambda: setattr(self._app, "stage", stage))

    def stop_ingress(self, *, stopped: bool = True) -> None:
        """Have requests to the app wait without an answer, as while it is deployed."""
        self._loop.call(lambda: setattr(self._app, "ingress_runs", not stopped))

    def slow_first_call(self, seconds: float) -> None:
        """Have the first broadcast to each model take so much longer."""
        self._loop.call(lambda: setattr(self._app, "first_call_delay", seconds))


class ThreadedProxy(ThreadedServer[SimulatedProxy]):
    """A simulated proxy, for any thread; see `SimulatedProxy`."""

    def withhold_routes(self, *, withheld: bool = True) -> None:
        """Have it know no route, as one that has just started."""
        self._loop.call(lambda: setattr(self._server, "has_routes", not withheld))

    def be_unready(self, words: str | None) -> None:
        """Have it say 503 and these words to `/-/routes` and `/-/healthz`; None ends that."""
        self._loop.call(lambda: setattr(self._server, "unready", words))


class RaySimulatorThread:
    """A simulator in a thread of its own.

    with RaySimulatorThread() as simulator:
        app = simulator.app()
        proxy = simulator.proxy("127.0.0.7", 8000, app)
        app.replicas()[0].resume()
    """

    def __init__(self) -> None:
        self._loop = LoopThread("ray-simulator")
        self._simulator = RaySimulator()

    def __enter__(self) -> RaySimulatorThread:
        self._loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._loop.run(self._simulator.__aexit__())
        finally:
            self._loop.close()

    def app(
        self,
        *,
        version: str = "2.60.0",
        models: tuple[str, ...] = ("tiny",),
        replicas: int = 2,
        dev: bool = True,
        route: str = "/",
        tokens_per_second: float = 1000.0,
    ) -> ThreadedApp:
        """Make an app that runs; see `RaySimulator.app`."""
        app = self._loop.call(
            lambda: self._simulator.app(
                version=version,
                models=models,
                replicas=replicas,
                dev=dev,
                route=route,
                tokens_per_second=tokens_per_second,
            )
        )
        return ThreadedApp(self._loop, app)

    def proxy(self, host: str, port: int, app: ThreadedApp, *, start: bool = True) -> ThreadedProxy:
        """Make a proxy that leads to an app; see `RaySimulator.proxy`."""
        proxy = self._loop.run(self._simulator.proxy(host, port, app._app, start=start))
        return ThreadedProxy(self._loop, proxy)
