"""CASES 45: an autoscaler shrinks a fleet that does no work. A pause says so, once, and names it."""

from typing import Any

import pytest

from llmservice_testing.fleet import Fleet

pytestmark = pytest.mark.usefixtures("operator")

METRIC = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}


def grow(fleet: Fleet, count: int, kind: str = "ReplicaSet", name: str = "qwen-5d4f8") -> None:
    for _ in range(count):
        member = fleet.add(create=False)
        member.pod.owner(kind, name).labels({"pod-template-hash": "5d4f8"} if kind == "ReplicaSet" else {})
        fleet.cluster.create_pod(fleet.namespace, member.pod)


def autoscale(fleet: Fleet, name: str, kind: str, target: str, **spec: Any) -> None:
    spec = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": target}, "metrics": [METRIC], **spec}
    fleet.cluster.apply(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name},
            "spec": {"maxReplicas": 8} | spec,
        },
        namespace=fleet.namespace,
    )


@pytest.mark.parametrize(
    ("owner", "kind", "target"), [("qwen-5d4f8", "Deployment", "qwen"), ("qwen", "StatefulSet", "qwen")]
)
def test_case_45_an_autoscaler_that_may_shrink_the_fleet_is_named_once(
    fleet: Fleet, owner: str, kind: str, target: str
) -> None:
    grow(fleet, 3, "ReplicaSet" if kind == "Deployment" else kind, owner)
    autoscale(fleet, "theirs", kind, "another")
    autoscale(fleet, "ours", kind, target, minReplicas=2)
    fleet.declare("paused")
    event = fleet.wait_for_event("AutoscalerShrinks")
    assert event["type"] == "Warning"
    assert f"HorizontalPodAutoscaler ours scales {kind} {target}" in event["message"]
    assert "from 3 to 2" in event["message"]
    fleet.let_pass(3)
    assert len(fleet.events("AutoscalerShrinks")) == 1
    fleet.want("running")
    fleet.wait_for_event("Resumed")
    assert len(fleet.events("AutoscalerShrinks")) == 1
    fleet.want("paused")
    fleet.wait_for_event("AutoscalerShrinks", times=2)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"minReplicas": 2}, id="it may take none away"),
        pytest.param({"behavior": {"scaleDown": {"selectPolicy": "Disabled"}}}, id="it is forbidden to shrink"),
    ],
)
def test_an_autoscaler_that_takes_no_pod_away_is_no_news(fleet: Fleet, spec: dict[str, Any]) -> None:
    grow(fleet, 2)
    autoscale(fleet, "ours", "Deployment", "qwen", **spec)
    fleet.declare("paused")
    fleet.wait_for_event("Paused")
    fleet.let_pass(2)
    assert fleet.events("AutoscalerShrinks") == []
