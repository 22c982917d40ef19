"""What the documents say is so: their commands run, their links lead somewhere, and nothing that they list is missing."""

import contextlib
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from llmservice.api import Reason
from llmservice.domain.transitions import EventReason
from llmservice_testing.audit import Right, rights
from llmservice_testing.builders import make_llmservice
from llmservice_testing.cluster import ApiError, Cluster, wait_until
from llmservice_testing.controlplane import ControlPlane, find_assets
from llmservice_testing.fleet import Addresses, Fleet
from llmservice_testing.helm import Helm
from llmservice_testing.manifests import INSTALL, MANIFESTS, ROOT, kustomize
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.simulator import SimulatorThread

DOCS = ROOT / "docs"
OURS = [DOCS / f"{name}.md" for name in ("install", "security", "operations", "troubleshooting", "versions")]
NAMESPACE = "models"


@dataclass(frozen=True)
class Section:
    """A heading of a document, and what stands below it until the next."""

    title: str
    level: int
    text: str

    @property
    def commands(self) -> list[str]:
        """The lines of its console blocks that a person types."""
        blocks = re.findall(r"^ *```console\n(.*?)^ *```", self.text, re.MULTILINE | re.DOTALL)
        return [line.strip()[2:] for block in blocks for line in block.splitlines() if line.strip().startswith("$ ")]

    @property
    def anchor(self) -> str:
        """Its address within the page, as GitHub makes it."""
        return re.sub(r"[^\w\- ]", "", self.title.lower()).replace(" ", "-")


def sections(path: Path) -> list[Section]:
    """All of a document; what looks like a heading within a block of code is none."""
    found: list[list[str]] = []
    is_code = False
    for line in path.read_text().splitlines():
        is_code ^= line.strip().startswith("```")
        if not is_code and re.match(r"#+ ", line):
            found.append([line])
        elif found:
            found[-1].append(line)
    return [
        Section(lines[0].lstrip("#").strip(), len(lines[0]) - len(lines[0].lstrip("#")), "\n".join(lines[1:]) + "\n")
        for lines in found
    ]


def below(path: Path, title: str) -> list[Section]:
    """The sections under a heading."""
    every = sections(path)
    start = next(number for number, one in enumerate(every) if one.title == title)
    rest = every[start + 1 :]
    end = next((number for number, one in enumerate(rest) if one.level <= every[start].level), len(rest))
    return rest[:end]


# Nothing is missing


def test_every_reason_has_an_entry() -> None:
    conditions = [one.title for one in sections(DOCS / "troubleshooting.md") if one.title.startswith("Condition ")]
    assert conditions == ["Condition Ready", "Condition Paused", "Condition Reconciling", "Condition Stalled"]
    titles = [one.title for condition in conditions for one in below(DOCS / "troubleshooting.md", condition)]
    assert sorted(titles) == sorted(Reason)


def test_every_event_has_an_entry() -> None:
    (events,) = [one for one in sections(DOCS / "troubleshooting.md") if one.title == "Events"]
    named = [
        name for cell in re.findall(r"^\| ([A-Z][\w, ]+) \|", events.text, re.MULTILINE) for name in cell.split(", ")
    ]
    assert sorted(named) == sorted(EventReason)


def test_every_alert_has_an_entry_and_points_to_it() -> None:
    (rule,) = [one for one in kustomize(MANIFESTS / "overlays" / "monitoring") if one["kind"] == "PrometheusRule"]
    alerts = [one for group in rule["spec"]["groups"] for one in group["rules"] if "alert" in one]
    entries = {one.title: one.anchor for one in below(DOCS / "troubleshooting.md", "Alerts")}
    assert sorted(one["alert"] for one in alerts) == sorted(entries)
    for alert in alerts:
        runbook = alert["annotations"].get("runbook", "")
        assert runbook == f"docs/troubleshooting.md#{entries[alert['alert']]}"


def test_every_right_is_explained() -> None:
    (table,) = [one for one in sections(DOCS / "security.md") if one.title == "What the operator may do"]
    rows = re.findall(r"^\| ([a-z, ]+) `([a-z/]+)` \|", table.text, re.MULTILINE)
    explained = {(verb, resource) for verbs, resource in rows for verb in verbs.split(", ")}
    roles = {one["metadata"]["name"]: one for one in kustomize(MANIFESTS / "base") if one["kind"] == "ClusterRole"}
    granted: set[Right] = rights(roles["llmservice-operator"]["rules"])
    assert explained == {(one.verb, one.resource) for one in granted}
    assert (
        f"The operator has {['ten', 'eleven', 'twelve', 'thirteen'][len(granted) - 10]} rights"
        in (DOCS / "security.md").read_text()
    )


@pytest.mark.parametrize("path", [*OURS, ROOT / "README.md"], ids=lambda path: path.name)
def test_links_and_paths_lead_somewhere(path: Path) -> None:
    text = path.read_text()
    for target in re.findall(r"\]\(([^)]+)\)", text):
        file, _, anchor = target.partition("#")
        place = (path.parent / file).resolve() if file else path
        assert place.exists(), target
        assert not anchor or anchor in [one.anchor for one in sections(place)], target
    for named in re.findall(r"`((?:tests|manifests|operator|crds)/[^`\s]*)`", text):
        assert list(ROOT.glob(named.rstrip("/"))), named
    assert set(re.findall(r"llmservice/operator:(\d[\w.]*)", text)) <= {version("llmservice")}


# Commands run


