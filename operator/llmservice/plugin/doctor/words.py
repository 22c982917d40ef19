"""Findings for people and for programs."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from llmservice.plugin.doctor.facts import Facts
from llmservice.plugin.doctor.finding import Finding, Weight
from llmservice.plugin.obstruction import in_the_way

_MARKS = {Weight.PROBLEM: ("✗", "bold red"), Weight.WARNING: ("!", "yellow"), Weight.NOTE: ("·", "dim")}


def put(on: Console, facts: Facts, findings: Sequence[Finding]) -> None:
    """Print what was found about one fleet."""
    on.print(Text(headline(facts), style="bold"), soft_wrap=True)
    for finding in findings:
        mark, style = _MARKS[finding.weight]
        on.print()
        on.print(
            Text.assemble((f"{mark} ", style), (finding.what, "" if finding.weight is Weight.NOTE else "bold")),
            soft_wrap=True,
        )
        for label, lines in (("found", finding.how), ("do", finding.do)):
            for index, text in enumerate(lines):
                head = f"  {label + ':' if index == 0 else '':<7}"
                on.print(Text.assemble((head, "dim"), (text, "" if label == "do" else "dim")), soft_wrap=True)
    on.print()
    on.print(summary(facts, findings), soft_wrap=True)


def headline(facts: Facts) -> str:
    """What is asked, and whether it is so."""
    desired = facts.service.spec.generation
    asked = f"{desired} is asked for" if desired is not None else "nothing is asked for"
    if facts.is_ready:
        return f"{facts.snapshot.fleet}: {asked}, and it is so"
    return f"{facts.snapshot.fleet}: {asked}, and it is not so. {in_the_way(facts.snapshot)}"


def summary(facts: Facts, findings: Sequence[Finding]) -> str:
    """How many of each, and what stands behind it."""
    counts = {weight: sum(1 for each in findings if each.weight is weight) for weight in Weight}
    parts = [f"{counts[weight]} {weight}{'' if counts[weight] == 1 else 's'}" for weight in Weight if counts[weight]]
    seen = f"{len(facts.members)} pod{'' if len(facts.members) == 1 else 's'}"
    answers = sum(1 for each in facts.probes if each.is_from_engine)
    asked = f", asked {answers} engine{'' if answers == 1 else 's'} through the API server" if answers else ""
    return f"{', '.join(parts) or 'Nothing found'}. Looked at {seen}{asked}."


def to_json(facts: Facts, findings: Sequence[Finding]) -> dict[str, Any]:
    """The same for programs; ``cause`` and ``weight`` are an interface, the sentences are not."""
    return {
        "fleet": facts.snapshot.fleet,
        "isAsAsked": facts.is_ready,
        "findings": [
            {
                "weight": each.weight.value,
                "cause": each.cause,
                "what": each.what,
                "how": list(each.how),
                "do": list(each.do),
            }
            for each in findings
        ],
    }
