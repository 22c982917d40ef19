"""Pausing by hand: what one would write on aiohttp if all engines were known and none ever failed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import aiohttp

from bench.figures import Action, Sample

CALLS: Final[dict[Action, str]] = {"pause": "/pause?mode=abort&clear_cache=true", "resume": "/resume"}
_PATIENCE_SECONDS: Final = 120.0


class ByHand:
    """Read, act and read back on all engines at once, in one session without a limit, with new connections."""

    name: Final = "by hand: aiohttp"
    note: Final = "reads, acts, reads back"

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls

    def measure(self, action: Action) -> Sample:
        """Raises aiohttp.ClientError, TimeoutError, or RuntimeError where an engine does not confirm."""
        return asyncio.run(self._fan_out(action))

    async def _fan_out(self, action: Action) -> Sample:
        wanted = action == "pause"
        async with engine_session() as session:
            began, used = time.perf_counter(), time.process_time()
            paused = await asyncio.gather(*(_change(session, url, action, wanted=wanted) for url in self._urls))
            sample = Sample(time.perf_counter() - began, time.process_time() - used)
        if not all(each is wanted for each in paused):
            raise RuntimeError(f"{action} by hand was not confirmed by every engine")
        return sample


def engine_session() -> aiohttp.ClientSession:
    """A new session without a limit; an answer other than 2xx raises aiohttp.ClientError."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=_PATIENCE_SECONDS),
        raise_for_status=True,
    )


async def _change(session: aiohttp.ClientSession, url: str, action: Action, *, wanted: bool) -> bool:
    if await is_paused(session, url) is not wanted:
        await act(session, url, action)
    return await is_paused(session, url)


async def act(session: aiohttp.ClientSession, url: str, action: Action) -> None:
    """Send the control call of `action` to one engine."""
    async with session.post(url + CALLS[action]) as answer:
        await answer.read()


async def is_paused(session: aiohttp.ClientSession, url: str) -> bool:
    """What one engine says."""
    async with session.get(f"{url}/is_paused") as answer:
        return bool((await answer.json())["is_paused"])
