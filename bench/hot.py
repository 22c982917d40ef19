"""Where the operator's time goes: the same fan-outs and rest under cProfile, which about doubles them."""

from __future__ import annotations

import contextlib
import pstats
import re
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench import rest
from bench.declared import Declared
from bench.engines import simulated
from bench.figures import ACTIONS
from bench.progress import say
from bench.stage import Stage
from bench.subject import Subject, operating
from bench.table import Table
from llmservice_testing.cluster import wait_until

HOTTEST: Final = 25
PACKAGES: Final = 12
_WAITING: Final = "select.epoll"
_SIGNAL_SECONDS: Final = 0.2
"""For a signal to be handled, in a process that may sleep in its event loop."""
_DUMP_SECONDS: Final = 30.0

_Function = tuple[str, int, str]
_Times = tuple[int, int, float, float]
_Profile = dict[_Function, tuple[int, int, float, float, dict[_Function, _Times]]]
"""What pstats keeps of each function: calls (recursive ones not), all calls, own seconds, all seconds, and the same for
what each caller of it caused."""


def measure(stage: Stage, size: int) -> list[Table]:
    """Profiles of a pause, a resume, and half a minute at rest."""
    file = stage.folder / "operator.profile"
    program = (str(Path(__file__).with_name("profiled.py")), str(file))
    found: list[Table] = []
    with (
        simulated(stage, size) as engines,
        operating(stage, f"bench-hot-{size}", engines.addresses, program) as subject,
    ):
        declared = Declared(subject)
        declared.measure("pause")  # the first of each prepares what later ones find prepared
        declared.measure("resume")
        for action in ACTIONS:
            say(f"{size} engines, profile of a {action}")
            with _profiling(subject, file):
                wall = declared.measure(action).wall
            found += _tables(f"{size} engines: {action}, {1000 * wall:.0f} ms under the profiler", file)
        say(f"{size} engines at rest, profile of {rest.SECONDS:g} s")
        subject.resync_every(rest.RESYNC_SECONDS)
        with _profiling(subject, file):
            time.sleep(rest.SECONDS)
        found += _tables(f"{size} engines at rest, {rest.SECONDS:g} s", file)
    return found


@contextlib.contextmanager
def _profiling(subject: Subject, file: Path) -> Iterator[None]:
    """Afterwards the profile of the block is in `file`."""
    file.unlink(missing_ok=True)
    subject.operator.signal(signal.SIGUSR1)
    time.sleep(_SIGNAL_SECONDS)
    yield
    subject.operator.signal(signal.SIGUSR2)
    wait_until(file.exists, _DUMP_SECONDS, what="the profile", last=subject.operator.log_tail)


def _tables(title: str, file: Path) -> list[Table]:
    profile: _Profile = pstats.Stats(str(file)).stats  # type: ignore[attr-defined]  # typeshed lacks it
    working = {function: row for function, row in profile.items() if _WAITING not in function[2]}
    total = sum(row[2] for row in working.values()) or 1.0
    return [_by_package(title, working, total), _hottest(title, working, total)]


def _by_package(title: str, profile: _Profile, total: float) -> Table:
    own: defaultdict[str, float] = defaultdict(float)
    for function, (_, _, own_seconds, _, callers) in profile.items():
        if _is_built_in(function) and callers:
            for caller, (_, _, seconds, _) in callers.items():
                own[_package(caller)] += seconds
        else:
            own[_package(function)] += own_seconds
    ranked = sorted(own.items(), key=lambda item: item[1], reverse=True)
    rows = [(name, f"{1000 * seconds:.0f}", f"{100 * seconds / total:.0f} %") for name, seconds in ranked[:PACKAGES]]
    return Table(
        f"{title}: by package", ("package, with the built-in functions that it calls", "own ms", "share"), rows
    )


def _hottest(title: str, profile: _Profile, total: float) -> Table:
    ranked = sorted(profile.items(), key=lambda item: item[1][2], reverse=True)[:HOTTEST]
    rows = [
        (_name(function), str(row[1]), f"{1000 * row[2]:.0f}", f"{1000 * row[3]:.0f}", f"{100 * row[2] / total:.0f} %")
        for function, row in ranked
    ]
    return Table(
        f"{title}: the {HOTTEST} hottest functions", ("function", "calls", "own ms", "with callees", "share"), rows
    )


def _package(function: _Function) -> str:
    file = function[0]
    if _is_built_in(function):
        return "built-in and generated"
    if found := re.search(r"site-packages/([^/]+)", file):
        return found[1].removesuffix(".py")
    if "/llmservice/" in file:
        return "llmservice." + file.partition("/llmservice/")[2].split("/")[0].removesuffix(".py")
    return "standard library: " + (file.rpartition("/")[0].rpartition("/")[2] if "asyncio" in file else Path(file).stem)


def _is_built_in(function: _Function) -> bool:
    """In C, or generated as the methods of dataclasses are."""
    return function[0] in ("~", "") or function[0].startswith("<")


def _name(function: _Function) -> str:
    file, number, name = function
    if file in ("~", ""):
        return name
    short = re.sub(r"^.*/(?:site-packages|operator|python3\.\d+)/", "", file)
    return f"{short}:{number} {name}"
