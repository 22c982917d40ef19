"""The Argo CD customization, as Argo CD itself finds and tests it."""

from pathlib import Path
from typing import Final

import yaml

from llmservice_testing.builders import Json

from .repository import SAMPLES

CUSTOMIZATION: Final = SAMPLES / "argo-cd" / "resource_customizations" / "llmservice.io" / "LLMService"
HEALTH: Final = CUSTOMIZATION / "health.lua"
ACTIONS: Final = CUSTOMIZATION / "actions"
DISCOVERY: Final = ACTIONS / "discovery.lua"


def expected_health() -> dict[str, Json]:
    """What `health_test.yaml` expects of each file of test data."""
    tests = yaml.safe_load((CUSTOMIZATION / "health_test.yaml").read_text())["tests"]
    return {test["inputPath"]: test["healthStatus"] for test in tests}


def load(folder: Path, path: str) -> Json:
    """An object of the test data."""
    found: Json = yaml.safe_load((folder / path).read_text())
    return found


def action(name: str) -> Path:
    """The script of an action."""
    return ACTIONS / name / "action.lua"
