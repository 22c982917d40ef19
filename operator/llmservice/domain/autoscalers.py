"""Autoscalers: a fleet that is paused does no work, and looks as if it were too large."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from llmservice.domain.fleet import Owner, Pod
from llmservice.domain.transitions import Event, EventReason


def may_shrink_to(autoscaler: Mapping[str, Any], owners: Collection[Owner], number: int) -> int | None:
    """How many of ``number`` pods with these owners a HorizontalPodAutoscaler (JSON, ``autoscaling/v2``) may leave; None where
    it scales something else or takes none away."""
    spec = autoscaler["spec"]
    scaled = (spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"])
    least = int(spec.get("minReplicas", 1))
    if scaled not in owners or least >= number or select_policy(autoscaler) == "Disabled":
        return None
    return least


def select_policy(autoscaler: Mapping[str, Any]) -> str | None:
    """``spec.behavior.scaleDown.selectPolicy``."""
    behavior = autoscaler["spec"].get("behavior") or {}
    found = (behavior.get("scaleDown") or {}).get("selectPolicy")
    return str(found) if found else None


def warning(autoscalers: Iterable[Mapping[str, Any]], pods: Collection[Pod]) -> Event | None:
    """What is to be said of a pause that begins; None where no autoscaler takes pods away from it."""
    owners = {owner for pod in pods for owner in pod.owners}
    for each in autoscalers:
        least = may_shrink_to(each, owners, len(pods))
        if least is not None:
            target = each["spec"]["scaleTargetRef"]
            message = (
                f"HorizontalPodAutoscaler {each['metadata']['name']} scales {target['kind']} {target['name']}, which does no "
                f"work while it is paused, and may be shrunk from {len(pods)} to {least}. To forbid it, set "
                "spec.behavior.scaleDown.selectPolicy of the HorizontalPodAutoscaler to Disabled"
            )
            return Event(EventReason.AUTOSCALER_SHRINKS, message, warning=True)
    return None
