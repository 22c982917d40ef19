"""What status says of time: the deadline of a change, the limit of a pause, the barrier of a verify."""

from typing import Any

import pytest

from llmservice.api import Condition, ConditionType, Desired, LLMServiceStatus
from llmservice.domain.fleet import Sight
from llmservice.domain.status import PAUSED_TOO_LONG, condition
from llmservice_testing.domain import (
    ANSWERED_404,
    ANSWERED_500,
    CONNECTION_REFUSED,
    EPOCH,
    Story,
    fleet_of,
    make_target,
    make_wanted,
    status_of,
)

PAUSED, RUNNING, SLEEPING = Sight.PAUSED, Sight.RUNNING, Sight.SLEEPING
LATER, STILL_LATER = "2026-12-01T10:10:00Z", "2026-12-01T10:20:00Z"
NEW = LLMServiceStatus()


def story(desired: str | None = "paused", pod: str = "qwen-0", **terms: Any) -> Story:
    return Story(make_wanted(desired, **terms), make_target(pod))


def starting() -> Story:
    return Story(make_wanted(), make_target(ready=False)).fail(CONNECTION_REFUSED)


def said(status: LLMServiceStatus, kind: str) -> Condition:
    return {each.type: each for each in status.conditions}[kind]


def kinds(status: LLMServiceStatus) -> dict[str, str]:
    return {each.type: each.reason for each in status.conditions}


# progressDeadlineSeconds


@pytest.mark.parametrize(
    ("told", "runs"),
    [
        pytest.param(story().read(RUNNING), True, id="a call is due"),
        pytest.param(story().read(RUNNING).call(), True, id="a call is open"),
        pytest.param(story().fail(times=2), True, id="unreachable"),
        pytest.param(story(), True, id="not read yet"),
        pytest.param(story().read(PAUSED), False, id="done"),
        pytest.param(story(None).read(RUNNING), False, id="observing"),
        pytest.param(story(None).fail(times=2), False, id="observing what is unreachable"),
        pytest.param(starting(), False, id="no target is expected"),
        pytest.param(story().fail(ANSWERED_404), False, id="stalled with nothing to try"),
    ],
)
def test_the_clock_of_progress_runs_while_the_fleet_is_not_settled(told: Story, runs: bool) -> None:
    status = status_of(fleet_of(told))
    expected = (EPOCH, 2) if runs else (None, None)
    assert (status.progressing_since, status.progressing_since_generation) == expected


def test_the_clock_of_progress_does_not_run_without_pods() -> None:
    assert status_of(fleet_of(wanted=make_wanted())).progressing_since is None


def test_the_clock_of_progress_runs_while_one_is_stalled_and_another_is_still_tried() -> None:
    status = status_of(fleet_of(story().fail(ANSWERED_404), story(pod="qwen-1").read(RUNNING)))
    assert kinds(status)["Stalled"] == "EndpointMissing"
    assert status.progressing_since == EPOCH


def test_the_clock_of_progress_keeps_its_start_until_a_new_generation() -> None:
    before = status_of(fleet_of(story().read(RUNNING)))
    same = status_of(fleet_of(story().fail(times=2)), before, LATER)
    assert same.progressing_since == EPOCH
    following = status_of(fleet_of(story(object_generation=3).fail(times=2)), same, LATER)
    assert (following.progressing_since, following.progressing_since_generation) == (LATER, 3)
    assert status_of(fleet_of(story().read(PAUSED)), same, LATER).progressing_since is None


OVERDUE = {
    "a hung engine": story().fail(times=2),
    "an engine that fails every call": story().read(RUNNING).call().answered(ANSWERED_500).read(RUNNING),
    "an open drain": story(mode="wait", wait_unanswered=True).read(RUNNING).call(),
}


@pytest.mark.parametrize("told", OVERDUE.values(), ids=OVERDUE.keys())
def test_past_the_deadline_the_fleet_is_stalled_and_tried_on(told: Story) -> None:
    action = told.action
    status = status_of(fleet_of(told, overdue=True))
    assert kinds(status)["Ready"] == kinds(status)["Stalled"] == "ProgressDeadlineExceeded"
    assert "Reconciling" not in kinds(status)
    assert said(status, "Stalled").message.startswith("Not done within spec.progressDeadlineSeconds, still trying: ")
    assert "qwen-0" in said(status, "Stalled").message or told.state.failure is None
    assert told.action == action, "what is done next does not depend on the deadline"


@pytest.mark.parametrize("told", OVERDUE.values(), ids=OVERDUE.keys())
def test_r14_the_deadline_does_not_flap(told: Story) -> None:
    before = status_of(fleet_of(told))
    at_the_deadline = status_of(fleet_of(told, overdue=True), before, LATER)
    assert at_the_deadline.progressing_since == EPOCH, "the clock that made it overdue must stay"
    assert status_of(fleet_of(told, overdue=True), at_the_deadline, STILL_LATER) == at_the_deadline


