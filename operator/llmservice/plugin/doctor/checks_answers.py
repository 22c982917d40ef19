"""What engines answer: mostly the operator's word, from ``status.targetStates``, explained by the pods."""

from collections.abc import Iterable
from typing import Any

from llmservice import api
from llmservice.api import Desired, EngineType, PauseMode, Reason
from llmservice.domain import ownership
from llmservice.plugin.doctor.checks_pods import listeners
from llmservice.plugin.doctor.described import are, container, declared, heard, named, port_of, with_reason
from llmservice.plugin.doctor.facts import Facts, Item
from llmservice.plugin.doctor.finding import Finding, note, problem, warning

DEV_MODE = "VLLM_SERVER_DEV_MODE"
_ON = ("1", "true")


def control_routes_are_missing(facts: Facts) -> Iterable[Finding]:
    """404 has two causes that look alike from outside, and the pod's spec tells them apart."""
    concerned = with_reason(facts, Reason.ENDPOINT_MISSING)
    if not concerned:
        return
    if facts.service.spec.engine.type is EngineType.RAY_SERVE:
        yield problem(
            "ControlRoutesMissing",
            f"{named(concerned)}: the Ray Serve application has no control routes",
            heard(concerned),
            ["Build it with the DevIngress, and see that spec.engine.rootPath is its route prefix"],
        )
        return
    off = [each for each in concerned if _dev_mode(facts, each.pod) is False]
    unsure = [each for each in concerned if each not in off]
    port = facts.service.spec.engine.ports[0]
    if off:
        listening = container(facts, off[0].pod)
        yield problem(
            "DevModeOff",
            f"{named(off)} show{'s' if len(off) == 1 else ''} no control routes, as dev mode is off",
            [*heard(off), f"pod/{off[0].pod} spec.containers[{listening}].env: no {DEV_MODE}=1"],
            [_set_dev_mode(facts, listening)],
        )
    if unsure:
        root = facts.service.spec.engine.root_path
        ports = declared(facts, unsure[0].pod)
        yield problem(
            "WrongPort",
            f"something answers on port {port} of {named(unsure)}, and knows no /is_paused: another port, another "
            "path, or dev mode set by other means and off",
            [
                *heard(unsure),
                f"{facts.path} spec.engine.ports: {list(facts.service.spec.engine.ports)}, rootPath: {root!r}; "
                f"pod/{unsure[0].pod} declares {ports}",
                f"pod/{unsure[0].pod} env {DEV_MODE}: {_dev_mode_words(facts, unsure[0].pod)}",
            ],
            [
                f"kubectl logs {unsure[0].pod} {facts.where} | grep -iE 'uvicorn|listening|dev'",
                "Ports are immutable: delete the LLMService and create it with the right spec.engine.ports; "
                "rootPath can be patched (vLLM's --root-path)",
            ],
        )


def port_is_missing(facts: Facts) -> Iterable[Finding]:
    """A named port that no container has."""
    concerned = with_reason(facts, Reason.PORT_MISSING)
    if concerned:
        names = [port for port in facts.service.spec.engine.ports if isinstance(port, str)]
        yield problem(
            "PortMissing",
            f"no container of {named(concerned)} has a port named {' or '.join(names)}",
            [
                f"{facts.path} spec.engine.ports: {list(facts.service.spec.engine.ports)}",
                f"pod/{concerned[0].pod} declares {declared(facts, concerned[0].pod)}",
            ],
            [f"Name the container's port so in {facts.workload or 'what makes the pods'}"],
        )


def key_is_demanded(facts: Facts) -> Iterable[Finding]:
    """vLLM's own ``--api-key`` does not guard the control routes, so something else does."""
    concerned = with_reason(facts, Reason.UNAUTHORIZED)
    if concerned:
        yield problem(
            "KeyDemanded",
            f"{named(concerned)} demand{'s' if len(concerned) == 1 else ''} a key, and the operator has none",
            heard(concerned),
            [
                "vLLM's --api-key guards /v1 alone: look for a proxy or sidecar before the engine, or a middleware "
                f"(--middleware): kubectl get pod {concerned[0].pod} {facts.where} -o jsonpath='{{.spec.containers[*].name}}'",
                "Let /is_paused, /pause, /resume, /version, /server_info pass there for the operator",
            ],
        )


def mode_is_not_supported(facts: Facts) -> Iterable[Finding]:
    """Nothing else is done instead."""
    concerned = with_reason(facts, Reason.UNSUPPORTED_MODE)
    if concerned:
        mode = facts.service.spec.pause.mode
        yield problem(
            "UnsupportedMode",
            f"{named(concerned)} ({concerned[0].version or 'version unknown'}) cannot pause with mode {mode}, "
            "and nothing was sent instead",
            [*heard(concerned), f"{facts.path} spec.pause.mode: {mode}"],
            [
                f"kubectl patch {api.CRD_NAME} {facts.name} {facts.where} --type=merge "
                '-p \'{"spec":{"pause":{"mode":"abort"}}}\'  # requests in flight end at once',
                "Or upgrade the engine: keep needs vLLM 0.17",
            ],
        )


