"""What is done next with one target, and which state people see."""

import pytest

from llmservice.api import Desired, PauseMode
from llmservice.domain import deaths, step
from llmservice.domain.deaths import Deaths
from llmservice.domain.fleet import NEVER, ControlCall, Failure, PauseParameters, Sight, State, Target, Traits
from llmservice.domain.step import Prepare, Read, Until
from llmservice_testing.domain import (
    ALONE,
    ANSWERED_400,
    ANSWERED_401,
    ANSWERED_404,
    ANSWERED_500,
    CONNECTION_REFUSED,
    MODERN,
    TIMED_OUT,
    V0_16,
    Story,
    make_target,
    make_wanted,
)

PAUSED, RUNNING, SLEEPING, INCONSISTENT = Sight.PAUSED, Sight.RUNNING, Sight.SLEEPING, Sight.INCONSISTENT
RESUME = ControlCall(None)
_VERDICT = deaths.verdict(Deaths(2, 2), 2)
assert _VERDICT is not None
DIED: Failure = _VERDICT


def pause(mode: str = "abort", clear_cache: bool = True) -> ControlCall:
    return ControlCall(PauseParameters(PauseMode(mode), clear_cache))


def story(desired: str | None = "paused", traits: Traits = MODERN, **terms: object) -> Story:
    return Story(make_wanted(desired, **terms), traits=traits)  # type: ignore[arg-type]


def starting(desired: str = "paused") -> Story:
    return Story(make_wanted(desired), make_target(ready=False))


# R1: read, act on a difference, read again


def test_r1_a_new_target_is_read_and_asked_for_its_version_first() -> None:
    assert story().action == Read(identify=True)


@pytest.mark.parametrize(
    ("desired", "sight", "call"),
    [
        pytest.param("paused", RUNNING, pause(), id="running but paused is wanted"),
        pytest.param("paused", PAUSED, None, id="paused as wanted"),
        pytest.param("paused", SLEEPING, None, id="asleep satisfies paused and is never called"),
        pytest.param("paused", INCONSISTENT, pause(), id="ranks that disagree are a difference to paused"),
        pytest.param("running", PAUSED, RESUME, id="paused but running is wanted"),
        pytest.param("running", RUNNING, None, id="running as wanted"),
        pytest.param("running", SLEEPING, None, id="R7 a sleeping engine is never resumed"),
        pytest.param("running", INCONSISTENT, RESUME, id="ranks that disagree are a difference to running"),
        pytest.param(None, PAUSED, None, id="nothing is wanted of a paused engine"),
        pytest.param(None, RUNNING, None, id="nothing is wanted of a running engine"),
        pytest.param(None, INCONSISTENT, None, id="nothing is wanted of ranks that disagree"),
        pytest.param(None, SLEEPING, None, id="nothing is wanted of a sleeping engine"),
    ],
)
def test_r1_only_a_difference_is_acted_on(desired: str | None, sight: Sight, call: ControlCall | None) -> None:
    told = story(desired).read(sight)
    expected = call if call is not None else Until(told.state.next_read_at)
    assert told.action == expected


def test_r22_a_pause_is_asked_with_the_parameters_of_the_terms() -> None:
    told = story(mode="keep", clear_cache=False).read(RUNNING)
    assert told.action == pause("keep", clear_cache=False)


@pytest.mark.parametrize("failure", [None, ANSWERED_500, ANSWERED_400], ids=["success", "500", "400"])
def test_r1_after_a_call_comes_a_read_whatever_the_answer_was(failure: Failure | None) -> None:
    told = story().read(RUNNING).call().answered(failure)
    assert told.action == Read(identify=False)


def test_r1_a_call_follows_a_fresh_read_not_an_old_one() -> None:
    told = story().read(RUNNING).call().answered(ANSWERED_500).read(RUNNING)
    told.now = told.state.next_call_at
    assert told.action == Read(identify=False), "the wait after the failure made the read old"
    assert told.read(RUNNING).action == pause()


