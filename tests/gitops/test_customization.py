"""The Argo CD customization stands by itself, as Argo CD's own tests look at it, in both interpreters."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from llmservice_testing.builders import Json
from llmservice_testing.gitops import Interpreter

from .argo_cd import ACTIONS, CUSTOMIZATION, DISCOVERY, HEALTH, action, expected_health, load
from .repository import SAMPLES

TESTS: dict[str, list[Json]] = yaml.safe_load((ACTIONS / "action_test.yaml").read_text())


@pytest.mark.parametrize("path", expected_health())
def test_health_of_the_test_data(interpreter: Interpreter, path: str) -> None:
    assert interpreter.run(HEALTH, load(CUSTOMIZATION, path)) == expected_health()[path]


def test_no_test_data_is_forgotten() -> None:
    files = {f"testdata/{file.name}" for file in (CUSTOMIZATION / "testdata").iterdir()}
    assert files == set(expected_health())


@pytest.mark.parametrize("status", [None, {}, {"observedGeneration": 3}, {"observedGeneration": 3, "conditions": []}])
def test_an_object_that_nobody_has_reported_on_is_progressing(interpreter: Interpreter, status: Json | None) -> None:
    service: Json = {"metadata": {"name": "qwen", "generation": 3}, "spec": {}}
    if status is not None:
        service["status"] = status
    assert interpreter.run(HEALTH, service)["status"] == "Progressing"


def test_stalled_wins_over_ready_and_an_old_status_counts_for_nothing(interpreter: Interpreter) -> None:
    service = load(CUSTOMIZATION, "testdata/endpoint-missing.yaml")
    service["status"]["conditions"].insert(0, {"type": "Ready", "status": "True", "reason": "X", "message": "x"})
    assert interpreter.run(HEALTH, service)["status"] == "Degraded"
    service["metadata"]["generation"] += 1
    assert interpreter.run(HEALTH, service)["status"] == "Progressing"


@pytest.mark.parametrize("test", TESTS["discoveryTests"], ids=lambda test: test["inputPath"])
def test_the_actions_offered(interpreter: Interpreter, test: Json) -> None:
    offered = interpreter.run(DISCOVERY, load(ACTIONS, test["inputPath"]))
    assert [{"name": name, **properties} for name, properties in sorted(offered.items())] == test["result"]


@pytest.mark.parametrize("test", TESTS["actionTests"], ids=lambda test: f"{test['action']}-{test['inputPath']}")
def test_an_action_changes_generation_and_nothing_else(interpreter: Interpreter, test: Json) -> None:
    before, expected = load(ACTIONS, test["inputPath"]), load(ACTIONS, test["expectedOutputPath"])
    after = interpreter.run(action(test["action"]), before)
    assert _without_empties(after) == _without_empties(expected)
    assert expected["spec"].pop("generation") == {"pause": "paused", "resume": "running"}[test["action"]]
    before["spec"].pop("generation", None)
    assert expected == before


def test_the_inputs_of_the_actions_are_what_the_operator_reported() -> None:
    for path in {test["inputPath"] for tests in TESTS.values() for test in tests}:
        assert (ACTIONS / path).read_text() == (CUSTOMIZATION / path).read_text()


def test_nothing_of_a_library_is_there_to_be_used(interpreter: Interpreter, tmp_path: Path) -> None:
    """Argo CD opens its libraries only for scripts that ask for them, and these do not."""
    script = tmp_path / "script.lua"
    script.write_text("return {string = type(string), io = type(io), os = type(os), math = type(math)}")
    assert set(interpreter.run(script, {}).values()) == {"nil"}


def test_the_config_map_holds_the_same_scripts() -> None:
    data = load(SAMPLES, "argo-cd/argocd/argocd-cm.yaml")["data"]
    assert data["resource.customizations.health.llmservice.io_LLMService"] == HEALTH.read_text()
    actions = yaml.safe_load(data["resource.customizations.actions.llmservice.io_LLMService"])
    assert actions == {
        "discovery.lua": DISCOVERY.read_text(),
        "definitions": [{"name": name, "action.lua": action(name).read_text()} for name in ("pause", "resume")],
    }


def _without_empties(value: Any) -> Any:
    """Lua has one empty table for {} and []; Argo CD puts back what was there."""
    if isinstance(value, dict):
        return {key: kept for key, item in value.items() if (kept := _without_empties(item)) not in ({}, [])}
    return [_without_empties(item) for item in value] if isinstance(value, list) else value
