"""What is measured, as values: samples of one contender, and their spread."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

Action = Literal["pause", "resume"]
ACTIONS: Final[tuple[Action, ...]] = ("pause", "resume")


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement, in seconds."""

    wall: float
    cpu: float | None = None
    """Of the processes that did it, without the engines and the API server; None where it was not measured."""
    began_at: float | None = None
    """By the monotonic clock, which all processes of a machine share; None where nobody asks."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Several samples of one time, in milliseconds."""

    median: float
    low: float
    high: float
    samples: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        """The spread of at least one sample, given in seconds."""
        milliseconds = [1000 * each for each in seconds]
        return cls(statistics.median(milliseconds), min(milliseconds), max(milliseconds), len(milliseconds))

    def __str__(self) -> str:
        return f"{_figure(self.median)} ({_figure(self.low)}..{_figure(self.high)})"


@dataclass(slots=True)
class Timings:
    """The samples of one contender, by what it did."""

    name: str
    note: str = ""
    """What has to be known to read its figures; where it could not be measured, why."""
    samples: dict[Action, list[Sample]] = field(default_factory=dict)

    def add(self, action: Action, sample: Sample) -> None:
        self.samples.setdefault(action, []).append(sample)

    def wall(self, action: Action) -> Spread | None:
        """None if it was not measured."""
        samples = self.samples.get(action)
        return Spread.of([each.wall for each in samples]) if samples else None

    def cpu(self, action: Action) -> Spread | None:
        """None if it was not measured."""
        seconds = [each.cpu for each in self.samples.get(action, ()) if each.cpu is not None]
        return Spread.of(seconds) if seconds else None


def ratio(numerator: Spread | None, denominator: Spread | None) -> float | None:
    """How many times as much, by the medians; None if either was not measured."""
    if numerator is None or denominator is None or denominator.median == 0:
        return None
    return numerator.median / denominator.median


def _figure(milliseconds: float) -> str:
    return f"{milliseconds:.1f}" if milliseconds < 10 else f"{milliseconds:.0f}"
