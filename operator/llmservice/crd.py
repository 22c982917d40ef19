"""Turn the models of :mod:`llmservice.api` into the CustomResourceDefinition that is committed under ``crds/``.

pydantic writes JSON Schema 2020; the API server takes the "structural" subset of OpenAPI 3.0. What differs is translated
here, and only what occurs in the models: references are inlined, ``X | None`` becomes an optional X, ``int | str`` becomes
int-or-string, and keywords that mean nothing to the API server go.
"""

from collections.abc import Mapping
from typing import Any

import yaml

from llmservice import api

_DROPPED = frozenset({"title", "$defs", "const", "additionalProperties"})


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _structural(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Translate one schema node; ``definitions`` are pydantic's ``$defs``. Raises TypeError on what has no translation."""
    if "$ref" in node:
        referred = definitions[node["$ref"].rpartition("/")[2]]
        return _structural({**referred, **{key: value for key, value in node.items() if key != "$ref"}}, definitions)
    if "anyOf" in node:
        rest = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
        choices = [choice for choice in node["anyOf"] if choice.get("type") != "null"]
        if len(choices) == 1:
            return _structural({**choices[0], **rest}, definitions)
        if [choice.get("type") for choice in choices] == ["integer", "string"]:
            # Each keyword speaks of one of the types only, so both sets can stand side by side.
            merged = {key: value for choice in choices for key, value in choice.items() if key != "type"}
            return {"x-kubernetes-int-or-string": True, **_structural({**merged, **rest}, definitions)}
        raise TypeError(f"no structural schema for {node['anyOf']}")

    schema = {key: value for key, value in node.items() if key not in _DROPPED}
    if schema.get("default", ...) is None:
        del schema["default"]
    if "description" in schema:
        schema["description"] = _one_line(schema["description"])
    if "properties" in schema:
        schema["properties"] = {name: _structural(child, definitions) for name, child in schema["properties"].items()}
    if "items" in schema:
        schema["items"] = _structural(schema["items"], definitions)
    if isinstance(values := node.get("additionalProperties"), Mapping):
        schema["additionalProperties"] = _structural(values, definitions)
        if "maxLength" in schema:  # pydantic says maxLength of a mapping where JSON Schema says maxProperties
            schema["maxProperties"] = schema.pop("maxLength")
    return schema


def _schema_of(model: type[api.LLMServiceSpec] | type[api.LLMServiceStatus]) -> dict[str, Any]:
    generated = model.model_json_schema(by_alias=True)
    return _structural(generated, generated.get("$defs", {}))


def custom_resource_definition() -> dict[str, Any]:
    """The CustomResourceDefinition as the API server takes it."""
    status = _schema_of(api.LLMServiceStatus)
    # The default stands at the object, too: a status that was never written has no properties to default.
    status["default"] = {"observedGeneration": -1}
    columns = [
        ("Desired", "string", ".spec.generation", "What spec.generation asks for.", 0),
        ("Paused", "boolean", ".status.paused", "Whether all engines are paused; empty when mixed or unknown.", 0),
        ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', "Whether all is as desired.", 0),
        ("Targets", "integer", ".status.targets.total", "How many engine endpoints are selected.", 0),
        ("PausedTargets", "integer", ".status.targets.paused", "How many of them are paused.", 0),
        ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', "Why Ready is what it is.", 1),
        ("Age", "date", ".metadata.creationTimestamp", "Time since creation.", 0),
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": api.CRD_NAME},
        "spec": {
            "group": api.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": api.KIND,
                "listKind": f"{api.KIND}List",
                "plural": api.PLURAL,
                "singular": "llmservice",
                "shortNames": ["llms"],
                "categories": ["llm"],
            },
            "versions": [
                {
                    "name": api.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path, "description": text, "priority": priority}
                        for name, kind, path, text, priority in columns
                    ],
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "description": _one_line(api.LLMService.__doc__ or ""),
                            "required": ["spec"],
                            "properties": {
                                "apiVersion": {"type": "string"},
                                "kind": {"type": "string"},
                                "metadata": {"type": "object"},
                                "spec": _schema_of(api.LLMServiceSpec),
                                "status": status,
                            },
                        }
                    },
                }
            ],
        },
    }


def to_yaml() -> str:
    """The CustomResourceDefinition as a YAML document, byte for byte what is committed."""
    header = "# Generated from operator/llmservice/api.py by `make generate`; do not edit.\n"
    return header + yaml.safe_dump(custom_resource_definition(), sort_keys=False, width=120, allow_unicode=True)
