"""R12 under change: owners that go, labels that are edited, LLMServices of one second, and every operator decides alike."""

import time
from collections.abc import Callable

import pytest

from llmservice_testing.cluster import wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, Member, condition, reads, to_seconds
from llmservice_testing.operator_process import OperatorProcess

TEAM = {"matchLabels": {"team": "rl"}}
BOTH = {"app": "qwen", "team": "rl"}


def created_at(fleet: Fleet) -> str:
    return str(fleet.get()["metadata"]["creationTimestamp"])


def a_second_later(fleet: Fleet) -> None:
    """creationTimestamp has a resolution of one second."""
    created = to_seconds(created_at(fleet))
    wait_until(lambda: time.time() > created + 1, PATIENCE_SECONDS, what="another second")


def paths(member: Member) -> list[str]:
    return [post.path for post in member.engine.posts()]


@pytest.fixture
def young(make_fleet: Callable[..., Fleet]) -> Fleet:
    """The younger LLMService; its pods are those of `fleet`."""
    return make_fleet(name="young")


# The owner goes


@pytest.mark.usefixtures("operator")
def test_r12_pods_are_handed_over_as_they_are_and_then_driven_by_the_next(fleet: Fleet, young: Fleet) -> None:
    shared = fleet.add(labels=BOTH)
    fleet.declare("paused")
    fleet.wait("Paused")
    a_second_later(fleet)
    young.declare("paused", selector=TEAM)
    young.wait("Stalled", reason="PodsClaimed")
    fleet.delete()
    service = young.wait("Ready", reason="InDesiredState")
    assert condition(service, "Stalled") is None
    assert young.targets() == {"total": 1, "paused": 1}
    assert paths(shared) == ["/pause"]  # paused stays paused: nobody resumed it in between


@pytest.mark.usefixtures("operator")
def test_r12_an_owner_that_resumes_on_deletion_does_so_before_the_next_one_acts(fleet: Fleet, young: Fleet) -> None:
    shared = fleet.add(labels=BOTH)
    fleet.declare("paused", deletionPolicy="resume")
    fleet.wait("Paused")
    a_second_later(fleet)
    young.declare("paused", selector=TEAM)
    young.wait("Stalled", reason="PodsClaimed")
    fleet.delete()
    fleet.wait_gone()
    young.wait("Ready", reason="InDesiredState")
    assert paths(shared) == ["/pause", "/resume", "/pause"]


def test_r12_an_owner_that_goes_while_no_operator_is_there_hands_over_all_the_same(
    fleet: Fleet, young: Fleet, own_operator: OperatorProcess
) -> None:
    shared = fleet.add(labels=BOTH)
    fleet.declare("paused")
    fleet.wait("Paused")
    a_second_later(fleet)
    young.declare("running", selector=TEAM)
    young.wait("Stalled", reason="PodsClaimed")
    own_operator.kill()
    fleet.delete()
    own_operator.start()
    young.wait("Ready", reason="InDesiredState")
    assert paths(shared) == ["/pause", "/resume"]


@pytest.mark.usefixtures("operator")
def test_r12_of_three_the_next_oldest_follows(fleet: Fleet, young: Fleet, make_fleet: Callable[..., Fleet]) -> None:
    youngest = make_fleet(name="youngest")
    shared = fleet.add(labels={**BOTH, "zone": "a"})
    fleet.declare("running")
    a_second_later(fleet)
    young.declare("paused", selector=TEAM)
    a_second_later(young)
    youngest.declare("running", selector={"matchLabels": {"zone": "a"}})
    youngest.wait("Stalled", reason="PodsClaimed")
    fleet.wait("Ready", reason="InDesiredState")
    fleet.delete()
    young.wait("Ready", reason="InDesiredState")
    stalled = condition(youngest.wait("Stalled", reason="PodsClaimed"), "Stalled")
    assert stalled is not None
    assert paths(shared) == ["/pause"]
    young.delete()
    youngest.wait("Ready", reason="InDesiredState")
    assert paths(shared) == ["/pause", "/resume"]


# Labels are edited


@pytest.mark.usefixtures("operator")
def test_a_live_pod_whose_labels_leave_the_fleet_is_left_as_it_is_with_one_warning(fleet: Fleet) -> None:
    leaving, staying = fleet.paused(2).members
    fleet.cluster.patch_pod(fleet.namespace, leaving.name, {"metadata": {"labels": {"app": "other"}}})
    fleet.wait_for_targets(total=1, paused=1)
    event = fleet.wait_for_event("LeftSelection")
    assert event["type"] == "Warning"
    assert leaving.name in event["message"]
    staying.engine.asked("/is_paused", times=reads(staying.engine) + 3, within=PATIENCE_SECONDS)
    assert len(fleet.events("LeftSelection")) == 1
    assert leaving.engine.paused
    assert paths(leaving) == ["/pause"]
    fleet.want("running")
    fleet.wait("Paused", "False")
    assert leaving.engine.paused  # it is nobody's now


