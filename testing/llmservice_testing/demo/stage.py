"""All that runs during the demo, started in order and ended in the reverse one."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from llmservice_testing.cluster import Cluster
from llmservice_testing.controlplane import ControlPlane, find_assets
from llmservice_testing.demo.engines import EngineReader, Engines, real_engines, simulated_engines
from llmservice_testing.demo.errors import DemoError
from llmservice_testing.demo.fleet import NAMESPACE, Member, member
from llmservice_testing.demo.operator_process import RunningOperator, running_operator
from llmservice_testing.demo.progress import working

CRD: Final = Path(__file__).parents[3] / "crds" / "llmservices.llmservice.io.yaml"

EnginesKind = Literal["simulated", "vllm"]


@dataclass(frozen=True)
class Stage:
    """What runs.

    Attributes:
        folder: for files of the demo; removed at its end.
        members: the pods, oldest first; grows when one appears.
    """

    folder: Path
    kubeconfig: Path
    cluster: Cluster
    engines: Engines
    reader: EngineReader
    operator: RunningOperator
    members: list[Member] = field(default_factory=list)


@contextlib.contextmanager
def stage(kind: EnginesKind) -> Iterator[Stage]:
    """Starts everything, says so on standard output, and ends it after the block."""
    if not CRD.exists():
        raise DemoError(f"There is no {CRD}: run the demo from a checkout of the repository, with make demo.")
    assets = find_assets()  # says by itself what it does if that takes long
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="llmservice-demo-")))
        with working("Starting etcd and kube-apiserver"):
            control_plane = stack.enter_context(ControlPlane(assets=assets))
        _let_children_find(control_plane.kubeconfig, folder)
        cluster = stack.enter_context(Cluster(control_plane.kubeconfig))
        cluster.apply_crd(CRD)
        engines = stack.enter_context(simulated_engines() if kind == "simulated" else real_engines(folder))
        reader = stack.enter_context(contextlib.closing(EngineReader()))
        members = [member(number, engine) for number, engine in enumerate(engines.fleet)]
        for one in members:
            cluster.create_pod(NAMESPACE, one.pod.ip(one.engine.host).ready())
        operator = stack.enter_context(running_operator(folder))
        yield Stage(folder, control_plane.kubeconfig, cluster, engines, reader, operator, members)


def _let_children_find(kubeconfig: Path, folder: Path) -> None:
    """From here on kubectl and the operator talk to this cluster, whatever the user's own configuration says."""
    os.environ["KUBECONFIG"] = str(kubeconfig)
    os.environ["KUBECACHEDIR"] = str(folder / "kubectl-cache")  # else each run leaves files in the user's home
