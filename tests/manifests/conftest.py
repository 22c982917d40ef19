"""Fixtures for tests of the manifests. One API server, which writes an audit log, serves them all."""

import contextlib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmservice_testing.audit import AuditedControlPlane
from llmservice_testing.cluster import Cluster, NotFoundError
from llmservice_testing.controlplane import find_assets
from llmservice_testing.fleet import Addresses, Fleet, Kubectl
from llmservice_testing.helm import Helm, find_helm
from llmservice_testing.manifests import DEFINITION
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.simulator import SimulatorThread


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Gets helm before the first test, if any test needs it: to build it takes longer than a test may."""
    needed = any("helm" in getattr(item, "fixturenames", ()) for item in session.items)
    if needed and not session.config.option.collectonly:
        capture = session.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            find_helm()


@pytest.fixture(scope="session")
def helm() -> Helm:
    """The real one."""
    return Helm(find_helm())


@pytest.fixture(scope="session")
def control_plane() -> Iterator[AuditedControlPlane]:
    """A running etcd and kube-apiserver."""
    with AuditedControlPlane(assets=find_assets()) as running:
        yield running


@pytest.fixture(scope="session")
def cluster(control_plane: AuditedControlPlane) -> Iterator[Cluster]:
    """A client with the administrator's rights; LLMServices are served."""
    with Cluster(control_plane.kubeconfig) as client:
        client.apply_crd(DEFINITION)
        yield client


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    """A namespace of the test's own."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    cluster.create_namespace(name)
    return name


@pytest.fixture
def make_fleet(
    cluster: Cluster, simulator: SimulatorThread, addresses: Addresses, namespace: str
) -> Iterator[Callable[..., Fleet]]:
    """Makes fleets, in the test's namespace unless it names another: `make_fleet("other", namespace="models")`."""
    made: list[Fleet] = []

    def make(name: str = "qwen", namespace: str = namespace) -> Fleet:
        made.append(Fleet(cluster, simulator, addresses, namespace, name=name))
        return made[-1]

    yield make
    for fleet in made:
        with contextlib.suppress(NotFoundError):
            if fleet.finalizers():  # whoever would take it off is gone
                cluster.patch_llmservice(fleet.namespace, fleet.name, {"metadata": {"finalizers": None}})
            fleet.delete()
        fleet.close()


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    """A fleet without members, whose LLMService `qwen` is not declared yet."""
    return make_fleet()


@pytest.fixture
def kubectl(control_plane: AuditedControlPlane, namespace: str) -> Kubectl:
    """Kubectl as the administrator, in the test's namespace."""
    return Kubectl(control_plane.kubeconfig, namespace)


@pytest.fixture
def run_operator(tmp_path: Path) -> Iterator[Callable[..., OperatorProcess]]:
    """Starts operators with a kubeconfig, for some namespaces or, with None, for all."""
    started: list[OperatorProcess] = []

    def run(kubeconfig: Path, namespaces: tuple[str, ...] | None) -> OperatorProcess:
        process = OperatorProcess(kubeconfig, tmp_path / f"operator-{len(started)}", namespaces=namespaces)
        started.append(process)
        process.start_soon()
        return process

    yield run
    for process in started:
        if process.is_running:
            process.kill()
