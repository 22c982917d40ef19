"""The selected pods."""

from collections import Counter
from collections.abc import Iterable

from llmservice import api
from llmservice.api import Desired
from llmservice.domain import ownership
from llmservice.domain.fleet import Container, Pod
from llmservice.plugin.doctor.facts import Facts, Item
from llmservice.plugin.doctor.finding import Finding, problem, warning


def no_pods(facts: Facts) -> Iterable[Finding]:
    """A complete, empty list."""
    if facts.members or not facts.pods.is_known:
        return
    query = ownership.to_query(facts.service.spec.selector)
    ended = len(facts.pods.items)
    how = [f"pods -l {query} of namespace {facts.service.metadata.namespace}: none"]
    if ended:
        how = [f"pods -l {query}: {ended}, all of them terminating, Succeeded or Failed"]
    how.extend(_near_misses(facts))
    yield problem(
        "NoPods",
        "spec.selector selects no pod, so there is nothing to pause or resume",
        how,
        [
            f"kubectl get pods {facts.where} --show-labels",
            "A selector is immutable: give the pods its labels, or delete the LLMService and create it with another one",
        ],
    )


def _near_misses(facts: Facts) -> list[str]:
    """Other values of the same labels are the usual mistake."""
    found = []
    for key, value in (facts.service.spec.selector.match_labels or {}).items():
        values = Counter(
            str(item["metadata"]["labels"][key])
            for item in facts.others.items
            if key in (item["metadata"].get("labels") or {})
        )
        others = [f"{key}={each} ({number})" for each, number in values.most_common(3) if each != value]
        if others:
            found.append(f"other pods of the namespace have {', '.join(others)}")
    return found


def pods_do_not_run(facts: Facts) -> Iterable[Finding]:
    """They are ``starting`` and hold nothing back; but a crash loop does not end by waiting."""
    for pod, item in facts.members:
        scheduled = _condition(item, "PodScheduled")
        if scheduled is not None and scheduled.get("status") == "False":
            yield problem(
                "Unschedulable",
                f"{pod.name} has no node",
                [f"pod/{pod.name} condition PodScheduled: {scheduled.get('reason')}: {scheduled.get('message')}"],
                [f"kubectl describe pod {pod.name} {facts.where}"],
            )
        for status in (item.get("status") or {}).get("containerStatuses") or ():
            waiting = (status.get("state") or {}).get("waiting") or {}
            reason = waiting.get("reason", "")
            if reason and reason not in ("ContainerCreating", "PodInitializing"):
                before = (status.get("lastState") or {}).get("terminated") or {}
                last = f"; it last ended with {before.get('reason')} ({before.get('exitCode')})" if before else ""
                previous = " --previous" if before or status.get("restartCount") else ""
                yield problem(
                    "ContainerNotRunning",
                    f"container {status['name']} of {pod.name} does not run: {reason}{last}",
                    [
                        f"pod/{pod.name} status.containerStatuses[{status['name']}].state.waiting: {reason}"
                        f" {waiting.get('message', '')}".rstrip(),
                        f"restartCount: {status.get('restartCount', 0)}",
                    ],
                    [
                        f"kubectl logs {pod.name} -c {status['name']} {facts.where}{previous} --tail=50",
                        f"kubectl describe pod {pod.name} {facts.where}",
                    ],
                )


def operator_does_not_see_pods(facts: Facts) -> Iterable[Finding]:
    """A status about the present spec that does not know a pod that is there."""
    targets = facts.service.status.targets
    is_complete = targets is not None and targets.total <= api.MAX_TARGET_STATES
    if not (facts.snapshot.is_current and is_complete and facts.service.spec.engine.type is api.EngineType.VLLM):
        return
    if facts.stalled is not None and facts.stalled.reason == api.Reason.PODS_CLAIMED:
        return
    known = {each.pod_uid for each in facts.targets}
    unknown = [pod.name for pod, _ in facts.members if pod.uid not in known]
    if unknown:
        yield problem(
            "PodsUnseen",
            f"the status does not know {_some(unknown)}, which spec.selector selects: "
            "the operator does not see the pods at present, or they are seconds old",
            [f"{facts.path} status.targetStates: {len(known)} pods; pods that are selected: {len(facts.members)}"],
            [
                f"Ask again in some seconds: kubectl llm doctor {facts.name} {facts.where} --verify",
                f"kubectl auth can-i watch pods --as={facts.account} {facts.where}",
            ],
        )


