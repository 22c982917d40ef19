"""What a pause does to requests: those in flight, and those that come while it lasts; and calls that overlap."""

import pytest

from llmservice_testing.vllm.client import Completion, OpenCompletion

from .conftest import Subject


async def in_flight(subject: Subject) -> OpenCompletion:
    """A long request whose first token is there."""
    request = subject.client.begin_completion(subject.long_tokens)
    await request.begun()
    return request


async def test_abort_ends_a_request_with_what_it_has(subject: Subject) -> None:
    request = await in_flight(subject)

    await subject.client.pause(mode="abort")

    ended = await request
    assert ended.finish_reason == "abort"
    assert ended.tokens < subject.long_tokens


async def test_a_pause_without_options_aborts(subject: Subject) -> None:
    request = await in_flight(subject)

    await subject.client.post_json("/pause", {"model": "tiny"})

    assert (await request).finish_reason == "abort"


async def test_wait_is_answered_once_the_request_is_finished(subject: Subject) -> None:
    request = await in_flight(subject)

    pause = subject.client.begin_pause(mode="wait")
    await subject.client.until_paused(True)
    assert not pause.done(), "is_paused is true from the start of the drain"
    assert not request.done()

    assert (await pause).status_code == 200
    assert await request == Completion(subject.long_tokens, "length")
    assert await subject.client.is_paused()


async def test_the_keys_of_both_dialects_together_wait(subject: Subject) -> None:
    request = await in_flight(subject)

    assert (await subject.client.pause(mode="wait", wait_for_inflight_requests=True)).status_code == 200

    assert await request == Completion(subject.long_tokens, "length")


async def test_the_key_of_older_versions_alone_is_ignored_so_that_all_is_aborted(subject: Subject) -> None:
    request = await in_flight(subject)

    assert (await subject.client.pause(wait_for_inflight_requests=True)).status_code == 200

    assert (await request).finish_reason == "abort"


@pytest.mark.parametrize("clear_cache", [False, True])
async def test_keep_freezes_a_request_and_resume_continues_it(subject: Subject, *, clear_cache: bool) -> None:
    request = await in_flight(subject)

    assert (await subject.client.pause(mode="keep", clear_cache=clear_cache)).status_code == 200
    assert await request.stays_open(subject.long_seconds)
    await subject.client.resume()

    assert await request == Completion(subject.long_tokens, "length")


async def test_a_repeated_keep_leaves_a_request_frozen(subject: Subject) -> None:
    request = await in_flight(subject)

    for _ in range(2):
        await subject.client.pause(mode="keep", clear_cache=False)
    assert await request.stays_open(subject.long_seconds)
    await subject.client.resume()

    assert await request == Completion(subject.long_tokens, "length")


@pytest.mark.parametrize("mode", ["abort", "wait", "keep"])
async def test_a_request_that_comes_while_paused_waits_for_resume(subject: Subject, mode: str) -> None:
    await subject.client.pause(mode=mode)

    request = subject.client.begin_completion(10)
    assert await request.stays_open(subject.long_seconds / 4)
    await subject.client.resume()

    assert await request == Completion(10, "length")


async def test_resume_overtakes_an_open_wait_whose_late_answer_is_then_false(subject: Subject) -> None:
    request = await in_flight(subject)
    pause = subject.client.begin_pause(mode="wait")
    await subject.client.until_paused(True)

    assert (await subject.client.resume()).status_code == 200
    assert not pause.done()
    assert not await subject.client.is_paused()

    assert await request == Completion(subject.long_tokens, "length")
    assert (await pause).status_code == 200
    assert not await subject.client.is_paused()


async def test_abort_overtakes_an_open_wait(subject: Subject) -> None:
    request = await in_flight(subject)
    pause = subject.client.begin_pause(mode="wait")
    await subject.client.until_paused(True)

    assert (await subject.client.pause(mode="abort")).status_code == 200

    assert (await request).finish_reason == "abort"
    assert (await pause).status_code == 200
    assert await subject.client.is_paused()


async def test_a_second_wait_is_answered_once_the_request_is_finished_too(subject: Subject) -> None:
    request = await in_flight(subject)
    first = subject.client.begin_pause(mode="wait")
    await subject.client.until_paused(True)

    second = await subject.client.pause(mode="wait")

    assert second.status_code == 200
    assert request.done()
    assert (await first).status_code == 200


async def test_hanging_up_calls_no_pause_off(subject: Subject) -> None:
    request = await in_flight(subject)
    pause = subject.client.begin_pause(mode="wait")
    await subject.client.until_paused(True)

    pause.cancel()

    assert await request == Completion(subject.long_tokens, "length")
    assert await subject.client.is_paused()
