"""R12: of LLMServices that select the same pod the oldest owns it; for the others it is no target."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from llmservice_testing.builders import Json
from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, condition

pytestmark = pytest.mark.usefixtures("operator")

TEAM = {"matchLabels": {"team": "rl"}}
BOTH = {"app": "qwen", "team": "rl"}


def a_second_later(service: Json) -> None:
    """creationTimestamp has a resolution of one second, and between equals the UID decides."""
    created = datetime.fromisoformat(service["metadata"]["creationTimestamp"])
    wait_until(
        lambda: (datetime.now(UTC) - created).total_seconds() > 1,
        PATIENCE_SECONDS,
        what="another second, " + time.ctime(),
    )


@pytest.fixture
def young(make_fleet: Callable[..., Fleet]) -> Fleet:
    """The younger LLMService; its pods are those of `fleet`."""
    return make_fleet(name="young")


def test_r12_the_older_owns_a_shared_pod_and_the_younger_is_stalled(fleet: Fleet, young: Fleet) -> None:
    shared = fleet.add(labels=BOTH)
    a_second_later(fleet.declare("paused"))
    young.declare("running", selector=TEAM)
    service = young.wait("Stalled", reason="PodsClaimed")
    stalled = condition(service, "Stalled")
    assert stalled is not None
    assert stalled["message"].startswith(shared.name)
    assert "qwen" in stalled["message"]
    young.wait("Ready", "False", "PodsClaimed")
    assert young.targets() == {}
    assert "targetStates" not in young.status() or young.status()["targetStates"] == []
    fleet.wait("Ready", reason="InDesiredState")
    fleet.let_pass(3)
    assert [call.path for call in shared.engine.posts()] == ["/pause"]


def test_r12_the_younger_drives_the_pods_that_are_its_own(fleet: Fleet, young: Fleet) -> None:
    fleet.add(labels=BOTH)
    own = young.add(labels={"team": "rl"})
    a_second_later(fleet.declare("running"))
    young.declare("paused", selector=TEAM)
    young.wait("Stalled", reason="PodsClaimed")
    wait_until(lambda: own.engine.paused, PATIENCE_SECONDS, what="its own pod being paused")
    young.wait_for_targets(total=1, paused=1)
    assert not fleet.all_paused()


def test_r12_when_the_older_is_deleted_its_pods_are_handed_over(fleet: Fleet, young: Fleet, cluster: Cluster) -> None:
    shared = fleet.add(labels=BOTH)
    a_second_later(fleet.declare("paused"))
    fleet.wait("Paused")
    young.declare("running", selector=TEAM)
    young.wait("Stalled", reason="PodsClaimed")
    cluster.delete_llmservice(fleet.namespace, fleet.name)
    young.wait("Ready", reason="InDesiredState")
    assert not shared.engine.paused
    assert [call.path for call in shared.engine.posts()] == ["/pause", "/resume"]


def test_r12_a_pod_that_gains_the_older_ones_labels_changes_hands(fleet: Fleet, young: Fleet, cluster: Cluster) -> None:
    fleet.add()
    moving = young.add(labels={"team": "rl"})
    a_second_later(fleet.declare("running"))
    young.declare("paused", selector=TEAM)
    young.wait("Paused")
    cluster.patch_pod(fleet.namespace, moving.name, {"metadata": {"labels": {"app": "qwen"}}})
    young.wait("Stalled", reason="PodsClaimed")
    fleet.wait_for_targets(total=2, running=2)
    assert [call.path for call in moving.engine.posts()] == ["/pause", "/resume"]


def test_r12_deleting_the_younger_touches_nothing(fleet: Fleet, young: Fleet, cluster: Cluster) -> None:
    fleet.add(labels=BOTH)
    a_second_later(fleet.declare("paused"))
    young.declare("running", selector=TEAM)
    young.wait("Stalled", reason="PodsClaimed")
    cluster.delete_llmservice(fleet.namespace, young.name)
    fleet.let_pass(3)
    fleet.wait("Ready", reason="InDesiredState")
    assert len(fleet.posts()) == 1


def test_a_deleted_llmservice_leaves_its_engines_as_they_are(fleet: Fleet, cluster: Cluster) -> None:
    (member,) = fleet.paused().members
    cluster.delete_llmservice(fleet.namespace, fleet.name)
    # Another one proves that the operator has seen the deletion: it takes the pod over without having to call it.
    fleet.declare("paused")
    fleet.wait("Ready", reason="InDesiredState")
    assert member.engine.paused
    assert len(member.engine.posts()) == 1
