"""The figures that DESIGN section 8 and the issue ask for, and whether a run reached them. Never an assertion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bench.fanout import FanOut
from bench.figures import ratio
from bench.rest import Rest
from bench.single import Single

RATIO_TO_RAW: Final = 2.0
RATIO_TO_BY_HAND: Final = 2.0
RATIO_OF_SHELL: Final = 10.0
CPU_PERCENT: Final = 5.0
MEMORY_MIB: Final = 250.0
FULL_SIZE: Final = 1000
"""Targets for which the aims at rest are set."""


@dataclass(frozen=True)
class Aim:
    """One figure to reach."""

    what: str
    wanted: str
    found: str
    met: bool | None
    """None if it was not measured, or not on a fleet of the size that the aim is about."""


def judge(single: Single, fan_outs: Sequence[FanOut], rest: Rest) -> tuple[Aim, ...]:
    """All aims, in the order of the design."""
    return (_single(single), *_fan_outs(fan_outs), *_growth(fan_outs), *_rest(rest))


def _single(single: Single) -> Aim:
    found = ratio(single.operator.wall("pause"), single.raw.wall("pause"))
    return _at_most(f"one engine ({single.engine}): pause, against the sum of the raw calls", found, RATIO_TO_RAW)


def _fan_outs(fan_outs: Sequence[FanOut]) -> Iterator[Aim]:
    for each in fan_outs:
        found = ratio(each.operator.wall("pause"), each.by_hand.wall("pause"))
        yield _at_most(f"{each.size} engines: pause, against by hand", found, RATIO_TO_BY_HAND)
    if fan_outs:
        largest = max(fan_outs, key=lambda each: each.size)
        faster = ratio(largest.shell.wall("pause"), largest.operator.wall("pause"))
        yield Aim(
            f"{largest.size} engines: faster than kubectl | xargs curl",
            f"at least {RATIO_OF_SHELL:g}x",
            _times(faster),
            None if faster is None else faster >= RATIO_OF_SHELL,
        )


def _growth(fan_outs: Sequence[FanOut]) -> Iterator[Aim]:
    if len(fan_outs) < 2:
        return
    small, large = (pick(fan_outs, key=lambda each: each.size) for pick in (min, max))
    found, linear = ratio(large.operator.wall("pause"), small.operator.wall("pause")), large.size / small.size
    yield _at_most(f"time for {large.size} engines, against that for {small.size}", found, linear)


def _rest(rest: Rest) -> Iterator[Aim]:
    fleet = f"at rest, {rest.size} targets"
    full = rest.size >= FULL_SIZE
    yield Aim(f"{fleet}: POSTs to engines", "0", str(rest.posts), rest.posts == 0)
    silent = rest.api_writes == 0 and not rest.object_written
    yield Aim(f"{fleet}: API writes and events", "0", str(rest.api_writes), silent)
    cpu = rest.cpu_percent < CPU_PERCENT if full else None
    yield Aim(f"{fleet}: CPU", f"under {CPU_PERCENT:g} % of a core", f"{rest.cpu_percent:.1f} %", cpu)
    memory = rest.peak_mib < MEMORY_MIB if full else None
    yield Aim(f"{fleet}: memory, at its peak", f"under {MEMORY_MIB:g} MiB", f"{rest.peak_mib:.0f} MiB", memory)


def _at_most(what: str, found: float | None, limit: float) -> Aim:
    return Aim(what, f"at most {limit:g}x", _times(found), None if found is None else found <= limit)


def _times(found: float | None) -> str:
    return "not measured" if found is None else f"{found:.1f}x"
