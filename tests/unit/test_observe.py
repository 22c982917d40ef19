"""What an answer, an error or a timeout teaches about a target."""

import itertools

import pytest

from llmservice.api import Reason
from llmservice.domain import observe
from llmservice.domain.fleet import Failure, Obstacle, Sight, State
from llmservice.domain.step import Read, Until
from llmservice_testing.domain import (
    ANSWERED_400,
    ANSWERED_404,
    ANSWERED_500,
    CONNECTION_REFUSED,
    TIMED_OUT,
    Story,
    make_target,
    make_wanted,
)

PAUSED, RUNNING, SLEEPING = Sight.PAUSED, Sight.RUNNING, Sight.SLEEPING


def story(desired: str | None = "paused", **terms: object) -> Story:
    return Story(make_wanted(desired, **terms))  # type: ignore[arg-type]


def test_a_target_begins_with_nothing_known() -> None:
    state = story().state
    assert (state.sight, state.traits, state.failures, state.failure) == (None, None, 0, None)
    assert (state.open_call, state.refusal, state.condemned) == (None, None, None)


def test_r4_a_lost_read_does_not_change_what_was_last_read() -> None:
    told = story().read(PAUSED).wait(10).fail(times=5)
    assert told.state.sight is PAUSED
    assert told.state.failures == 5
    assert told.state.failure == TIMED_OUT


def test_a_valid_read_ends_the_count_of_failures() -> None:
    told = story().fail(times=5).read(PAUSED)
    assert (told.state.failures, told.state.failure) == (0, None)


@pytest.mark.parametrize(
    ("failure", "ready", "least", "most"),
    [
        pytest.param(TIMED_OUT, True, 1.0, 1.25, id="a lost answer: after a second, with jitter"),
        pytest.param(CONNECTION_REFUSED, True, 1.0, 1.25, id="a ready container that refuses: the same"),
        pytest.param(ANSWERED_404, True, 10.0, 10.0, id="R4 a refused read: at the next resync"),
        pytest.param(CONNECTION_REFUSED, False, 1.0, 1.0, id="R9 an engine that is starting: every second"),
    ],
)
def test_when_a_failed_read_is_tried_again(failure: Failure, ready: bool, least: float, most: float) -> None:
    told = Story(make_wanted(), make_target(ready=ready)).fail(failure)
    assert isinstance(told.action, Until)
    assert least <= told.action.at <= most


def test_r9_an_engine_that_is_starting_is_tried_every_second_however_long_it_takes() -> None:
    told = Story(make_wanted(), make_target(ready=False)).fail(CONNECTION_REFUSED, times=500)
    assert told.action == Until(1.0)


def test_r4_reads_that_fail_again_and_again_back_off_to_ten_seconds() -> None:
    told, gaps = story(), []
    for _ in range(10):
        told.fail()
        assert isinstance(told.action, Until)
        gaps.append(told.action.at - told.now)
        told.now = told.action.at
    assert 1.0 <= gaps[0] <= 1.25
    assert all(later > 1.5 * earlier for earlier, later in itertools.pairwise(gaps[:4]))
    assert all(8.0 <= gap <= 10.0 for gap in gaps[4:])
    assert len(set(gaps[4:])) > 1, "a fleet that fails as a whole does not retry in step"


def test_r14_the_same_trouble_in_other_words_keeps_its_first_words() -> None:
    first = Failure(Obstacle.LOST, "answered 500", "POST /pause answered 500: request 1")
    second = Failure(Obstacle.LOST, "answered 500", "POST /pause answered 500: request 2")
    assert story().fail(first).fail(second).state.failure == first
    assert story().fail(first).fail(TIMED_OUT).state.failure == TIMED_OUT, "other trouble is told"
    assert story().fail(first).read(PAUSED).fail(second).state.failure == second, "and so is new trouble"


def test_r14_the_same_refusal_in_other_words_keeps_its_first_words() -> None:
    first = Failure(Obstacle.REFUSED, "answered 400", "POST /pause answered 400: id 1", Reason.ENGINE_ERROR)
    second = Failure(Obstacle.REFUSED, "answered 400", "POST /pause answered 400: id 2", Reason.ENGINE_ERROR)
    told = story().read(RUNNING).call().answered(first).read(RUNNING).wait(61).read(RUNNING).call().answered(second)
    assert told.state.refusal is not None
    assert told.state.refusal.failure.message == first.message


def test_a_read_of_an_older_spec_does_not_count_for_the_newer_one() -> None:
    told = story("running").ask()
    older = told.wanted
    told.respec("paused").answer(PAUSED, sent_under=older)
    assert told.state.sight is PAUSED
    assert not told.standing.confirmed
    assert told.action == Read(identify=False)


def test_r5_a_success_teaches_nothing_about_the_engine() -> None:
    told = story().read(RUNNING).call().answered()
    assert told.state.sight is RUNNING


def test_an_engine_that_says_200_and_does_nothing_is_called_less_and_less_often() -> None:
    told = story().read(RUNNING).call().answered().read(RUNNING)
    posts = told.posts_within(90)
    gaps = [later - earlier for earlier, later in zip([0.0, *posts], posts, strict=False)]
    assert 1.0 <= gaps[0] <= 1.3
    assert gaps[-1] >= 8.0
    assert len(posts) <= 13


