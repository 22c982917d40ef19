"""What ``status`` shows, as rows of words: pure, so that a test can ask what a screen says without looking at one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from llmservice.api import ConditionType, TargetStatus
from llmservice.client.snapshot import Snapshot
from llmservice.plugin.authorship import ago, authors, moment, said
from llmservice.plugin.obstruction import in_the_way, in_the_way_of

COLUMNS = ("FLEET/POD", "DESIRED", "STATE", "VERSION", "SET BY", "IN THE WAY")
WIDE = (*COLUMNS[:-1], "ADDRESS", COLUMNS[-1])
PODS = 16
"""How many pods of a fleet are shown; the status lists those that are not as they should be first."""


class Tone(StrEnum):
    """What a word means for whoever looks at the screen."""

    PLAIN = "plain"
    GOOD = "good"
    WAITING = "waiting"
    BAD = "bad"
    ASIDE = "aside"


@dataclass(frozen=True, slots=True)
class Cell:
    """One word or sentence."""

    text: str
    tone: Tone = Tone.PLAIN


Row = tuple[Cell, ...]

_TONES = {
    "paused": Tone.GOOD,
    "running": Tone.GOOD,
    "sleeping": Tone.GOOD,
    "failed": Tone.BAD,
    "unreachable": Tone.BAD,
}


def rows(snapshots: Iterable[Snapshot], now: float, *, with_namespace: bool, wide: bool) -> list[Row]:
    """A row for each fleet, and below it one for each of its engines. ``now`` in seconds since the epoch."""
    found: list[Row] = []
    for snapshot in snapshots:
        found.append(_fleet(snapshot, now, with_namespace=with_namespace, wide=wide))
        found.extend(_engines(snapshot, wide=wide))
    return found


def line(snapshot: Snapshot, now: float) -> str:
    """The same of one fleet in a line, for a log."""
    fleet, *cells = _fleet(snapshot, now, with_namespace=True, wide=False)
    parts = [f"{title.lower()}={cell.text!r}" for title, cell in zip(COLUMNS[1:], cells, strict=True) if cell.text]
    return " ".join([fleet.text, *parts])


def _fleet(snapshot: Snapshot, now: float, *, with_namespace: bool, wide: bool) -> Row:
    service = snapshot.service
    desired = service.spec.generation
    way = _without_echo(in_the_way(snapshot), snapshot)
    stalled = way.startswith("Stalled")
    return (
        Cell(snapshot.fleet if with_namespace else service.metadata.name),
        Cell(desired.value if desired is not None else "(observed)"),
        _state(snapshot, now),
        Cell(""),
        Cell(said(authors(snapshot, "spec", "generation"), now), Tone.ASIDE),
        *((Cell(""),) if wide else ()),
        Cell(way, Tone.BAD if stalled else Tone.WAITING),
    )


def _without_echo(way: str, snapshot: Snapshot) -> str:
    """The fleet's sentence quotes the first engine concerned, whose row says the same below."""
    for target in snapshot.service.status.target_states[:PODS]:
        if target.message and way.endswith(f": {target.message}"):
            return way.removesuffix(f": {target.message}")
    return way


def _state(snapshot: Snapshot, now: float) -> Cell:
    """What was read, never what was wished: nothing where the status is about another spec."""
    status = snapshot.service.status
    found = snapshot.condition(ConditionType.PAUSED)
    if found is None or status.targets is None:
        return Cell("unknown", Tone.WAITING)
    counts = status.targets
    if found.status == "True":
        since = moment(status.paused_since) if status.paused_since_generation == snapshot.object_generation else None
        lasting = f" for {ago(since, now)}" if since is not None else ""
        return Cell(f"paused {counts.paused + counts.sleeping}/{counts.total - counts.starting}{lasting}", Tone.GOOD)
    if found.status == "False":
        return Cell(f"running {counts.running}/{counts.total - counts.starting}", Tone.GOOD)
    by_state = counts.model_dump(exclude={"total"})
    parts = [f"{number} {state}" for state, number in by_state.items() if number]
    unread = counts.total - sum(by_state.values())
    if unread:
        parts.append(f"{unread} unread")
    return Cell(", ".join(parts) or "no pods", Tone.WAITING)


def _engines(snapshot: Snapshot, *, wide: bool) -> list[Row]:
    service = snapshot.service
    listed = service.status.target_states
    shown = listed if wide else listed[:PODS]
    several = len(service.spec.engine.ports) > 1
    found = [_engine(each, several=several, is_current=snapshot.is_current, wide=wide) for each in shown]
    total = service.status.targets.total if service.status.targets is not None else 0
    if total > len(shown):
        more = f"  and {total - len(shown)} more"
        blank = Cell("")
        found.append((Cell(more, Tone.ASIDE), *(blank for _ in (WIDE if wide else COLUMNS)[1:])))
    return found


def _engine(target: TargetStatus, *, several: bool, is_current: bool, wide: bool) -> Row:
    port = f":{_port(target.url)}" if several and target.url else ""
    way = in_the_way_of(target)
    tone = _TONES.get(target.state, Tone.WAITING) if is_current else Tone.ASIDE
    return (
        Cell(f"  {target.pod}{port}"),
        Cell(""),
        Cell(target.state, tone),
        Cell(target.version or ""),
        Cell(""),
        *((Cell(target.url or "", Tone.ASIDE),) if wide else ()),
        Cell(way, Tone.BAD if target.state in ("failed", "unreachable") else Tone.WAITING),
    )


def _port(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].rpartition(":")[2]


def titles(*, wide: bool) -> Sequence[str]:
    """Of the columns."""
    return WIDE if wide else COLUMNS
