"""An old word is never taken for an answer, whatever it says."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from llmservice.client import Fleet as Client
from llmservice.client import OperatorSilentError, TimedOutError
from llmservice_testing.fleet import VERIFY, Fleet
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.simulator import Fault

SELDOM = 3600
SHORT = 1.5
"""Seconds that a test waits for what must not come."""


def test_a_true_that_no_living_operator_stands_behind_is_not_taken(
    fleet: Fleet, client: Client, own_operator: OperatorProcess
) -> None:
    fleet.paused(2)
    own_operator.kill()
    fleet.members[0].engine.resume()
    assert fleet.status()["paused"] is True
    with pytest.raises(OperatorSilentError, match="See whether it runs") as caught:
        client.pause(timeout=SHORT)
    assert isinstance(caught.value, TimeoutError)
    with pytest.raises(OperatorSilentError), client.paused(timeout=SHORT):
        pytest.fail("the block ran on an old word")
    assert fleet.get()["spec"]["generation"] == "paused", "it was not ours to take back"


def test_a_true_about_an_older_spec_is_not_taken(fleet: Fleet, client: Client, own_operator: OperatorProcess) -> None:
    fleet.paused(2)
    own_operator.kill()
    fleet.want("running")
    fleet.members[0].engine.resume()
    assert fleet.status()["paused"] is True
    with pytest.raises(OperatorSilentError, match=r"observedGeneration is 1, metadata.generation 3"):
        client.pause(timeout=SHORT)
    assert fleet.get()["spec"]["generation"] == "paused", "pause() leaves its wish standing"


def test_a_block_that_could_not_begin_takes_its_pause_back(
    fleet: Fleet, client: Client, own_operator: OperatorProcess
) -> None:
    fleet.add()
    fleet.declare("running")
    fleet.wait("Paused", "False")
    own_operator.kill()
    with pytest.raises(OperatorSilentError) as caught, client.paused(timeout=SHORT):
        pytest.fail("the block ran")
    assert fleet.get()["spec"]["generation"] == "running"
    assert any("told to run again" in note for note in caught.value.__notes__)
    own_operator.start()
    fleet.wait("Paused", "False")
    assert fleet.posts() == []


def test_a_false_that_is_old_ends_no_resume(fleet: Fleet, client: Client, own_operator: OperatorProcess) -> None:
    fleet.add()
    fleet.declare("running")
    fleet.wait("Paused", "False")
    own_operator.kill()
    fleet.want("paused")
    fleet.members[0].engine.pause()
    with pytest.raises(OperatorSilentError):
        client.resume(timeout=SHORT)
    with pytest.raises(OperatorSilentError):
        client.resume(timeout=SHORT)  # now nothing is left to be changed


@pytest.mark.usefixtures("operator")
def test_where_nothing_changes_every_engine_is_read_afresh(fleet: Fleet, client: Client) -> None:
    fleet.paused(2, resyncSeconds=SELDOM)
    strayed = fleet.members[1].engine
    strayed.resume()
    assert fleet.status()["paused"] is True
    asked_at = time.monotonic()
    snapshot = client.pause()
    assert strayed.paused
    assert all(
        any(call.path == "/is_paused" and call.at >= asked_at for call in engine.calls) for engine in fleet.engines
    )
    assert snapshot.service.status.last_handled_verify == snapshot.verify_token
    assert fleet.get()["metadata"]["generation"] == 1


@pytest.mark.usefixtures("operator")
def test_an_engine_that_cannot_be_paused_holds_the_confirmation(fleet: Fleet, client: Client) -> None:
    strayed, _ = fleet.paused(2, resyncSeconds=SELDOM).members
    strayed.engine.faults.script("/pause", Fault.lie(times=None))
    strayed.engine.resume()
    with pytest.raises(TimedOutError) as caught:
        client.pause(timeout=SHORT)
    assert not isinstance(caught.value, OperatorSilentError)
    assert "Paused is Unknown" in str(caught.value)


@pytest.mark.usefixtures("operator")
def test_several_who_ask_for_a_fresh_read_at_once_all_get_one(fleet: Fleet, make_client: Callable[..., Client]) -> None:
    fleet.paused(1, resyncSeconds=SELDOM)
    fleet.engines[0].faults.script("/is_paused", Fault.slow(before=0.5, times=None))
    clients = [make_client(manager=f"trainer-{number}") for number in range(3)]
    with ThreadPoolExecutor(len(clients)) as pool:
        for snapshot in pool.map(Client.verify, clients):
            assert snapshot.service.status.paused is True
    assert fleet.get()["metadata"]["annotations"][VERIFY].startswith("trainer-")
