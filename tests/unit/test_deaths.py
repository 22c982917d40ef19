"""R21: an engine that dies of our calls twice in the same pod is left alone."""

from dataclasses import replace

import pytest

from llmservice.api import LLMServiceStatus, Reason, TargetStatus
from llmservice.domain import deaths
from llmservice.domain.deaths import Deaths
from llmservice.domain.fleet import NEVER, Sight, State, Target
from llmservice.domain.step import Read, Until
from llmservice_testing.domain import Story, fleet_of, make_target, make_wanted, status_of

REBORN = make_target(container="containerd://2")


def called(at: float = 100.0) -> Story:
    return Story(make_wanted(), now=at).read(Sight.RUNNING).call()


@pytest.mark.parametrize(
    ("after", "seconds", "is_death"),
    [
        pytest.param(make_target(), 1, False, id="it lives on"),
        pytest.param(make_target(started=False), 1, True, id="its container ended"),
        pytest.param(None, 1, True, id="its container is gone"),
        pytest.param(REBORN, 1, True, id="another container runs in its place"),
        pytest.param(REBORN, 30, True, id="within thirty seconds"),
        pytest.param(REBORN, 30.1, False, id="later it is not laid to our account"),
    ],
)
def test_r21_what_counts_as_a_death_of_our_call(after: Target | None, seconds: float, is_death: bool) -> None:
    assert deaths.is_death(called().state, after, 100.0 + seconds) is is_death


def test_r21_an_engine_that_was_not_called_did_not_die_of_it() -> None:
    assert not deaths.is_death(Story(make_wanted()).read(Sight.RUNNING).state, REBORN, 0.0)


def test_r21_one_death_is_counted_once_though_the_pod_shows_it_twice() -> None:
    down = called().pod(started=False, ready=False)
    assert not deaths.is_death(down.state, REBORN, 101.0)


def test_r21_the_second_death_is_the_verdict() -> None:
    once = deaths.counted(None, 2)
    assert deaths.verdict(once, 2) is None
    verdict = deaths.verdict(deaths.counted(once, 2), 2)
    assert verdict is not None
    assert verdict.reason is Reason.ENGINE_DIED
    assert deaths.verdict(deaths.counted(deaths.counted(once, 2), 2), 2) == verdict
    assert deaths.verdict(None, 2) is None


def test_r21_deaths_under_an_older_spec_do_not_count() -> None:
    assert deaths.verdict(Deaths(2, 2), 3) is None
    assert deaths.counted(Deaths(2, 2), 3) == Deaths(3, 1)


def condemned() -> Story:
    verdict = deaths.verdict(Deaths(2, 2), 2)
    assert verdict is not None
    return Story(make_wanted(), REBORN).condemned(verdict)


def test_r21_the_fleet_is_stalled_with_engine_error() -> None:
    status = status_of(fleet_of(condemned(), Story(make_wanted(), make_target("qwen-1")).read(Sight.PAUSED)))
    stalled = {each.type: each for each in status.conditions}["Stalled"]
    assert stalled.reason == "EngineError"
    assert stalled.message.startswith("qwen-0: died 2 times within 30 s of a control call")


def test_r21_a_restarted_operator_finds_the_verdict_in_the_status() -> None:
    told = condemned()
    status = status_of(fleet_of(told))
    assert status.target_states[0].state == State.FAILED
    found = deaths.stored_verdicts(status, 2)[REBORN.key.pod_uid, REBORN.key.url]
    assert deaths.verdict(found, 2) == told.state.condemned


def test_r21_the_verdict_is_in_the_status_while_the_container_is_down_too() -> None:
    told = condemned().pod(started=False, ready=False)
    assert deaths.stored_verdicts(status_of(fleet_of(told)), 2)


@pytest.mark.parametrize(
    ("observed_generation", "reason"),
    [
        pytest.param(1, "EngineDied", id="of an older spec"),
        pytest.param(2, "EngineError", id="for another reason"),
        pytest.param(2, None, id="for none"),
    ],
)
def test_r21_nothing_else_in_the_status_condemns(observed_generation: int, reason: str | None) -> None:
    entry = TargetStatus(pod="qwen-0", pod_uid="uid-qwen-0", url="http://x", state="failed", reason=reason)
    status = LLMServiceStatus(observed_generation=observed_generation, target_states=(entry,))
    assert deaths.stored_verdicts(status, 2) == {}


def test_r21_another_pod_is_another_engine() -> None:
    told = condemned()
    successor = replace(REBORN, key=replace(REBORN.key, pod_uid="uid-of-the-next-pod"))
    verdicts = deaths.stored_verdicts(status_of(fleet_of(told)), 2)
    assert (successor.key.pod_uid, successor.key.url) not in verdicts
    assert Story(make_wanted(), successor).action == Read(identify=True)


def test_r21_a_verify_does_not_read_what_is_condemned_and_needs_no_answer_of_it() -> None:
    told = condemned().verify()
    assert told.action == Until(NEVER)
    assert told.standing.answered
