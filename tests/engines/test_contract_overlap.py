"""Control calls that overlap: what may overtake an open pause, and what its late answer is worth."""

import asyncio

import httpx

from llmservice_testing.vllm.client import Completion, OpenCompletion

from .conftest import Subject

LONG = 1000
"""Tokens of a request that keeps a `wait` open: about two seconds on a real engine."""


async def draining(subject: Subject) -> tuple[OpenCompletion, asyncio.Task[httpx.Response]]:
    """A request in flight, and a `wait` that is open because of it."""
    request = subject.client.begin_completion(LONG)
    await request.begun()
    pause = subject.client.begin("/pause", mode="wait")
    await subject.client.until_paused(True)
    return request, pause


async def test_resume_overtakes_an_open_wait_whose_late_answer_is_then_false(subject: Subject) -> None:
    request, pause = await draining(subject)

    assert (await subject.client.post("/resume")).json() == {"status": "resumed"}

    assert not pause.done()
    assert not await subject.client.is_paused()
    assert await subject.client.begin_completion(5) == Completion(5, "length")
    assert (await pause).json() == {"status": "paused"}
    assert await request == Completion(LONG, "length")
    assert not await subject.client.is_paused()


async def test_abort_overtakes_an_open_wait_and_ends_it(subject: Subject) -> None:
    request, pause = await draining(subject)

    assert (await subject.client.post("/pause", mode="abort")).json() == {"status": "paused"}

    assert (await pause).json() == {"status": "paused"}
    ended = await request
    assert ended.finish_reason == "abort"
    assert ended.tokens < LONG
    assert await subject.client.is_paused()


async def test_keep_overtakes_an_open_wait_and_ends_it_with_the_request_frozen(subject: Subject) -> None:
    request, pause = await draining(subject)

    await subject.client.post("/pause", mode="keep", clear_cache="false")

    assert (await pause).json() == {"status": "paused"}
    assert not request.done()
    await subject.client.post("/resume")
    assert await request == Completion(LONG, "length")


async def test_a_second_wait_is_answered_when_the_drain_is_over(subject: Subject) -> None:
    request, first = await draining(subject)

    second = subject.client.begin("/pause", mode="wait")

    assert (await second).json() == {"status": "paused"}
    assert await request == Completion(LONG, "length")
    assert (await first).json() == {"status": "paused"}
    assert await subject.client.is_paused()


async def test_a_client_that_hangs_up_cancels_no_pause(subject: Subject) -> None:
    request, pause = await draining(subject)

    pause.cancel()

    assert await subject.client.is_paused()
    assert await request == Completion(LONG, "length")
    assert await subject.client.is_paused()
    assert (await subject.client.post("/pause", mode="wait")).json() == {"status": "paused"}
