"""One fleet that is asked for something: what was sent, what came of it, and what to say when it is cut short."""

import asyncio
from dataclasses import dataclass, field

from llmservice.api import Desired
from llmservice.client import operations
from llmservice.client.confirmation import OverwrittenError, confirm
from llmservice.client.errors import FleetError
from llmservice.client.operations import Planner, Sent
from llmservice.client.plan import Request
from llmservice.client.remote import Sight
from llmservice.client.snapshot import Snapshot
from llmservice.plugin import undo
from llmservice.plugin.connection import ObservedFleet
from llmservice.plugin.objects import merged
from llmservice.plugin.obstruction import in_the_way

_AGAIN_SECONDS = 0.2
"""Between two requests for a fresh read where others ask for theirs at the same time."""
_LOOK_SECONDS = 3.0
"""How long an interrupted command looks what became of what it sent."""


@dataclass(eq=False)
class Attempt:
    """It begins with nothing sent; every step is noted here as it happens, so that an interruption finds it."""

    remote: ObservedFleet
    planner: Planner
    wanted: Desired
    before: Snapshot | None = None
    """The object on which the last request was planned."""
    request: Request | None = None
    """What was sent, or is on its way; None: nothing yet."""
    sent: Sent | None = None
    """The API server has stored it."""
    last: Snapshot | None = None
    """The newest version that was seen."""
    sight: Sight = field(default_factory=Sight)
    is_looked_up: bool = False
    """``last`` was read after everything that was sent."""
    confirmed: Snapshot | None = None
    error: FleetError | None = None

    def __post_init__(self) -> None:
        self.remote.on_version = self._see

    @property
    def name(self) -> str:
        """Of the LLMService."""
        return self.remote.name

    @property
    def is_over(self) -> bool:
        """Nothing more will happen by it."""
        return self.confirmed is not None or self.error is not None

    @property
    def altered_spec(self) -> bool:
        """Whether what was sent changes what is wanted; otherwise it only asks for a fresh read."""
        return self.request is not None and self.request.patch is not None and "spec" in self.request.patch

    async def carry_out(self, until: float, *, wait: bool) -> None:
        """Send it, and wait until it is confirmed if ``wait``. What goes wrong is in ``error``."""
        try:
            while True:
                self.sent = await operations.send(self.remote, self._planned, until)
                self.last = self.sent.stored
                if not wait:
                    return
                try:
                    self.confirmed = await confirm(self.remote, self.sent.stored, self.sent.change, until)
                except OverwrittenError:
                    await asyncio.sleep(_AGAIN_SECONDS)
                else:
                    return
        except FleetError as error:
            self.error = error

    async def plan(self, until: float) -> None:
        """Read it, and see what would be sent; send nothing. What goes wrong is in ``error``."""
        try:
            found = await self.remote.get(until)
            patch = self._planned(found, "dry-run").patch or {}
            self.last = Snapshot(merged(found.raw, patch))
        except FleetError as error:
            self.error = error

    async def look(self) -> None:
        """Find out what became of what was sent; gives up soon.

        A request whose answer was not awaited may still be on its way. It is about one version of the object, so any write
        makes it come too late, as asking for a fresh read does: what is seen then stays true.
        """
        until = asyncio.get_running_loop().time() + _LOOK_SECONDS
        try:
            async with asyncio.timeout_at(until):
                if self.sent is None:
                    self.last = (await operations.send(self.remote, operations.verifying(), until)).stored
                else:
                    self.last = await self.remote.get(until)
                self.sight, self.is_looked_up = Sight(), True
        except TimeoutError:
            return
        except FleetError as error:
            self.sight = Sight(error)

    def standing(self, flags: str) -> str:
        """What was sent, how the fleet was last seen, and how to undo it: for people, after an interruption or a timeout."""
        if self.before is None or self.request is None or self.last is None:
            return "nothing was sent, and nothing was changed"
        patch = self.request.patch or {}
        seen = f"last seen: {state_of(self.last)}"
        if not self.altered_spec:
            return f"spec.generation was {self.wanted} before and was not changed; a fresh read was asked for; {seen}"
        was = self.before.service.spec.generation or "absent"
        if self.sent is None and not self.is_looked_up:
            look = f"kubectl llm status {self.name} -n {self.remote.namespace}{flags}"
            back = undo.command(self.before, patch, flags)
            return (
                f"the change was being sent, and whether it arrives is not known; spec.generation was {was} before\n"
                f"  see: {look}\n  to undo it, if it has arrived: {back}"
            )
        if self.sent is None and not self._has_arrived(self.last):
            now = self.last.service.spec.generation or "absent"
            by = " and ".join(sorted(self.last.setters("spec", "generation"))) or "somebody"
            return f"the change was being sent and has not arrived (spec.generation is {now}, set by {by}); {seen}"
        back = undo.command(self.before, patch, flags)
        return (
            f"spec.generation was set to {self.wanted}, it was {was} before; {seen}\n"
            f"  the request stands and the operator goes on; to undo it: {back}"
        )

    def _has_arrived(self, snapshot: Snapshot) -> bool:
        """Whether it is as was asked, and by us as far as the API server keeps a record."""
        owners = snapshot.setters("spec", "generation")
        return snapshot.service.spec.generation is self.wanted and (not owners or self.remote.manager in owners)

    def _planned(self, found: Snapshot, token: str) -> Request:
        request = self.planner(found, token)
        if self.request is None or "spec" in (request.patch or {}):
            # Asked again for a fresh read only, what was altered first is still ours to undo.
            self.before, self.request = found, request
        self.last = self.last or found
        return request

    def _see(self, snapshot: Snapshot, sight: Sight) -> None:
        self.last, self.sight = snapshot, sight


def state_of(snapshot: Snapshot) -> str:
    """What the status says, if it is about the present spec, and what is in the way."""
    counts = snapshot.service.status.targets
    why = in_the_way(snapshot)
    if not snapshot.is_current or counts is None:
        return why or "no status"
    parts = [f"{number} {state}" for state, number in counts.model_dump(exclude={"total"}).items() if number]
    return f"{', '.join(parts) or 'no targets'} of {counts.total}" + (f"; {why}" if why else "")
