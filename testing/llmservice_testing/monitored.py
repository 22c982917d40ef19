"""A stage for tests and pictures of the monitoring: fleets in a real API server, the operator, and a Prometheus on it.

with monitored(folder, groups=monitoring.groups()) as stage:
    fleet = stage.fleet("qwen")
    ...
    stage.prometheus.alerts()
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from llmservice_testing import monitoring
from llmservice_testing.builders import Json
from llmservice_testing.cluster import Cluster
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import Addresses, Fleet
from llmservice_testing.manifests import DEFINITION
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.prometheus import Programs, Prometheus, find_prometheus, wait_for_scrape
from llmservice_testing.simulator import SimulatorThread

NAMESPACE: Final = "models"
OPERATOR_LABELS: Final = {"namespace": "llmservice-system", "pod": "llmservice-operator-0"}
"""What service discovery says of the operator itself; `namespace` is the name of a label of its metrics, too."""


@dataclass
class Stage:
    """What runs."""

    cluster: Cluster
    operator: OperatorProcess
    prometheus: Prometheus
    _simulator: SimulatorThread
    _addresses: Addresses = field(default_factory=Addresses)
    _fleets: list[Fleet] = field(default_factory=list)

    def fleet(self, name: str) -> Fleet:
        """A fleet without members in the namespace `models`; it ends with the stage, or with `remove`."""
        self._fleets.append(Fleet(self.cluster, self._simulator, self._addresses, NAMESPACE, name=name))
        return self._fleets[-1]

    def remove(self, fleet: Fleet) -> None:
        """Deletes the fleet's LLMService and pods, and ends its engines."""
        if not fleet.is_gone():
            fleet.delete()
            fleet.wait_gone()
        for member in fleet.members:
            self.cluster.delete_pod(fleet.namespace, member.name)
        self._fleets.remove(fleet)
        fleet.close()

    def close(self) -> None:
        """Ends the engines of fleets that are still there."""
        for fleet in self._fleets:
            fleet.close()


@contextlib.contextmanager
def monitored(folder: Path, *, groups: Sequence[Json] = (), programs: Programs | None = None) -> Iterator[Stage]:
    """Starts everything and ends it after the block. `folder` gets logs and data; it is left to the caller.

    Prometheus scrapes as docs/metrics.md says, and gives the operator the labels that service discovery would.
    """
    programs = programs or find_prometheus()
    with contextlib.ExitStack() as stack:
        control_plane = stack.enter_context(ControlPlane())
        cluster = stack.enter_context(Cluster(control_plane.kubeconfig))
        cluster.apply_crd(DEFINITION)
        cluster.create_namespace(NAMESPACE)
        simulator = stack.enter_context(SimulatorThread())
        operator = stack.enter_context(OperatorProcess(control_plane.kubeconfig, folder / "operator"))
        scrapes = monitoring.documented_scrape()
        for job in scrapes:
            job["static_configs"] = [{"targets": [urlsplit(operator.metrics_url).netloc], "labels": OPERATOR_LABELS}]
        prometheus = stack.enter_context(
            Prometheus(programs, folder / "prometheus", scrape_configs=scrapes, groups=groups)
        )
        wait_for_scrape(prometheus)  # its first one may take seconds; what was counted before then has never increased
        stage = Stage(cluster, operator, prometheus, simulator)
        stack.callback(stage.close)
        yield stage
