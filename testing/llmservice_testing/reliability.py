"""The fault matrix: which promise holds under which fault, by which test. `python -m llmservice_testing.reliability`

Each fault test says what it shows:

    @pytest.mark.promise("recovers", "calm", fault="the API server answers 500")

This module runs all tests that say so (or those that its arguments select), and prints the matrix from their results as
Markdown; with `--write FILE` it replaces the part of the file between the two marks. A promise holds under a fault if
every test that claims it passed. It ends with status 1 if one does not.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

long = pytest.mark.long
"""Marks a test that takes minutes by its nature, or repeats another with other values: only `make reliability` runs it."""

PROMISES: Final = {
    "recovers": "recovers without help, to what the spec says (R16, R20)",
    "truth": "nothing false is said (R18, R19)",
    "calm": "no contrary call, and none that is not needed (R1, R13)",
    "silent": "silent once settled (R14)",
    "clean": "only its own fields are written (R15)",
    "apart": "nobody else is held up or touched (R17)",
    "bounded": "requests, memory and files stay within bounds",
    "ends": "ends in seconds when told to",
}
"""What is promised, by the name that tests use."""

_PROPERTY: Final = "promise"
_BEGIN: Final = "<!-- the matrix: make reliability -->"
_END: Final = "<!-- the end of the matrix -->"


@dataclass(frozen=True, slots=True)
class Claim:
    """A test claims that a promise holds under a fault."""

    fault: str
    promise: str
    test: str


def pytest_itemcollected(item: pytest.Item) -> None:
    """Called by pytest where this module is a plugin, in each of its processes: claims travel with the results."""
    for mark in item.iter_markers("promise"):
        if not mark.args or set(mark.args) - PROMISES.keys() or set(mark.kwargs) != {"fault"}:
            raise pytest.UsageError(f"{item.nodeid}: @promise takes names among {', '.join(PROMISES)}, and fault=")
        item.user_properties.append((_PROPERTY, [mark.kwargs["fault"], list(mark.args)]))


@dataclass(eq=False)
class Recorder:
    """A plugin of pytest that notes the claims of the tests that ran, and what became of them."""

    claims: list[Claim] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)
    """passed, failed or skipped, by test."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest three times for each test: a failure anywhere counts."""
        before = self.results.get(report.nodeid)
        if before is None:
            for name, value in report.user_properties:
                if name == _PROPERTY and isinstance(value, list):
                    fault, promises = value
                    self.claims += [Claim(fault, promise, report.nodeid) for promise in promises]
        if report.failed or before is None or (report.skipped and before != "failed"):
            self.results[report.nodeid] = report.outcome

    def held(self, claims: Iterable[Claim]) -> bool | None:
        """Whether all that claim it passed; None if none of them ran."""
        outcomes = {self.results.get(claim.test, "skipped") for claim in claims} - {"skipped"}
        return outcomes == {"passed"} if outcomes else None


def markdown(recorder: Recorder) -> str:
    """The matrix, and under it the tests by fault."""
    by_fault: dict[str, list[Claim]] = defaultdict(list)
    for claim in sorted(recorder.claims, key=lambda claim: claim.test):
        by_fault[claim.fault].append(claim)
    used = [name for name in PROMISES if any(claim.promise == name for claim in recorder.claims)]
    lines = ["| fault | " + " | ".join(used) + " |", "|---|" + ":-:|" * len(used)]
    for fault, claims in by_fault.items():
        cells = []
        for promise in used:
            here = [claim for claim in claims if claim.promise == promise]
            cells.append("" if not here else {True: "held", False: "**BROKEN**", None: "not run"}[recorder.held(here)])
        lines.append(f"| {fault} | " + " | ".join(cells) + " |")
    lines += ["", *(f"- **{name}**: {PROMISES[name]}" for name in used), "", "By which test:", ""]
    for fault, claims in by_fault.items():
        tests = dict.fromkeys(claim.test for claim in claims)
        lines.append(f"- {fault}")
        for test in tests:
            shown = test.removeprefix("tests/").replace("::", ": ")
            promises = ", ".join(claim.promise for claim in claims if claim.test == test)
            lines.append(f"  - `{shown}`: {promises}: {recorder.results.get(test, 'not run')}")
    return "\n".join(lines)


def write(path: Path, matrix: str) -> None:
    """Puts the matrix between the marks of a file. Raises ValueError where it has none."""
    before, begin, rest = path.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{path} has no {_BEGIN} ... {_END}")
    path.write_text(f"{before}{_BEGIN}\n\n{matrix}\n\n{_END}{after}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tests and prints the matrix; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m llmservice_testing.reliability", description="The fault matrix.")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put it into this file, between its marks")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("pytest", nargs="*", help="more arguments for pytest, after --; none: all fault tests")
    given = parser.parse_args(arguments)
    recorder = Recorder()
    alike = ["-p", "llmservice_testing.reliability", "-m", "promise and not real_engine", "-q"]
    jobs = ["--numprocesses", str(given.jobs), "--dist", "loadfile"] if given.jobs > 1 else []
    status = pytest.main([*alike, *jobs, *given.pytest], plugins=[recorder])
    matrix = markdown(recorder)
    print(f"\n{matrix}")
    if given.write is not None:
        write(given.write, matrix)
    broken = [claim for claim in recorder.claims if recorder.results.get(claim.test) == "failed"]
    return 1 if broken or status is not pytest.ExitCode.OK else 0


if __name__ == "__main__":
    sys.exit(main())
