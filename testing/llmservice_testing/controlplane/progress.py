"""Says what takes minutes, while it takes them."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TextIO

LINE_EVERY_SECONDS: Final = 10.0
REDRAW_EVERY_SECONDS: Final = 0.5


class Task:
    """One long piece of work, as a context manager. It says that it began, how it goes, and how long it took.

    A terminal sees one line that is redrawn; anything else (a CI log) gets a new line every ten seconds.
    """

    def __init__(
        self, title: str, *, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`stream` None: standard error as it is now (a test runner may have replaced it). `clock` in seconds."""
        self.title = title
        self._stream = stream or sys.stderr
        self._clock = clock
        self._began = self._said = clock()
        self._width = 0

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return self._clock() - self._began

    def __enter__(self) -> Self:
        self._write(f"{self.title} ...")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._write(f"{self.title}: {'done' if error is None else 'failed'} after {self.elapsed:.0f} s")
        if self._stream.isatty():
            self._stream.write("\n")

    def tick(self, detail: str = "") -> None:
        """To be called often; says how it goes when it is time to."""
        every = REDRAW_EVERY_SECONDS if self._stream.isatty() else LINE_EVERY_SECONDS
        if self._clock() - self._said >= every:
            self._write(f"{self.title}: {self.elapsed:.0f} s{', ' if detail else ''}{detail}")

    def _write(self, line: str) -> None:
        self._said = self._clock()
        if self._stream.isatty():
            self._stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self._stream.write(line + "\n")
        self._stream.flush()
