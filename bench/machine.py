"""What a run was made on: figures of different machines must not be compared."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from llmservice_testing.cluster import Cluster

_LIBRARIES: Final = ("llmservice", "aiohttp", "httpx", "kopf", "kubernetes")


@dataclass(frozen=True)
class Machine:
    """Where and when, and with what."""

    date: str
    cores: int
    processor: str
    python: str
    kubernetes: str
    versions: dict[str, str]
    load: float
    """Processes that wanted a core in the minute before the run: with more than a few tenths, times are noise."""


def describe(cluster: Cluster) -> Machine:
    """This machine, now."""
    return Machine(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        cores=len(os.sched_getaffinity(0)),
        processor=_processor(),
        python=platform.python_version(),
        kubernetes=str(cluster.get("/version")["gitVersion"]),
        versions={name: version(name) for name in _LIBRARIES},
        load=os.getloadavg()[0],
    )


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
