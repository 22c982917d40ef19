"""How to take back what was sent: pure."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from llmservice import api
from llmservice.client.snapshot import Snapshot


def reverse(before: Snapshot, patch: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The merge patch of the spec that restores what ``patch`` altered; None where it altered nothing of it."""
    spec = patch.get("spec")
    return None if spec is None else _restored(before.raw["spec"], spec)


def command(before: Snapshot, patch: Mapping[str, Any], flags: str) -> str | None:
    """The same as a command to type. ``flags``: how to reach the same cluster."""
    spec = reverse(before, patch)
    if spec is None:
        return None
    metadata = before.service.metadata
    where = f"{shlex.quote(metadata.name)} -n {metadata.namespace}{flags}"
    if spec == {"generation": api.Desired.RUNNING}:
        return f"kubectl llm resume {where}"
    if spec == {"generation": api.Desired.PAUSED}:
        return f"kubectl llm pause {where}"
    body = shlex.quote(json.dumps({"spec": spec}, separators=(",", ":")))
    return f"kubectl patch {api.CRD_NAME} {where} --type=merge -p {body}"


def _restored(before: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    restored: dict[str, Any] = {}
    for name, value in patch.items():
        earlier = before.get(name)
        if isinstance(value, Mapping):
            restored[name] = _restored(earlier if isinstance(earlier, Mapping) else {}, value)
        elif earlier != value:
            restored[name] = earlier
    return {name: value for name, value in restored.items() if value != {}}
