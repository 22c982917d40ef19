"""R23: a served definition that lacks a field is refused. The API server drops such a field without a word, and an operator
that acted all the same would do something else than was asked (a pruned `mode: keep` aborts).

A definition is there for the whole cluster, so these tests have a control plane of their own.
"""

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from llmservice_testing.builders import Json
from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.controlplane import Assets, ControlPlane
from llmservice_testing.fleet import PATIENCE_SECONDS, Addresses, Fleet
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.simulator import SimulatorThread

DEFINITION = Path(__file__).parents[2] / "crds" / "llmservices.llmservice.io.yaml"
NAME = "llmservices.llmservice.io"
NAMESPACE = "default"


@pytest.fixture(scope="module")
def separate(assets: Assets) -> Iterator[ControlPlane]:
    """A control plane without the definition."""
    with ControlPlane(assets=assets) as running:
        yield running


@pytest.fixture
def elsewhere(separate: ControlPlane) -> Iterator[Cluster]:
    """A client of it; the definition is gone afterwards."""
    with Cluster(separate.kubeconfig) as client:
        yield client
        client.delete_crd(NAME)
        wait_until(
            lambda: f"apis/{NAME.partition('.')[2]}/v1alpha1" not in client.get("/openapi/v3")["paths"],
            PATIENCE_SECONDS,
            what="the definition being gone from what clients read",
        )


@pytest.fixture
def waiting(separate: ControlPlane, without_operator: None, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator, not started yet. (The shared one ends, so that this test can come among those with their own.)"""
    process = OperatorProcess(separate.kubeconfig, tmp_path / "operator")
    yield process
    if process.is_running:
        process.kill()


@pytest.fixture
def paused_fleet(elsewhere: Cluster, simulator: SimulatorThread, addresses: Addresses) -> Iterator[Fleet]:
    """Two members whose LLMService is to be declared."""
    fleet = Fleet(elsewhere, simulator, addresses, NAMESPACE)
    fleet.grow(2)
    yield fleet
    for member in fleet.members:
        elsewhere.delete_pod(NAMESPACE, member.name)
    fleet.close()


def without(field: str) -> Json:
    """The definition as an older version might have had it."""
    definition: Json = yaml.safe_load(DEFINITION.read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    *parents, last = field.split(".")
    parent = functools.reduce(lambda node, name: node["properties"][name], parents, schema)
    del parent["properties"][last]
    parent.get("default", {}).pop(last, None)
    return definition


def apply_old(cluster: Cluster, field: str, folder: Path) -> None:
    old = folder / "old.yaml"
    old.write_text(yaml.safe_dump(without(field)))
    cluster.apply_crd(old)


def says(operator: OperatorProcess, text: str) -> bool:
    return any(text in str(line.get("why", "")) for line in operator.log_lines())


@pytest.mark.parametrize("field", ["spec.pause.mode", "status.lastPause"])
def test_case_48_r23_an_old_definition_is_refused_by_name_until_the_right_one_is_applied(
    elsewhere: Cluster, waiting: OperatorProcess, paused_fleet: Fleet, tmp_path: Path, field: str
) -> None:
    waiting.start_soon()
    wait_until(lambda: says(waiting, NAME), PATIENCE_SECONDS, what="the definition being missed", last=waiting.log_tail)
    apply_old(elsewhere, field, tmp_path)
    wait_until(lambda: says(waiting, field), PATIENCE_SECONDS, what=f"{field} being named", last=waiting.log_tail)
    (line,) = [line for line in waiting.log_lines() if field in str(line.get("why", ""))]
    assert line["level"] == "warning"
    assert NAME in line["why"]
    assert "llmservice crd" in line["why"]  # and what to do
    assert waiting.liveness() == 200  # a restart would not help
    assert field in waiting.lack()

    paused_fleet.declare("paused")
    assert [call.path for engine in paused_fleet.engines for call in engine.calls] == []
    assert paused_fleet.status().get("observedGeneration", -1) == -1
    assert waiting.is_running

    elsewhere.apply_file(DEFINITION)
    paused_fleet.wait("Ready", reason="InDesiredState")
    assert paused_fleet.all_paused()
    assert {call.query for call in paused_fleet.posts()} == {"mode=abort&clear_cache=true"}
    paused_fleet.delete()


def test_r23_a_newer_definition_with_more_fields_is_good_enough(
    elsewhere: Cluster, waiting: OperatorProcess, paused_fleet: Fleet, tmp_path: Path
) -> None:
    newer: Json = yaml.safe_load(DEFINITION.read_text())
    schema = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for part in ("spec", "status"):
        schema["properties"][part]["properties"]["ofTomorrow"] = {"type": "string", "description": "Nobody knows yet."}
    file = tmp_path / "newer.yaml"
    file.write_text(yaml.safe_dump(newer))
    elsewhere.apply_crd(file)
    waiting.start()
    paused_fleet.declare("paused", ofTomorrow="yes")
    paused_fleet.wait("Ready", reason="InDesiredState")
    paused_fleet.delete()
