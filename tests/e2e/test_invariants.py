"""The watcher that looks on during every test does see what it looks for."""

from collections.abc import Iterator

import pytest

from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.kind.installation import Installation
from llmservice_testing.kind.invariants import Invariants
from llmservice_testing.kind.pods import PATIENCE_SECONDS, PodFleet, seconds_up


@pytest.fixture
def deserted(cluster: Cluster, installation: Installation, namespace: str) -> Iterator[PodFleet]:
    """A paused fleet whose operator has gone: nobody corrects its status any more."""
    fleet = PodFleet(cluster, namespace)
    fleet.deploy(2)
    fleet.declare("paused")
    fleet.wait("Paused")
    wait_until(lambda: min(map(seconds_up, fleet.pods())) > 6, PATIENCE_SECONDS, what="engines that are not young")
    installation.scale(0)
    yield fleet
    installation.scale(1)
    installation.wait_until_ready()


def test_it_sees_that_an_engine_generates_under_a_status_that_says_paused(cluster: Cluster, deserted: PodFleet) -> None:
    with Invariants(cluster, [deserted.namespace]) as invariants:
        wait_until(lambda: invariants.looks > 2, PATIENCE_SECONDS, what="the watcher looking")
        invariants.check()
        liar, _ = deserted.engines()
        liar.change("resume")
        wait_until(lambda: invariants.violations, PATIENCE_SECONDS, what="a violation")
    with pytest.raises(AssertionError, match=rf"paused is true while these engines generate: {liar.name} \(R18\)"):
        invariants.check()


def test_it_sees_observed_generations_that_go_back_or_are_ahead(cluster: Cluster, deserted: PodFleet) -> None:
    with Invariants(cluster, [deserted.namespace]) as invariants:
        wait_until(lambda: invariants.looks, PATIENCE_SECONDS, what="the watcher looking")
        for observed, said in ((7, "ahead of generation"), (0, "went back from 7 to 0")):
            forged = {"status": {"observedGeneration": observed}}
            cluster.patch_llmservice(deserted.namespace, deserted.name, forged, subresource="status")
            wait_until(
                lambda said=said: any(said in seen for seen in invariants.violations),  # type: ignore[misc]
                PATIENCE_SECONDS,
                what=said,
            )
