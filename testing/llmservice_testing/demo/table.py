"""The table that shows a snapshot."""

from typing import Final

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from llmservice_testing.demo.fleet import NAME
from llmservice_testing.demo.observer import Snapshot

_STYLES: Final = {
    "running": "green",
    "paused": "yellow",
    "pausing": "cyan",
    "resuming": "cyan",
    "starting": "cyan",
    "complete": "green",
    "open": "cyan",
    "True": "green",
    "False": "yellow",
    "Unknown": "cyan",
    "": "dim",
}
_COLUMNS: Final = ("Pod", "Address", "Engine", "It says", "Status says", "Request")


def table_of(snapshot: Snapshot) -> Group:
    """One row for each engine, under the state of the whole."""
    table = Table(box=box.SIMPLE_HEAD, min_width=78, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column, no_wrap=column != "Request")
    for row in snapshot.rows:
        table.add_row(
            Text(row.pod, "bold"),
            row.address or Text("no address yet", "dim"),
            row.engine,
            _word(row.says),
            _word(row.status),
            _word(row.request),
        )
    return Group(Text(), _headline(snapshot), table)


def _headline(snapshot: Snapshot) -> Text:
    headline = Text.assemble((f"LLMService {NAME}", "bold"))
    if snapshot.problem:
        return headline.append(f": {snapshot.problem}", "red")
    headline.append("   desired ").append_text(_word(snapshot.desired))
    for kind, status, reason in snapshot.conditions:
        headline.append(f"   {kind} ").append_text(_word(status)).append(f" ({reason})", "dim")
    return headline


def _word(word: str) -> Text:
    return Text(word or "-", _STYLES.get(word, "red"))
