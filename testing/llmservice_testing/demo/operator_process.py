"""The operator as a process of its own, as it would run in a pod."""

import contextlib
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from llmservice_testing.controlplane.processes import ServerProcess
from llmservice_testing.demo.errors import DemoError
from llmservice_testing.demo.fleet import NAMESPACE
from llmservice_testing.ports import free_ports

_GRACE_SECONDS: Final = 5.0


@dataclass(frozen=True)
class RunningOperator:
    """The operator while it runs.

    Attributes:
        command: as one would type it.
        metrics_url: where Prometheus would read.
    """

    process: ServerProcess
    command: str
    metrics_url: str

    def check(self) -> None:
        """Raises DemoError if it has ended."""
        if self.process.exit_status is not None:
            raise DemoError(f"The operator ended with status {self.process.exit_status}.")


@contextlib.contextmanager
def running_operator(folder: Path) -> Iterator[RunningOperator]:
    """Starts the operator, which finds the cluster by KUBECONFIG, and ends it after the block; it logs to `folder`."""
    program = Path(sys.executable).with_name("llmservice")
    if not program.exists():
        raise DemoError(f"There is no {program}: run make install first.")
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    arguments = ["operator", "--namespace", NAMESPACE, "--metrics-address", metrics, "--health-address", ""]
    process = ServerProcess.start([str(program), *arguments], log=folder / "operator.log")
    try:
        yield RunningOperator(process, shlex.join(["llmservice", *arguments]), f"http://{metrics}/metrics")
    finally:
        process.stop(grace_seconds=_GRACE_SECONDS)
