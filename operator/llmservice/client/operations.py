"""What can be asked of a fleet: one request, and the wait for its confirmation.

``until`` is always a time of the running event loop's clock. Everything raises FleetError.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from llmservice.api import Desired
from llmservice.client import plan
from llmservice.client.confirmation import OverwrittenError, confirm
from llmservice.client.plan import Request
from llmservice.client.remote import RemoteFleet
from llmservice.client.snapshot import Snapshot
from llmservice.client.verdict import Change, Manner, new_token

_AGAIN_SECONDS = 0.2
"""Between two requests for a fresh read where others ask for theirs at the same time."""

Planner = Callable[[Snapshot, str], Request]
"""Makes a request of an object and a token that was never used before."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that the API server has stored."""

    stored: Snapshot
    change: Change
    is_ours: bool
    """See ``plan.Request``."""


@dataclass(frozen=True, slots=True)
class Done:
    """A request that the operator has confirmed."""

    snapshot: Snapshot
    """The version of the object that confirms it."""
    change: Change
    is_ours: bool


async def send(remote: RemoteFleet, planner: Planner, until: float) -> Sent:
    """Send one request, and wait for nothing but its being stored."""
    sent: list[Request] = []

    def planned(found: Snapshot) -> Mapping[str, Any] | None:
        sent.append(planner(found, new_token(remote.manager)))
        return sent[-1].patch

    stored = await remote.patch(planned, until)
    return Sent(stored, sent[-1].change(stored), sent[-1].is_ours)


async def carry_out(remote: RemoteFleet, planner: Planner, until: float) -> Done:
    """Send one request, and wait until it is confirmed."""
    while True:
        sent = await send(remote, planner, until)
        try:
            return Done(await confirm(remote, sent.stored, sent.change, until), sent.change, sent.is_ours)
        except OverwrittenError:
            await asyncio.sleep(_AGAIN_SECONDS)


def pausing(manner: Manner, manager: str) -> Planner:
    """Asks for the fleet to be paused in this manner."""
    return lambda found, token: plan.pause(found, manner, manager, token)


def resuming() -> Planner:
    """Asks for the fleet to run."""
    return plan.resume


def verifying() -> Planner:
    """Asks for a fresh read of every engine."""
    return plan.verify


async def wait_for(remote: RemoteFleet, wanted: Desired, until: float) -> Snapshot:
    """Ask for nothing, and wait until the fleet is so, whoever asks for it. As good as the status: where the spec does not
    change, it is the last live operator's word (``verifying`` gets a fresh one)."""
    found = await remote.get(until)
    change = Change(found.service.metadata.uid, found.object_generation, wanted)
    return await confirm(remote, found, change, until)
