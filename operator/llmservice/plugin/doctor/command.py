"""``doctor``: gather, check, print."""

import typer

from llmservice.client.errors import NotFoundError
from llmservice.plugin import objects, screen
from llmservice.plugin.connection import MANAGER, connected
from llmservice.plugin.doctor import words
from llmservice.plugin.doctor.chain import diagnose as check
from llmservice.plugin.doctor.finding import Weight
from llmservice.plugin.doctor.gather import gather
from llmservice.plugin.exits import Exit
from llmservice.plugin.options import Output, Where, Which


async def diagnose(where: Where, which: Which, output: Output | None, *, probe: bool, verify: bool) -> Exit:
    """Look at each fleet, and print what was found. Raises FleetError."""
    async with connected(where) as cluster:
        found = await cluster.snapshots(which)
        there = {each.service.metadata.name for each in found}
        if missing := [name for name in which.names if name not in there]:
            raise NotFoundError(f"{cluster.place} has no LLMService {', '.join(missing)}", fleet="")
        diagnosed = []
        for snapshot in found:
            facts = await gather(
                cluster.kubernetes, snapshot, flags=where.flags, probe=probe, verify=verify, manager=MANAGER
            )
            diagnosed.append((facts, check(facts)))
    if output is not None:
        told = [words.to_json(facts, findings) for facts, findings in diagnosed]
        typer.echo(objects.document(told[0] if len(told) == 1 else told, output), nl=False)
    else:
        on = screen.console()
        for index, (facts, findings) in enumerate(diagnosed):
            if index:
                on.print()
            words.put(on, facts, findings)
    has_problem = any(each.weight is Weight.PROBLEM for _, findings in diagnosed for each in findings)
    return Exit.NEEDS_PERSON if has_problem else Exit.OK
