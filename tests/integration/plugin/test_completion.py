"""Completion, as kubectl asks for it: `kubectl __complete` is what every shell's completion runs."""

import subprocess
from collections.abc import Callable

import pytest

from llmservice_testing.fleet import Fleet

from .conftest import KubectlPlugin

pytestmark = pytest.mark.usefixtures("without_operator")


def offered(plugin: KubectlPlugin, *words: str) -> list[str]:
    """What is offered for the last of these words."""
    done = subprocess.run(
        ["kubectl", "__complete", "llm", *words],
        env=plugin.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [line.split("\t")[0] for line in done.stdout.splitlines() if not line.startswith(":")]


def test_fleets_are_offered_once_each(make_fleet: Callable[..., Fleet], kubectl_llm: KubectlPlugin) -> None:
    for name in ("red", "blue", "black"):
        fleet = make_fleet(name=name)
        fleet.declare("running")
    place = ["-n", fleet.namespace]
    assert offered(kubectl_llm, "pause", *place, "") == ["black", "blue", "red"]
    assert offered(kubectl_llm, "pause", *place, "bl") == ["black", "blue"]
    assert offered(kubectl_llm, "doctor", *place, "red", "") == ["black", "blue"]


def test_commands_options_values_and_namespaces_are_offered(fleet: Fleet, kubectl_llm: KubectlPlugin) -> None:
    assert offered(kubectl_llm, "") == ["pause", "resume", "status", "doctor"]
    assert offered(kubectl_llm, "pause", "--mode", "") == ["abort", "wait", "keep"]
    assert "--field-manager" in offered(kubectl_llm, "resume", "--f")
    assert offered(kubectl_llm, "status", "-n", fleet.namespace[:-1]) == [fleet.namespace]
    assert offered(kubectl_llm, "status", "--context", "") != []


def test_no_api_server_offers_nothing_and_is_no_error(kubectl_llm: KubectlPlugin) -> None:
    kubectl_llm.environment["KUBECONFIG"] = "/nowhere"
    assert offered(kubectl_llm, "pause", "") == []