def test_r1_a_difference_seen_before_the_present_spec_is_read_again_first() -> None:
    assert story("running").read(RUNNING).respec("paused").action == Read(identify=False)


def test_r4_a_lost_read_is_no_ground_for_a_call() -> None:
    told = story().read(RUNNING).wait(0.5).fail()
    assert isinstance(told.action, Until)


def test_a_settled_target_is_read_again_within_the_resync_time() -> None:
    told = story().read(PAUSED)
    due = told.action
    assert isinstance(due, Until)
    assert 9.0 <= due.at <= 10.0
    told.now = due.at
    assert told.action == Read(identify=False)


def test_an_engine_whose_sleep_mode_could_not_be_asked_is_asked_again() -> None:
    told = story(traits=Traits("0.32.0", frozenset(PauseMode), True, sleep_mode=None)).read(PAUSED).wait(10)
    assert told.action == Read(identify=True)


# R2: one control call at a time


@pytest.mark.parametrize("then", ["paused", "running", None])
def test_r2_while_a_call_is_open_nothing_else_is_done(then: str | None) -> None:
    told = story().read(RUNNING).call().respec(then).wait(299)
    assert told.action == Until(NEVER)


def test_r2_after_a_flip_the_late_answer_settles_nothing() -> None:
    told = story().read(RUNNING).call().respec("running").answered()
    assert told.action == Read(identify=False)
    assert told.read(PAUSED).action == RESUME


@pytest.mark.parametrize("failure", [None, TIMED_OUT, ANSWERED_400], ids=["success", "timeout", "refusal"])
def test_r2_the_answer_to_an_outdated_call_does_not_delay_the_wanted_one(failure: Failure | None) -> None:
    told = story().read(RUNNING).call().respec("running").wait(3).answered(failure).read(PAUSED)
    assert told.action == RESUME


# R4: what is refused for good


def test_r4_a_refused_call_is_tried_again_once_a_minute() -> None:
    told = story().read(RUNNING).call().answered(ANSWERED_400).read(RUNNING)
    posts = told.posts_within(200)
    assert len(posts) == 3
    assert all(60 <= later - earlier < 72 for earlier, later in zip([0.0, *posts], posts, strict=False))


def test_r4_reads_go_on_at_every_resync_while_a_call_is_refused() -> None:
    told = story().read(RUNNING).call().answered(ANSWERED_400).read(RUNNING)
    assert isinstance(told.action, Until)
    assert told.action.at <= told.now + 10


def test_r4_a_refused_call_is_tried_at_once_when_the_spec_changes() -> None:
    told = story().read(RUNNING).call().answered(ANSWERED_400).read(RUNNING).wait(5)
    assert told.respec("paused").read(RUNNING).action == pause()


def test_r4_a_refused_call_is_tried_at_once_when_the_answer_to_the_read_changes() -> None:
    told = story().read(RUNNING).call().answered(ANSWERED_400).read(RUNNING).wait(10)
    assert told.read(INCONSISTENT).action == pause()


def test_r4_a_refusal_does_not_outlive_another_answer_to_the_read() -> None:
    told = story("running").read(PAUSED).call().answered(ANSWERED_400).read(PAUSED)
    told.wait(10).read(SLEEPING).wait(10).read(PAUSED)
    assert told.action == RESUME


def test_r4_a_refusal_after_the_spec_changed_does_not_hold_against_the_new_spec() -> None:
    told = story().read(RUNNING).call().respec("paused").wait(3).answered(ANSWERED_400).read(RUNNING)
    assert told.action == pause()


def test_r4_a_refused_pause_does_not_delay_a_resume() -> None:
    told = story().read(RUNNING).call().answered(ANSWERED_400).read(INCONSISTENT).respec("running").read(PAUSED)
    assert told.action == RESUME


