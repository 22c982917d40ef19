"""The Services that lead to the fleet's pods."""

from collections.abc import Iterable

from llmservice import api
from llmservice.domain.fleet import Pod
from llmservice.plugin.doctor.facts import Facts, Item
from llmservice.plugin.doctor.finding import Finding, note, problem, warning


def service_has_no_endpoints(facts: Facts) -> Iterable[Finding]:
    """On purpose while the gates are closed, else not."""
    if not facts.slices.is_known:
        return
    for service, pods in _client_services(facts):
        if _routed(facts, service):
            continue
        name = service["metadata"]["name"]
        how = [f"service/{name} spec.selector: {service['spec']['selector']}; its EndpointSlices: no ready endpoint"]
        gated = [pod for pod in pods if pod.gate is not None]
        if facts.is_paused and len(gated) == len(pods):
            yield note(
                "ServiceEmptied",
                f"Service {name} has no endpoints, as it should be while the pods with the readiness gate are paused",
                how,
                [
                    "Who must reach paused pods needs a Service with publishNotReadyAddresses: true "
                    "(manifests/samples/services.yaml)"
                ],
            )
            continue
        closed = [pod.name for pod in gated if not (pod.gate and pod.gate.serving)]
        why = f"; the readiness gate of {closed[0]} is closed" if closed else ""
        yield problem(
            "ServiceWithoutEndpoints",
            f"Service {name} selects {len(pods)} of the fleet's pods and routes to none: its clients get no answer",
            [f"{how[0]}{why}"],
            [
                f"kubectl get endpointslices {facts.where} -l kubernetes.io/service-name={name} -o yaml",
                f"kubectl get pods {facts.where}",
            ],
        )


def service_routes_to_paused_pods(facts: Facts) -> Iterable[Finding]:
    """``/health`` stays 200 while paused, so readiness does not help by itself."""
    paused = {each.pod for each in facts.targets if each.state in ("paused", "pausing")}
    for service, pods in _client_services(facts):
        name = service["metadata"]["name"]
        routed = _routed(facts, service)
        concerned = sorted(pod.name for pod in pods if pod.name in paused and pod.name in routed)
        if not concerned:
            continue
        ungated = [pod.name for pod in pods if pod.name in concerned and pod.gate is None]
        more = f" (and {len(concerned) - 1} more)" if len(concerned) > 1 else ""
        yield warning(
            "ServiceRoutesToPaused",
            f"Service {name} still sends requests to {concerned[0]}{more}, paused: they wait there for the resume, or get 503",
            [
                f"an EndpointSlice of service/{name} has pod/{concerned[0]} with ready: true",
                f"pod/{concerned[0]} spec.readinessGates: "
                + (f"no {api.READINESS_GATE}" if ungated else f"{api.READINESS_GATE}, and not closed yet"),
            ],
            [
                f"Give the pods of {facts.workload or 'the fleet'} the readiness gate, so that they leave the Service: "
                "spec.template.spec.readinessGates: [{conditionType: " + api.READINESS_GATE + "}]"
                if ungated
                else "See whether the operator may close the gate: "
                f"kubectl auth can-i patch pods --subresource=status --as={facts.account} {facts.where}"
            ],
        )


def _client_services(facts: Facts) -> Iterable[tuple[Item, list[Pod]]]:
    """Those for clients, with the members that each selects. One that publishes pods that are not ready is for whoever
    controls them."""
    for service in facts.services.items:
        spec = service.get("spec") or {}
        pods = facts.matching(spec.get("selector"))
        if pods and not spec.get("publishNotReadyAddresses") and spec.get("type") != "ExternalName":
            yield service, pods


def _routed(facts: Facts, service: Item) -> set[str]:
    """The names of the pods that a Service sends requests to."""
    namesakes = [
        item
        for item in facts.slices.items
        if (item["metadata"].get("labels") or {}).get("kubernetes.io/service-name") == service["metadata"]["name"]
    ]
    return {
        str((endpoint.get("targetRef") or {}).get("name", ""))
        for item in namesakes
        for endpoint in item.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
    }
