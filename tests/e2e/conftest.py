"""Fixtures for tests in a real cluster: `make e2e` makes one with kind, and says where by KUBECONFIG.

The operator is installed once, from the manifest that users get. Each test has a namespace of its own. Tests that change
the installation take `installation` and put it back; that is why these tests do not run at the same time.
"""

import contextlib
import os
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from llmservice_testing.cluster import ApiError, Cluster, NotFoundError
from llmservice_testing.fleet import Kubectl
from llmservice_testing.helm import Helm, HelmNotFoundError, find_helm
from llmservice_testing.kind.client import Client
from llmservice_testing.kind.installation import Installation
from llmservice_testing.kind.invariants import Invariants
from llmservice_testing.kind.places import KUBECONFIG, NODE
from llmservice_testing.kind.pods import PodFleet
from llmservice_testing.kind.running import output_of

_installation_key = pytest.StashKey[Installation]()
_failed_key = pytest.StashKey[bool]()
_figures_key = pytest.StashKey[dict[str, object]]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Gets helm before the first test, if any test needs it: to build it would take longer than a test may take."""
    needed = any("helm" in getattr(item, "fixturenames", ()) for item in session.items)
    if needed and not session.config.option.collectonly:
        capture = session.config.pluginmanager.getplugin("capturemanager")
        with (
            capture.global_and_fixture_disabled(),
            contextlib.suppress(HelmNotFoundError),
        ):  # the fixture raises it again
            find_helm()


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    """The administrator's kubeconfig of the cluster. Never that of another cluster: it must be one of ours."""
    path = Path(os.environ.get("KUBECONFIG") or KUBECONFIG)
    if not path.is_file():
        pytest.fail(
            f"There is no cluster: {path} is missing. Run `make e2e`, or `python -m llmservice_testing.kind up`"
        )
    nodes = output_of(["kubectl", "--kubeconfig", path, "get", "nodes", "-o", "name"])
    if nodes != f"node/{NODE}":
        pytest.fail(f"{path} leads to a cluster with {nodes}, where these tests might do harm; they want {NODE} alone")
    return path


@pytest.fixture(scope="session")
def cluster(kubeconfig: Path) -> Iterator[Cluster]:
    """The cluster, with the administrator's rights."""
    with Cluster(kubeconfig) as client:
        yield client


@pytest.fixture(scope="session")
def installation(cluster: Cluster, request: pytest.FixtureRequest) -> Installation:
    """The operator, installed from manifests/install.yaml. Who changes it puts it back."""
    installed = Installation(cluster)
    request.session.stash[_installation_key] = installed
    installed.apply()
    return installed


@pytest.fixture
def make_namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Makes a namespace; it is deleted afterwards, without waiting for that. One of a test that failed is kept, for the
    logs that are saved at the end."""
    made: list[str] = []

    def make() -> str:
        made.append(f"e2e-{uuid.uuid4().hex[:8]}")
        cluster.create_namespace(made[-1])
        return made[-1]

    yield make
    if request.node.stash.get(_failed_key, False):
        return
    for name in made:
        with contextlib.suppress(NotFoundError):  # the test did so
            cluster.delete_namespace(name)


@pytest.fixture
def namespace(make_namespace: Callable[[], str]) -> str:
    """The test's own."""
    return make_namespace()


@pytest.fixture
def watched(cluster: Cluster) -> Iterator[list[str]]:
    """The namespaces whose invariants are watched; add to it. What must never be seen fails the test."""
    namespaces: list[str] = []
    with Invariants(cluster, namespaces) as invariants:
        yield namespaces
    invariants.check()


@pytest.fixture
def fleet(cluster: Cluster, installation: Installation, namespace: str, watched: list[str]) -> PodFleet:
    """A fleet `qwen` without engines, whose LLMService is not declared yet. Its invariants are watched."""
    watched.append(namespace)
    return PodFleet(cluster, namespace)


@pytest.fixture
def client(cluster: Cluster, namespace: str) -> Client:
    """A client in the cluster."""
    made = Client(cluster, namespace)
    made.start()
    return made


@pytest.fixture
def kubectl(kubeconfig: Path, namespace: str) -> Kubectl:
    """Kubectl, in the test's namespace."""
    return Kubectl(kubeconfig, namespace)


@pytest.fixture(scope="session")
def helm() -> Helm:
    """The real one."""
    return Helm(find_helm())


@pytest.fixture
def record_figure(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Keeps a measured figure, which is shown at the end."""
    return request.config.stash.setdefault(_figures_key, {}).__setitem__


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Shows what was measured."""
    for name, value in config.stash.get(_figures_key, {}).items():
        terminalreporter.write_line(f"{name}: {value}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows the end of the operator's log with a test that failed."""
    report = yield
    item.stash[_failed_key] = item.stash.get(_failed_key, False) or report.failed
    installed = item.session.stash.get(_installation_key, None)
    if report.failed and installed is not None:
        try:
            report.sections.append(("log of the operator", installed.log()))
        except ApiError as error:
            report.sections.append(("no log of the operator", str(error)))
    return report
