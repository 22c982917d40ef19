"""What a run found: as tables for people, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench import aims
from bench.declared import IDLE_SECONDS
from bench.fanout import FanOut
from bench.figures import ACTIONS, Spread, Timings, ratio
from bench.machine import Machine
from bench.rest import RESYNC_SECONDS, Rest
from bench.single import RAW_CALLS, Single
from bench.table import Table


@dataclass(frozen=True)
class Run:
    """Everything that was measured in one run."""

    machine: Machine
    rounds: int
    single: Single
    fan_outs: Sequence[FanOut]
    rest: Rest

    def tables(self) -> list[Table]:
        """For people."""
        return [
            _machine(self.machine, self.rounds),
            _single(self.single),
            *(_fan_out(each) for each in self.fan_outs),
            _rest(self.rest),
            _aims(aims.judge(self.single, self.fan_outs, self.rest)),
        ]

    def json(self) -> dict[str, Any]:
        """All samples (seconds), for machines."""
        judged = aims.judge(self.single, self.fan_outs, self.rest)
        return {**asdict(self), "aims": [asdict(each) for each in judged]}


def _machine(machine: Machine, rounds: int) -> Table:
    libraries = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    rows = [
        ("When", machine.date),
        ("Machine", f"{machine.cores} cores, {machine.processor}; load {machine.load:.1f} at the start"),
        ("Versions", f"Python {machine.python}, Kubernetes {machine.kubernetes}, {libraries}"),
        ("Rounds", str(rounds)),
    ]
    return Table("The run", ("", "what"), rows)


def _single(single: Single) -> Table:
    rows = [_timed(each, single.operator) for each in (single.operator, single.raw)]
    parts = ", ".join(f"{call} {single.part(call)}" for call in RAW_CALLS)
    return Table(f"One engine ({single.engine})", _TIMED_COLUMNS, rows, (f"Raw calls, ms: {parts}.",))


def _fan_out(found: FanOut) -> Table:
    rows = [_timed(each, found.operator) for each in found.all]
    phases = found.phases
    where = (
        f"The operator, ms: {Spread.of(phases.noticing)} from the PATCH to the first read at an engine, "
        f"{Spread.of(phases.calling)} to the last answer of one, {Spread.of(phases.reporting)} to the status being seen."
    )
    fair = (
        f"Everybody opens new connections: the operator was left alone for {IDLE_SECONDS:g} s before each patch. "
        "CPU is that of the contender's own processes."
    )
    return Table(f"{found.size} simulated engines", _TIMED_COLUMNS, rows, (where, fair))


_TIMED_COLUMNS = (
    "median (lowest..highest), ms",
    "pause",
    "operator takes",
    "resume",
    "operator takes",
    "CPU of a pause",
    "what it does",
)


def _timed(timings: Timings, operator: Timings) -> tuple[str, ...]:
    cells = []
    for action in ACTIONS:
        mine = timings.wall(action)
        cells += [_or_dash(mine), "" if timings is operator else _times(ratio(operator.wall(action), mine))]
    return (timings.name, *cells, _or_dash(timings.cpu("pause")), timings.note)


def _rest(rest: Rest) -> Table:
    rows = [
        ("CPU", f"{rest.cpu_percent:.1f} % of a core"),
        ("Memory (RSS)", f"{rest.resident_mib:.0f} MiB, at most {rest.peak_mib:.0f} MiB in the whole run"),
        ("Reads of engines", f"{rest.reads_per_second:.0f} per second"),
        ("POSTs to engines", str(rest.posts)),
        ("API writes, events included", str(rest.api_writes)),
        ("LLMService was written", "yes" if rest.object_written else "no"),
    ]
    title = f"{rest.size} settled targets, resync {RESYNC_SECONDS} s, during {rest.seconds:.0f} s"
    return Table(title, ("operator", "what"), rows)


def _aims(judged: Sequence[aims.Aim]) -> Table:
    words = {True: "met", False: "MISSED", None: "not judged"}
    rows = [(each.what, each.wanted, each.found, words[each.met]) for each in judged]
    return Table("Aims", ("", "wanted", "found", ""), rows)


def _or_dash(spread: Spread | None) -> str:
    return "-" if spread is None else str(spread)


def _times(found: float | None) -> str:
    return "-" if found is None else f"{found:.2f}x"
