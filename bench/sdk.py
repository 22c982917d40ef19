"""A block `with fleet.paused()` against what a trainer uses instead: SkyRL's own client, on the same engines, in turns.

Everybody opens new connections to the engines: between a pause and a resume weights are loaded, and vLLM's Python frontend
closes idle connections after 5 s. So everything rests for IDLE_SECONDS before each action.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import machine
from bench.declared import IDLE_SECONDS, Declared
from bench.engines import SimulatedEngines, simulated
from bench.fanout import Contender
from bench.figures import ACTIONS, Action, Sample, Spread, Timings, ratio
from bench.machine import Machine
from bench.progress import say
from bench.stage import Stage
from bench.subject import NAME, Subject, operating
from bench.table import Table
from bench.trainer import Trainer, TrainerMissingError, training
from llmservice.client import Fleet
from llmservice.client.synchronous import Block


class Client:
    """`llmservice.client`, with a connection that it keeps from step to step, as a training loop does."""

    name = "the client: with fleet.paused()"
    note = "reads, acts, reads back, is confirmed; engines that appear meanwhile too"

    def __init__(self, subject: Subject, fleet: Fleet) -> None:
        self._subject = subject
        self._fleet = fleet
        self._block: Block | None = None

    def measure(self, action: Action) -> Sample:
        """A pause is the block's beginning, a resume its end. CPU is that of the operator and of this process. Raises
        FleetError."""
        used, began = self._used(), time.monotonic()
        if action == "pause":
            self._block = self._fleet.paused(mode="abort", clear_cache=True)
            self._block.__enter__()
        elif self._block is not None:
            self._block.__exit__(None, None, None)
        return Sample(time.monotonic() - began, self._used() - used, began)

    def _used(self) -> float:
        return self._subject.usage().cpu_seconds + time.process_time()


@dataclass(frozen=True)
class Comparison:
    """What it took on a fleet of one size."""

    size: int
    client: Timings
    operator: Timings
    trainer: Timings

    @property
    def all(self) -> tuple[Timings, ...]:
        return (self.client, self.operator, self.trainer)


@dataclass
class _Course:
    engines: SimulatedEngines
    timings: dict[str, Timings] = field(default_factory=dict)
    _rested_since: float = field(default_factory=time.monotonic)

    def run(self, contender: Contender, action: Action) -> None:
        """Measure it once everything has rested, and look whether it did what it says."""
        time.sleep(max(0.0, self._rested_since + IDLE_SECONDS - time.monotonic()))
        sample = contender.measure(action)
        self._rested_since = time.monotonic()
        done, size = self.engines.number_in_state_after(action), len(self.engines.urls)
        if done != size:
            raise RuntimeError(f"{contender.name}: after {action} only {done} of {size} engines were so")
        self.timings.setdefault(contender.name, Timings(contender.name, contender.note)).add(action, sample)


def measure(stage: Stage, sizes: Sequence[int], rounds: int) -> list[Table]:
    """A round is a pause and a resume by each. Raises FleetError and WaitTimeoutError."""
    described = machine.describe(stage.cluster)
    found = [_measure(stage, size, rounds) for size in sizes]
    return [_about(described, rounds), *(_table(each) for each in found)]


def _measure(stage: Stage, size: int, rounds: int) -> Comparison:
    namespace = f"bench-client-{size}"
    with (
        simulated(stage, size) as engines,
        operating(stage, namespace, engines.addresses) as subject,
        Fleet(NAME, namespace=namespace, kubeconfig=str(stage.plane.kubeconfig)) as fleet,
        _trainer(engines, stage.folder / f"trainer-client-{size}.log") as (trainer, why_not),
    ):
        client, operator, course = Client(subject, fleet), Declared(subject), _Course(engines)
        for number in range(1, rounds + 1):
            for each in (client, operator, trainer):
                if each is not None:
                    say(f"{size} engines, round {number} of {rounds}: {each.name}")
                    for action in ACTIONS:
                        course.run(each, action)
        missing = Timings(Trainer.name, why_not)
        done = course.timings
        return Comparison(size, done[client.name], done[operator.name], done.get(Trainer.name, missing))


@contextlib.contextmanager
def _trainer(engines: SimulatedEngines, log: Path) -> Iterator[tuple[Trainer | None, str]]:
    """SkyRL's client, or None and why it cannot be had."""
    with contextlib.ExitStack() as stack:
        try:
            trainer = stack.enter_context(training(engines.urls, log))
        except TrainerMissingError as error:
            yield None, str(error)
        else:
            yield trainer, ""


def _about(described: Machine, rounds: int) -> Table:
    rows = [
        ("When", described.date),
        ("Machine", f"{described.cores} cores, {described.processor}; load {described.load:.1f} at the start"),
        ("Rounds", str(rounds)),
    ]
    return Table("The run", ("", "what"), rows)


def _table(found: Comparison) -> Table:
    rows = [_row(each, found.trainer) for each in found.all]
    remark = "CPU is that of the contender's own processes: operator and client, operator, trainer."
    title = f"{found.size} simulated engine{'s' if found.size > 1 else ''}"
    return Table(title, _COLUMNS, rows, (remark,))


_COLUMNS = (
    "median (lowest..highest), ms",
    "pause",
    "resume",
    "both",
    "against the trainer",
    "CPU of both",
    "what it does",
)


def _row(timings: Timings, trainer: Timings) -> tuple[str, ...]:
    both = _both(timings, cpu=False)
    times = None if timings is trainer else ratio(both, _both(trainer, cpu=False))
    walls = [_or_dash(timings.wall(action)) for action in ACTIONS]
    shown = "" if times is None else f"{times:.1f}x"
    return (timings.name, *walls, _or_dash(both), shown, _or_dash(_both(timings, cpu=True)), timings.note)


def _both(timings: Timings, *, cpu: bool) -> Spread | None:
    """A pause and the resume after it, together; None if they were not measured."""
    pairs = list(zip(*(timings.samples.get(action, ()) for action in ACTIONS), strict=True))
    sums = [sum((one.cpu or 0.0) if cpu else one.wall for one in pair) for pair in pairs]
    return Spread.of(sums) if sums else None


def _or_dash(spread: Spread | None) -> str:
    return "-" if spread is None else str(spread)
