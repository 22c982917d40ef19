"""Rows on a terminal, or in a pipe: colour only on a terminal (and not with NO_COLOR), aligned in both."""

import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from llmservice.plugin.rows import Row, Tone

_STYLES = {Tone.PLAIN: "", Tone.GOOD: "green", Tone.WAITING: "yellow", Tone.BAD: "red", Tone.ASIDE: "dim"}
_PIPE_WIDTH = 10_000
"""Nothing is folded or cut where no person looks at once."""


def console(file: TextIO | None = None) -> Console:
    """On standard output unless said otherwise."""
    made = Console(file=file or sys.stdout, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _PIPE_WIDTH
    return made


def table(titles: Sequence[str], rows: Iterable[Row]) -> Table:
    """Without lines, as kubectl's. The last sentence may be folded, nothing else."""
    made = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for title in titles:
        made.add_column(title, no_wrap=title != "IN THE WAY", overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell.text, style=_STYLES[cell.tone]) for cell in row))
    return made


def put(on: Console, titles: Sequence[str], rows: Iterable[Row]) -> None:
    """Print a table once, without blanks at the ends of lines."""
    with on.capture() as captured:
        on.print(table(titles, rows))
    lines = captured.get().splitlines()
    on.file.write("".join(f"{line.rstrip()}\n" for line in lines))
    on.file.flush()
