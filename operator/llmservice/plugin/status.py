"""``status``: once, or living with ``--watch``."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from llmservice.client.errors import FleetError, NotFoundError
from llmservice.client.snapshot import Snapshot
from llmservice.kube.client import KubernetesError
from llmservice.plugin import objects, screen
from llmservice.plugin.connection import Cluster, connected, translated
from llmservice.plugin.exits import Exit
from llmservice.plugin.options import Output, Where, Which
from llmservice.plugin.rows import line, rows, titles
from llmservice.plugin.running import complain

WATCH_SECONDS = 30.0
"""A watch that was cut in silence is noticed by listing again after this time."""
_DEADLINE_SECONDS = 40.0
_AGAIN_SECONDS = 1.0
_FRAMES_PER_SECOND = 2.0


async def show(where: Where, which: Which, output: Output | None) -> Exit:
    """Print it once. Raises FleetError."""
    async with connected(where) as cluster:
        found = await cluster.snapshots(which)
    missing = _missing(found, which)
    for name in missing:
        complain(f"{cluster.place} has no LLMService {name}")
    if output not in (None, Output.WIDE):
        if found or not which.names:
            typer.echo(objects.written([each.raw for each in found], output, alone=len(which.names) == 1), nl=False)
    elif found:
        wide = output is Output.WIDE
        told = rows(found, time.time(), with_namespace=cluster.namespace is None, wide=wide)
        screen.put(screen.console(), titles(wide=wide), told)
    elif not missing:
        typer.echo(f"No LLMServices found in {cluster.place}.", err=True)
    return Exit.NOT_FOUND if missing else Exit.OK


async def watch(where: Where, which: Which, *, wide: bool) -> Exit:
    """Print it again whenever it changes, until Ctrl-C: a living table on a terminal, else a line for each change."""
    async with connected(where) as cluster:
        view = View(cluster, which, wide=wide)
        first = await cluster.snapshots(which)  # what is wrong from the start is an error, and not waited for
        if missing := _missing(first, which):
            raise NotFoundError(f"{cluster.place} has no LLMService {', '.join(missing)}", fleet="")
        view.take(first)
        on = screen.console()
        try:
            await (_live(on, view) if on.is_terminal else _log(on, view))
        except asyncio.CancelledError:
            return Exit.OK  # that is how a watch ends
    return Exit.OK


def _missing(found: list[Snapshot], which: Which) -> list[str]:
    there = {each.service.metadata.name for each in found}
    return [name for name in which.names if name not in there]


@dataclass(eq=False)
class View:
    """The fleets that are watched, as they were last seen."""

    cluster: Cluster
    which: Which
    wide: bool = False
    seen: dict[str, Snapshot] = field(default_factory=dict)
    """By namespace/name."""
    lost_at: float | None = None
    """Since when the API server does not answer, seconds since the epoch; None while it does."""
    why: str = ""

    def take(self, snapshots: list[Snapshot]) -> None:
        """A complete list."""
        self.seen = {each.fleet: each for each in snapshots}
        self.lost_at, self.why = None, ""

    async def follow(self) -> AsyncGenerator[None, None]:
        """A step for each change, without end; an API server that is away is waited for."""
        while True:
            try:
                async with aclosing(self._follow_once()) as steps:
                    async for _ in steps:
                        yield
            except (FleetError, KubernetesError) as error:
                self.lost_at = self.lost_at or time.time()
                self.why = str(error)
                yield
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _follow_once(self) -> AsyncGenerator[None, None]:
        query = {"labelSelector": self.which.selector} if self.which.selector else {}
        if len(self.which.names) == 1:
            query = {"fieldSelector": f"metadata.name={self.which.names[0]}"}
        try:
            items, version = await self.cluster.kubernetes.list(self.cluster.collection, query)
        except KubernetesError as error:
            raise translated(error) from error
        self.take([each for each in map(Snapshot, items) if self._is_meant(each)])
        yield
        events = self.cluster.kubernetes.watch(
            self.cluster.collection,
            {**query, "resourceVersion": version},
            server_seconds=int(WATCH_SECONDS),
            deadline=_DEADLINE_SECONDS,
        )
        async with aclosing(events) as open_events:
            async for kind, item in open_events:
                if kind not in ("ADDED", "MODIFIED", "DELETED"):
                    continue
                snapshot = Snapshot(item)
                if not self._is_meant(snapshot):
                    continue
                if kind == "DELETED":
                    self.seen.pop(snapshot.fleet, None)
                else:
                    self.seen[snapshot.fleet] = snapshot
                yield

    def _is_meant(self, snapshot: Snapshot) -> bool:
        return not self.which.names or snapshot.service.metadata.name in self.which.names

    def frame(self) -> RenderableType:
        """The screen as it should be now."""
        now = time.time()
        number = len(self.seen)
        head = f"{time.strftime('%H:%M:%S', time.localtime(now))}  {self.cluster.place}: "
        head += f"{number} fleet{'' if number == 1 else 's'}, Ctrl-C ends"
        told = rows(
            [self.seen[key] for key in sorted(self.seen)],
            now,
            with_namespace=self.cluster.namespace is None,
            wide=self.wide,
        )
        parts: list[RenderableType] = [Text(head, style="dim")]
        if self.lost_at is not None:
            parts.append(Text(f"as it was {int(now - self.lost_at)} s ago: {self.why}", style="red"))
        return Group(*parts, screen.table(titles(wide=self.wide), told))


async def _live(on: Console, view: View) -> None:
    with Live(view.frame(), console=on, get_renderable=view.frame, refresh_per_second=_FRAMES_PER_SECOND) as live:
        async with aclosing(view.follow()) as steps:
            async for _ in steps:
                live.refresh()


async def _log(on: Console, view: View) -> None:
    """A line for each fleet whenever what it says has changed."""
    said: dict[str, tuple[str, str]] = {}
    async with aclosing(view.follow()) as steps:
        async for _ in steps:
            now = time.time()
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
            if view.lost_at is not None:
                complain(view.why)
            for key in sorted(said.keys() - view.seen.keys()):
                on.print(f"{stamp} {key} is gone", soft_wrap=True)
                del said[key]
            for key, snapshot in sorted(view.seen.items()):
                version = (snapshot.service.metadata.uid, snapshot.service.metadata.resource_version)
                if said.get(key) != version:
                    said[key] = version
                    on.print(f"{stamp} {line(snapshot, now)}", soft_wrap=True)
