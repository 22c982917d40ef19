"""The connection to the API server, where only the instant matters."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from llmservice.kube.client import Kubernetes


class Streamed(Kubernetes):
    """Its one watch brings what the test feeds it."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader()

    @asynccontextmanager
    async def _response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        yield SimpleNamespace(content=self.reader, connection=None)


async def test_a_watch_that_is_cancelled_together_with_an_event_ends() -> None:
    """Seen: after a freeze, with events waiting in the socket, a view of pods was told to begin anew, and never did."""
    kubernetes, seen = Streamed(), asyncio.Event()

    async def follow() -> None:
        async for _ in kubernetes.watch("/api/v1/pods", {}, server_seconds=60, deadline=75):
            seen.set()

    task = asyncio.create_task(follow())
    kubernetes.reader.feed_data(b'{"type": "ADDED", "object": {}}\n')
    await asyncio.wait_for(seen.wait(), 10)
    await asyncio.sleep(0)  # it waits for the next one
    kubernetes.reader.feed_data(b'{"type": "ADDED", "object": {}}\n')
    task.cancel()
    await asyncio.wait({task}, timeout=10)
    assert task.cancelled()
