"""A heartbeat that notices when this process was not run: frozen, suspended together with its machine, or starved.

Afterwards what it knows is older than its clocks say, and an answer that waited in a socket meanwhile looks like news.
"""

import asyncio
import logging
from collections.abc import Callable

from llmservice.runtime.environment import Environment

BEAT_SECONDS = 0.5
STALL_SECONDS = 2.0
"""How late a beat must be to tell of more than a busy moment."""

logger = logging.getLogger(__name__)


class Heart:
    """Beats in the running event loop from :meth:`start` to :meth:`stop`.

    ``on_stall()`` is called after each stall, and before any task that was waiting then goes on: asyncio runs the callbacks
    of timers that are due before it resumes what the answers have woken.
    """

    def __init__(self, environment: Environment, on_stall: Callable[[], None]) -> None:
        self._environment = environment
        self._on_stall = on_stall
        self._due = (0.0, 0.0)
        """When the next beat is due, by the clock and by the wall: one of them stands while a machine is suspended."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin."""
        self._due = (self._environment.clock() + BEAT_SECONDS, self._environment.wall() + BEAT_SECONDS)
        self._timer = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._beat)

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        late = max(self._environment.clock() - self._due[0], self._environment.wall() - self._due[1])
        self.start()
        if late > STALL_SECONDS:
            logger.warning("Was not run for a while; everything is read again", extra={"seconds": round(late, 1)})
            self._on_stall()
