"""Fixtures for tests against a real API server. Starting it takes seconds, so one serves the whole session.

Tests that stop, pause or restart the API server disturb all others in the same session, which must therefore not run in
parallel with them; they take `control_plane` and leave it running.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmservice_testing.cluster import Cluster
from llmservice_testing.controlplane import Assets, AssetsNotFoundError, ControlPlane, User, find_assets

CRDS = Path(__file__).parents[2] / "crds"
_assets_key = pytest.StashKey[Assets | AssetsNotFoundError]()


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
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own. Deleted without waiting: nothing here would ever finish the deletion."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    cluster.create_namespace(name)
    yield name
    cluster.delete_namespace(name)
