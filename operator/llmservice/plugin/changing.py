"""``pause`` and ``resume``: all fleets at once, each with its own end."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from llmservice.api import Desired, PauseMode
from llmservice.client import operations
from llmservice.client.errors import NotFoundError, StalledError, TimedOutError, UnavailableError
from llmservice.client.operations import Planner
from llmservice.client.verdict import Manner
from llmservice.plugin import objects, progress
from llmservice.plugin.attempt import Attempt
from llmservice.plugin.connection import Cluster, ObservedFleet, connected
from llmservice.plugin.exits import Exit, worst
from llmservice.plugin.options import DryRun, Output, Where, Which
from llmservice.plugin.running import complain, exit_of

_DONE = {Desired.PAUSED: "paused", Desired.RUNNING: "resumed"}


@dataclass(frozen=True, slots=True)
class Change:
    """What is asked of the fleets, and how the asking is done."""

    wanted: Desired
    mode: str | None = None
    """None: as ``spec.pause`` says."""
    clear_cache: bool | None = None
    wait: bool = True
    timeout: float = 300.0
    """Seconds, for all fleets together as they are asked at once."""
    dry_run: DryRun = DryRun.NONE
    output: Output | None = None
    quiet: bool = False
    manager: str = "kubectl-llm"

    @property
    def planner(self) -> Planner:
        """What makes a request of an object."""
        if self.wanted is Desired.RUNNING:
            return operations.resuming()
        mode = PauseMode(self.mode) if self.mode is not None else None
        return operations.pausing(Manner(mode, self.clear_cache), self.manager)


async def change(where: Where, which: Which, asked: Change) -> Exit:
    """Bring it about. Raises FleetError only where nothing was sent at all."""
    until = asyncio.get_running_loop().time() + asked.timeout
    async with connected(where, rehearse=asked.dry_run is DryRun.SERVER) as cluster:
        attempts = [
            Attempt(ObservedFleet(cluster.kubernetes, namespace, name, asked.manager), asked.planner, asked.wanted)
            for namespace, name in await _meant(cluster, which)
        ]
        try:
            await _carry_out(attempts, asked, until)
        except asyncio.CancelledError:
            await _explain(attempts, where.flags)
            raise
        _print_objects(attempts, asked, alone=len(which.names) == 1)
        return worst([_conclude(each, asked, where.flags) for each in attempts])


async def _meant(cluster: Cluster, which: Which) -> list[tuple[str, str]]:
    if which.names and cluster.namespace is not None:
        return [(cluster.namespace, name) for name in which.names]
    found = await cluster.snapshots(which)
    if not found:
        matching = f" matches {which.selector}" if which.selector else " is there"
        raise NotFoundError(f"no LLMService{matching} in {cluster.place}", fleet="")
    return [(each.service.metadata.namespace, each.service.metadata.name) for each in found]


async def _carry_out(attempts: Sequence[Attempt], asked: Change, until: float) -> None:
    if asked.dry_run is DryRun.CLIENT:
        await asyncio.gather(*(each.plan(until) for each in attempts))
        return
    wait = asked.wait and asked.dry_run is DryRun.NONE
    async with progress.shown(attempts, quiet=asked.quiet or not wait):
        await asyncio.gather(*(each.carry_out(until, wait=wait) for each in attempts))


def _conclude(attempt: Attempt, asked: Change, flags: str) -> Exit:
    """Say how it ended."""
    if attempt.error is not None:
        complain(str(attempt.error))
        stands = isinstance(attempt.error, TimedOutError | UnavailableError | StalledError)
        if stands and asked.dry_run is DryRun.NONE and attempt.request is not None:
            typer.echo(f"  {attempt.standing(flags)}", err=True)
        return exit_of(attempt.error)
    if asked.output in (None, Output.WIDE):
        typer.echo(f"{objects.reference(attempt.name)} {_said(attempt, asked)}")
    return Exit.OK


def _said(attempt: Attempt, asked: Change) -> str:
    done = _DONE[asked.wanted]
    if asked.dry_run is not DryRun.NONE:
        return f"{done if attempt.altered_spec else 'unchanged'} ({asked.dry_run} dry run)"
    if not asked.wait:
        return (
            f"{done.removesuffix('d')} requested"
            if attempt.altered_spec
            else f"{asked.wanted} already; fresh read requested"
        )
    return _confirmation(attempt, done)


def _confirmation(attempt: Attempt, done: str) -> str:
    confirmed = attempt.confirmed
    if confirmed is None:
        raise ValueError("it was not waited for")
    counts = confirmed.service.status.targets
    number = counts.total - counts.starting if counts is not None else 0
    pause = confirmed.service.status.last_pause
    how = f", mode {pause.mode}, clearCache {str(pause.clear_cache).lower()}" if pause is not None else ""
    already = "" if attempt.altered_spec else " already"
    return f"{done}{already}: {number} target{'' if number == 1 else 's'} confirmed{how}"


def _print_objects(attempts: Sequence[Attempt], asked: Change, *, alone: bool) -> None:
    if asked.output in (None, Output.WIDE):
        return
    found = [each.last.raw for each in attempts if each.error is None and each.last is not None]
    if found:
        typer.echo(objects.written(found, asked.output, alone=alone), nl=False)


async def _explain(attempts: Sequence[Attempt], flags: str) -> None:
    """After an interruption: what was sent, what is known, and how to undo it."""
    open_ones = [each for each in attempts if not each.is_over and each.request is not None]
    await asyncio.gather(*(each.look() for each in open_ones))
    typer.echo("\nInterrupted.", err=True)
    for each in attempts:
        if each.confirmed is not None:
            typer.echo(f"{each.remote.key}: done, {each.wanted} was confirmed\n  {each.standing(flags)}", err=True)
        elif each.error is not None:
            typer.echo(f"{each.remote.key}: {each.error}", err=True)
        else:
            typer.echo(f"{each.remote.key}: {each.standing(flags)}", err=True)