def test_past_the_deadline_what_is_more_pressing_is_said() -> None:
    status = status_of(fleet_of(story().fail(ANSWERED_404), story(pod="qwen-1").read(RUNNING), overdue=True))
    assert kinds(status)["Stalled"] == "EndpointMissing"


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(story().read(PAUSED), id="done at last"),
        pytest.param(story(None).read(RUNNING), id="observing"),
    ],
)
def test_a_fleet_that_is_done_is_not_overdue(told: Story) -> None:
    status = status_of(fleet_of(told, overdue=True))
    assert "Stalled" not in kinds(status)
    assert status.progressing_since is None


def test_past_the_deadline_the_paused_ones_are_still_counted_paused() -> None:
    status = status_of(fleet_of(story().read(PAUSED), story(pod="qwen-1").fail(times=2), overdue=True))
    assert status.targets is not None
    assert (status.targets.paused, status.targets.unreachable) == (1, 1)
    assert status.paused is None


# maxPausedSeconds


def test_paused_since_is_when_the_first_target_is_confirmed_paused() -> None:
    nobody = status_of(fleet_of(story().read(RUNNING), story(pod="qwen-1").read(RUNNING)))
    assert nobody.paused_since is None
    first = status_of(fleet_of(story().read(PAUSED), story(pod="qwen-1").read(RUNNING)), nobody, LATER)
    assert (first.paused_since, first.paused_since_generation) == (LATER, 2)
    everyone = status_of(fleet_of(story().read(PAUSED), story(pod="qwen-1").read(PAUSED)), first, STILL_LATER)
    assert everyone.paused_since == LATER


def test_a_drain_is_no_confirmed_pause() -> None:
    drains = story(mode="wait", wait_unanswered=True).read(RUNNING).call().answered(ANSWERED_500).read(PAUSED)
    assert status_of(fleet_of(drains)).paused_since is None


def test_an_expired_pause_keeps_its_clock_until_the_generation_changes() -> None:
    before = status_of(fleet_of(story().read(PAUSED)))
    resumed = story().terms(effective=Desired.RUNNING).read(RUNNING)
    after = status_of(fleet_of(resumed, expired=True), before, LATER)
    assert (after.paused_since, after.paused_since_generation) == (EPOCH, 2)
    assert after.paused is False
    again = status_of(fleet_of(story(object_generation=3).read(RUNNING)), after, LATER)
    assert again.paused_since is None, "the next pause has not begun"
    anew = status_of(fleet_of(story(object_generation=3).read(PAUSED)), again, STILL_LATER)
    assert (anew.paused_since, anew.paused_since_generation) == (STILL_LATER, 3)


def test_an_expired_pause_is_stalled_from_the_start_of_the_resume_on() -> None:
    resuming = story().terms(effective=Desired.RUNNING).read(PAUSED)
    for told in (resuming, story().terms(effective=Desired.RUNNING).read(RUNNING)):
        status = status_of(fleet_of(told, expired=True))
        assert kinds(status)["Ready"] == kinds(status)["Stalled"] == "PauseExpired"
        assert "change the spec to pause again" in said(status, "Stalled").message


def test_the_warning_stands_in_readys_message_while_ready_stays_true() -> None:
    ready = said(status_of(fleet_of(story().read(PAUSED), max_paused=60)), "Ready")
    assert (ready.status, ready.reason) == ("True", "InDesiredState")
    assert f"{PAUSED_TOO_LONG} (60 s)" in ready.message


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(story(pod="qwen-1").fail(times=2), id="one is unreachable"),
        pytest.param(story(pod="qwen-1").read(RUNNING), id="one is on its way"),
        pytest.param(story(pod="qwen-1").fail(ANSWERED_404), id="one needs a person"),
    ],
)
def test_the_warning_stands_in_readys_message_whatever_else_is_wrong(other: Story) -> None:
    status = status_of(fleet_of(story().read(PAUSED), other, max_paused=60))
    assert PAUSED_TOO_LONG in said(status, "Ready").message


# Verify and the status rules


@pytest.mark.parametrize("verify", [None, "2026-12-01T10:00:00Z", "any words"])
def test_the_verify_that_is_done_is_echoed(verify: str | None) -> None:
    assert status_of(fleet_of(story().read(PAUSED), verify=verify)).last_handled_verify == verify


def test_last_transition_time_moves_only_with_status() -> None:
    before = status_of(fleet_of(story().read(RUNNING)))
    reason = status_of(fleet_of(story().fail(times=2)), before, LATER)
    assert said(reason, "Ready").reason != said(before, "Ready").reason
    assert said(reason, "Ready").last_transition_time == EPOCH
    done = status_of(fleet_of(story().read(PAUSED)), reason, STILL_LATER)
    assert said(done, "Ready").last_transition_time == STILL_LATER
    assert condition(before, ConditionType.RECONCILING) is not None
    assert condition(done, ConditionType.RECONCILING) is None
