"""The operator under measurement, with the fleet that it serves."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from bench.engines import PORT
from bench.stage import Stage
from llmservice_testing.builders import make_llmservice, make_pod
from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.controlplane.processes import ServerProcess
from llmservice_testing.ports import free_ports

NAME: Final = "qwen"
"""Of the LLMService, and of its pods' label `app`."""
LONGEST_RESYNC_SECONDS: Final = 3600
"""So that no read of a resync falls into the measurement of a fan-out, the operator's or another's."""

_PROGRAM: Final = (str(Path(sys.executable).with_name("llmservice")),)
_READY_SECONDS: Final = 120.0
_WRITERS: Final = 8
"""Threads that create pods."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used since its start."""

    cpu_seconds: float
    """User and system time."""
    resident_mib: float
    peak_mib: float
    """The largest resident size so far."""


@dataclass(frozen=True)
class Subject:
    """A running operator, and the one LLMService in its namespace."""

    stage: Stage
    namespace: str
    operator: ServerProcess

    def usage(self) -> Usage:
        process = psutil.Process(self.operator.pid)
        times = process.cpu_times()
        return Usage(times.user + times.system, process.memory_info().rss / 2**20, _peak_kib(self.operator.pid) / 2**10)

    def resource_version(self) -> str:
        """Of the LLMService; any write to it changes that."""
        version: str = self.stage.cluster.get_llmservice(self.namespace, NAME)["metadata"]["resourceVersion"]
        return version

    def resync_every(self, seconds: int) -> None:
        """Change `spec.resyncSeconds`, and return once the operator has reported on that."""
        self.stage.cluster.patch_llmservice(self.namespace, NAME, {"spec": {"resyncSeconds": seconds}})
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Return once the present spec is reported as reached. Raises WaitTimeoutError."""

        def is_ready() -> bool:
            service = self.stage.cluster.get_llmservice(self.namespace, NAME)
            return any(
                (each["type"], each["status"], each["observedGeneration"])
                == ("Ready", "True", service["metadata"]["generation"])
                for each in service.get("status", {}).get("conditions", ())
            )

        wait_until(is_ready, _READY_SECONDS, what=f"{self.namespace}/{NAME} being ready", last=self.operator.log_tail)


@contextlib.contextmanager
def operating(
    stage: Stage, namespace: str, addresses: Sequence[str], program: Sequence[str] = _PROGRAM
) -> Iterator[Subject]:
    """A new namespace with a pod for each address and an LLMService that wants them to run; yields when they do.

    `program` is what Python is told to run. Raises WaitTimeoutError.
    """
    _create_pods(stage.cluster, namespace, addresses)
    metrics, health = free_ports(2)
    flags = ["--namespace", namespace, "--metrics-address", f"127.0.0.1:{metrics}"]
    arguments = [*program, "operator", *flags, "--health-address", f"127.0.0.1:{health}"]
    environment = {"KUBECONFIG": str(stage.plane.kubeconfig)}
    with stage.python(f"operator-{namespace}", arguments, environment) as operator:
        service = make_llmservice(NAME).selector(app=NAME).ports(PORT).generation("running")
        stage.cluster.create_llmservice(namespace, service.spec(resyncSeconds=LONGEST_RESYNC_SECONDS))
        subject = Subject(stage, namespace, operator)
        subject.wait_until_ready()
        yield subject


def _create_pods(cluster: Cluster, namespace: str, addresses: Sequence[str]) -> None:
    cluster.create_namespace(namespace)
    pods = [
        make_pod(f"{NAME}-{number}").labels(app=NAME).ip(address).port(PORT).ready()
        for number, address in enumerate(addresses)
    ]
    with ThreadPoolExecutor(_WRITERS) as writers:
        for _ in writers.map(lambda pod: cluster.create_pod(namespace, pod), pods):
            pass  # a failed one raises here


def _peak_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