class Stage:
    """A control plane of its own, its kubeconfig with the namespace `models`, and kubectl and helm on the PATH."""

    def __init__(self, plane: ControlPlane, cluster: Cluster, helm: Helm) -> None:
        self.plane = plane
        self.cluster = cluster
        self.kubeconfig = plane.user_kubeconfig("administrator", token=plane.token, namespace=NAMESPACE)
        self._environment = os.environ | {
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": f"{helm.program.parent}{os.pathsep}{os.environ['PATH']}",
        }

    def run(self, command: str) -> str:
        """Runs what a person would type, at the root of the repository. Raises AssertionError with what it says."""
        done = subprocess.run(
            shlex.split(command),
            env=self._environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


@contextlib.contextmanager
def staged(helm: Helm, *, installed: bool = False) -> Iterator[Stage]:
    """A new control plane; `installed`: with install.yaml, and the namespace `models`."""
    with ControlPlane(assets=find_assets()) as plane, Cluster(plane.kubeconfig) as cluster:
        stage = Stage(plane, cluster, helm)
        if installed:
            stage.run(f"kubectl apply --server-side -f {INSTALL}")
            cluster.create_namespace(NAMESPACE)
            wait_until(lambda: can_list(cluster), 30, what="LLMServices being listed")
        yield stage


def can_list(cluster: Cluster) -> bool:
    try:
        cluster.list_llmservices(NAMESPACE)
    except ApiError as error:
        if error.status not in (404, 429):  # not served yet, or just about to be
            raise
        return False
    return True


@contextlib.contextmanager
def fleet_of(stage: Stage, simulator: SimulatorThread, addresses: Addresses, directory: Path) -> Iterator[Fleet]:
    """A running fleet `qwen` with what a cluster has around it, and an operator with the rights of install.yaml."""
    token = stage.cluster.service_account_token("llmservice-system", "llmservice-operator")
    with OperatorProcess(stage.plane.user_kubeconfig("operator", token=token), directory):
        fleet = Fleet(stage.cluster, simulator, addresses, NAMESPACE)
        try:
            fleet.grow(2)
            fleet.declare("running")
            fleet.wait("Ready", reason="InDesiredState")
            yield fleet
        finally:
            fleet.close()


def all_commands(path: Path) -> list[str]:
    return [command for section in sections(path) for command in section.commands]


@pytest.fixture(scope="module")
def lived_in(
    helm: Helm, simulator: SimulatorThread, addresses: Addresses, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """A cluster with a running fleet, and with what a cluster has around it."""
    directory = tmp_path_factory.mktemp("operator")
    with staged(helm, installed=True) as stage, fleet_of(stage, simulator, addresses, directory):
        for one in surroundings():
            stage.cluster.apply(one, namespace=NAMESPACE)
        yield stage


@pytest.mark.parametrize("name", ["operations", "troubleshooting"])
def test_the_commands_run(name: str, lived_in: Stage) -> None:
    commands = all_commands(DOCS / f"{name}.md")
    assert len(commands) >= 8
    for command in commands:
        lived_in.run(command)


def test_the_commands_of_the_readme_run(lived_in: Stage) -> None:
    """But those of make, which begin with tests of their own (`tests/integration/test_demo.py`)."""
    commands = [command for command in all_commands(ROOT / "README.md") if not command.startswith("make ")]
    assert len(commands) >= 10
    for command in commands:
        lived_in.run(command)


def test_the_commands_about_security_run(helm: Helm) -> None:
    commands = all_commands(DOCS / "security.md")
    assert len(commands) >= 3
    with staged(helm, installed=True) as stage:
        for command in commands:
            stage.run(command)


def surroundings() -> list[dict[str, Any]]:
    """What the documents take for granted beside the fleet."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "qwen"}
    return [
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "qwen"},
            "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 4},
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "qwen"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "qwen"}}},
        },
    ]


def nothing(_: Stage) -> None:
    """A cluster that has never heard of LLMServices."""


def an_llmservice_that_waits_for_nobody(stage: Stage) -> None:
    service = make_llmservice("qwen").selector(app="qwen").deletion_policy("resume").obj()
    service["metadata"]["finalizers"] = ["llmservice.io/resume"]
    stage.cluster.create_llmservice(NAMESPACE, service)
    stage.cluster.delete_llmservice(NAMESPACE, "qwen")


INSTALLING: dict[str, tuple[bool, Callable[[Stage], None]]] = {
    "Install": (False, nothing),
    "With Helm": (False, nothing),
    "OpenShift": (False, nothing),
    "Upgrade": (True, nothing),
    "From kubectl to Helm": (True, nothing),
    "An LLMService does not go away": (True, an_llmservice_that_waits_for_nobody),
}
"""For each section of install.md with commands, but the one on removal: whether it begins with an installation, and what
else has to be there."""


@pytest.mark.parametrize("title", INSTALLING)
def test_the_commands_of_an_installation_run(title: str, helm: Helm) -> None:
    (section,) = [one for one in sections(DOCS / "install.md") if one.title == title]
    assert section.commands
    installed, prepare = INSTALLING[title]
    with staged(helm, installed=installed) as stage:
        prepare(stage)
        for command in section.commands:
            stage.run(command)


def test_the_commands_of_a_removal_run_and_leave_nothing_stuck(
    helm: Helm, simulator: SimulatorThread, addresses: Addresses, tmp_path: Path
) -> None:
    (section,) = [one for one in sections(DOCS / "install.md") if one.title == "Uninstall"]
    with staged(helm, installed=True) as stage, fleet_of(stage, simulator, addresses, tmp_path) as fleet:
        fleet.patch(deletionPolicy="resume", generation="paused")
        fleet.wait("Paused")
        for command in section.commands:
            stage.run(command)
        assert not any(engine.paused for engine in fleet.engines)
        stage.run("kubectl delete crd llmservices.llmservice.io --timeout=30s")


def test_every_command_of_install_md_is_run() -> None:
    titles = {one.title for one in sections(DOCS / "install.md") if one.commands}
    assert titles == {*INSTALLING, "Uninstall"}
