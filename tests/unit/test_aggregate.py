"""An engine of several processes that answers as one (Ray Serve): what "paused" proves, and when it is asserted again."""

import pytest

from llmservice.api import Desired, Reason
from llmservice.domain import deaths
from llmservice.domain.fleet import NEVER, ControlCall, Failure, Obstacle, Sight, State
from llmservice.domain.policy import wanted
from llmservice.domain.step import Until
from llmservice_testing.builders import make_llmservice
from llmservice_testing.domain import TIMED_OUT, Story, fleet_of, make_service, make_target, make_wanted, status_of

PROXIES = ("http://head:8000", "http://worker:8000")
STARTING = Failure(Obstacle.STARTING, "no routes", "the proxy has no routes yet")


def application(desired: str | None = "paused", *, paused_replicas: str | None = None) -> Story:
    return Story(make_wanted(desired, paused_replicas=paused_replicas), make_target(proxies=PROXIES))


def paused(replicas: str = "a") -> Story:
    """An application that was paused by us while it had these replicas."""
    return application().read(Sight.RUNNING, replicas=replicas).call().answered().read(Sight.PAUSED, replicas=replicas)


def is_at_rest(story: Story) -> bool:
    return isinstance(story.action, Until)


def test_one_paused_replica_does_not_make_a_paused_application() -> None:
    story = application().read(Sight.PAUSED, replicas="a")
    assert story.action == ControlCall(story.wanted.pause)
    assert story.shown is State.PAUSING
    assert not story.standing.is_effective(Desired.PAUSED)


def test_a_pause_that_was_answered_for_the_present_replicas_is_believed() -> None:
    story = paused()
    assert is_at_rest(story)
    assert story.standing.is_effective(Desired.PAUSED)


def test_replicas_that_came_while_the_pause_was_sent_are_paused_too() -> None:
    story = application().read(Sight.RUNNING, replicas="a").call().answered().read(Sight.PAUSED, replicas="ab")
    assert not story.standing.is_effective(Desired.PAUSED)
    assert story.wait(2).read(Sight.PAUSED, replicas="ab").action == ControlCall(story.wanted.pause)


def test_r1_other_replicas_are_a_difference() -> None:
    story = paused().wait(10).read(Sight.PAUSED, replicas="ab")
    assert story.action == ControlCall(story.wanted.pause)
    assert story.shown is State.PAUSING


def test_a_lost_pause_proves_nothing() -> None:
    story = application().read(Sight.PAUSED, replicas="a").call().answered(TIMED_OUT).read(Sight.PAUSED, replicas="a")
    assert not story.standing.is_effective(Desired.PAUSED)


def test_r13_after_a_restart_the_replicas_in_the_status_count() -> None:
    story = application(paused_replicas="a").read(Sight.PAUSED, replicas="a")
    assert is_at_rest(story)
    assert application(paused_replicas="a").read(Sight.PAUSED, replicas="b").action == ControlCall(story.wanted.pause)


def test_after_a_resume_was_sent_an_earlier_pause_proves_nothing() -> None:
    story = paused().respec("running").read(Sight.PAUSED, replicas="a").call().answered(TIMED_OUT)
    story.respec("paused").wait(2).read(Sight.PAUSED, replicas="a")
    assert story.action == ControlCall(story.wanted.pause)


def test_not_paused_is_about_all_replicas() -> None:
    story = application("running").read(Sight.RUNNING)
    assert is_at_rest(story)
    assert story.standing.is_effective(Desired.RUNNING)


def test_a_fleet_that_is_only_observed_is_not_said_to_be_paused() -> None:
    status = status_of(fleet_of(application(None).read(Sight.PAUSED, replicas="a")))
    assert status.paused is None
    assert {each.type: each.reason for each in status.conditions}["Paused"] == Reason.MIXED


def test_the_status_says_what_paused_means_and_for_which_replicas() -> None:
    status = status_of(fleet_of(paused("a")))
    assert status.paused is True
    assert status.paused_replicas == "a"
    assert {each.type: each.reason for each in status.conditions}["Paused"] == Reason.AGGREGATE_PAUSED


def test_the_replicas_are_kept_while_the_pause_is_asserted_again_and_forgotten_with_it() -> None:
    story = paused("a").wait(10).terms(paused_replicas="a").read(Sight.PAUSED, replicas="ab")
    assert status_of(fleet_of(story)).paused_replicas == "a"
    assert status_of(fleet_of(story.respec("running"))).paused_replicas is None


@pytest.mark.parametrize("ready", [True, False])
def test_r9_a_proxy_without_an_application_is_starting_whatever_its_readiness(ready: bool) -> None:
    story = Story(make_wanted(), make_target(proxies=PROXIES, ready=ready)).fail(STARTING, times=3).wait(60)
    assert story.shown is State.STARTING
    status = status_of(fleet_of(story))
    (entry,) = status.target_states
    assert (entry.reason, entry.message) == (Reason.TARGETS_STARTING, STARTING.message)
    assert STARTING.message in status.conditions[0].message


def test_r21_proxies_that_come_and_go_after_a_call_are_no_death() -> None:
    story = application().read(Sight.RUNNING).call().answered()
    assert not deaths.is_death(story.state, make_target(container="containerd://2", proxies=PROXIES[:1]), story.now + 1)


@pytest.mark.parametrize(
    ("observed", "generation", "counts"), [(2, "paused", True), (1, "paused", False), (2, "running", False)]
)
def test_only_a_status_about_the_present_spec_says_for_which_replicas(
    observed: int, generation: str, counts: bool
) -> None:
    service = make_service(make_llmservice("ray").selector(app="ray").generation(generation))
    service = service.model_copy(
        update={"status": service.status.model_copy(update={"observed_generation": observed, "paused_replicas": "a"})}
    )
    terms = wanted(service, Desired(generation), None, may_call=True)
    assert terms.paused_replicas == ("a" if counts else None)
    assert terms.resync < NEVER
