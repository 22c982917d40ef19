"""Fixtures for tests of GitOps: one API server with one operator, and the tools' own code."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from llmservice_testing.cluster import Cluster
from llmservice_testing.controlplane import ControlPlane, find_assets
from llmservice_testing.fleet import Addresses, Fleet, Kubectl
from llmservice_testing.gitops import GitOps, GopherLua, Interpreter, RealLua, ensure_built, find_lua
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.simulator import SimulatorThread

ROOT = Path(__file__).parents[2]
CRDS = ROOT / "crds"


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Gets the programs before the first test: to build them takes longer than a test may, and tells how it goes."""
    needed = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    if not session.config.option.collectonly:
        capture = session.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            if "gitops_program" in needed or "interpreter" in needed:
                ensure_built()
            if "interpreter" in needed:
                find_lua()


@pytest.fixture(scope="session")
def gitops_program() -> Path:
    """Flux's patch logic, kstatus and Argo CD's Lua."""
    return ensure_built()


@pytest.fixture(scope="session", params=["lua", "gopher-lua"])
def interpreter(request: pytest.FixtureRequest) -> Interpreter:
    """A real Lua, and the one of Argo CD."""
    return RealLua(find_lua()) if request.param == "lua" else GopherLua(ensure_built())


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A running etcd and kube-apiserver."""
    with ControlPlane(assets=find_assets()) as running:
        yield running


@pytest.fixture(scope="session")
def cluster(control_plane: ControlPlane) -> Iterator[Cluster]:
    """A client with the administrator's rights; LLMServices are served."""
    with Cluster(control_plane.kubeconfig) as client:
        for definition in sorted(CRDS.glob("*.yaml")):
            client.apply_crd(definition)
        yield client


@pytest.fixture(scope="session")
def operator(
    control_plane: ControlPlane, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """The operator, for all namespaces."""
    with OperatorProcess(control_plane.kubeconfig, tmp_path_factory.mktemp("operator")) as running:
        yield running


@pytest.fixture
def fleet(
    cluster: Cluster, simulator: SimulatorThread, addresses: Addresses, namespace: str, operator: OperatorProcess
) -> Iterator[Fleet]:
    """A fleet without members, in the operator's care, whose LLMService `qwen` is not declared yet."""
    made = Fleet(cluster, simulator, addresses, namespace)
    yield made
    for service in cluster.list_llmservices(namespace):  # before the engines go: nobody has to miss them
        cluster.delete_llmservice(namespace, service["metadata"]["name"])
    made.close()


@pytest.fixture
def kubectl(control_plane: ControlPlane, namespace: str) -> Kubectl:
    """Kubectl, in the test's namespace."""
    return Kubectl(control_plane.kubeconfig, namespace)


@pytest.fixture
def gitops(gitops_program: Path, control_plane: ControlPlane) -> GitOps:
    """Flux and kstatus, on the cluster."""
    return GitOps(gitops_program, control_plane.kubeconfig)
