"""The block ``async with fleet.paused() as p``: paused and confirmed at its beginning, resumed at its end.

Who pauses resumes. A fleet that was found paused by another field manager is confirmed like any other, but it is not ours to
resume, and is left as it was found.

What happens at the end, by how the block ended:

- in order: it is looked whether the pause was left alone all the time, the resume is sent and its confirmation awaited;
- with an exception: the same, but what goes wrong then is a note on that exception, which goes on;
- cancelled (CancelledError, KeyboardInterrupt): the resume is sent whatever comes, and nothing more is awaited;
- with any of the two and ``resume_on_error=False``: it stays paused, which a note on the exception says.

A pause that is not confirmed is taken back: the block never ran.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from types import TracebackType

from llmservice.client import operations, plan
from llmservice.client.confirmation import confirm
from llmservice.client.errors import FleetError, RefusedError, UnavailableError
from llmservice.client.operations import Sent
from llmservice.client.plan import Request
from llmservice.client.pods import Pod, confirmed_pods, number_confirmed
from llmservice.client.remote import RemoteFleet
from llmservice.client.snapshot import Snapshot
from llmservice.client.verdict import Change, Manner, lost, stall

_NONE: tuple[Pod, ...] = ()

LAST_WORD_SECONDS = 30.0
"""How long a resume is tried to be sent where nobody waits for its confirmation: after a cancellation, and to take back a
pause that was not confirmed."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Terms:
    """How a block pauses and resumes. Times in seconds."""

    manner: Manner
    timeout: float = 300.0
    """For the pause to be confirmed."""
    resume_timeout: float = 300.0
    """For the resume to be sent and confirmed."""
    resume_on_error: bool = True
    wait_for_resume: bool = True
    list_pods: bool = True
    """Whether pods are listed where the status does not name all engines."""


@dataclass(frozen=True, slots=True)
class Held:
    """A pause that is confirmed."""

    snapshot: Snapshot
    """The version of the object that confirms it."""
    pods: tuple[Pod, ...]
    """All pods with an engine that is confirmed as paused; those that appear later are paused as they come. Empty with
    ``list_pods=False`` and more than 64 engines."""
    is_ours: bool
    """False where another field manager had paused the fleet before: it stays paused then, also after the block."""

    @property
    def count(self) -> int:
        """How many engines are confirmed as paused, also where ``pods`` does not name them."""
        return number_confirmed(self.snapshot.service)


class Pause:
    """What the block gets."""

    def __init__(self, remote: RemoteFleet, held: Held, change: Change) -> None:
        self._remote = remote
        self._change = change
        self.held = held

    @property
    def pods(self) -> tuple[Pod, ...]:
        """See ``Held``."""
        return self.held.pods

    @property
    def count(self) -> int:
        """See ``Held``."""
        return self.held.count

    @property
    def is_ours(self) -> bool:
        """See ``Held``."""
        return self.held.is_ours

    async def check(self, timeout: float = 30.0) -> Snapshot:
        """Return the object as it is now. Raises ChangedByOthersError where somebody touched the pause since it was confirmed,
        StalledError where a person is needed, and FleetError where neither can be known within ``timeout`` seconds."""
        return await _check(self._remote, self._change, timeout)


