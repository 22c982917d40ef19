"""What tests on a real API server share: engines, their addresses, and a namespace. Each folder has its own `cluster`."""

import contextlib
import uuid
from collections.abc import Iterator

import pytest

from llmservice_testing.cluster import Cluster, NotFoundError
from llmservice_testing.fleet import Addresses
from llmservice_testing.simulator import SimulatorThread


@pytest.fixture(scope="session")
def simulator() -> Iterator[SimulatorThread]:
    """Simulated engines, all in one thread."""
    with SimulatorThread() as running:
        yield running


@pytest.fixture(scope="session")
def addresses() -> Addresses:
    """Addresses for engines."""
    return Addresses()


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own. Deleted without waiting: nothing here would ever finish the deletion."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    cluster.create_namespace(name)
    yield name
    for service in cluster.list_llmservices(name):
        with contextlib.suppress(NotFoundError):  # the operator has just let go of it
            cluster.delete_llmservice(name, service["metadata"]["name"])
    cluster.delete_namespace(name)
