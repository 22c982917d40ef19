"""What else acts on the pods, and what could not be looked at."""

from collections.abc import Iterable

from llmservice.api import READINESS_GATE, Desired, PauseMode
from llmservice.domain import autoscalers
from llmservice.plugin.doctor.facts import Facts
from llmservice.plugin.doctor.finding import Finding, note, warning


def autoscaler_will_shrink_the_fleet(facts: Facts) -> Iterable[Finding]:
    """A paused fleet does no work, and looks idle; one without a ready pod looks even idler."""
    if facts.service.spec.generation is not Desired.PAUSED:
        return
    for item in facts.autoscalers.items:
        name, target = item["metadata"]["name"], item["spec"]["scaleTargetRef"]
        found = autoscalers.may_shrink(item, (facts.owners_of(member) for _, member in facts.members))
        if found is None:
            continue
        number, least = found
        lost = "; pods that go take their frozen requests along" if _keeps(facts) else ""
        yield warning(
            "AutoscalerShrinks",
            f"HorizontalPodAutoscaler {name} scales {target['kind']} {target['name']}: while it is paused it does no work, "
            f"and may be shrunk from {number} to {least}{lost}",
            [
                f"horizontalpodautoscaler/{name} spec.scaleTargetRef: {target['kind']}/{target['name']}, "
                f"minReplicas: {least}, maxReplicas: {item['spec'].get('maxReplicas')}, "
                f"behavior.scaleDown.selectPolicy: {autoscalers.select_policy(item) or 'absent'}"
            ],
            [
                f"kubectl patch hpa {name} {facts.where} --type=merge "
                '-p \'{"spec":{"behavior":{"scaleDown":{"selectPolicy":"Disabled"}}}}\'  '
                "# take it back after the resume"
            ],
        )


def budget_blocks_drains(facts: Facts) -> Iterable[Finding]:
    """Pods that are unready on purpose count against it."""
    for item in facts.budgets.items:
        spec, name = item["spec"], item["metadata"]["name"]
        pods = facts.selected_by(spec.get("selector"))
        gated = [pod.name for pod in pods if pod.gate is not None and not pod.gate.serving]
        if not gated or spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
            continue
        allowed = (item.get("status") or {}).get("disruptionsAllowed")
        yield warning(
            "BudgetBlocksDrains",
            f"PodDisruptionBudget {name} counts {gated[0]}{_more(gated)} as unhealthy while the readiness gate is closed, so "
            "draining a node waits until the resume",
            [
                f"poddisruptionbudget/{name} spec.unhealthyPodEvictionPolicy: "
                f"{spec.get('unhealthyPodEvictionPolicy', 'absent')}, status.disruptionsAllowed: {allowed}",
                f"pod/{gated[0]} condition {READINESS_GATE}: not True",
            ],
            [
                f"kubectl patch pdb {name} {facts.where} --type=merge "
                '-p \'{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}\''
            ],
        )


def not_looked_at(facts: Facts) -> Iterable[Finding]:
    """What may hide more."""
    for looked in facts.unseen:
        yield note("NotLookedAt", f"could not look at {looked.resource}", [looked.lack])
    if facts.unprobed:
        yield note(
            "NotProbed",
            "could not ask engines through the API server",
            [facts.unprobed],
            ["Nothing has to be done: it needs the right to get pods/proxy, and --no-probe leaves it out"],
        )


def _keeps(facts: Facts) -> bool:
    last = facts.service.status.last_pause
    return last is not None and last.mode is PauseMode.KEEP


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""