def test_r4_a_500_is_never_permanent() -> None:
    told = story().read(RUNNING).call().answered(ANSWERED_500).read(RUNNING)
    posts = told.posts_within(120)
    gaps = [later - earlier for earlier, later in zip([0.0, *posts], posts, strict=False)]
    assert len(posts) > 10
    assert all(1.0 <= gap <= 10.1 for gap in gaps)


# R5: what a wait needs


def open_wait(traits: Traits = MODERN, *, stored: bool = True) -> Story:
    return story(traits=traits, mode="wait", wait_unanswered=True, wait_stored=stored)


def test_r5_before_a_wait_is_sent_the_object_must_say_so() -> None:
    told = story(mode="wait").read(RUNNING)
    assert told.action == Prepare.STORE_PAUSE
    assert told.terms(wait_unanswered=True).action == Prepare.STORE_PAUSE, "known is not stored"
    assert told.terms(wait_stored=True).action == pause("wait")


def test_r5_an_open_wait_that_reads_paused_is_pausing_and_is_asked_again() -> None:
    told = open_wait().read(PAUSED)
    assert told.shown is State.PAUSING
    assert told.action == pause("wait")


def test_r5_a_wait_whose_answer_was_lost_is_pausing_and_is_asked_again() -> None:
    told = open_wait().read(RUNNING).call().wait(300).answered(TIMED_OUT).read(PAUSED)
    assert told.shown is State.PAUSING
    assert [post for post in told.posts_within(2) if post <= 1.3]


def test_r5_an_answered_wait_that_reads_paused_is_paused() -> None:
    told = open_wait().read(RUNNING).call().wait(20).answered().read(PAUSED)
    assert told.shown is State.PAUSED
    assert isinstance(told.action, Until)


def test_r5_an_engine_that_was_paused_before_a_wait_began_is_left_alone() -> None:
    told = story(mode="wait").read(PAUSED).terms(wait_unanswered=True, wait_stored=True)
    assert told.shown is State.PAUSED
    assert isinstance(told.wait(10).read(PAUSED).action, Until)


def test_r5_an_engine_that_was_resumed_after_its_drain_is_asked_to_wait_anew() -> None:
    told = open_wait().read(RUNNING).call().answered().read(PAUSED).wait(10).read(RUNNING)
    assert told.action == pause("wait")
    assert told.call().answered(TIMED_OUT).read(PAUSED).shown is State.PAUSING


@pytest.mark.parametrize("mode", ["abort", "keep"])
def test_r5_without_a_wait_a_read_of_true_is_paused(mode: str) -> None:
    told = story(mode=mode).read(RUNNING).call().answered(TIMED_OUT).read(PAUSED)
    assert told.shown is State.PAUSED
    assert isinstance(told.action, Until)


@pytest.mark.parametrize("mode", ["abort", "wait", "keep"])
def test_r5_while_our_pause_is_open_the_target_is_pausing_in_every_mode(mode: str) -> None:
    told = story(mode=mode, wait_unanswered=mode == "wait").read(RUNNING).call()
    assert told.shown is State.PAUSING


def test_r5_before_0_17_a_lost_wait_cannot_be_confirmed_and_nothing_is_sent() -> None:
    told = open_wait(V0_16).read(RUNNING).call().answered(TIMED_OUT).read(PAUSED)
    assert isinstance(told.action, Until)
    assert told.standing.reason == "UnsupportedMode"
    assert told.posts_within(300) == []


def test_r5_before_0_17_an_answered_wait_is_paused() -> None:
    told = open_wait(V0_16).read(RUNNING).call().answered().read(PAUSED)
    assert (told.shown, told.standing.reason) == (State.PAUSED, None)


def test_r5_before_0_17_a_wait_that_never_arrived_is_sent_again() -> None:
    told = open_wait(V0_16).read(RUNNING).call().answered(TIMED_OUT).read(RUNNING)
    assert told.posts_within(2)


def test_r5_a_pause_that_begins_while_an_older_wait_is_open_is_not_taken_for_drained() -> None:
    told = open_wait().read(RUNNING).call().respec("running").respec("paused", mode="wait")
    told.answered(TIMED_OUT).read(PAUSED)
    assert told.shown is State.PAUSING


