"""The operator as a process of its own, for tests that treat it roughly: killed, frozen, stopped, started again.

It logs JSON to a file, and cannot outlive the process that started it (`controlplane.processes`).
"""

import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import httpx

from llmservice_testing.builders import Json
from llmservice_testing.controlplane.processes import ServerProcess, wait_until_ready
from llmservice_testing.ports import free_ports

START_TIMEOUT_SECONDS: Final = 60.0
"""How long a start may take; a second or two are usual, a busy machine takes several times that."""

_PROGRAM: Final = Path(sys.executable).parent / "llmservice"


class OperatorStateError(Exception):
    """The operator was asked for something that its present state (not started, ended) does not allow."""


class OperatorProcess:
    """One `llmservice operator`. Use it as a context manager, or call `start` and `stop`; it can be started again.

    Its log, metrics and health addresses stay the same from start to start.
    """

    def __init__(
        self,
        kubeconfig: Path,
        directory: Path,
        *,
        namespaces: Sequence[str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        """`namespaces` None: all of them. `directory` gets the log; `arguments` go to the command as they are."""
        scope = ["--all-namespaces"] if namespaces is None else [f"--namespace={name}" for name in namespaces]
        metrics_port, health_port = free_ports(2)
        self.metrics_url = f"http://127.0.0.1:{metrics_port}/metrics"
        self._health_url = f"http://127.0.0.1:{health_port}"
        self.log = directory / "operator.log"
        self._command = [
            "/usr/bin/env",  # it gives the variable and becomes the operator: the process id stays the same
            f"KUBECONFIG={kubeconfig}",
            str(_PROGRAM),
            "operator",
            *scope,
            "--log-format=json",
            f"--metrics-address=127.0.0.1:{metrics_port}",
            f"--health-address=127.0.0.1:{health_port}",
            *arguments,
        ]
        self._process: ServerProcess | None = None

    # Life

    def start(self) -> None:
        """Starts it and waits until it says that it is ready. Raises ServerNotReadyError."""
        self.start_soon()
        wait_until_ready(self._running(), self._lacks, timeout=START_TIMEOUT_SECONDS)

    def start_soon(self) -> None:
        """Starts it and waits for nothing."""
        if self.is_running:
            raise OperatorStateError("the operator is running already")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._process = ServerProcess.start(self._command, log=self.log)
        self._process.name = "llmservice operator"

    def stop(self, *, within: float = 20.0) -> int:
        """Ends it with SIGTERM and returns its exit status: negative if it had to be killed after `within` seconds."""
        process = self._running()
        process.stop(grace_seconds=within)
        self._process = None
        status = process.exit_status
        if status is None:
            raise OperatorStateError("the operator ended without an exit status")
        return status

    def kill(self) -> None:
        """Ends it as kill -9 does, at this instant."""
        self._running().stop(grace_seconds=0)
        self._process = None

    def freeze(self) -> None:
        """SIGSTOP: it does nothing more, and its connections stay open."""
        self._running().signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT: it goes on with what it knew."""
        self._running().signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.stop(grace_seconds=0)
            self._process = None

    # What it shows

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.exit_status is None

    def metrics(self) -> str:
        """What a scrape gets."""
        response = httpx.get(self.metrics_url, timeout=10, trust_env=False)
        response.raise_for_status()
        return response.text

    def liveness(self) -> int:
        """The HTTP status of /healthz."""
        return self._probe("/healthz").status_code

    def lack(self) -> str:
        """What it still lacks to do its work, as /readyz says; empty once it is ready."""
        response = self._probe("/readyz")
        return "" if response.status_code == 200 else response.text.strip() or str(response.status_code)

    def log_lines(self) -> list[Json]:
        """Its log so far, of all its lives; lines that are no JSON objects come as `{"message": line}`."""
        return [_entry(line) for line in self.log.read_text(errors="replace").splitlines()]

    def log_tail(self, lines: int = 40) -> str:
        """The end of its log, for reports of failures."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def _running(self) -> ServerProcess:
        if self._process is None:
            raise OperatorStateError("the operator is not running")
        return self._process

    def _lacks(self) -> str | None:
        try:
            return self.lack() or None
        except httpx.TransportError as error:
            return f"{self._health_url}: {error or type(error).__name__}"

    def _probe(self, path: str) -> httpx.Response:
        return httpx.get(f"{self._health_url}{path}", timeout=10, trust_env=False)


def _entry(line: str) -> Json:
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    return entry if isinstance(entry, dict) else {"message": line}
