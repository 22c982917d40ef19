"""What everything is measured on: a real API server with the CRD, and child processes that cannot outlive this one."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from llmservice_testing.cluster import Cluster
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.controlplane.processes import ServerProcess

_CRD: Final = Path(__file__).parent.parent / "crds" / "llmservices.llmservice.io.yaml"
_STOP_GRACE_SECONDS: Final = 10.0
_REQUEST_SECONDS: Final = 60.0
"""For a request to an API server that shares its cores with a thousand engines."""


@dataclass(frozen=True)
class Stage:
    """A control plane, a client of it, and a folder for logs that is removed in the end."""

    plane: ControlPlane
    cluster: Cluster
    folder: Path

    @contextlib.contextmanager
    def python(
        self, name: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Iterator[ServerProcess]:
        """This Python with `arguments` as a child process, which logs to a file called `name`."""
        variables = [f"{key}={value}" for key, value in (environment or {}).items()]
        # env gives the variables and becomes the program: the process id stays the same.
        command = [shutil.which("env") or "/usr/bin/env", *variables, sys.executable, *arguments]
        process = ServerProcess.start(command, log=self.folder / f"{name}.log")
        process.name = name
        try:
            yield process
        finally:
            process.stop(grace_seconds=_STOP_GRACE_SECONDS)


@contextlib.contextmanager
def standing() -> Iterator[Stage]:
    """A stage, from nothing. Raises AssetsNotFoundError or ServerNotReadyError."""
    with (
        tempfile.TemporaryDirectory(prefix="llmservice-bench-") as folder,
        ControlPlane() as plane,
        Cluster(plane.kubeconfig, request_timeout=_REQUEST_SECONDS) as cluster,
    ):
        cluster.apply_crd(_CRD)
        yield Stage(plane, cluster, Path(folder))