class Pausing:
    """One block; an async context manager, to be used once."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[RemoteFleet]], terms: Terms) -> None:
        self._connect = connect
        self._terms = terms
        self._stack = AsyncExitStack()
        self._remote: RemoteFleet | None = None
        self._change: Change | None = None
        self._asked_on: str | None = None
        """The resourceVersion that the last request was made on, which may have been stored; None before the first."""
        self._is_ours = False
        self._found_stalled: FleetError | None = None
        self._is_release_sent = False

    @property
    def is_entered(self) -> bool:
        """Whether the pause was confirmed, and is not ended yet."""
        return self._change is not None

    async def __aenter__(self) -> Pause:
        if self._remote is not None:
            raise RuntimeError("a block that was entered cannot be entered again: call paused() for each")
        await self._stack.__aenter__()
        self._remote = remote = await self._stack.enter_async_context(self._connect())
        try:
            return await self._pause(remote)
        except BaseException as error:
            try:
                await self._take_back(remote, error)
            finally:
                await self._stack.aclose()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        remote, held, self._change = self._remote, self._change, None
        if remote is None or held is None:
            raise RuntimeError("the block was not entered")
        try:
            await self._leave(remote, held, error)
        finally:
            await self._stack.aclose()

    # The beginning

    async def _pause(self, remote: RemoteFleet) -> Pause:
        until = asyncio.get_running_loop().time() + self._terms.timeout
        planner = operations.pausing(self._terms.manner, remote.manager)

        def noting(found: Snapshot, token: str) -> Request:
            request = planner(found, token)
            self._asked_on = found.service.metadata.resource_version
            return request

        done = await operations.carry_out(remote, noting, until)
        snapshot, pods = done.snapshot, _NONE
        if self._terms.list_pods:
            snapshot, pods = await confirmed_pods(remote, done.snapshot, done.change, until)
        self._change, self._is_ours = done.change, done.is_ours
        return Pause(remote, Held(snapshot, pods, done.is_ours), done.change)

    async def _take_back(self, remote: RemoteFleet, error: BaseException) -> None:
        """After a pause that was not confirmed: what we asked for is asked for no more."""
        if self._asked_on is None:
            return
        # What was refused is not on its way any more, and needs not be outrun.
        asked_on = "" if isinstance(error, RefusedError) else self._asked_on

        def planned(found: Snapshot, token: str) -> Request:
            return plan.take_back(found, asked_on, remote.manager, token)

        try:
            sent = await _insist(remote, planned)
        except FleetError as failure:
            _note(error, remote, f"It could not be taken back ({failure}). {_still_paused(remote)}")
        else:
            if sent.is_ours:
                error.add_note(f"{remote.key} was told to run again, as the pause was not confirmed.")

    # The end

    async def _leave(self, remote: RemoteFleet, held: Change, error: BaseException | None) -> None:
        if error is not None and not self._terms.resume_on_error:
            _note(error, remote, f"The block failed, and resume_on_error is False. {_still_paused(remote)}")
        elif not self._is_ours:
            logger.info("Left paused, as it was found", extra={"fleet": remote.key})
            if error is None:
                await _check(remote, held, self._terms.resume_timeout)
        elif error is None:
            await self._resume(remote, held)
        else:
            try:
                if isinstance(error, Exception):
                    await self._resume(remote, held)
                else:
                    await self._release(remote, held)
            except FleetError as failure:
                _note(error, remote, " ".join(["On the way out of the block:", str(failure), *_notes(failure)]))

    async def _resume(self, remote: RemoteFleet, held: Change) -> None:
        until = asyncio.get_running_loop().time() + self._terms.resume_timeout
        sent = await self._release(remote, held, until)
        if self._terms.wait_for_resume:
            await confirm(remote, sent.stored, sent.change, until)
        if self._found_stalled is not None:
            raise self._found_stalled

    async def _release(self, remote: RemoteFleet, held: Change, until: float | None = None) -> Sent:
        try:
            return await _insist(remote, self._releasing(remote, held), until)
        except (RefusedError, UnavailableError) as failure:
            failure.add_note(_still_paused(remote))
            raise

    def _releasing(self, remote: RemoteFleet, held: Change) -> operations.Planner:
        def planned(found: Snapshot, token: str) -> Request:
            request = plan.release(found, held, remote.manager, is_sent=self._is_release_sent)
            if not self._is_release_sent:
                self._found_stalled = stall(found)
                self._is_release_sent = True
            return request

        return planned


async def _check(remote: RemoteFleet, held: Change, timeout: float) -> Snapshot:
    found = await remote.get(asyncio.get_running_loop().time() + timeout)
    if (error := lost(found, held) or stall(found)) is not None:
        raise error
    return found


async def _insist(remote: RemoteFleet, planner: operations.Planner, until: float | None = None) -> Sent:
    """Send a request also when the task is cancelled meanwhile, as often as it may be; the cancellation goes on afterwards.
    At most until ``until``, and for LAST_WORD_SECONDS once it is cancelled. What was cut off is planned anew on the object
    as it is then, so that sending it twice does no harm."""
    loop = asyncio.get_running_loop()
    cancelled: asyncio.CancelledError | None = None
    last_word = loop.time() + LAST_WORD_SECONDS
    until = last_word if until is None else until
    while True:
        try:
            sent = await operations.send(remote, planner, until)
        except asyncio.CancelledError as error:
            if cancelled is None:
                cancelled, until = error, min(until, loop.time() + LAST_WORD_SECONDS)
            if loop.time() >= until:
                raise
            continue
        except FleetError as failure:
            if cancelled is None:
                raise
            _note(cancelled, remote, str(failure))
            raise cancelled from failure
        if cancelled is not None:
            raise cancelled
        return sent


def _note(error: BaseException, remote: RemoteFleet, text: str) -> None:
    error.add_note(text if remote.key in text else f"{remote.key}: {text}")
    logger.error("%s", text, extra={"fleet": remote.key})


def _notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


def _still_paused(remote: RemoteFleet) -> str:
    patch = '{"spec":{"generation":"running"}}'
    command = f"kubectl patch llmservices.llmservice.io {remote.name} -n {remote.namespace} --type merge -p '{patch}'"
    return f"{remote.key} may still be paused. To resume it: {command}"
