"""Autoscalers: a fleet that is paused does no work, and looks as if it were too large."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from llmservice.domain.fleet import Owner, Pod
from llmservice.domain.transitions import Event, EventReason


def may_shrink(autoscaler: Mapping[str, Any], owners: Iterable[Collection[Owner]]) -> tuple[int, int] | None:
    """From how many pods to how many a HorizontalPodAutoscaler (JSON, ``autoscaling/v2``) may shrink a fleet whose pods have
    these ``owners``, a collection for each; None where it scales none of them or takes none away."""
    spec = autoscaler["spec"]
    scaled = (spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"])
    number, least = sum(scaled in each for each in owners), int(spec.get("minReplicas", 1))
    return (number, least) if least < number and select_policy(autoscaler) != "Disabled" else None


def select_policy(autoscaler: Mapping[str, Any]) -> str | None:
    """``spec.behavior.scaleDown.selectPolicy``."""
    behavior = autoscaler["spec"].get("behavior") or {}
    found = (behavior.get("scaleDown") or {}).get("selectPolicy")
    return str(found) if found else None


def warnings(autoscalers: Iterable[Mapping[str, Any]], pods: Collection[Pod]) -> Iterator[Event]:
    """What is to be said of a pause that begins: an Event for each autoscaler that may take pods away from it."""
    for each in autoscalers:
        found = may_shrink(each, (pod.owners for pod in pods))
        if found is not None:
            target, (number, least) = each["spec"]["scaleTargetRef"], found
            message = (
                f"HorizontalPodAutoscaler {each['metadata']['name']} scales {target['kind']} {target['name']}, which does no "
                f"work while it is paused, and may be shrunk from {number} to {least}. To forbid it, set "
                "spec.behavior.scaleDown.selectPolicy of the HorizontalPodAutoscaler to Disabled"
            )
            yield Event(EventReason.AUTOSCALER_SHRINKS, message, warning=True)
