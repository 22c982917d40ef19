"""What `/pause`, `/resume` and `/is_paused` do, by where a version keeps that it is paused.

Each operation answers at once where the real one does, and else gives what to wait for: a thousand engines that
answer at once need no thousand tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from llmservice_testing.simulator.group import MoeGroup
from llmservice_testing.simulator.scheduler import Mode, Scheduler
from llmservice_testing.simulator.versions import Behaviour, PauseKept


class Control(Protocol):
    """The pause of one engine."""

    @property
    def halted(self) -> bool:
        """Whether new requests get no tokens, whatever `/is_paused` says."""

    def pause(self, mode: Mode, *, clear_cache: bool) -> Awaitable[None] | None:
        """Pause; None where that is complete at once."""

    def resume(self) -> Awaitable[None] | None:
        """Resume; None where that is complete at once.

        Raises:
            PauseInFlightError: a rank of a MoE group whose pause is in flight.
        """

    def is_paused(self) -> Awaitable[bool] | bool:
        """What `/is_paused` answers."""

    def admission(self) -> Awaitable[None] | None:
        """What a new request waits for before the scheduler sees it."""


class FlagControl:
    """0.12 to 0.15: a flag in the API server, which holds new requests; the scheduler is never told.

    `if self._paused: return` makes a second pause answer at once, though the first still drains.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._paused = False
        self._resumed = asyncio.Event()
        self._resumed.set()

    @property
    def halted(self) -> bool:
        return self._paused

    def pause(self, mode: Mode, *, clear_cache: bool) -> Awaitable[None] | None:
        if self._paused:
            return None
        self._paused = True
        self._resumed.clear()
        if mode == "abort":
            self._scheduler.abort_all()
        return self._scheduler.idle()

    def resume(self) -> Awaitable[None] | None:
        self._paused = False
        self._resumed.set()
        return None

    def is_paused(self) -> Awaitable[bool] | bool:
        return self._paused

    async def _wait_for_resume(self) -> None:
        await self._resumed.wait()

    def admission(self) -> Awaitable[None] | None:
        return self._wait_for_resume() if self._paused else None


class LockControl:
    """0.16: the flag is under a lock that a pause holds while it drains, so that all else hangs meanwhile.

    `keep` goes to the scheduler, past the flag: `/is_paused` stays false.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = asyncio.Lock()
        self._paused = False
        self._resumed = asyncio.Event()
        self._resumed.set()

    @property
    def halted(self) -> bool:
        return self._paused or self._scheduler.is_paused

    def pause(self, mode: Mode, *, clear_cache: bool) -> Awaitable[None] | None:
        if mode == "keep":
            return self._scheduler.pause("keep", clear_cache=clear_cache)
        return self._pause_locked(mode)

    async def _pause_locked(self, mode: Mode) -> None:
        async with self._lock:
            self._paused = True
            self._resumed.clear()
            if mode == "abort":
                self._scheduler.abort_all()
            if (idle := self._scheduler.idle()) is not None:
                await idle

    def resume(self) -> Awaitable[None] | None:
        return self._resume_locked()

    async def _resume_locked(self) -> None:
        async with self._lock:
            self._paused = False
            self._scheduler.resume()
            self._resumed.set()

    def is_paused(self) -> Awaitable[bool] | bool:
        return self._read_locked() if self._lock.locked() else self._paused

    async def _read_locked(self) -> bool:
        async with self._lock:
            return self._paused

    async def _wait_for_resume(self) -> None:
        await self._resumed.wait()

    def admission(self) -> Awaitable[None] | None:
        return self._wait_for_resume() if self._paused else None


class EngineControl:
    """0.17 on: the scheduler's own state, set at the start of a pause. New requests go to the scheduler at once."""

    def __init__(self, scheduler: Scheduler, group: MoeGroup | None, *, refuses_resume_in_flight: bool) -> None:
        self._scheduler = scheduler
        self._group = group
        self._refuses_resume_in_flight = refuses_resume_in_flight

    @property
    def halted(self) -> bool:
        return self._scheduler.is_paused

    def pause(self, mode: Mode, *, clear_cache: bool) -> Awaitable[None] | None:
        drained = self._scheduler.pause(mode, clear_cache=clear_cache)
        if self._group is None:
            return drained
        return self._group.pause(self._scheduler, drained)

    def resume(self) -> Awaitable[None] | None:
        if self._group is not None:
            return self._group.resume(self._scheduler, refuse_in_flight=self._refuses_resume_in_flight)
        self._scheduler.resume()
        return None

    def is_paused(self) -> Awaitable[bool] | bool:
        if self._group is not None and (barrier := self._group.blocked(self._scheduler)) is not None:
            return self._read_after(barrier)
        return self._scheduler.is_paused

    async def _read_after(self, barrier: asyncio.Future[None]) -> bool:
        await asyncio.shield(barrier)
        return self._scheduler.is_paused

    def admission(self) -> Awaitable[None] | None:
        return None


def control_of(behaviour: Behaviour, scheduler: Scheduler, group: MoeGroup | None) -> Control:
    """The control that a version has.

    Raises:
        ValueError: a group, with a version that pauses in the API server and so knows none.
    """
    if behaviour.kept is PauseKept.ENGINE:
        return EngineControl(scheduler, group, refuses_resume_in_flight=behaviour.refuses_resume_in_flight)
    if group is not None:
        raise ValueError(f"vLLM {behaviour.version} has no pause that the ranks of a MoE group agree on")
    return FlagControl(scheduler) if behaviour.kept is PauseKept.FLAG else LockControl(scheduler)
