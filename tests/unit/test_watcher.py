"""The watch of LLMServices, as the liveness probe sees it."""

import asyncio
import getpass
import threading
from typing import Never

import pytest

from llmservice import handlers
from llmservice.handlers import Watcher


class Unwatched(Watcher):
    """Its lives do what the test says, instead of kopf."""

    def __init__(self, *lives: str) -> None:
        super().__init__(None, on_change=lambda _: None, on_delete=lambda _: None)
        self.lives = list(lives)
        self.began = threading.Semaphore(0)
        self.hang = threading.Event()

    async def _live(self) -> None:
        life = self.lives.pop(0)
        if life == "breaks":
            self.began.release()
            raise OSError("the stream broke")
        self._kopf_loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        self._end_of_life = lambda: asyncio.run_coroutine_threadsafe(_set(stop), self._kopf_loop or _never())
        self.began.release()
        if life == "hangs":
            self.hang.wait(20)
        await stop.wait()


async def _set(event: asyncio.Event) -> None:
    event.set()


def _never() -> asyncio.AbstractEventLoop:
    raise AssertionError("there is a loop")


async def test_it_lives_before_its_start_and_while_it_watches() -> None:
    watcher = Unwatched("watches")
    assert await watcher.lack() == ""
    watcher.start()
    assert await asyncio.to_thread(watcher.began.acquire, timeout=10)
    assert await watcher.lack() == ""
    await watcher.stop()


async def test_a_loop_that_hangs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_ANSWER_SECONDS", 0.05)
    watcher = Unwatched("hangs")
    watcher.start()
    assert await asyncio.to_thread(watcher.began.acquire, timeout=10)
    assert "did not answer" in await watcher.lack()
    watcher.hang.set()
    await watcher.stop()


async def test_a_thread_that_ended_is_told() -> None:
    watcher = Unwatched("watches")
    watcher.start()
    assert await asyncio.to_thread(watcher.began.acquire, timeout=10)
    await watcher.stop()
    assert "has ended" in await watcher.lack()


async def test_between_two_lives_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_RESTART_SECONDS", (0.01,))
    watcher = Unwatched("breaks", "breaks", "watches")
    watcher.start()
    for _ in range(3):
        assert await asyncio.to_thread(watcher.began.acquire, timeout=10)
        assert await watcher.lack() == ""
    await watcher.stop()


async def test_it_needs_no_name_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's user is a number, and the operating system knows no name for it."""
    reached = asyncio.Event()

    async def connect() -> Never:
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(getpass, "getuser", _no_name)
    monkeypatch.setattr(handlers, "load_configuration", connect)
    life = asyncio.create_task(Watcher(None, on_change=lambda _: None, on_delete=lambda _: None)._live())
    done, _ = await asyncio.wait({life, asyncio.create_task(reached.wait())}, timeout=30, return_when="FIRST_COMPLETED")
    assert reached.is_set(), [task.exception() for task in done]
    life.cancel()
    await asyncio.wait({life}, timeout=30)
    assert life.done()


def _no_name() -> str:
    raise KeyError("getpwuid(): uid not found: 65532")
