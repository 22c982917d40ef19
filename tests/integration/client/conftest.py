"""The client under test, for the fleet of the test. Everything else looks at the world by other ways."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmservice.client import AsyncFleet as AsyncClient
from llmservice.client import Fleet as Client
from llmservice_testing.api_proxy import ApiProxy
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import Fleet


@pytest.fixture
def make_client(control_plane: ControlPlane, fleet: Fleet) -> Callable[..., Client]:
    """Makes clients for programs without asyncio: `make_client(manager="trainer-b")`."""

    def make(**options: str) -> Client:
        return Client(
            fleet.name, **{"namespace": fleet.namespace, "kubeconfig": str(control_plane.kubeconfig)} | options
        )

    return make


@pytest.fixture
def make_async_client(control_plane: ControlPlane, fleet: Fleet) -> Callable[..., AsyncClient]:
    """The same for programs with asyncio."""

    def make(**options: str) -> AsyncClient:
        return AsyncClient(
            fleet.name, **{"namespace": fleet.namespace, "kubeconfig": str(control_plane.kubeconfig)} | options
        )

    return make


@pytest.fixture
def client(make_client: Callable[..., Client]) -> Client:
    """A client, under the field manager `trainer`."""
    return make_client(manager="trainer")


@pytest.fixture
def async_client(make_async_client: Callable[..., AsyncClient]) -> AsyncClient:
    """A client, under the field manager `trainer`."""
    return make_async_client(manager="trainer")


@pytest.fixture
def proxy(control_plane: ControlPlane, tmp_path: Path) -> Iterator[ApiProxy]:
    """Between a client and the API server."""
    with ApiProxy(control_plane, tmp_path) as running:
        yield running
