"""The part of an engine that makes tokens: which requests run, and what a pause does to them.

It follows `vllm/v1/engine/core.py` (0.17 on): a pause sets one of two states at once, and is *complete* when the engine
has no more work. `wait` and `abort` set "nothing new is begun" (after which `abort` ends what there is), `keep` sets
"nothing moves". So `wait` sent to an engine that is paused with `keep` lets its frozen requests run again.

Time is the event loop's. A running request is one timer, so that an engine at rest costs nothing.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal

Mode = Literal["abort", "wait", "keep"]
FinishReason = Literal["length", "abort"]

MAX_RUNNING: Final = 8
"""How many requests run at once, as the real engines of these tests are started with; more wait in a queue."""


class PauseState(enum.Enum):
    RUNNING = "running"
    NOTHING_NEW = "nothing_new"
    FROZEN = "frozen"


@dataclass(eq=False)
class Generation:
    """One request for `tokens` tokens.

    Attributes:
        begun: done when it first runs.
        finished: gets the reason it ended with.
        made: how many tokens it had when its timer was last stopped; at its end, all that it got.
        started_at: when its timer was last started, in seconds of the event loop's clock.
        timer: ends it; None while it does not run.
    """

    tokens: int
    begun: asyncio.Future[None]
    finished: asyncio.Future[FinishReason]
    made: float = 0.0
    started_at: float | None = None
    timer: asyncio.TimerHandle | None = None


@dataclass(eq=False)
class Scheduler:
    """The scheduler of one engine.

    Args:
        tokens_per_second: how fast each running request gets its tokens.
    """

    tokens_per_second: float
    state: PauseState = PauseState.RUNNING
    _running: set[Generation] = field(default_factory=set)
    _waiting: deque[Generation] = field(default_factory=deque)
    _idle: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def is_paused(self) -> bool:
        return self.state is not PauseState.RUNNING

    @property
    def is_frozen(self) -> bool:
        return self.state is PauseState.FROZEN

    @property
    def running(self) -> int:
        """Requests that have begun and not ended; frozen ones too."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests that have not begun."""
        return len(self._waiting)

    def submit(self, tokens: int) -> Generation:
        """Take a request. It begins when the engine is not paused and has room."""
        loop = asyncio.get_running_loop()
        generation = Generation(tokens, begun=loop.create_future(), finished=loop.create_future())
        self._waiting.append(generation)
        self._begin_waiting()
        return generation

    def drop(self, generation: Generation) -> None:
        """The client of a request hung up: end it."""
        self._end(generation, "abort")

    def pause(self, mode: Mode, *, clear_cache: bool) -> asyncio.Future[None] | None:
        """Pause. None if that is complete at once, else what is done when it is.

        A cleared cache takes the memory of frozen requests: they go back into the queue, and only a resume begins
        them again.
        """
        if mode == "keep":
            self.state = PauseState.FROZEN
            for generation in self._running:
                self._freeze(generation)
            if clear_cache:
                self._waiting.extendleft(self._running)
                self._running.clear()
            self._complete_pauses()
            return None
        if mode == "abort":
            self.abort_all()
        self.state = PauseState.NOTHING_NEW
        for generation in self._running:
            self._thaw(generation)
        return self.idle()

    def idle(self) -> asyncio.Future[None] | None:
        """None if no request is running, else what is done when that is so (or the rest was frozen)."""
        if not self._running:
            return None
        idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(idle)
        return idle

    def resume(self) -> None:
        self.state = PauseState.RUNNING
        for generation in self._running:
            self._thaw(generation)
        self._begin_waiting()

    def abort_all(self) -> None:
        """End every request, begun or not, with what it has."""
        for generation in [*self._running, *self._waiting]:
            self._end(generation, "abort")

    def _begin_waiting(self) -> None:
        while self.state is PauseState.RUNNING and self._waiting and len(self._running) < MAX_RUNNING:
            generation = self._waiting.popleft()
            self._running.add(generation)
            self._thaw(generation)
            if not generation.begun.done():
                generation.begun.set_result(None)

    def _thaw(self, generation: Generation) -> None:
        if generation.timer is not None:
            return
        loop = asyncio.get_running_loop()
        generation.started_at = loop.time()
        seconds = (generation.tokens - generation.made) / self.tokens_per_second
        generation.timer = loop.call_later(seconds, self._end, generation, "length")

    def _freeze(self, generation: Generation) -> None:
        if generation.timer is None or generation.started_at is None:
            return
        generation.timer.cancel()
        generation.timer = None
        seconds = asyncio.get_running_loop().time() - generation.started_at
        generation.made = min(generation.tokens, generation.made + seconds * self.tokens_per_second)

    def _end(self, generation: Generation, reason: FinishReason) -> None:
        if generation.finished.done():
            return
        self._freeze(generation)
        if reason == "length":
            generation.made = generation.tokens
        self._running.discard(generation)
        if generation in self._waiting:
            self._waiting.remove(generation)
        if not generation.begun.done():
            generation.begun.set_result(None)
        generation.finished.set_result(reason)
        self._begin_waiting()
        if not self._running:
            self._complete_pauses()

    def _complete_pauses(self) -> None:
        """No work is left: every pause that was waiting for that is complete, even one that was resumed meanwhile."""
        idle, self._idle = self._idle, []
        for future in idle:
            if not future.done():
                future.set_result(None)
