"""The two clocks in status: how long a pause lasts, and how long a change takes."""

import pytest

from llmservice.api import Desired, LLMService, LLMServiceStatus
from llmservice.domain import clocks, policy
from llmservice.domain.clocks import STOPPED, Clock
from llmservice.domain.fleet import NEVER
from llmservice_testing.builders import make_llmservice
from llmservice_testing.domain import EPOCH, make_service

T0 = clocks.to_seconds(EPOCH)
ROUNDED = 1.0
"""Stored times are whole seconds, rounded down; what was asked is never cut short by that."""
LATER = "2026-12-01T10:00:30Z"
PAUSED, RUNNING = Desired.PAUSED, Desired.RUNNING


def service(
    desired: str | None = "paused",
    *,
    limit: int | None = 60,
    then: str = "resume",
    since: str | None = EPOCH,
    since_generation: int | None = 2,
    object_generation: int = 2,
) -> LLMService:
    """At generation 2, confirmed paused since EPOCH."""
    builder = make_llmservice("qwen").selector(app="qwen").spec(onMaxPaused=then)
    if desired is not None:
        builder.generation(desired)
    if limit is not None:
        builder.spec(maxPausedSeconds=limit)
    status = LLMServiceStatus(paused_since=since, paused_since_generation=since_generation)
    return make_service(builder, object_generation=object_generation, status=status)


def moving(since: str | None = EPOCH, since_generation: int | None = 2, object_generation: int = 2) -> LLMService:
    """On its way since EPOCH, with 100 s for it."""
    builder = make_llmservice("qwen").selector(app="qwen").generation("paused").spec(progressDeadlineSeconds=100)
    status = LLMServiceStatus(progressing_since=since, progressing_since_generation=since_generation)
    return make_service(builder, object_generation=object_generation, status=status)


def test_timestamps_are_those_of_the_api() -> None:
    assert clocks.to_seconds("1970-01-01T00:00:10Z") == 10.0
    assert clocks.to_seconds(LATER) - T0 == 30.0


# maxPausedSeconds


@pytest.mark.parametrize(
    ("of", "at"),
    [
        pytest.param(service(), T0 + 60 + ROUNDED, id="the limit counts from the first confirmed target"),
        pytest.param(service(then="warn"), T0 + 60 + ROUNDED, id="with warn too"),
        pytest.param(service(limit=None), NEVER, id="no limit"),
        pytest.param(service(since=None, since_generation=None), NEVER, id="no target was confirmed yet"),
        pytest.param(service("running"), NEVER, id="running is wanted"),
        pytest.param(service(None), NEVER, id="nothing is wanted: no expiry"),
        pytest.param(service(object_generation=3), NEVER, id="the clock of an older generation does not count"),
    ],
)
def test_when_the_pause_has_lasted_its_time(of: LLMService, at: float) -> None:
    assert clocks.pause_limit_at(of) == at


@pytest.mark.parametrize(
    ("then", "seconds", "expired", "warned"),
    [
        pytest.param("resume", 60.0, False, False, id="resume, before"),
        pytest.param("resume", 60.0 + ROUNDED, True, False, id="resume, at the limit"),
        pytest.param("resume", 10**6, True, False, id="resume, long after"),
        pytest.param("warn", 60.0, False, False, id="warn, before"),
        pytest.param("warn", 60.0 + ROUNDED, False, True, id="warn, at the limit"),
        pytest.param("warn", 10**6, False, True, id="warn, long after"),
    ],
)
def test_a_pause_that_lasts_too_long_is_ended_or_warned_of(
    then: str, seconds: float, expired: bool, warned: bool
) -> None:
    of = service(then=then)
    assert clocks.is_expired(of, T0 + seconds) is expired
    assert clocks.is_paused_too_long(of, T0 + seconds) is warned
    assert policy.effective(of, T0 + seconds) is (RUNNING if expired else PAUSED)


@pytest.mark.parametrize("desired", ["running", None])
def test_nothing_expires_unless_paused_is_wanted(desired: str | None) -> None:
    of = service(desired)
    assert not clocks.is_expired(of, T0 + 10**6)
    assert policy.effective(of, T0 + 10**6) is of.spec.generation