@pytest.mark.parametrize("mode", ["abort", "keep"])
def test_r5_a_drain_that_was_left_open_ends_with_a_pause_in_another_mode(mode: str) -> None:
    told = open_wait().read(RUNNING).call().answered(TIMED_OUT).respec("running").respec("paused", mode=mode)
    told.read(PAUSED).call().answered().read(PAUSED)
    assert told.shown is State.PAUSED
    assert told.posts_within(100) == []


@pytest.mark.parametrize("mode", ["abort", "wait"])
def test_r5_before_0_17_no_mode_can_confirm_that_a_lost_drain_is_over(mode: str) -> None:
    told = open_wait(V0_16).read(RUNNING).call().answered(TIMED_OUT).respec("running")
    told.respec("paused", mode=mode, wait_unanswered=mode == "wait").read(PAUSED)
    assert told.standing.reason == "UnsupportedMode"
    assert told.posts_within(100) == []


def test_r5_an_engine_that_was_paused_before_our_first_wait_could_reach_it_is_left_alone() -> None:
    told = story(mode="wait").ask()
    asked_under = told.wanted
    told.terms(wait_unanswered=True, wait_stored=False).answer(PAUSED, sent_under=asked_under)
    assert told.shown is State.PAUSED
    assert isinstance(told.action, Until)


# R6, R7: what is not sent


@pytest.mark.parametrize("sight", [RUNNING, INCONSISTENT])
def test_r6_a_mode_that_the_version_cannot_do_is_not_sent(sight: Sight) -> None:
    told = story(traits=V0_16, mode="keep").read(sight)
    assert isinstance(told.action, Until)
    assert told.posts_within(300) == []
    assert told.standing.reason == "UnsupportedMode"


def test_r6_an_unsupported_mode_does_not_hinder_an_engine_that_is_paused_already() -> None:
    told = story(traits=V0_16, mode="keep").read(PAUSED)
    assert told.standing.reason is None


def test_r6_an_unsupported_mode_does_not_hinder_a_resume() -> None:
    told = story(traits=V0_16, mode="keep").read(RUNNING).respec("running", mode="keep").read(PAUSED)
    assert told.action == RESUME


def test_r7_an_engine_is_paused_at_once_after_waking() -> None:
    assert story().read(SLEEPING).wait(10).read(RUNNING).action == pause()


def test_r7_a_sleeping_engine_with_running_wanted_needs_a_person() -> None:
    told = story("running").read(SLEEPING)
    assert (told.shown, told.standing.reason) == (State.SLEEPING, "TargetsSleeping")
    assert told.posts_within(300) == []


# R9, R11, R21 and ports: who is not called


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(make_target(started=False), id="a container that does not run"),
        pytest.param(make_target(port_missing=True), id="a port that no container has"),
    ],
)
def test_a_target_that_cannot_be_called_is_left_to_the_watch(target: Target) -> None:
    told = Story(make_wanted(), target)
    assert told.action == Until(NEVER)


def test_r21_an_engine_that_died_of_our_calls_is_not_asked_anything() -> None:
    assert story().condemned(DIED).action == Until(NEVER)


def test_r21_a_new_spec_acquits_it() -> None:
    told = story().read(RUNNING).condemned(DIED).respec("running")
    assert told.action == Read(identify=False)


def test_r11_without_a_complete_view_reads_go_on_and_no_call_begins() -> None:
    told = story(may_call=False).read(RUNNING)
    assert told.action == Until(told.state.next_read_at)
    assert told.wait(10).action == Read(identify=False)
    assert told.read(RUNNING).terms(may_call=True).action == pause()


# The states, the first that fits


