"""The Deployment starts the operator as the operator can be started, and asks it what it answers."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmservice.settings import OperatorSettings
from llmservice_testing.audit import AuditedControlPlane
from llmservice_testing.builders import Json
from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS
from llmservice_testing.helm import Helm
from llmservice_testing.manifests import INSTALL, MANIFESTS, documents, kustomize
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.ports import free_ports

PROGRAM = Path(sys.executable).parent / "llmservice"


def container_of(objects: list[Json]) -> Json:
    (deployment,) = [one for one in objects if one["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(container)


def refused(arguments: list[str]) -> str:
    """What the operator says that is started without a cluster: not that it does not understand."""
    done = subprocess.run(
        [str(PROGRAM), *arguments],
        env={**os.environ, "KUBECONFIG": "/nonexistent", "COLUMNS": "300"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("overlay", ["cluster", "namespaced"])
def test_the_operator_understands_the_arguments(overlay: str) -> None:
    assert "no way to the API server" in refused(container_of(kustomize(MANIFESTS / "overlays" / overlay))["args"])


def test_the_operator_understands_every_argument_of_the_chart(helm: Helm) -> None:
    values: dict[str, Any] = {
        "namespaces": ["one", "two"],
        "logFormat": "text",
        "logLevel": "WARNING",
        "metrics": {"enabled": False},
    }
    assert "no way to the API server" in refused(container_of(helm.template(values))["args"])


def test_ports_are_those_that_the_operator_listens_on() -> None:
    settings = OperatorSettings()
    addresses = {"metrics": settings.metrics_address, "health": settings.health_address}
    ports = {port["name"]: port["containerPort"] for port in container_of(documents(INSTALL))["ports"]}
    assert ports == {name: int(address.rpartition(":")[2]) for name, address in addresses.items()}


def test_probes_ask_what_the_operator_answers(
    control_plane: AuditedControlPlane, cluster: Cluster, tmp_path: Path
) -> None:
    container = container_of(documents(INSTALL))
    probes = {container[kind]["httpGet"]["path"] for kind in ("livenessProbe", "readinessProbe")}
    assert len(probes) == 2
    (port,) = free_ports(1)
    operator = OperatorProcess(control_plane.kubeconfig, tmp_path, arguments=(f"--health-address=127.0.0.1:{port}",))
    operator.start_soon()
    try:
        wait_until(
            lambda: all(answers(f"http://127.0.0.1:{port}{path}") for path in probes),
            PATIENCE_SECONDS,
            what=f"{probes} being answered",
            last=operator.log_tail,
        )
        assert not answers(f"http://127.0.0.1:{port}/nonsense")
    finally:
        operator.kill()


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