def test_an_expired_pause_is_wanted_again_when_the_generation_changes() -> None:
    assert policy.effective(service(object_generation=3), T0 + 10**6) is PAUSED


def clock(before: Clock, generation: int, desired: Desired | None, *, any_paused: bool) -> Clock:
    status = LLMServiceStatus(paused_since=before.since, paused_since_generation=before.object_generation)
    return clocks.pause_clock(status, generation, desired, LATER, any_paused=any_paused)


@pytest.mark.parametrize(
    ("before", "desired", "any_paused", "after"),
    [
        pytest.param(STOPPED, PAUSED, False, STOPPED, id="it does not start before a target is confirmed paused"),
        pytest.param(STOPPED, PAUSED, True, Clock(LATER, 2), id="it starts with the first that is"),
        pytest.param(Clock(EPOCH, 2), PAUSED, True, Clock(EPOCH, 2), id="it is set once"),
        pytest.param(Clock(EPOCH, 2), PAUSED, False, Clock(EPOCH, 2), id="expired and resumed, it stays"),
        pytest.param(Clock(EPOCH, 1), PAUSED, True, Clock(LATER, 2), id="under a new generation it counts anew"),
        pytest.param(Clock(EPOCH, 1), PAUSED, False, STOPPED, id="but not before one is confirmed for that"),
        pytest.param(Clock(EPOCH, 2), RUNNING, True, STOPPED, id="there is no pause where running is wanted"),
        pytest.param(Clock(EPOCH, 2), None, True, STOPPED, id="nor where nothing is"),
    ],
)
def test_the_clock_of_a_pause(before: Clock, desired: Desired | None, any_paused: bool, after: Clock) -> None:
    assert clock(before, 2, desired, any_paused=any_paused) == after


# progressDeadlineSeconds


@pytest.mark.parametrize(
    ("of", "at"),
    [
        pytest.param(moving(), T0 + 100 + ROUNDED, id="on its way"),
        pytest.param(moving(None, None), NEVER, id="at rest"),
        pytest.param(moving(object_generation=3), NEVER, id="the clock of an older generation does not count"),
    ],
)
def test_when_a_change_has_taken_its_time(of: LLMService, at: float) -> None:
    assert clocks.deadline_at(of) == at


@pytest.mark.parametrize(
    ("before", "is_moving", "after"),
    [
        pytest.param(STOPPED, True, Clock(LATER, 2), id="it starts when the fleet is not settled"),
        pytest.param(Clock(EPOCH, 2), True, Clock(EPOCH, 2), id="and goes on"),
        pytest.param(Clock(EPOCH, 1), True, Clock(LATER, 2), id="a new generation restarts it"),
        pytest.param(Clock(EPOCH, 2), False, STOPPED, id="settled, it is gone"),
    ],
)
def test_the_clock_of_progress(before: Clock, is_moving: bool, after: Clock) -> None:
    status = LLMServiceStatus(progressing_since=before.since, progressing_since_generation=before.object_generation)
    assert clocks.progress_clock(status, 2, LATER, is_moving=is_moving) == after


# When to look again


@pytest.mark.parametrize(
    ("seconds", "strike"),
    [
        pytest.param(0, T0 + 60 + ROUNDED, id="the pause ends before the deadline"),
        pytest.param(60 + ROUNDED, T0 + 100 + ROUNDED, id="then comes the deadline"),
        pytest.param(100 + ROUNDED, NEVER, id="then nothing"),
    ],
)
def test_the_next_limit_that_is_reached(seconds: float, strike: float) -> None:
    status = moving().status.model_copy(update={"paused_since": EPOCH, "paused_since_generation": 2})
    spec = {"maxPausedSeconds": 60, "progressDeadlineSeconds": 100}
    builder = make_llmservice("qwen").selector(app="qwen").generation("paused").spec(**spec)
    assert clocks.next_strike(make_service(builder, status=status), T0 + seconds) == strike


def test_r14_at_rest_no_limit_is_ahead() -> None:
    assert clocks.next_strike(moving(None, None), T0) == NEVER
