"""How the demo is shown.

On a terminal the story scrolls above a table that is always up to date, at a pace that can be read. Anywhere else (a CI
log, a pipe) each step ends with a snapshot of the table, there are no control codes and nobody is waited for.
"""

import sys
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from llmservice_testing.demo.observer import Observer, Snapshot, observe
from llmservice_testing.demo.stage import Stage
from llmservice_testing.demo.table import table_of

_PLAIN_WIDTH: Final = 110
_BEAT_SECONDS: Final = 0.6
"""What a person needs to see that something has changed."""
_KEEP_LOOK_SECONDS: Final = 1.0


class Screen:
    """Prints the story. This one is for everything but a terminal."""

    def __init__(self, stage: Stage, console: Console) -> None:
        self._stage = stage
        self._console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Nothing to end."""

    def step(self, number: int, title: str) -> None:
        """Begins a step."""
        self._print(Text(f"\n{number}. {title}", "bold"))

    def say(self, text: str = "") -> None:
        """Says something in the demo's own words."""
        self._print(Text(text, "italic" if text else ""))

    def command(self, line: str) -> None:
        """Shows what is typed."""
        self._print(Text(f"$ {line}", "bold cyan"))

    def answer(self, text: str) -> None:
        """Shows what a command answered."""
        self._print(Text(text.rstrip()))

    def true(self, text: str) -> None:
        """Says what was checked and came true."""
        self._print(Text.assemble(("✓ ", "bold green"), text))

    def snapshot(self) -> None:
        """Ends a step: lets the fleet be seen."""
        self._console.print(table_of(observe(self._stage)))

    def keep(self) -> None:
        """Shows what changes, until it is interrupted."""
        seen = Snapshot()
        while True:
            if (now := observe(self._stage)) != seen:
                self._console.print(table_of(now))
                seen = now
            time.sleep(_KEEP_LOOK_SECONDS)

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)


class LiveScreen(Screen):
    """The same for a terminal."""

    def __init__(self, stage: Stage, console: Console) -> None:
        super().__init__(stage, console)
        self._observer = Observer(stage)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            live = Live(
                get_renderable=lambda: table_of(self._observer.latest), console=self._console, refresh_per_second=8
            )
            stack.enter_context(live)
            stack.enter_context(self._observer)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def step(self, number: int, title: str) -> None:
        super().step(number, title)
        time.sleep(_BEAT_SECONDS)

    def command(self, line: str) -> None:
        super().command(line)
        time.sleep(_BEAT_SECONDS)

    def snapshot(self) -> None:
        """It is in sight already; gives a person the time to look."""
        time.sleep(2 * _BEAT_SECONDS)

    def keep(self) -> None:
        while True:
            time.sleep(_KEEP_LOOK_SECONDS)


def screen_for(stage: Stage) -> Screen:
    """The screen that suits standard output."""
    if sys.stdout.isatty():
        console = Console()
        if not console.is_dumb_terminal:
            return LiveScreen(stage, console)
    return Screen(stage, Console(force_terminal=False, color_system=None, width=_PLAIN_WIDTH))
