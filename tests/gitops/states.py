"""The states of an LLMService that GitOps tools have to understand, each brought about with the real operator.

`testdata/NAME.yaml` of the Argo CD customization is what the operator reported in the state of that name.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from llmservice_testing.builders import Json
from llmservice_testing.cluster import wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, condition
from llmservice_testing.simulator import Fault, Options


def never_visited(fleet: Fleet) -> Json:
    """As it is stored at first."""
    return fleet.declare("paused")


def changed_since(fleet: Fleet) -> Json:
    """Ready, but about the spec before."""
    fleet.paused(1)
    return fleet.want("running")


def paused(fleet: Fleet) -> Json:
    """On purpose."""
    fleet.grow(2)
    fleet.declare("paused")
    return fleet.wait("Ready", reason="InDesiredState")


def running(fleet: Fleet) -> Json:
    """The usual one."""
    fleet.grow(2)
    fleet.declare("running")
    return fleet.wait("Ready", reason="InDesiredState")


def observing(fleet: Fleet) -> Json:
    """Without `spec.generation`, and nothing paused."""
    fleet.add()
    fleet.declare()
    fleet.wait("Paused", "False")
    return fleet.wait("Ready", reason="Observing")


def forgotten(fleet: Fleet) -> Json:
    """`spec.generation` was removed while the engines were paused: what a tool that prunes fields leaves behind."""
    fleet.paused(2)
    fleet.want(None)
    return fleet.wait("Ready", reason="Observing")


def no_pods(fleet: Fleet) -> Json:
    """The LLMService was synced before its pods."""
    fleet.declare("paused")
    return fleet.wait("Ready", reason="NoPods")


def pausing(fleet: Fleet) -> Json:
    """Calls are under way."""
    fleet.add().engine.faults.script("/pause", Fault.slow(before=20.0))
    fleet.declare("paused", resyncSeconds=3600)
    fleet.wait_for_targets(total=1, pausing=1)
    return fleet.wait("Reconciling", reason="Progressing")


def unreachable(fleet: Fleet) -> Json:
    """An engine that may well be generating gives no answer."""
    fleet.add(start=False)
    fleet.declare("paused")
    return fleet.wait("Ready", "False", "TargetsUnreachable")


def endpoint_missing(fleet: Fleet) -> Json:
    """A person has to start the engine in another way."""
    fleet.add(options=Options(dev_mode=False))
    fleet.declare("paused")
    return fleet.wait("Stalled", reason="EndpointMissing")


def pause_expired(fleet: Fleet) -> Json:
    """Nobody came back in time."""
    fleet.add()
    fleet.declare("paused", maxPausedSeconds=1, onMaxPaused="resume")
    fleet.wait("Stalled", reason="PauseExpired")
    return wait_until(
        lambda: service if (service := fleet.get())["status"].get("paused") is False else None,
        PATIENCE_SECONDS,
        what="the fleet being resumed",
    )


def paused_too_long(fleet: Fleet) -> Json:
    """Nobody came back in time, and nothing but a warning was asked for."""
    fleet.paused(1, maxPausedSeconds=1)

    def warns() -> Json | None:
        service = fleet.get()
        ready = condition(service, "Ready")
        return service if ready is not None and "maxPausedSeconds" in ready["message"] else None

    return wait_until(warns, PATIENCE_SECONDS, what="the warning")


def deleting(fleet: Fleet) -> Json:
    """Held until the engines run again."""
    fleet.paused(1, deletionPolicy="resume")
    fleet.engines[0].faults.script("/resume", Fault.slow(before=5.0))
    fleet.delete()
    fleet.wait_for_targets(total=1, resuming=1)
    return fleet.get()


STATES: Final[Mapping[str, Callable[[Fleet], Json]]] = {
    state.__name__.replace("_", "-"): state
    for state in (
        never_visited,
        changed_since,
        paused,
        running,
        observing,
        forgotten,
        no_pods,
        pausing,
        unreachable,
        endpoint_missing,
        pause_expired,
        paused_too_long,
        deleting,
    )
}

_TIME: Final = "2026-01-01T00:00:00Z"
_UID: Final = "00000000-0000-4000-8000-000000000000"


def recorded(service: Json) -> Json:
    """The object as a file keeps it: what differs from run to run is always the same, and nobody's bookkeeping."""
    text_of = functools.partial(_settled, namespace=service["metadata"]["namespace"])
    kept = _each_text(service, text_of)
    del kept["metadata"]["managedFields"]
    kept["metadata"]["resourceVersion"] = "1"
    found: Json = kept
    return found


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _each_text(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_each_text(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def _settled(text: str, namespace: str) -> str:
    text = text.replace(namespace, "inference")
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", _TIME, text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", _UID, text)
    return re.sub(r"\b127(\.\d+){3}\b", "10.244.0.10", text)
