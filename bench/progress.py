"""Says on standard error what is being done, since it takes minutes."""

from __future__ import annotations

import sys
import time
from typing import Final

_BEGAN: Final = time.monotonic()


def say(what: str) -> None:
    """One line, with the seconds since the start."""
    print(f"[{time.monotonic() - _BEGAN:4.0f} s] {what}", file=sys.stderr, flush=True)
