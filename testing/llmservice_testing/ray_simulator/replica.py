"""One simulated replica of a model: a vLLM engine in an actor of Ray's."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable
from typing import Final

from llmservice_testing.simulator.scheduler import Mode, Scheduler

_numbers: Final = itertools.count(1)


class ReplicaError(Exception):
    """A replica failed at what a broadcast asked of it; the message is what it said."""


class SimulatedReplica:
    """A replica. Made by `SimulatedApp.add_replica`; to be used in the simulator's event loop alone.

    Attributes:
        name: of its actor.
        scheduler: makes its tokens.
        is_found: whether a broadcast finds its actor. One that is not found is skipped in silence, though it is there and
            serves.
        failure: what it says where a broadcast asks it anything; None while it does as it is asked.
        delay: seconds that it takes to do anything.
    """

    def __init__(self, app: str, model: str, tokens_per_second: float) -> None:
        self.name: Final = f"SERVE_REPLICA::{app}#LLMServer:{model}#{next(_numbers):08x}"
        self.scheduler: Final = Scheduler(tokens_per_second)
        self.is_found = True
        self.failure: str | None = None
        self.delay = 0.0

    @property
    def paused(self) -> bool:
        """Whether it makes no tokens because it is paused: the truth, which no public route tells."""
        return self.scheduler.is_paused

    @property
    def running_requests(self) -> int:
        """Requests that have begun and not ended; frozen ones too."""
        return self.scheduler.running

    async def pause(self, mode: Mode, *, clear_cache: bool) -> None:
        """Return when it is done: with `wait`, once it has drained.

        Raises:
            ReplicaError: it failed.
        """
        await self._take_time()
        await _done(self.scheduler.pause(mode, clear_cache=clear_cache))

    async def resume(self) -> None:
        """Raises ReplicaError: it failed."""
        await self._take_time()
        self.scheduler.resume()

    async def is_paused(self) -> bool:
        """Raises ReplicaError: it failed."""
        await self._take_time()
        return self.scheduler.is_paused

    async def worker_hash(self) -> int:
        """A number that no other process gives. Raises ReplicaError: it failed."""
        await self._take_time()
        return hash(self)

    async def _take_time(self) -> None:
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.failure is not None:
            raise ReplicaError(self.failure)

    def end(self) -> None:
        """Its process is gone, and with it every request."""
        self.scheduler.abort_all()


async def _done(pending: Awaitable[None] | None) -> None:
    if pending is not None:
        await pending
