"""What a pause does to requests: those in flight, and those that come while it lasts."""

import pytest

from llmservice_testing.vllm.client import Completion, OpenCompletion

from .conftest import Subject

LONG = 1000
"""Tokens of a request that can be paused before it ends: about two seconds on a real engine."""


async def in_flight(subject: Subject, tokens: int = LONG) -> OpenCompletion:
    """A request whose first token is there."""
    request = subject.client.begin_completion(tokens)
    await request.begun()
    return request


async def test_abort_ends_a_request_with_what_it_has(subject: Subject) -> None:
    request = await in_flight(subject)

    await subject.client.post("/pause", mode="abort")

    ended = await request
    assert ended.finish_reason == "abort"
    assert ended.tokens < LONG


async def test_wait_is_answered_once_the_request_is_finished(subject: Subject) -> None:
    request = await in_flight(subject)

    pause = subject.client.begin("/pause", mode="wait")
    await subject.client.until_paused(True)
    assert not pause.done(), "is_paused is true from the start of the drain"
    assert not request.done()

    assert (await pause).json() == {"status": "paused"}
    assert await request == Completion(LONG, "length")
    assert await subject.client.is_paused()


@pytest.mark.parametrize("clear_cache", ["false", "true"])
async def test_keep_freezes_a_request_and_resume_continues_it(subject: Subject, clear_cache: str) -> None:
    request = await in_flight(subject)

    assert (await subject.client.post("/pause", mode="keep", clear_cache=clear_cache)).status_code == 200
    assert await request.stays_open(subject.long_seconds)
    await subject.client.post("/resume")

    assert await request == Completion(LONG, "length")


async def test_a_repeated_keep_leaves_a_request_frozen(subject: Subject) -> None:
    request = await in_flight(subject)

    for _ in range(2):
        await subject.client.post("/pause", mode="keep", clear_cache="false")
    assert await request.stays_open(subject.long_seconds)
    await subject.client.post("/resume")

    assert await request == Completion(LONG, "length")


async def test_abort_ends_what_keep_froze(subject: Subject) -> None:
    request = await in_flight(subject)
    await subject.client.post("/pause", mode="keep", clear_cache="false")

    await subject.client.post("/pause", mode="abort")

    assert (await request).finish_reason == "abort"


async def test_wait_thaws_what_keep_froze_and_is_paused_never_tells(subject: Subject) -> None:
    request = await in_flight(subject)
    await subject.client.post("/pause", mode="keep", clear_cache="false")

    pause = subject.client.begin("/pause", mode="wait", clear_cache="false")
    while not pause.done():
        assert await subject.client.is_paused()

    assert await request == Completion(LONG, "length")


async def test_wait_leaves_frozen_what_keep_froze_with_its_cache_cleared(subject: Subject) -> None:
    request = await in_flight(subject)
    await subject.client.post("/pause", mode="keep", clear_cache="true")

    assert (await subject.client.post("/pause", mode="wait")).json() == {"status": "paused"}

    assert await request.stays_open(subject.long_seconds)
    await subject.client.post("/resume")
    assert await request == Completion(LONG, "length")


async def test_a_body_instead_of_a_query_is_ignored_so_that_all_is_aborted(subject: Subject) -> None:
    request = await in_flight(subject)

    answer = await subject.client.post_json("/pause", {"mode": "keep", "clear_cache": False})

    assert answer.json() == {"status": "paused"}
    assert (await request).finish_reason == "abort"


async def test_the_old_parameter_for_wait_is_ignored_so_that_all_is_aborted(subject: Subject) -> None:
    request = await in_flight(subject)

    answer = await subject.client.post("/pause", wait_for_inflight_requests="true")

    assert answer.json() == {"status": "paused"}
    assert (await request).finish_reason == "abort"


@pytest.mark.parametrize("mode", ["abort", "wait", "keep"])
async def test_a_request_that_comes_while_paused_waits_for_resume(subject: Subject, mode: str) -> None:
    await subject.client.post("/pause", mode=mode)

    request = subject.client.begin_completion(10)
    assert await request.stays_open(subject.long_seconds / 4)
    await subject.client.post("/resume")

    assert await request == Completion(10, "length")


async def test_a_queued_request_does_not_hold_up_a_wait(subject: Subject) -> None:
    running = [subject.client.begin_completion(LONG) for _ in range(8)]
    for request in running:
        await request.begun()
    queued = subject.client.begin_completion(10)

    await subject.client.post("/pause", mode="wait")

    assert [await request for request in running] == [Completion(LONG, "length")] * 8
    assert not queued.done()
    await subject.client.post("/resume")
    assert await queued == Completion(10, "length")
