"""An event loop in a thread of its own, for callers that have none, or whose own is running already."""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

FAREWELL_SECONDS: Final = 40.0
"""How long an interrupted call is waited for: a little more than it takes to say its last word."""


class LoopThread:
    """Runs coroutines for other threads, which wait for them. ``start`` it, ``close`` it."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon: whoever forgets to close it is not kept from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the loop, once what runs in it has ended."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(FAREWELL_SECONDS)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it, wait for it, and return or raise what it does.

        An exception that strikes the waiting thread meanwhile (KeyboardInterrupt) cancels it, and goes on once it has done
        what it does when cancelled.
        """
        outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
        started: list[asyncio.Task[None]] = []

        async def carry_out() -> None:
            try:
                outcome.set_result(await coroutine)
            except BaseException as error:
                outcome.set_exception(error)
                if not isinstance(error, Exception | asyncio.CancelledError):
                    raise

        self._loop.call_soon_threadsafe(lambda: started.append(self._loop.create_task(carry_out())))
        try:
            return outcome.result()
        except BaseException:
            if not outcome.done():
                self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in started])
                with contextlib.suppress(BaseException):  # its answer to the cancellation; the interruption goes on
                    outcome.result(FAREWELL_SECONDS)
            raise

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
