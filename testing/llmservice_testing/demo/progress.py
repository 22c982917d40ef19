"""Says that something takes its time, while it does, also where the code that takes it says nothing."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Final

from llmservice_testing.controlplane.progress import Task

_TICK_SECONDS: Final = 0.5


@contextlib.contextmanager
def working(title: str) -> Iterator[None]:
    """The block is under way: its title and its seconds are told on standard output."""
    done = threading.Event()
    with Task(title, stream=sys.stdout) as task:

        def tick() -> None:
            while not done.wait(_TICK_SECONDS):
                task.tick()

        ticker = threading.Thread(target=tick, name="progress", daemon=True)
        ticker.start()
        try:
            yield
        finally:
            done.set()
            ticker.join()
