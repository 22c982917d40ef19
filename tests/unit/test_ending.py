"""How an actor ends: for good, also where a part of it had something else to do in that very moment."""

import asyncio
from typing import Any, cast

import pytest

from llmservice.runtime.actor import Actor
from llmservice.runtime.operator import Operator
from llmservice_testing.domain import make_service


class Stubborn:
    """An actor that has a defect on its way out."""

    def __init__(self) -> None:
        self.service = make_service()
        self.lives = 0
        self.began = asyncio.Event()

    async def run(self) -> None:
        self.lives += 1
        async with asyncio.TaskGroup() as group:
            group.create_task(self._break_when_cancelled())
            group.create_task(asyncio.Event().wait())

    async def _break_when_cancelled(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("a defect")


async def test_a_defect_on_the_way_out_does_not_bring_the_actor_back(caplog: pytest.LogCaptureFixture) -> None:
    operator, actor = Operator(cast(Any, None), None), Stubborn()
    task = asyncio.create_task(operator._supervise("uid", cast(Any, actor)))
    await actor.began.wait()
    task.cancel()
    await asyncio.wait({task}, timeout=10)
    assert task.done()
    assert actor.lives == 1
    assert "An actor broke as it ended" in caplog.text


async def test_work_that_is_wanted_while_the_actor_ends_ends_what_wants_it() -> None:
    """Its task is cancelled already, and only had an event of the watch to handle before it noticed."""
    actor, ended = object.__new__(Actor), asyncio.Event()
    actor._group = asyncio.TaskGroup()

    async def work() -> None:
        raise AssertionError("it is never begun")

    async def part() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
            actor._spawn(work())

    async def live() -> None:
        async with actor._group as group:
            group.create_task(part())

    life = asyncio.create_task(live())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    life.cancel()
    with pytest.raises(asyncio.CancelledError):
        await life
    assert ended.is_set()
