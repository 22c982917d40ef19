"""`examples/weight_update.py` where it fails; that it works is shown on real engines, in tests/engines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import Fleet

EXAMPLE = Path(__file__).parents[3] / "examples" / "weight_update.py"


def run_example(plane: ControlPlane, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments],
        env=os.environ | {"KUBECONFIG": str(plane.kubeconfig)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.usefixtures("operator")
def test_where_weights_cannot_be_loaded_the_fleet_stays_paused_and_that_is_said(
    fleet: Fleet, control_plane: ControlPlane
) -> None:
    """The simulator has no route that loads weights."""
    fleet.grow(2)
    fleet.declare("running")
    done = run_example(control_plane, "qwen", "/checkpoints/step-42", "--namespace", fleet.namespace)
    assert done.returncode == 2, done.stderr
    assert done.stdout == "2 engines are paused\n"
    assert "/collective_rpc answered 404" in done.stderr
    assert f"kubectl patch llmservices.llmservice.io qwen -n {fleet.namespace}" in done.stderr
    assert "Traceback" not in done.stderr
    assert fleet.all_paused()
    assert fleet.get()["spec"]["pause"]["mode"] == "keep"


def test_where_the_fleet_cannot_be_paused_nothing_is_loaded(fleet: Fleet, control_plane: ControlPlane) -> None:
    done = run_example(control_plane, "qwen", "/checkpoints/step-42", "--namespace", fleet.namespace)
    assert done.returncode == 1
    assert '"qwen" not found' in done.stderr
    assert done.stdout == ""