@pytest.mark.parametrize(
    ("told", "state"),
    [
        pytest.param(Story(make_wanted(), make_target(started=False)), State.STARTING, id="the container does not run"),
        pytest.param(
            Story(make_wanted(), make_target(started=False, port_missing=True)),
            State.STARTING,
            id="starting comes before a missing port",
        ),
        pytest.param(
            story().read(RUNNING).call().pod(started=False, ready=False),
            State.STARTING,
            id="a container that ended is starting, even while our call is open",
        ),
        pytest.param(starting().fail(CONNECTION_REFUSED), State.STARTING, id="refused and not ready"),
        pytest.param(
            starting().wait(60).fail(CONNECTION_REFUSED, 50), State.STARTING, id="however long and often it refuses"
        ),
        pytest.param(
            starting().read(PAUSED).fail(CONNECTION_REFUSED),
            State.STARTING,
            id="what it was before does not matter: decided from the present alone",
        ),
        pytest.param(story().fail(CONNECTION_REFUSED, 2), State.UNREACHABLE, id="refused although ready"),
        pytest.param(starting().fail(TIMED_OUT, 2), State.UNREACHABLE, id="a hang is no start"),
        pytest.param(starting().fail(CONNECTION_REFUSED).fail(TIMED_OUT), State.UNREACHABLE, id="nor after a refusal"),
        pytest.param(story().read(SLEEPING), State.SLEEPING, id="asleep"),
        pytest.param(story().read(SLEEPING).fail(), State.SLEEPING, id="one lost read changes nothing: asleep"),
        pytest.param(story("running").read(PAUSED).call(), State.RESUMING, id="our resume is open"),
        pytest.param(story().read(RUNNING).call(), State.PAUSING, id="our pause is open"),
        pytest.param(story().read(INCONSISTENT).call(), State.PAUSING, id="open call before ranks that disagree"),
        pytest.param(story().fail(ANSWERED_404), State.FAILED, id="the first refused read is enough"),
        pytest.param(story().read(RUNNING).fail(ANSWERED_401), State.FAILED, id="also after a good one"),
        pytest.param(story().fail(TIMED_OUT, 5).fail(ANSWERED_404), State.FAILED, id="failed comes before unreachable"),
        pytest.param(story().fail(ANSWERED_404).fail(TIMED_OUT), State.UNREACHABLE, id="refused, then lost"),
        pytest.param(story().read(INCONSISTENT), State.FAILED, id="ranks that disagree"),
        pytest.param(Story(make_wanted(), make_target(port_missing=True)), State.FAILED, id="a port is missing"),
        pytest.param(story().read(RUNNING).condemned(DIED), State.FAILED, id="it died of our calls"),
        pytest.param(story(), State.UNREAD, id="not read yet"),
        pytest.param(story().wait(4.9), State.UNREAD, id="not read yet, and there is time"),
        pytest.param(story().wait(5), State.UNREACHABLE, id="not read within requestTimeoutSeconds"),
        pytest.param(story().fail(), State.UNREAD, id="one failure is not enough"),
        pytest.param(story().fail(times=2), State.UNREACHABLE, id="two are"),
        pytest.param(story().read(RUNNING).fail(), State.RUNNING, id="one failure leaves the last valid read"),
        pytest.param(story().read(RUNNING).wait(900).fail(), State.RUNNING, id="however old that is"),
        pytest.param(story().read(PAUSED).fail(times=2), State.UNREACHABLE, id="two failures do not"),
        pytest.param(story().fail(times=3).read(PAUSED), State.PAUSED, id="one valid answer is enough"),
        pytest.param(story().read(PAUSED), State.PAUSED, id="paused"),
        pytest.param(story().read(RUNNING), State.RUNNING, id="running"),
        pytest.param(story(None).read(PAUSED), State.PAUSED, id="observed only: paused"),
        pytest.param(
            story().read(RUNNING).call().answered(ANSWERED_400).read(RUNNING),
            State.RUNNING,
            id="a refused POST changes the reason, not the state",
        ),
    ],
)
def test_the_state_of_a_target_is_the_first_that_fits(told: Story, state: State) -> None:
    assert told.shown is state


