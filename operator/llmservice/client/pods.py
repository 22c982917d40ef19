"""Which engines a confirmation stands for.

``status.targetStates`` lists at most 64 of them. Up to that number the object that confirms the pause names them all. Of a
larger fleet it only says how many; the names come from a list of the pods then, between two versions of the object that
both confirm the pause, and only if their number is the one that the operator counted. Otherwise pods came or went meanwhile,
and it is tried again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llmservice.api import MAX_TARGET_STATES, LLMService, TargetStatus
from llmservice.client.errors import ForbiddenError, TimedOutError
from llmservice.client.remote import RemoteFleet
from llmservice.client.snapshot import Snapshot
from llmservice.client.verdict import Change, Confirmed, Failed, judge
from llmservice.domain.fleet import Pod as SelectedPod
from llmservice.domain.ownership import to_query
from llmservice.kube.pods import to_pod

_AGAIN_SECONDS = 0.5
_CONFIRMED = ("paused", "sleeping")
"""An engine that is asleep generates as little as one that is paused."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine that was read as paused."""

    url: str
    """Where it answers, without a trailing slash."""
    state: str
    """``paused``, or ``sleeping``."""
    version: str | None
    """As it says; None where it says none, and in a fleet of more than 64 for most."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod whose engines were all read as paused."""

    name: str
    uid: str
    engines: tuple[Engine, ...]

    @property
    def urls(self) -> tuple[str, ...]:
        """Where its engines answer, in the order of ``spec.engine.ports`` for a large fleet, else in that of the status."""
        return tuple(engine.url for engine in self.engines)


def number_confirmed(service: LLMService) -> int:
    """How many engines the status says are paused, or asleep."""
    targets = service.status.targets
    return 0 if targets is None else targets.paused + targets.sleeping


def is_listed_in_full(service: LLMService) -> bool:
    """Whether ``status.targetStates`` names every target."""
    targets = service.status.targets
    return targets is None or targets.total <= MAX_TARGET_STATES


def pods_of(states: Sequence[TargetStatus]) -> tuple[Pod, ...]:
    """The pods of these targets, as far as they are confirmed, by name."""
    engines: dict[tuple[str, str], list[Engine]] = {}
    for each in states:
        if each.state in _CONFIRMED and each.url is not None:
            engines.setdefault((each.pod, each.pod_uid), []).append(Engine(each.url, each.state, each.version))
    return tuple(Pod(name, uid, tuple(found)) for (name, uid), found in sorted(engines.items()))


async def confirmed_pods(
    remote: RemoteFleet, confirmed: Snapshot, change: Change, until: float
) -> tuple[Snapshot, tuple[Pod, ...]]:
    """All pods that ``confirmed`` stands for, and the version of the object that vouches for them. Raises FleetError;
    ForbiddenError where a fleet of more than 64 engines needs the right to list pods."""
    while True:
        if is_listed_in_full(confirmed.service):
            return confirmed, pods_of(confirmed.service.status.target_states)
        pods = _selected(confirmed.service, await _list(remote, confirmed.service, until))
        confirmed = await remote.get(until)
        verdict = judge(confirmed, change)
        if isinstance(verdict, Failed):
            raise verdict.error
        found = sum(len(pod.engines) for pod in pods)
        if isinstance(verdict, Confirmed) and found == number_confirmed(confirmed.service):
            return confirmed, pods
        if asyncio.get_running_loop().time() + _AGAIN_SECONDS >= until:
            counted = number_confirmed(confirmed.service)
            message = f"pods come and go: {found} engines are listed, and {counted} are confirmed as paused"
            raise TimedOutError(message, fleet=remote.key)
        await asyncio.sleep(_AGAIN_SECONDS)


async def _list(remote: RemoteFleet, service: LLMService, until: float) -> list[Any]:
    try:
        return await remote.list_pods(to_query(service.spec.selector), until)
    except ForbiddenError as error:
        error.add_note(
            f"The status names {MAX_TARGET_STATES} engines at most; to name more, the right to list pods is needed. "
            "Where they are not needed, pass list_pods=False."
        )
        raise


def _selected(service: LLMService, items: Sequence[Mapping[str, Any]]) -> tuple[Pod, ...]:
    """The pods whose engines the operator can have confirmed."""
    listed = {each.url: each for each in service.status.target_states}
    starting = {each.pod_uid for each in service.status.target_states if each.state == "starting"}
    targets = service.status.targets
    # Those that are not as they should be are listed first, so that all that are starting are, unless they are many.
    is_all_starting_listed = targets is not None and targets.starting <= MAX_TARGET_STATES
    found = []
    for pod in sorted(map(to_pod, items), key=lambda each: each.name):
        is_starting = pod.uid in starting or (not is_all_starting_listed and not all(c.ready for c in pod.containers))
        urls = [] if is_starting or not pod.counts else _urls(service, pod)
        engines = []
        for url in urls:
            said = listed.get(url)
            engines.append(Engine(url, said.state if said else "paused", said.version if said else None))
        if engines:
            found.append(Pod(pod.name, pod.uid, tuple(engines)))
    return tuple(found)


def _urls(service: LLMService, pod: SelectedPod) -> list[str]:
    if not pod.ip:
        return []
    engine = service.spec.engine
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    named = {name: number for container in pod.containers for name, number in container.ports.items()}
    numbers = [port if isinstance(port, int) else named.get(port) for port in engine.ports]
    return [f"{engine.scheme}://{host}:{number}{engine.root_path}" for number in numbers if number is not None]
