"""Waiting for the confirmation of a change, within a time."""

import asyncio
from contextlib import aclosing

from llmservice.client.errors import FleetError, OperatorSilentError, TimedOutError, UnavailableError
from llmservice.client.remote import RemoteFleet, Sight
from llmservice.client.snapshot import Snapshot
from llmservice.client.verdict import Change, Confirmed, Failed, Waiting, judge


class OverwrittenError(Exception):
    """Somebody else asked for a fresh read before ours was done; the caller asks again."""


async def confirm(remote: RemoteFleet, stored: Snapshot, change: Change, until: float) -> Snapshot:
    """Wait for ``change``, from the version of the object that it left behind. Returns the version that confirms it.

    Raises FleetError, at the latest at ``until`` (a time of the event loop's clock), and OverwrittenError.
    """
    sight, last, verdict = Sight(), stored, judge(stored, change)
    try:
        async with asyncio.timeout_at(until), aclosing(remote.follow(stored, sight)) as versions:
            async for snapshot in versions:
                last, verdict = snapshot, judge(snapshot, change)
                match verdict:
                    case Confirmed():
                        return snapshot
                    case Failed(error):
                        raise error
                    case Waiting(is_overwritten=True):
                        raise OverwrittenError
                    case Waiting():
                        pass
    except TimeoutError as error:
        raise _late(last, verdict, sight) from error
    raise AssertionError("versions come without end")


def _late(last: Snapshot, verdict: Confirmed | Waiting | Failed, sight: Sight) -> FleetError:
    if sight.hindrance is not None:
        if isinstance(sight.hindrance, UnavailableError):
            return UnavailableError(f"the time was over before the API server answered again: {sight.hindrance}")
        return sight.hindrance
    why = verdict.why if isinstance(verdict, Waiting) else "it was not seen again"
    if isinstance(verdict, Waiting) and verdict.is_silent:
        return OperatorSilentError(
            f"the operator did not answer to this change: {why}. See whether it runs and serves this namespace",
            fleet=last.fleet,
        )
    return TimedOutError(f"not as asked when the time was over: {why}", fleet=last.fleet)