def test_r9_an_engine_that_becomes_ready_is_read_before_it_counts_as_unreachable() -> None:
    told = starting().wait(60).fail(CONNECTION_REFUSED, 50).pod(ready=True)
    assert told.action == Read(identify=True)
    assert told.shown is State.UNREAD


def test_r9_an_engine_that_refuses_after_it_became_ready_is_unreachable() -> None:
    told = starting().wait(60).fail(CONNECTION_REFUSED, 50).pod(ready=True).fail(CONNECTION_REFUSED, 2).wait(5)
    assert told.shown is State.UNREACHABLE


def test_r9_an_engine_that_is_not_ready_is_paused_at_first_contact() -> None:
    assert starting().read(RUNNING).action == pause()


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(story(), id="unread"),
        pytest.param(starting(), id="unread and not ready"),
        pytest.param(story().fail(), id="failed once"),
        pytest.param(Story(make_wanted(), make_target(port_missing=True)), id="without the port"),
        pytest.param(story().condemned(DIED), id="condemned before it was read"),
        pytest.param(story().read(RUNNING), id="read"),
    ],
)
def test_every_change_that_comes_by_time_alone_is_announced(told: Story) -> None:
    for _ in range(10):
        shown, at = told.shown, step.next_change_at(told.wanted, told.state, told.now)
        assert at > told.now, "a time that is past would be waited for for ever"
        if at == NEVER:
            break
        before = at - 1e-6
        assert step.state_of(told.wanted, told.state, before) is shown, "it changed before the time that was said"
        told.now = at
    last = told.shown
    assert told.wait(10_000).shown is last, "it changed, and nobody was told when"


# What has to be in place before a pause


def test_no_pause_before_the_finalizer() -> None:
    told = story(is_held=False).read(RUNNING)
    assert told.action == Prepare.ADD_FINALIZER
    assert told.terms(is_held=True).action == pause()


def test_the_finalizer_comes_before_a_wait_is_stored() -> None:
    assert story(mode="wait", is_held=False).read(RUNNING).action == Prepare.ADD_FINALIZER


@pytest.mark.parametrize(
    ("desired", "sight"), [("paused", PAUSED), ("paused", SLEEPING), ("running", RUNNING), (None, PAUSED)]
)
def test_r14_no_finalizer_is_asked_for_where_no_pause_is_due(desired: str | None, sight: Sight) -> None:
    assert isinstance(story(desired, is_held=False).read(sight).action, Until)


def test_a_resume_needs_no_finalizer() -> None:
    assert story("running", is_held=False).read(PAUSED).action == RESUME


def test_r6_no_finalizer_for_a_pause_that_the_engine_cannot_do() -> None:
    assert isinstance(story(mode="keep", traits=V0_16, is_held=False).read(RUNNING).action, Until)


# The readiness gate


def test_no_pause_while_the_gate_of_the_pod_is_open() -> None:
    told = story().read(RUNNING).gated(NEVER)
    assert told.action == Until(told.state.next_read_at)
    assert told.gated(-NEVER).action == pause()


def test_no_pause_before_the_drain_delay_is_over_and_then_only_after_a_fresh_read() -> None:
    told = story().read(RUNNING).gated(4.0)
    assert told.action == Until(4.0)
    assert told.wait(4.0).action == Read(identify=False)
    assert told.read(RUNNING).action == pause()


def test_the_gate_does_not_delay_a_resume() -> None:
    assert story("running").read(PAUSED).gated(NEVER).action == RESUME


def test_the_gate_does_not_shorten_the_wait_after_a_setback() -> None:
    told = story().read(RUNNING).call().answered(ANSWERED_500).read(RUNNING)
    at = told.state.next_call_at
    assert at > told.now
    assert told.gated(0.5).action == Until(at)
    assert told.gated(at + 1).action == Until(at + 1)


# R2: a long drain can be called off


