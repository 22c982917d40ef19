"""What fails in a cluster while a fleet is being paused: the operator's pod and the API server. Then things come right again
by themselves, and no engine is called more than it has to be."""

from collections.abc import Iterator

import pytest

from llmservice_testing.cluster import wait_until
from llmservice_testing.kind.installation import Installation
from llmservice_testing.kind.node import RECOVERY_SECONDS, kill_api_server, wait_for_api_server, wait_for_controllers
from llmservice_testing.kind.pods import PATIENCE_SECONDS, PodEngine, PodFleet

pytestmark = pytest.mark.timeout(3 * RECOVERY_SECONDS)

SLOW = {"says": "truth", "delay_before": 4.0}


@pytest.fixture
def engines(fleet: PodFleet) -> Iterator[list[PodEngine]]:
    """Six engines that run, three of which take their time with a pause: a fan-out has a middle."""
    fleet.deploy(6)
    fleet.declare("running")
    fleet.wait("Ready")
    engines = fleet.engines()
    for engine in engines[:3]:
        engine.script("/pause", SLOW)
    yield engines
    wait_for_controllers(fleet.cluster)  # the next test needs them


def in_the_middle(engines: list[PodEngine]) -> None:
    """Returns when half of the engines are paused and the other half is still at it."""
    slow, quick = engines[:3], engines[3:]
    wait_until(
        lambda: all(engine.is_paused() for engine in quick) and all(engine.posts() for engine in slow),
        PATIENCE_SECONDS,
        what="the fan-out being in its middle",
    )
    assert not any(engine.is_paused() for engine in slow)


def test_a_fan_out_is_finished_by_the_next_operator_when_one_is_deleted_and_the_api_server_killed_in_its_middle(
    fleet: PodFleet, engines: list[PodEngine], installation: Installation
) -> None:
    deleted = installation.pod()["metadata"]["uid"]
    fleet.want("paused")
    in_the_middle(engines)
    installation.delete_pod()
    kill_api_server()

    wait_for_api_server(fleet.cluster)
    fleet.wait("Paused", within=RECOVERY_SECONDS)
    assert all(engine.is_paused() for engine in engines)
    assert all({call.path for call in engine.posts()} == {"/pause"} for engine in engines)
    assert all(len(engine.posts()) == 1 for engine in engines[3:]), "who was paused already is left alone"
    wait_for_controllers(fleet.cluster)
    installation.wait_until_ready()
    assert installation.pod()["metadata"]["uid"] != deleted


def test_an_operator_outlives_the_api_server_and_finishes_the_fan_out_itself(
    fleet: PodFleet, engines: list[PodEngine], installation: Installation
) -> None:
    before = installation.pod()
    fleet.want("paused")
    in_the_middle(engines)
    kill_api_server()

    wait_for_api_server(fleet.cluster)
    fleet.wait("Paused", within=RECOVERY_SECONDS)
    assert all(engine.is_paused() for engine in engines)
    assert all(len(engine.posts()) == 1 for engine in engines)

    # It hears of what happens afterwards, too: its watches are open again.
    fleet.want("running")
    fleet.wait("Paused", "False")
    after = installation.pod()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert [status["restartCount"] for status in after["status"]["containerStatuses"]] == [0]
