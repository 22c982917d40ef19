"""A bare client of one Ray Serve LLM app, real or simulated, for tests of what it does."""

import asyncio
from dataclasses import dataclass
from typing import Any

import httpx

from llmservice_testing.vllm.client import EngineClient
from llmservice_testing.vllm.model import SERVED_NAME


@dataclass(eq=False)
class AppClient(EngineClient):
    """Talks to one proxy; an async context manager. Calls are about the tiny model where none is named."""

    async def pause(self, *, model: str = SERVED_NAME, **options: Any) -> httpx.Response:
        return await self.post_json("/pause", {"model": model, "options": options})

    async def resume(self, *, model: str = SERVED_NAME) -> httpx.Response:
        return await self.post_json("/resume", {"model": model, "options": {}})

    def begin_pause(self, **options: Any) -> asyncio.Task[httpx.Response]:
        """A pause whose answer is awaited later; cancelling the task hangs up."""
        call = asyncio.create_task(self.pause(**options))
        self._calls.append(call)
        return call

    async def post_text(self, path: str, body: str) -> httpx.Response:
        """A POST with a body that is said to be JSON."""
        return await self._http.post(path, content=body, headers={"content-type": "application/json"})

    async def worker_numbers(self) -> list[int]:
        """The hash of the worker object in each replica that a broadcast reaches. Processes have different ones."""
        answer = await self.post_json("/collective_rpc", {"model": SERVED_NAME, "method": "__hash__"})
        results = answer.raise_for_status().json()["results"]
        return [number for each in results for number in each["worker_results"]]

    async def is_paused(self) -> bool:
        answer = await self.get("/is_paused", model=SERVED_NAME)
        paused = answer.raise_for_status().json()["is_paused"]
        assert isinstance(paused, bool)
        return paused
