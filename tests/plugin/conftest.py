"""Facts for the checks of `kubectl llm doctor`, made without an API server."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, Final

import pytest

from llmservice.client.snapshot import Snapshot
from llmservice.plugin.doctor.facts import Facts, Looked
from llmservice.plugin.doctor.finding import Check, Finding
from llmservice_testing.builders import Json, PodBuilder, make_pod
from llmservice_testing.stored import make_stored, make_target

NOW: Final = 1_767_225_720.0
"""Two minutes after everything was last written."""
READY: Final = {"readinessProbe": {"httpGet": {"path": "/health", "port": 8000}}}


def stored(generation: str | None = "paused", states: str = "paused paused", **spec: Any) -> Json:
    """A fleet `default/qwen` that the operator has reported: one engine for each of `states`."""
    names = states.split()
    paused = "True" if set(names) <= {"paused", "sleeping"} else "False" if set(names) == {"running"} else "Unknown"
    builder = make_stored()
    if generation is not None:
        builder.set(generation, by="trainer")
    targets = [make_target(f"qwen-{index}", state) for index, state in enumerate(names)]
    found: Json = builder.reported(paused, targets=targets).obj()
    found["spec"].update(copy.deepcopy(spec))
    ready = {"type": "Ready", "reason": "InDesiredState", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    is_ready = generation is None or paused == {"paused": "True", "running": "False"}[generation]
    about = {"observedGeneration": found["metadata"]["generation"], "status": "True" if is_ready else "False"}
    found["status"]["conditions"].append(ready | about)
    return found


def trouble(service: Json, index: int, reason: str, message: str, *, stalled: bool = True) -> Json:
    """The same with one engine that has this reason."""
    service["status"]["targetStates"][index] |= {"reason": reason, "message": message}
    if stalled:
        about = {"observedGeneration": service["metadata"]["generation"], "lastTransitionTime": "2026-01-01T00:00:00Z"}
        condition = {"type": "Stalled", "status": "True", "reason": reason, "message": f"qwen-{index}: {message}"}
        service["status"]["conditions"].append(condition | about)
        for each in service["status"]["conditions"]:
            if each["type"] == "Ready":
                each["status"] = "False"
    return service


def pod(index: int) -> PodBuilder:
    """A pod of that fleet that runs and is ready."""
    return make_pod(f"qwen-{index}").labels(app="qwen").ip(f"10.0.0.{index + 1}").port(8000).ready()


def as_item(builder: PodBuilder, *, container: Json | None = None) -> Json:
    """The pod as the API server has it; `container` goes into its container's spec."""
    found = builder.obj()
    found["metadata"]["uid"] = f"uid-of-{builder.name}"
    found["spec"]["containers"][0].update(READY if container is None else container)
    return found


def facts(service: Json | None = None, pods: list[Json] | None = None, **fields: Any) -> Facts:
    """A fleet in order, with its pods, unless told otherwise."""
    chosen = service if service is not None else stored()
    number = len(chosen["status"].get("targetStates", ()))
    members = pods if pods is not None else [as_item(pod(index)) for index in range(number)]
    made = Facts(Snapshot(chosen), NOW, pods=Looked("pods", tuple(members)))
    lists = {name: Looked(name, tuple(items)) for name, items in fields.items() if isinstance(items, list)}
    return dataclasses.replace(made, **{name: lists.get(name, value) for name, value in fields.items()})


def only(check: Check, given: Facts) -> Finding:
    """The one thing that a check finds."""
    (found,) = check(given)
    return found


@pytest.fixture
def nothing() -> Callable[[Check, Facts], bool]:
    """Whether a check finds nothing."""
    return lambda check, given: list(check(given)) == []
