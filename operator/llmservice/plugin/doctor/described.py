"""Words about engines and pods that several checks share."""

import re

from llmservice.api import Reason, TargetStatus
from llmservice.domain.fleet import Pod
from llmservice.plugin.doctor.checks_pods import listeners
from llmservice.plugin.doctor.facts import Facts, Probe


def with_reason(facts: Facts, reason: Reason) -> list[TargetStatus]:
    """The listed engines whose reason it is."""
    return [each for each in facts.targets if each.reason == reason]


def named(concerned: list[TargetStatus]) -> str:
    """The first pod, and how many more there are."""
    pods = sorted({each.pod for each in concerned})
    return f"{pods[0]}{and_more(len(pods))}"


def and_more(number: int) -> str:
    """`` (and 2 more)`` for 3; nothing for 1."""
    return f" (and {number - 1} more)" if number > 1 else ""


def are(concerned: list[TargetStatus]) -> str:
    """The verb."""
    return "is" if len(concerned) == 1 else "are"


def heard(concerned: list[TargetStatus]) -> list[str]:
    """What the status says of the first of them."""
    first = min(concerned, key=lambda each: each.pod)
    return [f"status.targetStates[{first.pod}]: {first.state}, {first.reason}: {first.message}"]


def probed(facts: Facts, concerned: list[TargetStatus]) -> list[str]:
    """What they answered when asked through the API server."""
    pods = {each.pod for each in concerned}
    return [answer_of(probe) for probe in facts.probes if probe.pod in pods][:2]


def answer_of(probe: Probe) -> str:
    """One such answer, in words."""
    by = "answered" if probe.is_from_engine else "did not get there"
    return f"asked through the API server, pods/{probe.pod}:{probe.port}/proxy/is_paused {by}: {probe.words}"


def port_of(url: str | None) -> str:
    """The port in a URL."""
    found = re.search(r":(\d+)(?:/|$)", (url or "").partition("://")[2])
    return found[1] if found else "8000"


def container(facts: Facts, pod_name: str) -> str:
    """The name of the container that listens; ``*`` where it is not known."""
    pod = next((pod for pod, _ in facts.members if pod.name == pod_name), None)
    found = listeners(facts, pod) if pod is not None else ()
    return found[0].name if found else "*"


def declared(facts: Facts, pod_name: str) -> str:
    """The container ports of a pod, for people."""
    pod = next((pod for pod, _ in facts.members if pod.name == pod_name), None)
    ports = _port_names(pod) if pod is not None else []
    return f"ports {', '.join(ports)}" if ports else "no ports"


def _port_names(pod: Pod) -> list[str]:
    by_number: dict[int, str] = {}
    for container in pod.containers:
        for name, number in container.ports.items():
            by_number[number] = f"{number} ({name})" if isinstance(name, str) else by_number.get(number, str(number))
    return [by_number[number] for number in sorted(by_number)]
