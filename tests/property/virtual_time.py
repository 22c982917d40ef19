"""An event loop whose time stands still while anything is ready, and then jumps to the next timer: no I/O, no waiting.

What runs in it is exactly repeatable, and hours pass in a moment.
"""

import asyncio
from collections.abc import Callable

from .promises import promise

RESTLESS = 20_000
"""So many turns of the loop without time passing are an operator that goes on and on."""


class VirtualLoop(asyncio.BaseEventLoop):
    """``before_time_passes()`` is called whenever nothing is left to do at one instant."""

    def __init__(self, starts_at: float, before_time_passes: Callable[[], None]) -> None:
        super().__init__()
        self._now = starts_at
        self._turns = 0
        self._before_time_passes = before_time_passes
        self._selector = self  # BaseEventLoop asks its selector how long to sleep

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def select(self, timeout: float | None) -> tuple[()]:
        """Instead of waiting for I/O. Raises RuntimeError where nothing would ever happen again."""
        if timeout is None:
            raise RuntimeError("nothing is ready, and no timer is set")
        if timeout > 0:
            self._before_time_passes()
            self._now += timeout
            self._turns = 0
        self._turns += 1
        promise(self._turns < RESTLESS, "R14", "the operator goes on and on while no time passes")
        return ()

    def jump(self, seconds: float) -> None:
        """Time passes, and nothing runs: what became due meanwhile is late."""
        self._now += seconds

    def advance(self, seconds: float) -> None:
        """Run what is ready and what becomes due, until so much time has passed."""
        self.call_later(seconds, self.stop)
        self.run_forever()

    def _process_events(self, event_list: object) -> None:
        """There is no I/O."""

    def _write_to_self(self) -> None:
        """There are no other threads."""
