"""Others change the fleet while it is waited for, and within the block; and several trainers use one fleet."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from llmservice.client import ChangedByOthersError, NotFoundError, PausedOtherwiseError, StalledError
from llmservice.client import Fleet as Client
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, Kubectl
from llmservice_testing.simulator import Fault

pytestmark = pytest.mark.usefixtures("operator")


def patch(kubectl: Kubectl, generation: str) -> None:
    """As a person does it: the field manager is kubectl-patch."""
    kubectl("patch", "llmservice", "qwen", "--type=merge", "-p", f'{{"spec":{{"generation":"{generation}"}}}}')


def test_who_resumes_while_it_is_waited_for_is_named(fleet: Fleet, client: Client, kubectl: Kubectl) -> None:
    fleet.grow(2)
    fleet.declare("running")
    fleet.engines[0].faults.script("/pause", Fault.slow(before=2.0))
    with ThreadPoolExecutor(1) as pool:
        pause = pool.submit(client.pause)
        fleet.engines[0].asked("/pause", within=PATIENCE_SECONDS)
        patch(kubectl, "running")
        with pytest.raises(ChangedByOthersError) as caught:
            pause.result(PATIENCE_SECONDS)
    assert caught.value.field == "spec.generation"
    assert caught.value.managers == ("kubectl-patch",)
    assert fleet.get()["spec"]["generation"] == "running"


def test_who_resumes_within_the_block_is_named_at_its_end(fleet: Fleet, client: Client, kubectl: Kubectl) -> None:
    fleet.grow(2)
    fleet.declare("running")

    def train() -> None:
        with client.paused() as p:
            p.check()
            patch(kubectl, "running")
            with pytest.raises(ChangedByOthersError):
                p.check()

    with pytest.raises(ChangedByOthersError, match="by kubectl-patch meanwhile, and is running now"):
        train()


def test_a_pause_that_was_over_in_between_is_noticed_and_the_new_one_is_left_alone(
    fleet: Fleet, client: Client, kubectl: Kubectl
) -> None:
    fleet.grow(2)
    fleet.declare("running")

    def train() -> None:
        with client.paused():
            patch(kubectl, "running")
            patch(kubectl, "paused")

    with pytest.raises(ChangedByOthersError, match="and is paused now"):
        train()
    assert fleet.get()["spec"]["generation"] == "paused"


def test_other_fields_may_change_within_the_block(fleet: Fleet, client: Client) -> None:
    fleet.grow(2)
    fleet.declare("running")
    with client.paused():
        fleet.patch(resyncSeconds=2, pause={"mode": "keep"})
    fleet.wait("Paused", "False")


def test_a_fleet_that_somebody_else_paused_is_confirmed_and_left_paused(
    fleet: Fleet, client: Client, kubectl: Kubectl
) -> None:
    fleet.grow(2)
    fleet.declare("running")
    patch(kubectl, "paused")
    with client.paused() as p:
        assert fleet.all_paused()
        assert not p.is_ours
    assert fleet.get()["spec"]["generation"] == "paused"
    assert fleet.all_paused()
    assert [post.path for post in fleet.posts()] == ["/pause"] * 2


def test_what_an_earlier_life_of_the_trainer_left_paused_is_taken_up_and_resumed(
    fleet: Fleet, make_client: Callable[..., Client]
) -> None:
    fleet.grow(2)
    fleet.declare("running")
    make_client(manager="trainer").pause("keep")
    with make_client(manager="trainer").paused("keep") as p:
        assert p.is_ours
    assert not any(engine.paused for engine in fleet.engines)


def test_a_fleet_that_is_paused_otherwise_is_neither_taken_for_it_nor_touched(
    fleet: Fleet, client: Client, kubectl: Kubectl
) -> None:
    fleet.grow(2)
    fleet.declare("running")
    patch(kubectl, "paused")
    fleet.wait("Paused")
    before = fleet.get()
    expected = pytest.raises(PausedOtherwiseError, match="paused with mode abort already, and mode keep")
    with expected, client.paused(mode="keep"):
        pytest.fail("the block ran")
    assert fleet.get() == before


def test_of_two_trainers_the_one_who_paused_resumes_and_the_other_is_told(
    fleet: Fleet, make_client: Callable[..., Client]
) -> None:
    fleet.grow(2)
    fleet.declare("running")
    first, second = make_client(manager="trainer-a"), make_client(manager="trainer-b")

    def train() -> None:
        with ExitStack() as the_first:
            the_first.enter_context(first.paused())
            with second.paused():
                the_first.close()
                fleet.wait("Paused", "False")

    with pytest.raises(ChangedByOthersError, match="by trainer-a meanwhile, and is running now"):
        train()
    assert not any(engine.paused for engine in fleet.engines)


def test_of_two_trainers_the_guest_leaves_first_and_the_pause_goes_on(
    fleet: Fleet, make_client: Callable[..., Client]
) -> None:
    fleet.grow(2)
    fleet.declare("running")
    with make_client(manager="trainer-a").paused() as mine:
        with make_client(manager="trainer-b").paused() as theirs:
            assert (mine.is_ours, theirs.is_ours) == (True, False)
        assert fleet.all_paused()
        mine.check()
    assert not any(engine.paused for engine in fleet.engines)


def test_a_person_who_is_needed_is_called_and_the_pause_is_taken_back(fleet: Fleet, client: Client) -> None:
    fleet.grow(2)
    fleet.declare("running")
    fleet.wait("Paused", "False")
    fleet.engines[0].faults.script("/pause", Fault.answering(404, times=None))
    with pytest.raises(StalledError) as caught, client.paused():
        pytest.fail("the block ran")
    assert caught.value.reason == "EndpointMissing"
    assert "qwen-0" in caught.value.message
    fleet.engines[0].faults.clear()
    fleet.wait("Paused", "False")
    assert not any(engine.paused for engine in fleet.engines)


def test_a_pause_that_expired_within_the_block_is_told_at_its_end(fleet: Fleet, client: Client) -> None:
    fleet.grow(2)
    fleet.declare("running", maxPausedSeconds=1, onMaxPaused="resume")
    with pytest.raises(StalledError) as caught, client.paused():
        fleet.wait("Stalled", reason="PauseExpired")
    assert caught.value.reason == "PauseExpired"
    fleet.wait("Paused", "False")
    assert fleet.get()["spec"]["generation"] == "running"


def test_an_object_that_is_deleted_while_it_is_waited_for_is_not_waited_for_any_longer(
    fleet: Fleet, client: Client
) -> None:
    fleet.add()
    fleet.declare("running")
    fleet.engines[0].faults.script("/pause", Fault.slow(before=2.0))
    with ThreadPoolExecutor(1) as pool:
        pause = pool.submit(client.pause)
        fleet.engines[0].asked("/pause", within=PATIENCE_SECONDS)
        fleet.delete()
        with pytest.raises(NotFoundError):
            pause.result(PATIENCE_SECONDS)
