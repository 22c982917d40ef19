"""Many LLMServices in one process, and several processes with namespaces of their own."""

import concurrent.futures
import uuid
from collections.abc import Callable

import pytest

from llmservice_testing.builders import make_llmservice
from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Addresses, Fleet
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.simulator import SimulatorThread

COUNT = 120
"""More than the connections that a client of Kubernetes has in its pool by default, each held by a watch."""


@pytest.mark.promise("apart", "bounded", fault="more LLMServices than a pool has connections")
def test_more_llmservices_than_a_default_pool_has_connections(
    fleet: Fleet, cluster: Cluster, own_operator: OperatorProcess
) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        names = [f"many-{number:03}" for number in range(COUNT)]
        list(
            pool.map(
                lambda name: cluster.create_llmservice(
                    fleet.namespace, make_llmservice(name).selector(app=name).generation("paused")
                ),
                names,
            )
        )

    def unseen() -> list[str]:
        return [
            service["metadata"]["name"]
            for service in cluster.list_llmservices(fleet.namespace)
            if service["status"]["observedGeneration"] < 1
        ]

    wait_until(lambda: not unseen(), PATIENCE_SECONDS * 2, what="all being seen", last=unseen)
    fleet.paused(2)  # one more, with engines, is served as ever
    fleet.want("running")
    fleet.wait("Paused", "False")
    assert own_operator.liveness() == 200


@pytest.fixture
def other_fleet(cluster: Cluster, simulator: SimulatorThread, addresses: Addresses) -> Fleet:
    """A fleet in a namespace of its own."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    cluster.create_namespace(name)
    return Fleet(cluster, simulator, addresses, name)


def test_an_operator_serves_its_own_namespaces_and_no_other(
    fleet: Fleet, other_fleet: Fleet, make_operator: Callable[..., OperatorProcess]
) -> None:
    mine, other = make_operator(), make_operator(namespaces=(other_fleet.namespace,))
    mine.start()
    other_fleet.grow(2)
    other_fleet.declare("paused")
    fleet.paused(2)
    fleet.let_pass(2)
    assert [engine.calls for engine in other_fleet.engines] == [(), ()]
    assert other_fleet.status()["observedGeneration"] == -1

    other.start()
    other_fleet.wait("Ready", reason="InDesiredState")
    mine.kill()
    fleet.want("running")
    other_fleet.want("running")
    other_fleet.wait("Paused", "False")
    other_fleet.let_pass(2)
    assert fleet.all_paused()
    assert len(fleet.posts()) == 2
    other_fleet.close()


def test_one_operator_serves_several_namespaces(
    fleet: Fleet, other_fleet: Fleet, make_operator: Callable[..., OperatorProcess]
) -> None:
    make_operator(namespaces=(fleet.namespace, other_fleet.namespace)).start()
    other_fleet.paused(1)
    fleet.paused(1)
    other_fleet.close()