def engine_refuses(facts: Facts) -> Iterable[Finding]:
    """For good, or by dying."""
    concerned = with_reason(facts, Reason.ENGINE_ERROR)
    if concerned:
        yield problem(
            "EngineError",
            f"{named(concerned)} refuse{'s' if len(concerned) == 1 else ''} a call for good",
            heard(concerned),
            [f"kubectl logs {concerned[0].pod} {facts.where} --tail=50", *_after_mending(facts)],
        )
    dead = with_reason(facts, Reason.ENGINE_DIED)
    if dead:
        yield problem(
            "EngineDied",
            f"{named(dead)} died twice within 30 s of a call, and is left alone until the spec or the pod changes",
            heard(dead),
            [f"kubectl logs {dead[0].pod} {facts.where} --previous --tail=50", *_after_mending(facts)],
        )
    missing = with_reason(facts, Reason.MODEL_NOT_FOUND)
    if missing:
        yield problem(
            "ModelNotFound",
            f"the application has no model {facts.service.spec.engine.model}",
            [*heard(missing), f"{facts.path} spec.engine.model: {facts.service.spec.engine.model}"],
            ["See its names under /v1/models; the field is immutable: delete the LLMService and create it anew"],
        )


def engines_are_asleep(facts: Facts) -> Iterable[Finding]:
    """They satisfy paused; running is not theirs to give before somebody wakes them."""
    asleep = [each for each in facts.targets if each.state == "sleeping"]
    if asleep and facts.service.spec.generation is Desired.RUNNING:
        url = asleep[0].url or ""
        yield problem(
            "Sleeping",
            f"{named(asleep)} {are(asleep)} asleep, and an engine that sleeps is never called",
            [f"{facts.path} status.targetStates[{asleep[0].pod}].state: sleeping"],
            [
                f"kubectl exec {asleep[0].pod} {facts.where} -- curl -fsS -X POST "
                f"http://127.0.0.1:{port_of(url)}{facts.service.spec.engine.root_path}/wake_up",
            ],
        )


def drain_is_under_way(facts: Facts) -> Iterable[Finding]:
    """It takes as long as the longest request."""
    last = facts.service.status.last_pause
    if not facts.snapshot.is_current or last is None or last.answered or last.mode is not PauseMode.WAIT:
        return
    pausing = [each for each in facts.targets if each.state == "pausing"]
    if pausing:
        yield note(
            "Draining",
            f"{named(pausing)} {are(pausing)} finishing running requests first (mode wait), for at most "
            f"{facts.service.spec.pause.timeout_seconds} s",
            [f"{facts.path} status.lastPause: mode wait, answered false"],
            [
                "To call the drain off and end the requests (vLLM 0.17 and newer): "
                f"kubectl patch {api.CRD_NAME} {facts.name} {facts.where} --type=merge "
                '-p \'{"spec":{"pause":{"mode":"abort"}}}\'',
                f"To call the pause off: kubectl llm resume {facts.name} {facts.where}",
            ],
        )


def engines_say_otherwise(facts: Facts) -> Iterable[Finding]:
    """An answer from now against the operator's last word."""
    listed = {(each.pod, port_of(each.url)): each for each in facts.targets if each.url}
    for probe in facts.probes:
        said = listed.get((probe.pod, str(probe.port)))
        if said is None or probe.is_paused is None or said.state not in ("paused", "running"):
            continue
        if (said.state == "paused") is not probe.is_paused:
            now = "paused" if probe.is_paused else "running"
            yield warning(
                "StatusOutdated",
                f"{probe.pod} is {now} at this moment, and the status says {said.state}: somebody called it by hand, or "
                "the operator is not there",
                [
                    f"GET pods/{probe.pod}:{probe.port}/proxy/is_paused: {probe.words}; status.targetStates: {said.state}"
                ],
                [
                    f"Ask for a fresh read: kubectl llm doctor {facts.name} {facts.where} --verify",
                    f"A running operator brings it back within {facts.service.spec.resync_seconds} s (spec.resyncSeconds)",
                ],
            )


def _after_mending(facts: Facts) -> list[str]:
    return [f"After mending the engine, a new pod is called again: kubectl delete pod NAME {facts.where}"]


def _env(facts: Facts, pod_name: str) -> list[tuple[str, Any]] | None:
    """The environment of the container that listens; None where that is not known."""
    item = facts.raw_pod(pod_name)
    pod = next((pod for pod, _ in facts.members if pod.name == pod_name), None)
    if item is None or pod is None:
        return None
    names = {each.name for each in listeners(facts, pod)} or {each.name for each in pod.containers}
    specs: list[Item] = [each for each in item["spec"]["containers"] if each["name"] in names]
    if any(each.get("envFrom") for each in specs):
        return None
    return [(str(one["name"]), one) for each in specs for one in each.get("env") or ()]


def _dev_mode(facts: Facts, pod_name: str) -> bool | None:
    """Whether the pod's spec switches it on; None where the spec does not tell."""
    env = _env(facts, pod_name)
    if env is None:
        return None
    found = dict(env).get(DEV_MODE)
    if found is None:
        return False
    return str(found["value"]).lower() in _ON if "value" in found else None


def _dev_mode_words(facts: Facts, pod_name: str) -> str:
    return {True: "on", False: "off", None: "set by other means, not visible in the pod"}[_dev_mode(facts, pod_name)]


def _set_dev_mode(facts: Facts, listening: str) -> str:
    if facts.workload is not None and not facts.workload.startswith("leaderworkerset"):
        chosen = f" -c {listening}" if listening != "*" else ""
        return f"kubectl set env {facts.workload} {DEV_MODE}=1{chosen} {facts.where}  # restarts the pods"
    query = ownership.to_query(facts.service.spec.selector)
    return f"Start the engine with {DEV_MODE}=1 in the pod's template (kubectl get pods -l '{query}' {facts.where})"