def draining() -> Story:
    return story(traits=ALONE, mode="wait", wait_unanswered=True).read(RUNNING).call()


@pytest.mark.parametrize(
    ("told", "may"),
    [
        pytest.param(draining().respec("running"), True, id="running is wanted now"),
        pytest.param(draining().respec("paused", mode="abort"), True, id="abort is wanted now"),
        pytest.param(
            draining().terms(effective=Desired.RUNNING), True, id="the pause expired, or the object is deleted"
        ),
        pytest.param(draining(), False, id="it is wanted still"),
        pytest.param(draining().respec("paused", mode="wait", wait_unanswered=True), False, id="under a newer spec"),
        pytest.param(draining().respec("paused", mode="keep"), False, id="keep does not overtake"),
        pytest.param(draining().respec(None), False, id="nothing is wanted: its answer is awaited"),
        pytest.param(draining().respec("running", may_call=False), False, id="no call may begin"),
        pytest.param(
            story(mode="wait", wait_unanswered=True).read(RUNNING).call().respec("running"),
            False,
            id="the engine does not let itself be overtaken",
        ),
        pytest.param(story(traits=ALONE).read(RUNNING).call().respec("running"), False, id="an abort is awaited"),
        pytest.param(
            story(traits=ALONE, mode="keep").read(RUNNING).call().respec("running"), False, id="a keep is awaited"
        ),
        pytest.param(story("running", ALONE).read(PAUSED).call().respec("paused"), False, id="a resume is awaited"),
        pytest.param(draining().answered().respec("running"), False, id="nothing is open"),
    ],
)
def test_r2_only_a_wait_is_called_off_and_only_for_running_or_abort(told: Story, may: bool) -> None:
    assert step.may_call_off(told.wanted, told.state) is may


def test_r2_what_may_not_be_called_off_is_awaited() -> None:
    told = story(mode="wait", wait_unanswered=True).read(RUNNING).call().respec("running")
    assert told.action == Until(NEVER)


def test_r2_a_drain_that_is_called_off_is_read_and_overtaken_by_a_resume() -> None:
    told = draining().wait(60).respec("running").call_off()
    assert told.action == Read(identify=False)
    assert told.read(PAUSED).action == RESUME
    told.call().answered().read(RUNNING)
    assert told.shown is State.RUNNING
    assert step.difference(told.wanted, told.state) is None


def test_r2_a_drain_that_is_called_off_is_read_and_overtaken_by_an_abort() -> None:
    told = draining().wait(60).respec("paused", mode="abort").call_off().read(PAUSED)
    assert told.shown is State.PAUSING, "it drains until the abort is answered"
    assert told.action == pause("abort")
    assert told.call().answered().read(PAUSED).shown is State.PAUSED


def test_r5_a_drain_that_was_called_off_and_is_wanted_again_is_not_taken_for_paused() -> None:
    told = draining().respec("running").call_off().respec("paused", mode="wait", wait_unanswered=True).read(PAUSED)
    assert told.shown is State.PAUSING
    assert told.action == pause("wait")


# Verify


def test_a_verify_makes_every_target_be_read_at_once() -> None:
    told = story().read(PAUSED).verify()
    assert told.action == Read(identify=False)


def test_a_verify_does_not_interrupt_an_open_call() -> None:
    assert story().read(RUNNING).call().verify().action == Until(NEVER)


def test_r1_after_a_verify_no_call_rests_on_an_older_read() -> None:
    told = story(may_call=False).read(RUNNING).verify().ask().terms(may_call=True)
    assert told.action == Read(identify=False)


def test_r5_an_abort_that_took_over_a_drain_is_sent_until_it_is_answered() -> None:
    told = story(mode="abort", wait_unanswered=True).read(PAUSED)
    assert told.shown is State.PAUSING, "whoever reads this object after a restart must not take the drain for a pause"
    assert told.action == ControlCall(told.wanted.pause)
    answered = told.call().answered().read(PAUSED)
    assert answered.shown is State.PAUSED
