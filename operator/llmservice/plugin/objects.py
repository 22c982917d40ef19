"""LLMServices as ``-o json``, ``-o yaml`` and ``-o name`` print them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from llmservice import api
from llmservice.plugin.options import Output


def reference(name: str) -> str:
    """As kubectl names an object: ``llmservice.llmservice.io/qwen``."""
    return f"llmservice.{api.GROUP}/{name}"


def written(items: Sequence[Mapping[str, Any]], output: Output, *, alone: bool) -> str:
    """One object as it is if ``alone``, else a List; without ``managedFields``, as kubectl does it."""
    if output is Output.NAME:
        return "".join(f"{reference(item['metadata']['name'])}\n" for item in items)
    shown = [{**item, "metadata": _without_bookkeeping(item["metadata"])} for item in items]
    value: Any = shown[0] if alone and len(shown) == 1 else {"apiVersion": "v1", "kind": "List", "items": shown}
    return document(value, output)


def document(value: Any, output: Output) -> str:
    """Any JSON value, as JSON or as YAML."""
    if output is Output.YAML:
        value = json.loads(json.dumps(value))  # YAML takes neither enumerations nor tuples
        return yaml.safe_dump(value, sort_keys=False, width=120, allow_unicode=True)
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def merged(item: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON merge patch (RFC 7386), applied."""
    result = dict(item)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            earlier = result.get(name)
            result[name] = merged(earlier if isinstance(earlier, Mapping) else {}, value)
        else:
            result[name] = value
    return result


def _without_bookkeeping(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metadata.items() if name != "managedFields"}
