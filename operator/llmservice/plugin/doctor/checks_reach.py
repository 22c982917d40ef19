"""Why an engine gives no answer: how the call failed tells what to suspect."""

from collections.abc import Iterable

from llmservice import api
from llmservice.api import TargetStatus
from llmservice.domain.fleet import Pod
from llmservice.plugin.doctor.described import and_more, declared, heard, named, port_of, probed
from llmservice.plugin.doctor.facts import Facts
from llmservice.plugin.doctor.finding import Finding, problem


def port_is_declared_by_nobody(facts: Facts) -> Iterable[Finding]:
    """Declaring ports is not needed; where others are declared and this one does not answer it is a likely mistake."""
    silent = {each.pod for each in facts.targets if each.state == "unreachable"}
    for port in facts.service.spec.engine.ports:
        odd = [pod for pod, _ in facts.members if pod.name in silent and _declares_others_only(pod, port)]
        if odd:
            yield problem(
                "WrongPort",
                f"port {port} of {odd[0].name}{and_more(len(odd))} does not answer, and its containers declare other ports",
                [
                    f"{facts.path} spec.engine.ports: {list(facts.service.spec.engine.ports)}; "
                    f"pod/{odd[0].name} declares {declared(facts, odd[0].name)}"
                ],
                [
                    "Ports are immutable: delete the LLMService (its engines stay as they are) and create it with the port "
                    f"that the engine listens on: kubectl delete {api.CRD_NAME} {facts.name} {facts.where}"
                ],
            )


def engines_are_unreachable(facts: Facts) -> Iterable[Finding]:
    """How the call failed tells what to suspect."""
    groups: dict[str, list[TargetStatus]] = {}
    for each in facts.targets:
        if each.state == "unreachable":
            groups.setdefault(_kind(each.message or ""), []).append(each)
    for kind, concerned in groups.items():
        yield _EXPLANATIONS.get(kind, _unanswered)(facts, concerned)


def certificates_are_missing(facts: Facts) -> Iterable[Finding]:
    """``spec.engine.tls.caConfigMap``."""
    tls = facts.service.spec.engine.tls
    if facts.trust is None or not facts.trust.is_known or tls is None:
        return
    name = tls.ca_config_map
    has_key = any("ca.crt" in (item.get("data") or {}) for item in facts.trust.items)
    if not has_key:
        what = "has no key ca.crt" if facts.trust.items else "does not exist"
        yield problem(
            "CertificatesMissing",
            f"ConfigMap {name}, which says whom to trust, {what}: no engine can be called",
            [f"{facts.path} spec.engine.tls.caConfigMap: {name}; configmap/{name} {what}"],
            [f"kubectl create configmap {name} {facts.where} --from-file=ca.crt=PATH"],
        )


def _refused(facts: Facts, concerned: list[TargetStatus]) -> Finding:
    port = facts.service.spec.engine.ports[0]
    return problem(
        "NotListening",
        f"{named(concerned)}: the container is ready, and nothing listens on that port at the pod's address",
        [*heard(concerned), *probed(facts, concerned)],
        [
            f"See on which address and port it listens: kubectl exec {concerned[0].pod} {facts.where} -- "
            f"curl -sS http://127.0.0.1:{port}/version",
            "If that answers, it is bound to 127.0.0.1: start vLLM with --host 0.0.0.0; if not, spec.engine.ports is wrong, "
            "or a readiness probe is missing and it still starts",
        ],
    )


def _timed_out(facts: Facts, concerned: list[TargetStatus]) -> Finding:
    policies = [
        str(item["metadata"]["name"])
        for item in facts.policies.items
        if "Ingress" in (item["spec"].get("policyTypes") or ["Ingress"])
        and {pod.name for pod in facts.selected_by(item["spec"].get("podSelector") or {})} & {e.pod for e in concerned}
    ]
    how = [*heard(concerned), *probed(facts, concerned)]
    namespace, _, _ = facts.operator
    if policies:
        return problem(
            "NetworkPolicySuspected",
            f"{named(concerned)} give{'s' if len(concerned) == 1 else ''} the operator no answer, and NetworkPolicy "
            f"{', '.join(policies)} decides who may reach it",
            [*how, *(f"networkpolicy/{name} spec.podSelector selects pod/{concerned[0].pod}" for name in policies)],
            [
                f"kubectl describe networkpolicy {' '.join(policies)} {facts.where}",
                f"Let the operator in (namespace {namespace}): an ingress rule with namespaceSelector "
                f"kubernetes.io/metadata.name={namespace} and podSelector app.kubernetes.io/component=operator",
            ],
        )
    return problem(
        "NoAnswer",
        f"{named(concerned)} give{'s' if len(concerned) == 1 else ''} the operator no answer in time: the engine hangs or is "
        "overloaded, or the network drops what is sent (a policy of the cluster, a cloud's firewall)",
        how if facts.policies.is_known else [*how, "networkpolicies could not be looked at"],
        [
            f"kubectl exec {concerned[0].pod} {facts.where} -- curl -sS -m 5 "
            f"http://127.0.0.1:{port_of(concerned[0].url)}/is_paused",
            "If that answers at once, it is the network; if it is only slow, raise spec.requestTimeoutSeconds "
            f"({facts.service.spec.request_timeout_seconds} now)",
        ],
    )


def _cut(facts: Facts, concerned: list[TargetStatus]) -> Finding:
    scheme = facts.service.spec.engine.scheme
    return problem(
        "MeshOrTLS",
        f"{named(concerned)} end{'s' if len(concerned) == 1 else ''} the connection without an answer: a service mesh that "
        f"demands mTLS, or the wrong scheme (spec.engine.scheme is {scheme})",
        [*heard(concerned), *probed(facts, concerned)],
        [
            f"kubectl get pod {concerned[0].pod} {facts.where} -o jsonpath='{{.spec.containers[*].name}}'  # istio-proxy?",
            "With a mesh: exempt the port, or put the operator into the mesh; with TLS: "
            f"kubectl patch {api.CRD_NAME} {facts.name} {facts.where} --type=merge "
            '-p \'{"spec":{"engine":{"scheme":"https"}}}\'',
        ],
    )


def _tls(facts: Facts, concerned: list[TargetStatus]) -> Finding:
    return problem(
        "CertificateRefused",
        f"{named(concerned)}: TLS fails; the certificate is not trusted, or carries another name",
        heard(concerned),
        [
            "See spec.engine.tls: caConfigMap says whom to trust, serverName which name the certificate carries "
            "(default: the pod's address)",
        ],
    )


def _unanswered(facts: Facts, concerned: list[TargetStatus]) -> Finding:
    return problem(
        "Unreachable",
        f"{named(concerned)} give{'s' if len(concerned) == 1 else ''} the operator no valid answer",
        [*heard(concerned), *probed(facts, concerned)],
        [f"kubectl logs {concerned[0].pod} {facts.where} --tail=50"],
    )


_EXPLANATIONS = {"refused": _refused, "timed out": _timed_out, "cut": _cut, "tls": _tls}


def _kind(message: str) -> str:
    if "was refused" in message:
        return "refused"
    if "was not answered within" in message or "no connection to" in message or message == "no answer yet":
        return "timed out"
    if "ended without an answer" in message:
        return "cut"
    return "tls" if message.startswith("TLS with") else ""


def _declares_others_only(pod: Pod, port: int | str) -> bool:
    declared = [name for container in pod.containers for name in container.ports]
    return bool(declared) and port not in declared
