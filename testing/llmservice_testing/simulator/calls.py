"""The record of what an engine was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from urllib.parse import parse_qs

from llmservice_testing.simulator.wire import Request

_CONTROL_POSTS = frozenset({"/pause", "/resume", "/sleep", "/wake_up"})


@dataclass(slots=True)
class Call:
    """One request as the engine received it.

    Attributes:
        path: without the server's root path.
        query: the raw query string, without the question mark.
        at: when it was received, in seconds of `time.monotonic()`.
        status: what it was answered; None while it is open, and for ever if nothing was answered or tokens were streamed.
        answered_at: when, in seconds of `time.monotonic()`; None as long as `status` is.
    """

    method: str
    path: str
    query: str
    body: bytes
    at: float
    status: int | None = None
    answered_at: float | None = None

    @property
    def is_control_post(self) -> bool:
        """Whether it asked the engine to change: a POST of /pause, /resume, /sleep or /wake_up."""
        return self.method == "POST" and self.path in _CONTROL_POSTS

    @property
    def parameters(self) -> dict[str, str]:
        """The query by name; the last of a repeated one."""
        return {name: values[-1] for name, values in parse_qs(self.query, keep_blank_values=True).items()}

    def answer(self, status: int) -> None:
        self.status = status
        self.answered_at = monotonic()


@dataclass(eq=False)
class CallLog:
    """All calls of one engine, oldest first, and a way to wait for one."""

    _calls: list[Call] = field(default_factory=list)
    _watchers: list[tuple[Callable[[list[Call]], bool], asyncio.Future[None]]] = field(default_factory=list)

    def begin(self, request: Request, path: str) -> Call:
        """Record a request that has just been received."""
        call = Call(request.method, path, request.query, request.body, monotonic())
        self._calls.append(call)
        if self._watchers:
            self._wake_watchers()
        return call

    def all(self) -> tuple[Call, ...]:
        return tuple(self._calls)

    def reset(self) -> None:
        self._calls.clear()

    async def wait_until(self, predicate: Callable[[list[Call]], bool], within: float) -> None:
        """Return when the calls so far satisfy `predicate`, which is asked again at each call received.

        Raises:
            TimeoutError: they did not within so many seconds.
        """
        if predicate(self._calls):
            return
        seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        watcher = (predicate, seen)
        self._watchers.append(watcher)
        try:
            await asyncio.wait_for(seen, within)
        except TimeoutError:
            asked = [f"{call.method} {call.path}" for call in self._calls]
            raise TimeoutError(f"not asked for within {within} s; the engine was asked {asked}") from None
        finally:
            self._watchers.remove(watcher)

    def _wake_watchers(self) -> None:
        for predicate, seen in self._watchers:
            if not seen.done() and predicate(self._calls):
                seen.set_result(None)
