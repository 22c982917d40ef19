"""When something changed, to a few milliseconds, while the main thread waits for something else (kubectl, say)."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from llmservice_testing.cluster import ClusterError
from llmservice_testing.demo.errors import DemoError

T = TypeVar("T")

_POLL_SECONDS: Final = 0.005
_END_SECONDS: Final = 5.0


@dataclass(frozen=True)
class Change(Generic[T]):
    """A value that was read. It came into being between `after` and `before`, in seconds of `time.monotonic`.

    A time from one change's `after` to another's `before` is never understated.
    """

    value: T
    after: float
    before: float


class Recorder(Generic[T]):
    """Reads something over and over in a thread, and remembers each change with its time."""

    def __init__(self, read: Callable[[], T], *, every: float = 0.005) -> None:
        """`every` in seconds: the pause between two reads."""
        self._read = read
        self._every = every
        self._changes: list[Change[T]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._error: ClusterError | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(_END_SECONDS)

    def first(self, what: str, matches: Callable[[T], bool], *, within: float) -> Change[T]:
        """The first change to a value that matches, also one of the past.

        Raises ClusterError if reading failed, DemoError, which names `what` was waited for, if no such value was read
        within so many seconds from now.
        """
        deadline = time.monotonic() + within
        while True:
            for change in tuple(self._changes):
                if matches(change.value):
                    return change
            if self._error is not None:
                raise self._error
            if time.monotonic() > deadline:
                seen = [change.value for change in self._changes]
                raise DemoError(f"Waited {within:g} s in vain for {what}; what was read: {seen}.")
            time.sleep(_POLL_SECONDS)

    def _run(self) -> None:
        previous = time.monotonic()
        try:
            while not self._stop.wait(self._every):
                began = time.monotonic()
                value = self._read()
                if not self._changes or self._changes[-1].value != value:
                    self._changes.append(Change(value, previous, time.monotonic()))
                previous = began
        except ClusterError as error:
            self._error = error