@pytest.mark.usefixtures("operator")
def test_a_pod_that_is_deleted_gives_no_warning(fleet: Fleet) -> None:
    going, _ = fleet.paused(2).members
    fleet.cluster.delete_pod(fleet.namespace, going.name)
    fleet.wait_for_targets(total=1, paused=1)
    fleet.members[1].engine.asked("/is_paused", times=reads(fleet.members[1].engine) + 2, within=PATIENCE_SECONDS)
    assert fleet.events("LeftSelection") == []


@pytest.mark.usefixtures("operator")
def test_r9_a_pod_whose_labels_enter_the_fleet_is_paused_at_first_contact(fleet: Fleet) -> None:
    fleet.paused(1)
    entering = fleet.add(labels={"app": "other"})
    assert entering.engine.calls == ()
    fleet.cluster.patch_pod(fleet.namespace, entering.name, {"metadata": {"labels": {"app": fleet.name}}})
    wait_until(lambda: entering.engine.paused, PATIENCE_SECONDS, what="the pod being paused")
    fleet.wait_for_targets(total=2, paused=2)


@pytest.mark.usefixtures("operator")
def test_r12_a_pod_that_loses_the_older_ones_labels_goes_to_the_younger(fleet: Fleet, young: Fleet) -> None:
    shared = fleet.add(labels=BOTH)
    fleet.declare("paused")
    fleet.wait("Paused")
    a_second_later(fleet)
    young.declare("running", selector=TEAM)
    young.wait("Stalled", reason="PodsClaimed")
    fleet.cluster.patch_pod(fleet.namespace, shared.name, {"metadata": {"labels": {"app": None}}})
    young.wait("Ready", reason="InDesiredState")
    fleet.wait("Ready", reason="NoPods")
    assert paths(shared) == ["/pause", "/resume"]


@pytest.mark.usefixtures("operator")
def test_r12_a_pod_that_gains_the_older_ones_labels_in_the_middle_of_a_call_is_left_by_the_younger(
    fleet: Fleet, young: Fleet
) -> None:
    """The answer of its last call settles nothing for anybody: the new owner reads for itself."""
    fleet.declare("running")
    a_second_later(fleet)
    moving = young.add(labels={"team": "rl"})
    young.declare("paused", selector=TEAM, pause={"mode": "wait"})
    young.wait("Paused")
    young.want("running")
    young.wait("Paused", "False")
    young.want("paused")
    moving.engine.asked("/pause", times=2)
    fleet.cluster.patch_pod(fleet.namespace, moving.name, {"metadata": {"labels": {"app": fleet.name}}})
    fleet.wait_for_targets(total=1, running=1)
    fleet.wait("Ready", reason="InDesiredState")
    young.wait("Stalled", reason="PodsClaimed")
    before = len(moving.engine.posts())
    moving.engine.asked("/is_paused", times=reads(moving.engine) + 2, within=PATIENCE_SECONDS)
    assert len(moving.engine.posts()) == before
    assert not moving.engine.paused


# Of one second


def in_one_second(one: Fleet, other: Fleet) -> tuple[Fleet, Fleet]:
    """Declares both in the same second; returns the owner, by UID, and the other. They want the opposite."""

    def declared() -> bool:
        one.declare("paused")
        other.declare("running", selector=TEAM)
        if created_at(one) == created_at(other):
            return True
        one.delete()
        other.delete()
        return False

    wait_until(declared, PATIENCE_SECONDS, what="both being created in one second")
    owner, second = sorted((one, other), key=lambda fleet: str(fleet.get()["metadata"]["uid"]))
    return owner, second


def test_r12_created_in_the_same_second_two_operators_decide_alike(
    fleet: Fleet, young: Fleet, make_operator: Callable[..., OperatorProcess]
) -> None:
    shared = fleet.add(labels=BOTH)
    owner, second = in_one_second(fleet, young)
    first_operator, second_operator = make_operator(), make_operator()

    def versions() -> list[str]:
        return [one.get()["metadata"]["resourceVersion"] for one in (owner, second)]

    first_operator.start()
    owner.wait("Ready", reason="InDesiredState")
    second.wait("Stalled", reason="PodsClaimed")
    assert shared.engine.paused == (owner is fleet)
    decided, called = versions(), len(shared.engine.posts())

    first_operator.kill()
    second_operator.start()
    fleet.let_pass(2)
    assert versions() == decided  # the other one found nothing to change
    assert len(shared.engine.posts()) == called

    first_operator.start()
    fleet.let_pass(3)
    assert versions() == decided  # both at once neither
    assert len(shared.engine.posts()) == called

    owner.delete()
    second.wait("Ready", reason="InDesiredState")
    assert shared.engine.paused == (second is fleet)
