"""One simulated app: models with their replicas, and the broadcast that reaches them."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, TypeVar

from llmservice_testing.ray_simulator.replica import SimulatedReplica
from llmservice_testing.ray_simulator.versions import Behaviour

_T = TypeVar("_T")

THREADS: Final = 32
"""Of an ingress on a machine with many CPUs: four more than there are, and at most 32."""
REPLICAS_KNOWN_WITHIN_SECONDS: Final = 30.0
"""How long a broadcast waits for the first replica of a model, before it fails."""


class Stage(enum.Enum):
    """How far the app is."""

    NOT_DEPLOYED = "not_deployed"
    """The proxies have never seen a route."""
    DEPLOYED = "deployed"
    """The proxies have its route, from the first moment of the deployment on. Whether the ingress runs and whether a
    model has a replica are other matters."""
    DELETED = "deleted"
    """The proxies had a route once, and have none any more."""


class UnknownModelError(Exception):
    """A call named a model that the app does not have."""


class NoReplicaKnownError(Exception):
    """A broadcast found no replica in time: the model has not started yet."""


class SimulatedApp:
    """An app. Made by `RaySimulator.app`; to be used in the simulator's event loop alone.

    Attributes:
        dev: whether its ingress has the control routes (`build_dev_openai_app`).
        route: its route prefix.
        stage: how far it is.
        first_call_delay: seconds that the first broadcast to a model takes longer, because the ingress then begins to
            learn its replicas.
        replicas_known_within: seconds that a broadcast waits for the first replica of a model.
        threads: how many broadcasts there are at a time, as each takes a thread of the ingress until all replicas have
            answered, even when its client is gone. The others wait.
    """

    def __init__(
        self, behaviour: Behaviour, models: tuple[str, ...], *, dev: bool, route: str, tokens_per_second: float
    ) -> None:
        self.name: Final = "app"
        self.behaviour = behaviour
        self.dev = dev
        self.route: Final = route
        self.stage = Stage.DEPLOYED
        self.first_call_delay = 0.0
        self.replicas_known_within = REPLICAS_KNOWN_WITHIN_SECONDS
        self.threads = THREADS
        self._broadcasting = 0
        self._turns: deque[asyncio.Future[None]] = deque()
        self._tokens_per_second = tokens_per_second
        self._replicas: dict[str, list[SimulatedReplica]] = {model: [] for model in models}
        # Set by the first replica, for ever; and while there is one.
        self._known: dict[str, asyncio.Event] = {model: asyncio.Event() for model in models}
        self._present: dict[str, asyncio.Event] = {model: asyncio.Event() for model in models}
        self._called: set[str] = set()
        self._calls: set[asyncio.Task[Any]] = set()
        self._ingress = asyncio.Event()
        self._ingress.set()

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self._replicas)

    @property
    def ingress_runs(self) -> bool:
        """Whether the ingress runs. While it does not, requests to the app wait without an answer."""
        return self._ingress.is_set()

    @ingress_runs.setter
    def ingress_runs(self, runs: bool) -> None:
        if runs:
            self._ingress.set()
        else:
            self._ingress.clear()

    async def until_ingress_runs(self) -> None:
        """Return when it does."""
        await self._ingress.wait()

    def replicas(self, model: str | None = None) -> tuple[SimulatedReplica, ...]:
        """Those of a model; of the first where none is named."""
        return tuple(self._replicas[model or self.models[0]])

    def add_replica(self, model: str | None = None) -> SimulatedReplica:
        """Start one, as autoscaling does: it runs, whatever was asked of the others."""
        model = model or self.models[0]
        replica = SimulatedReplica(self.name, model, self._tokens_per_second)
        self._replicas[model].append(replica)
        self._known[model].set()
        self._present[model].set()
        return replica

    def remove_replica(self, replica: SimulatedReplica) -> None:
        """End one, as a crash or autoscaling does. The broadcast goes on knowing the model, even without a replica."""
        for model, replicas in self._replicas.items():
            if replica in replicas:
                replicas.remove(replica)
                if not replicas:
                    self._present[model].clear()
        replica.end()

    def replace_replica(self, replica: SimulatedReplica) -> SimulatedReplica:
        """End one, and start another in its place, as Serve does after a crash."""
        model = next(model for model, replicas in self._replicas.items() if replica in replicas)
        self.remove_replica(replica)
        return self.add_replica(model)

    async def broadcast(self, model: str, method: Callable[[SimulatedReplica], Coroutine[Any, Any, _T]]) -> list[_T]:
        """Call all replicas of a model at once, and return when all have answered; there is no deadline.

        Raises:
            UnknownModelError: the app has no such model.
            NoReplicaKnownError: none has started in time.
            ReplicaError: one failed, whatever the others did.
        """
        if model not in self._replicas:
            raise UnknownModelError(model)
        async with self._thread():
            return await self._broadcast(model, method)

    @contextlib.asynccontextmanager
    async def _thread(self) -> AsyncIterator[None]:
        while self._broadcasting >= self.threads:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._turns.append(turn)
            await turn
        self._broadcasting += 1
        try:
            yield
        finally:
            self._broadcasting -= 1
            while self._turns:
                turn = self._turns.popleft()
                if not turn.done():
                    turn.set_result(None)
                    break

    async def _broadcast(self, model: str, method: Callable[[SimulatedReplica], Coroutine[Any, Any, _T]]) -> list[_T]:
        if model not in self._called:
            self._called.add(model)
            await asyncio.sleep(self.first_call_delay)
        try:
            await asyncio.wait_for(self._known[model].wait(), self.replicas_known_within)
        except TimeoutError:
            raise NoReplicaKnownError(model) from None
        found = [replica for replica in self._replicas[model] if replica.is_found]
        calls = [asyncio.create_task(method(replica)) for replica in found]
        self._calls.update(calls)
        for call in calls:
            call.add_done_callback(self._calls.discard)
        # Where one fails the call ends at once, and the others go on; so do all where the caller is gone.
        return await asyncio.shield(asyncio.gather(*calls))

    async def choose(self, model: str) -> SimulatedReplica:
        """The replica that a request for tokens goes to: the one with the fewest, once there is one.

        Raises:
            UnknownModelError: the app has no such model.
        """
        if model not in self._replicas:
            raise UnknownModelError(model)
        await self._present[model].wait()
        return min(self._replicas[model], key=lambda each: each.scheduler.running + each.scheduler.waiting)

    async def end(self) -> None:
        """All of it is gone, and with it every request and call."""
        for replicas in self._replicas.values():
            for replica in replicas:
                replica.end()
        await cancelled(self._calls)


async def cancelled(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel them, and return when they have ended."""
    pending = list(tasks)
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending)
