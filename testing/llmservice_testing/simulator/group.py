"""Engines that are ranks of one data-parallel mixture-of-experts model.

Their ranks step together, so a pause needs all of them: `POST /pause` to one rank answers once every rank was asked and
none has work left; `POST /resume` to a paused rank blocks it, its `/is_paused` too, until every rank was asked.
Source: `vllm/v1/engine/core.py`, class DPEngineCoreProc (0.21 on), read and not measured.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from llmservice_testing.simulator.scheduler import Scheduler


class PauseInFlightError(RuntimeError):
    """A rank was told to resume while its pause was still in flight."""

    def __init__(self) -> None:
        super().__init__(
            "resume_scheduler called while pause is still in flight. "
            "Wait for the pause future to resolve before resuming."
        )


@dataclass(eq=False)
class MoeGroup:
    """The ranks of one model. An engine joins when it is created with `group=`."""

    members: set[Scheduler] = field(default_factory=set)
    _pausing: dict[Scheduler, asyncio.Future[None]] = field(default_factory=dict)
    _resuming: dict[Scheduler, asyncio.Future[None]] = field(default_factory=dict)

    def join(self, scheduler: Scheduler) -> None:
        self.members.add(scheduler)

    def leave(self, scheduler: Scheduler) -> None:
        """A rank died. What waits for it goes on waiting, until its next life, which joins at once, is asked too."""
        self.members.discard(scheduler)
        self._pausing.pop(scheduler, None)
        self._resuming.pop(scheduler, None)

    def pause(self, scheduler: Scheduler, drained: asyncio.Future[None] | None) -> asyncio.Future[None]:
        """What is done when every rank was asked to pause and has drained."""
        consensus = self._pausing.get(scheduler)
        if consensus is None:
            consensus = self._pausing[scheduler] = asyncio.get_running_loop().create_future()
        if drained is not None:
            drained.add_done_callback(lambda _: self._agree_on_pause())
        self._agree_on_pause()
        return consensus

    def resume(self, scheduler: Scheduler, *, refuse_in_flight: bool) -> asyncio.Future[None] | None:
        """None if the rank runs already, else what is done when every rank was asked to resume.

        Raises:
            PauseInFlightError: its pause is still in flight, and it is of a version that refuses then.
        """
        if scheduler in self._pausing and refuse_in_flight:
            raise PauseInFlightError
        if not scheduler.is_paused:
            return None
        barrier = self._resuming.get(scheduler)
        if barrier is None:
            barrier = self._resuming[scheduler] = asyncio.get_running_loop().create_future()
        if self._resuming.keys() >= self.members:
            resuming, self._resuming = self._resuming, {}
            for member, future in resuming.items():
                member.resume()
                _complete(future)
        return barrier

    def blocked(self, scheduler: Scheduler) -> asyncio.Future[None] | None:
        """What a rank waits for before it answers anything at all, if it does."""
        return self._resuming.get(scheduler)

    def _agree_on_pause(self) -> None:
        if self._pausing.keys() >= self.members and not any(
            member.running and not member.is_frozen for member in self.members
        ):
            pausing, self._pausing = self._pausing, {}
            for future in pausing.values():
                _complete(future)


def _complete(future: asyncio.Future[None]) -> None:
    """Done, unless the engine that waited for it died meanwhile."""
    if not future.done():
        future.set_result(None)
