"""Fixtures for tests against a real API server. Starting it takes seconds, so one serves the whole session.

Tests that stop, pause or restart the API server disturb all others in the same session, which must therefore not run in
parallel with them; they take `control_plane` and leave it running.

One operator serves the tests that take `operator`. Those that kill, freeze or restart one, or look at what it says of
itself, take `own_operator`, which serves their namespace alone; the shared one is not there meanwhile, because two
operators would act on the same objects. So that it is started once, the tests run in this order: without an operator, with
the shared one, with one of their own.
"""

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from llmservice_testing.cluster import Cluster
from llmservice_testing.controlplane import Assets, AssetsNotFoundError, ControlPlane, User, find_assets
from llmservice_testing.fleet import Addresses, Fleet, Kubectl
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.simulator import SimulatorThread

CRDS = Path(__file__).parents[2] / "crds"
_assets_key = pytest.StashKey[Assets | AssetsNotFoundError]()
_operators_key = pytest.StashKey[list[OperatorProcess]]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Gets the programs of the control plane before the first test, if any test needs them.

    The first time they may have to be downloaded or built. Inside a fixture that would count against the time limit of
    whichever test comes first, and its progress would be captured.
    """
    needed = any("assets" in getattr(item, "fixturenames", ()) for item in session.items)
    if needed and not session.config.option.collectonly:
        capture = session.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            session.config.stash[_assets_key] = _assets_or_error()


def _assets_or_error() -> Assets | AssetsNotFoundError:
    try:
        return find_assets()
    except AssetsNotFoundError as error:
        return error  # for the tests that need them; the others run


@pytest.fixture(scope="session")
def assets(request: pytest.FixtureRequest) -> Assets:
    """The programs of the control plane."""
    found = request.config.stash.get(_assets_key, None) or _assets_or_error()
    if isinstance(found, AssetsNotFoundError):
        raise found
    return found


@pytest.fixture(scope="session")
def control_plane(assets: Assets) -> Iterator[ControlPlane]:
    """A running etcd and kube-apiserver, with one extra user `nobody` who has no rights."""
    with ControlPlane(users=[User("nobody")], assets=assets) as running:
        yield running


@pytest.fixture(scope="session")
def cluster(control_plane: ControlPlane) -> Iterator[Cluster]:
    """A client with the administrator's rights; the project's CustomResourceDefinitions are served."""
    with Cluster(control_plane.kubeconfig) as client:
        for definition in sorted(CRDS.glob("*.yaml")):
            client.apply_crd(definition)
        yield client


@pytest.fixture
def make_fleet(
    cluster: Cluster, simulator: SimulatorThread, addresses: Addresses, namespace: str
) -> Iterator[Callable[..., Fleet]]:
    """Makes further fleets in the test's namespace: `make_fleet(name="other", ports=[8000, 8001])`."""
    made: list[Fleet] = []

    def make(name: str = "qwen", ports: tuple[int, ...] = (8000,)) -> Fleet:
        made.append(Fleet(cluster, simulator, addresses, namespace, name=name, ports=ports))
        return made[-1]

    yield make
    for service in cluster.list_llmservices(namespace):  # before their engines go: nobody has to miss them
        cluster.delete_llmservice(namespace, service["metadata"]["name"])
    for fleet in made:
        fleet.close()


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    """A fleet without members, whose LLMService `qwen` is not declared yet."""
    return make_fleet()


@pytest.fixture
def kubectl(control_plane: ControlPlane, namespace: str) -> Kubectl:
    """Kubectl, in the test's namespace."""
    return Kubectl(control_plane.kubeconfig, namespace)


# Operators


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts by the operator that is needed, and leaves the order as it is otherwise."""
    items.sort(key=_operators_needed)


def _operators_needed(item: pytest.Item) -> int:
    names = getattr(item, "fixturenames", ())
    return 2 if "without_operator" in names else 1 if "operator" in names else 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows the end of the operators' logs with a test that failed."""
    report = yield
    if report.failed:
        for running in item.session.stash.get(_operators_key, []):
            report.sections.append((f"log of the operator: {running.log}", running.log_tail()))
    return report


class SharedOperator:
    """The operator for all namespaces, started when it is needed, and gone while a test has its own."""

    def __init__(self, process: OperatorProcess) -> None:
        self._process = process

    def present(self) -> OperatorProcess:
        """It, running."""
        if not self._process.is_running:
            self._process.start()
        return self._process

    def absent(self) -> None:
        """Ends it, if it runs."""
        if self._process.is_running:
            self._process.stop()


@pytest.fixture(scope="session")
def operators(request: pytest.FixtureRequest) -> list[OperatorProcess]:
    """The operators whose logs are shown with a failure."""
    return request.session.stash.setdefault(_operators_key, [])


@pytest.fixture(scope="session")
def shared_operator(
    control_plane: ControlPlane,
    cluster: Cluster,  # it brings the definitions
    tmp_path_factory: pytest.TempPathFactory,
    operators: list[OperatorProcess],
) -> Iterator[SharedOperator]:
    """The one operator that serves the session."""
    process = OperatorProcess(control_plane.kubeconfig, tmp_path_factory.mktemp("operator"))
    shared = SharedOperator(process)
    operators.append(process)
    yield shared
    shared.absent()


@pytest.fixture
def operator(shared_operator: SharedOperator) -> OperatorProcess:
    """The shared operator, for all namespaces. Leave it alone."""
    return shared_operator.present()


@pytest.fixture
def without_operator(shared_operator: SharedOperator) -> None:
    """The shared operator is not there: the test starts its own, or none."""
    shared_operator.absent()


@pytest.fixture
def make_operator(
    without_operator: None,
    control_plane: ControlPlane,
    cluster: Cluster,
    namespace: str,
    tmp_path: Path,
    operators: list[OperatorProcess],
) -> Iterator[Callable[..., OperatorProcess]]:
    """Makes operators of the test's own, for its namespace unless it says otherwise. They are not started yet."""
    made: list[OperatorProcess] = []

    def make(
        kubeconfig: Path | None = None, namespaces: tuple[str, ...] | None = None, arguments: tuple[str, ...] = ()
    ) -> OperatorProcess:
        process = OperatorProcess(
            kubeconfig or control_plane.kubeconfig,
            tmp_path / f"operator-{len(made)}",
            namespaces=namespaces or (namespace,),
            arguments=arguments,
        )
        made.append(process)
        operators.append(process)
        return process

    yield make
    for process in made:
        operators.remove(process)
        if process.is_running:
            process.kill()


@pytest.fixture
def own_operator(make_operator: Callable[..., OperatorProcess]) -> OperatorProcess:
    """An operator of the test's own, for its namespace, running."""
    process = make_operator()
    process.start()
    return process
