"""A bare client of one engine, real or simulated, for tests of what engines do.

It knows the routes and nothing else: no retries, no versions, no error is turned into something nicer.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Generator
from dataclasses import dataclass, field
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

import httpx

from llmservice_testing.vllm.model import SERVED_NAME

DEADLINE_SECONDS: Final = 60.0
"""For everything that should happen; longer than any request of these tests takes, even on a busy machine."""


@dataclass(frozen=True)
class Completion:
    """How a request for tokens ended."""

    tokens: int
    finish_reason: str


class OpenCompletion:
    """A request for tokens that is being answered, token by token. Awaiting it gives how it ended.

    Raises, when awaited:
        HTTPStatusError: it was refused.
    """

    def __init__(self, events: AsyncIterator[dict[str, Any]]) -> None:
        self._begun = asyncio.Event()
        self._task = asyncio.create_task(self._read(events))

    async def _read(self, events: AsyncIterator[dict[str, Any]]) -> Completion:
        reason, tokens = "", 0
        async for event in events:
            for choice in event["choices"]:
                self._begun.set()
                reason = choice.get("finish_reason") or reason
            if event.get("usage"):
                tokens = event["usage"]["completion_tokens"]
        return Completion(tokens, reason)

    async def begun(self) -> None:
        """Return once the first token is there: it runs.

        Raises:
            TimeoutError: it did not within DEADLINE_SECONDS.
        """
        await asyncio.wait_for(self._begun.wait(), DEADLINE_SECONDS)

    async def stays_open(self, seconds: float) -> bool:
        """Whether it has still not ended after so many seconds."""
        done, _ = await asyncio.wait({self._task}, timeout=seconds)
        return not done

    def done(self) -> bool:
        return self._task.done()

    def hang_up(self) -> None:
        self._task.cancel()

    async def close(self) -> None:
        """Hang up, whatever has become of it."""
        self._task.cancel()
        await asyncio.wait({self._task})

    def __await__(self) -> Generator[Any, None, Completion]:
        return self._task.__await__()


@dataclass(eq=False)
class EngineClient:
    """Talks to one engine; an async context manager.

    Args:
        url: the engine's base URL.
        api_key: sent with requests for tokens, and with them alone.
    """

    url: str
    api_key: str | None = None
    _http: httpx.AsyncClient = field(init=False)
    _calls: list[asyncio.Task[httpx.Response]] = field(init=False, default_factory=list)
    _completions: list[OpenCompletion] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        limits = httpx.Limits(max_connections=None)
        self._http = httpx.AsyncClient(base_url=self.url, timeout=DEADLINE_SECONDS, limits=limits)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for completion in self._completions:
            await completion.close()
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)
        await self._http.aclose()

    async def get(self, path: str, **parameters: str) -> httpx.Response:
        return await self._http.get(path, params=parameters or None)

    async def post(self, path: str, **parameters: str) -> httpx.Response:
        return await self._http.post(path, params=parameters or None)

    async def post_json(self, path: str, body: object) -> httpx.Response:
        return await self._http.post(path, json=body)

    def begin(self, path: str, **parameters: str) -> asyncio.Task[httpx.Response]:
        """A POST whose answer is awaited later; cancelling the task hangs up."""
        call = asyncio.create_task(self.post(path, **parameters))
        self._calls.append(call)
        return call

    def begin_completion(self, tokens: int) -> OpenCompletion:
        """A request for exactly so many tokens."""
        completion = OpenCompletion(self._completion_events(tokens))
        self._completions.append(completion)
        return completion

    async def _completion_events(self, tokens: int) -> AsyncIterator[dict[str, Any]]:
        body = {"model": SERVED_NAME, "prompt": "x", "max_tokens": tokens, "ignore_eos": True}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        headers = {} if self.api_key is None else {"authorization": f"Bearer {self.api_key}"}
        async with self._http.stream("POST", "/v1/completions", json=body, headers=headers) as answer:
            answer.raise_for_status()
            # By bytes: a decoder of lines would also split at the line separators in a random text.
            buffer = b""
            async for chunk in answer.aiter_bytes():
                *events, buffer = (buffer + chunk).split(b"\n\n")
                for event in events:
                    if event.startswith(b"data: {"):
                        yield json.loads(event.removeprefix(b"data: "))

    async def is_paused(self) -> bool:
        answer = await self.get("/is_paused")
        paused = answer.raise_for_status().json()["is_paused"]
        assert isinstance(paused, bool)
        return paused

    async def until_paused(self, paused: bool) -> None:
        """Return once `/is_paused` says so.

        Raises:
            TimeoutError: it did not within DEADLINE_SECONDS.
        """
        deadline = monotonic() + DEADLINE_SECONDS
        while await self.is_paused() != paused:
            if monotonic() > deadline:
                raise TimeoutError(f"is_paused is {not paused} after {DEADLINE_SECONDS} s")
