"""`llmservice` under cProfile, between SIGUSR1 and SIGUSR2: `python profiled.py FILE operator ...`.

Between two signals, so that start-up is not in it. What runs in the main thread is: kopf has a thread of its own.
"""

from __future__ import annotations

import cProfile
import signal
import sys
from pathlib import Path

from llmservice.cli import app


def main() -> None:
    file = Path(sys.argv.pop(1))
    profile = cProfile.Profile()

    def begin(*_: object) -> None:
        profile.clear()
        profile.enable()

    def end(*_: object) -> None:
        profile.disable()
        scratch = file.with_suffix(".new")
        profile.dump_stats(scratch)
        scratch.replace(file)  # whoever sees the file sees all of it

    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
    app()


if __name__ == "__main__":
    main()
