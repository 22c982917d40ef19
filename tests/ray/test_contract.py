"""What the control routes of an app answer, and what they change. One assertion, two apps (see conftest)."""

import pytest

from .conftest import Subject

MODES = ["abort", "wait", "keep"]


async def test_an_app_starts_running(subject: Subject) -> None:
    answer = await subject.client.get("/is_paused", model="tiny")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"is_paused": False}


@pytest.mark.parametrize("mode", MODES)
async def test_pause_and_resume_are_answered_with_nothing_and_reach_every_replica(subject: Subject, mode: str) -> None:
    paused = await subject.client.pause(mode=mode, clear_cache=False)
    assert (paused.status_code, paused.content) == (200, b"")
    assert await subject.client.is_paused()
    assert set((await subject.replicas.paused()).values()) == {True}

    resumed = await subject.client.resume()
    assert (resumed.status_code, resumed.content) == (200, b"")
    assert not await subject.client.is_paused()
    assert set((await subject.replicas.paused()).values()) == {False}


@pytest.mark.parametrize("mode", MODES)
async def test_a_repeated_call_changes_nothing(subject: Subject, mode: str) -> None:
    for _ in range(2):
        assert (await subject.client.pause(mode=mode)).status_code == 200
        assert await subject.client.is_paused()
    for _ in range(2):
        assert (await subject.client.resume()).status_code == 200
        assert not await subject.client.is_paused()


async def test_options_are_optional(subject: Subject) -> None:
    assert (await subject.client.post_json("/pause", {"model": "tiny"})).status_code == 200
    assert await subject.client.is_paused()

    assert (await subject.client.post_json("/resume", {"model": "tiny"})).status_code == 200
    assert not await subject.client.is_paused()


async def test_the_keys_of_both_dialects_may_be_sent_together(subject: Subject) -> None:
    answer = await subject.client.pause(mode="keep", wait_for_inflight_requests=False, clear_cache=False)

    assert answer.status_code == 200
    assert await subject.client.is_paused()


async def test_an_unknown_option_is_ignored(subject: Subject) -> None:
    assert (await subject.client.pause(mode="keep", clear_cache=False, reason="weights")).status_code == 200
    assert await subject.client.is_paused()


async def test_parameters_in_the_query_are_no_parameters(subject: Subject) -> None:
    answer = await subject.client.post("/pause", model="tiny", mode="keep")

    assert answer.status_code == 400
    assert not await subject.client.is_paused()