def gate_has_no_condition(facts: Facts) -> Iterable[Finding]:
    """A pod whose gate nobody ever opened stays unready."""
    if facts.service.spec.generation is Desired.PAUSED:
        return
    ungated = [pod.name for pod, _ in facts.members if pod.gate is not None and pod.gate.serving is None]
    if ungated:
        do = [f"See that the operator runs, and may open it: {_may_open(facts)}"]
        if facts.service.spec.generation is None:
            do = [f"Where spec.generation is absent no gate is opened: kubectl llm resume {facts.name} {facts.where}"]
        yield problem(
            "GateWithoutOperator",
            f"{_some(ungated)} declare{'s' if len(ungated) == 1 else ''} the readiness gate {api.READINESS_GATE}, and "
            "nobody has opened it: such a pod is never ready",
            [f"pod/{ungated[0]} spec.readinessGates: {api.READINESS_GATE}; status.conditions: none of that type"],
            do,
        )


def gate_is_closed(facts: Facts) -> Iterable[Finding]:
    """Running is wanted and read, and the pod is still out of its Service."""
    if facts.service.spec.generation is not Desired.RUNNING:
        return
    running = {each.pod for each in facts.targets if each.state == "running"}
    closed = [pod.name for pod, _ in facts.members if pod.gate and pod.gate.serving is False and pod.name in running]
    if closed:
        yield problem(
            "GateClosed",
            f"{_some(closed)}: the engine runs, and its readiness gate is closed, so it gets no requests from its Service",
            [f"pod/{closed[0]} condition {api.READINESS_GATE}: False; {facts.path} status.targetStates: running"],
            [
                f"The operator opens it within seconds. If it stays, see whether it may: {_may_open(facts)}",
            ],
        )


def probe_is_missing(facts: Facts) -> Iterable[Finding]:
    """Without one a container counts as ready as soon as it runs."""
    bare: dict[str, list[str]] = {}
    for pod, item in facts.members:
        for container in listeners(facts, pod):
            spec = next(each for each in item["spec"]["containers"] if each["name"] == container.name)
            if not spec.get("readinessProbe"):
                bare.setdefault(container.name, []).append(pod.name)
    for container_name, pods in bare.items():
        unreachable = any(each.state == "unreachable" and each.pod in pods for each in facts.targets)
        make = problem if unreachable else warning
        yield make(
            "ProbeMissing",
            f"container {container_name} has no readiness probe: while it loads its model it counts as ready, is "
            "unreachable, and holds the fleet back",
            [f"pod/{pods[0]}{_more(pods)} spec.containers[{container_name}].readinessProbe: absent"],
            [
                f"Add to {facts.workload or 'what makes the pods'}: "
                "readinessProbe: {httpGet: {path: /health, port: " + str(facts.service.spec.engine.ports[0]) + "}}"
            ],
        )


def listeners(facts: Facts, pod: Pod) -> tuple[Container, ...]:
    """The containers that declare a port of ``spec.engine.ports``; the only one of a pod that has but one."""
    found = tuple(
        each for each in pod.containers if any(port in each.ports for port in facts.service.spec.engine.ports)
    )
    return found or (pod.containers if len(pod.containers) == 1 else ())


def _may_open(facts: Facts) -> str:
    return f"kubectl auth can-i patch pods --subresource=status --as={facts.account} {facts.where}"


def _condition(item: Item, kind: str) -> Item | None:
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), None)


def _some(names: list[str]) -> str:
    return f"{names[0]}{_more(names)}"


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""
