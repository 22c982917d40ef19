"""The generated CustomResourceDefinition: up to date, described, and of keywords that the API server takes."""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmservice import api, crd

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "crds" / "llmservices.llmservice.io.yaml"
ALLOWED = {
    # JSONSchemaProps of apiextensions.k8s.io/v1, as far as a structural schema may use them everywhere
    "additionalProperties",
    "default",
    "description",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "nullable",
    "pattern",
    "properties",
    "required",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
}
RULE_KEYWORDS = {"fieldPath", "message", "messageExpression", "optionalOldSelf", "reason", "rule"}
Schema = dict[str, Any]


def version() -> Schema:
    (served,) = crd.custom_resource_definition()["spec"]["versions"]
    assert isinstance(served, dict)
    return served


def root() -> Schema:
    schema = version()["schema"]["openAPIV3Schema"]
    assert isinstance(schema, dict)
    return schema


def nodes(node: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """All schema nodes below and with ``node``, with their paths."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        if isinstance(node.get(keyword), dict):
            yield from nodes(node[keyword], f"{path}[]")


def at(path: str) -> Schema:
    return dict(nodes(root()))[path]


def test_the_committed_file_is_what_the_models_generate() -> None:
    assert COMMITTED.read_text() == crd.to_yaml(), "run: make generate"


def test_the_file_is_the_definition() -> None:
    assert yaml.safe_load(crd.to_yaml()) == crd.custom_resource_definition()


@pytest.mark.parametrize("half", [".spec", ".status"])
def test_every_property_is_described(half: str) -> None:
    described = {path: node.get("description", "") for path, node in nodes(root()) if path.startswith(half)}
    properties = {path: text for path, text in described.items() if not path.endswith("[]")}
    assert len(properties) > 10
    assert [path for path, text in properties.items() if len(text) < 10] == []


def test_descriptions_are_single_lines_of_prose() -> None:
    texts = [node["description"] for _, node in nodes(root()) if "description" in node]
    assert [text for text in texts if "\n" in text or "  " in text or "``" in text] == []


def test_no_keyword_is_one_that_the_api_server_refuses() -> None:
    refused = {path: set(node) - ALLOWED for path, node in nodes(root()) if set(node) - ALLOWED}
    assert refused == {}


def test_the_schema_is_structural() -> None:
    for path, node in nodes(root()):
        assert "type" in node or node.get("x-kubernetes-int-or-string"), f"{path} has no type"
        assert not ("properties" in node and "additionalProperties" in node), f"{path} has both kinds of properties"
        for keyword in ("exclusiveMinimum", "exclusiveMaximum"):
            assert isinstance(node.get(keyword, True), bool), f"{path}: a number in {keyword} is refused"


def test_int_or_string_has_no_type_of_its_own() -> None:
    ports = at(".spec.engine.ports[]")
    assert ports["x-kubernetes-int-or-string"] is True
    assert "type" not in ports
    assert (ports["minimum"], ports["maximum"], ports["maxLength"]) == (1, 65535, 15)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (".spec.generation", api.Desired),
        (".spec.engine.type", api.EngineType),
        (".spec.engine.scheme", api.Scheme),
        (".spec.pause.mode", api.PauseMode),
        (".status.lastPause.mode", api.PauseMode),
    ],
)
def test_a_closed_set_of_values_is_an_enum(path: str, values: type[StrEnum]) -> None:
    assert at(path)["enum"] == [value.value for value in values]


def test_every_rule_says_what_must_hold() -> None:
    rules = [(path, rule) for path, node in nodes(root()) for rule in node.get("x-kubernetes-validations", ())]
    assert len(rules) >= 6
    for path, rule in rules:
        assert set(rule) <= RULE_KEYWORDS, path
        assert rule["message"], path
        assert "\n" not in rule["message"], path


def test_the_selector_and_what_the_engine_is_are_immutable() -> None:
    def rules(path: str) -> list[str]:
        return [rule["rule"] for rule in at(path)["x-kubernetes-validations"]]

    assert "self == oldSelf" in rules(".spec.selector")
    assert {"self.type == oldSelf.type", "self.ports == oldSelf.ports"} <= set(rules(".spec.engine"))


def test_generation_has_no_default_and_may_be_absent() -> None:
    assert "default" not in at(".spec.generation")
    assert at(".spec")["required"] == ["selector"]


def test_clear_cache_has_no_default_because_it_depends_on_the_mode() -> None:
    assert "default" not in at(".spec.pause.clearCache")


def test_a_default_that_a_rule_reads_is_spelled_out() -> None:
    assert at(".spec.engine")["default"] == {"type": "vllm", "ports": [8000], "scheme": "http"}


def test_the_defaults_of_the_schema_are_those_of_the_models() -> None:
    defaulted = api.LLMServiceSpec.model_validate(
        {
            "selector": {"matchLabels": {"app": "qwen"}},
            "engine": at(".spec.engine")["default"],
            "pause": at(".spec.pause")["default"],
            "requestTimeoutSeconds": at(".spec.requestTimeoutSeconds")["default"],
            "resyncSeconds": at(".spec.resyncSeconds")["default"],
        }
    )
    assert defaulted == api.LLMServiceSpec.model_validate({"selector": {"matchLabels": {"app": "qwen"}}})


def test_a_status_that_was_never_written_is_in_progress_to_every_tool() -> None:
    assert at(".status")["default"] == {"observedGeneration": -1}
    assert at(".status.observedGeneration")["default"] == -1


def test_lists_say_how_they_are_merged() -> None:
    lists = {path: node.get("x-kubernetes-list-type") for path, node in nodes(root()) if node.get("type") == "array"}
    assert set(lists.values()) <= {"atomic", "set", "map"}, lists
    assert at(".status.conditions")["x-kubernetes-list-map-keys"] == ["type"]
    assert at(".status.targetStates")["x-kubernetes-list-type"] == "atomic"
    assert at(".status.targetStates")["maxItems"] == 64


def test_lists_and_strings_of_the_spec_are_bounded_so_that_rules_stay_cheap() -> None:
    for path, node in nodes(at(".spec"), ".spec"):
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if node.get("type") == "string" and "enum" not in node:
            assert "maxLength" in node, path
        if "additionalProperties" in node:
            assert "maxProperties" in node, path


def test_numbers_of_the_status_have_the_sizes_of_kubernetes() -> None:
    counts = at(".status.targets")["properties"]
    assert {count["format"] for count in counts.values()} == {"int32"}
    assert set(counts) == {
        "total",
        "paused",
        "running",
        "pausing",
        "resuming",
        "starting",
        "sleeping",
        "unreachable",
        "failed",
    }
    assert at(".status.observedGeneration")["format"] == "int64"


def test_the_resource_has_its_names_its_status_and_its_columns() -> None:
    definition = crd.custom_resource_definition()
    assert definition["metadata"]["name"] == "llmservices.llmservice.io"
    assert definition["spec"]["scope"] == "Namespaced"
    names = definition["spec"]["names"]
    assert (names["kind"], names["shortNames"], names["categories"]) == ("LLMService", ["llms"], ["llm"])
    assert version()["subresources"] == {"status": {}}
    columns = {column["name"]: column for column in version()["additionalPrinterColumns"]}
    assert [name for name, column in columns.items() if not column["priority"]] == [
        "Desired",
        "Paused",
        "Ready",
        "Targets",
        "PausedTargets",
        "Age",
    ]
    assert columns["Reason"]["priority"] == 1
    assert "GENERATION" not in {name.upper() for name in columns}


def test_conditions_have_the_shape_of_kubernetes() -> None:
    condition = at(".status.conditions[]")
    assert set(condition["required"]) == {
        "type",
        "status",
        "observedGeneration",
        "lastTransitionTime",
        "reason",
        "message",
    }
    assert at(".status.conditions[].status")["enum"] == ["True", "False", "Unknown"]


def test_every_reason_is_a_word_in_camel_case() -> None:
    assert all(reason.value.isalpha() and reason.value[0].isupper() for reason in api.Reason)
