"""A table, for a terminal or as Markdown."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table as RichTable


@dataclass(frozen=True)
class Table:
    """A title, columns, rows, and remarks below them. Columns of figures are aligned to the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    remarks: Sequence[str] = field(default=())

    @property
    def are_figures(self) -> list[bool]:
        """For each column, whether its cells are figures or empty."""
        return [
            all(cell in ("", "-") or cell[0].isdigit() for cell in column) for column in zip(*self.rows, strict=True)
        ]


def show(tables: Sequence[Table]) -> None:
    """On standard output: drawn if that is a terminal, else Markdown."""
    if sys.stdout.isatty():
        console = Console()
        for each in tables:
            console.print(_drawn(each))
            for remark in each.remarks:
                console.print(remark, style="dim", markup=False)
            console.print()
    else:
        print("\n\n".join(markdown(each) for each in tables))


def markdown(table: Table) -> str:
    """The table with its title as a heading."""
    rule = ["---:" if figures else "---" for figures in table.are_figures]
    lines = [_row(row) for row in (table.columns, rule, *table.rows)]
    text = "\n".join([f"### {table.title}", "", *lines])
    return "\n\n".join([text, *table.remarks])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _drawn(table: Table) -> RichTable:
    drawn = RichTable(title=table.title, title_justify="left")
    for column, figures in zip(table.columns, table.are_figures, strict=True):
        drawn.add_column(column, justify="right" if figures else "left")
    for row in table.rows:
        drawn.add_row(*(cell.replace("[", "\\[") for cell in row))
    return drawn
