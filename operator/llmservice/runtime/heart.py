"""A heartbeat that notices when this process was not run: frozen, suspended together with its machine, or starved.

Afterwards what it knows is older than its clocks say, and an answer that waited in a socket meanwhile looks like news.
"""

import asyncio
import logging
from collections.abc import Callable

from llmservice.domain.fleet import NEVER
from llmservice.runtime.environment import Environment

BEAT_SECONDS = 0.5
STALL_SECONDS = 2.0
"""How late a beat must be to tell of more than a busy moment."""
_LONGEST_SECONDS = 60.0
_CALM_SECONDS = 60.0

logger = logging.getLogger(__name__)


class Heart:
    """Beats in the running event loop from :meth:`start` to :meth:`stop`. ``on_stall()`` is called after each stall.

    To read everything again may itself take a starved process longer than a stall, which would then never get to its end. So
    a stall that follows another one within a minute has to be twice as long to count.
    """

    def __init__(self, environment: Environment, on_stall: Callable[[], None]) -> None:
        self._environment = environment
        self._on_stall = on_stall
        self._due = (NEVER, NEVER)
        """When the next beat is due, by the clock and by the wall: one of them stands while a machine is suspended."""
        self._patience = STALL_SECONDS
        self._calm_at = -NEVER
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin."""
        self._due = (self._environment.clock() + BEAT_SECONDS, self._environment.wall() + BEAT_SECONDS)
        self._timer = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._beat)

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()

    def notice_stall(self) -> bool:
        """Whether a stall has just ended that was not noticed yet. To be asked before anything that cannot be taken back:
        what was about to be done when the process stood still comes before the beat, and the clock of a machine that was
        suspended does not hurry it."""
        now, wall = self._environment.clock(), self._environment.wall()
        late = max(now - self._due[0], wall - self._due[1])
        if now >= self._calm_at:
            self._patience = STALL_SECONDS
        if late <= self._patience:
            return False
        logger.warning("Was not run for a while; everything is read again", extra={"seconds": round(late, 1)})
        self._due = (now + BEAT_SECONDS, wall + BEAT_SECONDS)
        self._patience, self._calm_at = min(2 * self._patience, _LONGEST_SECONDS), now + _CALM_SECONDS
        self._on_stall()
        return True

    def _beat(self) -> None:
        self.notice_stall()
        self.start()
