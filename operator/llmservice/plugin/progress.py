"""What a command is waiting for, on standard error: one living line for each fleet on a terminal, else a line for each
change. Standard output stays for results."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from llmservice.plugin.attempt import Attempt, state_of

_LOOK_SECONDS = 0.1
_LINES = 20
"""How many fleets are shown at once."""


@asynccontextmanager
async def shown(attempts: Sequence[Attempt], *, quiet: bool) -> AsyncIterator[None]:
    """While the block runs."""
    if quiet:
        yield
        return
    console = Console(stderr=True, highlight=False)
    lines = _Lines(attempts)
    if console.is_terminal:
        with Live(console=console, get_renderable=lines.rendered, refresh_per_second=8, transient=True):
            yield
        return
    task = asyncio.create_task(_told(console, lines))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _told(console: Console, lines: "_Lines") -> None:
    said: dict[str, str] = {}
    while True:
        for key, text in lines.present():
            if said.get(key) != text:
                said[key] = text
                console.print(f"{key}: {text}", soft_wrap=True, markup=False)
        await asyncio.sleep(_LOOK_SECONDS)


class _Lines:
    def __init__(self, attempts: Sequence[Attempt]) -> None:
        self._attempts = attempts
        self._began = time.monotonic()
        self._spinner = Spinner("dots")

    def present(self) -> list[tuple[str, str]]:
        """Of each fleet that is waited for: its name, and what for."""
        return [
            (each.remote.key, _awaited(each)) for each in self._attempts if each.sent is not None and not each.is_over
        ]

    def rendered(self) -> RenderableType:
        table = Table.grid(padding=(0, 1))
        table.add_column()
        table.add_column(no_wrap=True)
        table.add_column()
        waiting = [each for each in self._attempts if not each.is_over]
        for each in waiting[:_LINES]:
            table.add_row(self._spinner, Text(each.name), Text(f"{_awaited(each)}  {self._passed()}"))
        if len(waiting) > _LINES:
            table.add_row("", "", Text(f"and {len(waiting) - _LINES} more"))
        return table

    def _passed(self) -> str:
        return f"{int(time.monotonic() - self._began)}s"


def _awaited(attempt: Attempt) -> str:
    if attempt.sight.hindrance is not None:
        return f"waiting for the API server: {attempt.sight.hindrance}"
    if attempt.sent is None or attempt.last is None:
        return "sending"
    return f"waiting for {attempt.wanted}: {state_of(attempt.last)}"