def test_what_worked_ends_the_backoff() -> None:
    told = story().read(RUNNING)
    for _ in range(4):
        told.call().answered(ANSWERED_500).read(RUNNING)
        told.now = told.state.next_call_at
        told.read(RUNNING)
    told.call().answered().read(PAUSED).wait(10).read(RUNNING).call()
    assert told.state.open_call is not None, "drift is corrected at once, whatever happened before the pause worked"


@pytest.mark.parametrize("failure", [ANSWERED_500, ANSWERED_400])
def test_a_new_spec_forgets_earlier_trouble_with_calls(failure: Failure) -> None:
    told = story().read(RUNNING).call().answered(failure).read(RUNNING).respec("paused")
    assert (told.state.setbacks, told.state.setback, told.state.refusal) == (0, None, None)


def test_ending_a_call_that_was_never_sent_is_a_defect() -> None:
    with pytest.raises(ValueError, match="no control call is open"):
        story().read(RUNNING).answered()


def test_r9_a_container_that_becomes_ready_is_read_at_once() -> None:
    told = Story(make_wanted(), make_target(ready=False)).read(PAUSED)
    assert isinstance(told.action, Until)
    assert told.pod(ready=True).action == Read(identify=False)


def test_a_container_that_loses_its_readiness_is_not_read_before_its_time() -> None:
    told = story().read(PAUSED).pod(ready=False)
    assert isinstance(told.action, Until)


@pytest.mark.parametrize(
    ("desired", "sight", "expected"),
    [
        ("paused", PAUSED, True),
        ("paused", SLEEPING, True),
        ("paused", RUNNING, False),
        ("paused", Sight.INCONSISTENT, False),
        ("running", RUNNING, True),
        ("running", PAUSED, False),
        ("running", SLEEPING, False),
        ("running", Sight.INCONSISTENT, False),
        (None, Sight.INCONSISTENT, True),
    ],
)
def test_an_engine_is_as_it_should_be(desired: str | None, sight: Sight, expected: bool) -> None:
    told = story(desired).read(sight)
    assert observe.is_as(told.wanted, told.state) is expected


def test_r5_an_engine_that_may_still_drain_is_not_as_it_should_be() -> None:
    told = story(mode="wait", wait_unanswered=True).read(PAUSED)
    assert not observe.is_as(told.wanted, told.state)
    told.call().answered().read(PAUSED)
    assert observe.is_as(told.wanted, told.state)


def test_drift_is_a_difference_under_a_spec_for_which_it_was_effective() -> None:
    told = story().read(RUNNING)
    assert told.state.effective_object_generation < told.wanted.object_generation
    told.call().answered().read(PAUSED)
    assert told.state.effective_object_generation == told.wanted.object_generation


# A drain that is called off, and a verify


def test_r2_what_is_given_up_leaves_no_setback_and_is_read_at_once() -> None:
    told = story(mode="wait", wait_unanswered=True).read(RUNNING).call().wait(5)
    state = observe.call_given_up(told.state, told.now)
    assert (state.open_call, state.setbacks, state.setback, state.refusal) == (None, 0, None, None)
    assert state.next_read_at == told.now
    assert state.next_call_at < told.now


def test_r5_an_engine_whose_drain_was_given_up_may_still_drain() -> None:
    told = story(mode="wait", wait_unanswered=True).read(RUNNING).call()
    state = observe.call_given_up(told.state, told.now)
    assert state.undrained
    assert state.is_called_since, "the read from before the call says nothing about the present"


def test_after_a_verify_no_read_counts_that_was_sent_before() -> None:
    told = story().read(PAUSED)
    before, after = told.standing, told.verify().standing
    assert (before.answered, before.confirmed) == (True, True)
    assert (after.answered, after.confirmed) == (False, False)


def test_an_answer_to_a_read_that_was_sent_before_the_verify_does_not_count() -> None:
    told = story().read(PAUSED).ask().verify()
    told.answer(PAUSED, sent_under=make_wanted(object_generation=-1))
    assert not told.standing.answered
    assert not told.standing.confirmed
    assert told.action == Read(identify=False)
    assert told.read(PAUSED).standing.confirmed


def test_a_verify_is_answered_by_a_fresh_failure_too() -> None:
    told = story().fail(times=2).verify()
    assert not told.standing.answered
    assert told.fail().standing.answered


def test_r4_a_verify_forgets_no_setback() -> None:
    told = story().read(RUNNING).call().answered(ANSWERED_400).read(RUNNING)
    refusal = told.state.refusal
    assert refusal is not None
    assert told.verify().read(RUNNING).state.refusal == refusal


def test_r5_a_read_that_was_under_way_when_the_wait_was_stored_proves_no_drain() -> None:
    told = story(mode="wait").ask()
    sent_under = told.wanted
    told.terms(wait_unanswered=True, wait_stored=True).answer(PAUSED, sent_under=sent_under)
    assert told.shown is State.PAUSING, "another operator may have sent the wait that paused it"


def test_r5_what_was_read_before_another_operator_stored_its_wait_may_have_been_its_drain() -> None:
    told = story(mode="wait").read(PAUSED)
    told.state = observe.wait_adopted(told.state)
    assert told.terms(wait_unanswered=True, wait_stored=True).shown is State.PAUSING


def test_r5_an_engine_that_answered_our_own_wait_does_not_drain_whatever_others_store() -> None:
    told = story(mode="wait", wait_unanswered=True).read(RUNNING).call().answered().read(PAUSED)
    told.state = observe.wait_adopted(told.state)
    assert told.shown is State.PAUSED
