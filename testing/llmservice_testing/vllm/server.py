"""One real engine as a child process."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, Self

from llmservice_testing.vllm import guard
from llmservice_testing.vllm.install import ensure_installed
from llmservice_testing.vllm.installation import Installation
from llmservice_testing.vllm.model import MAX_TOKENS, SERVED_NAME

Frontend = Literal["python", "rust"]

START_TIMEOUT_SECONDS: Final = 300.0
"""An engine is up after 30 to 50 s on two idle cores."""
STOP_GRACE_SECONDS: Final = 5.0
"""Between SIGTERM and SIGKILL. An engine that is paused with `keep` may ignore SIGTERM for ever."""

_POLL_SECONDS: Final = 0.2

_ENVIRONMENT: Final = {
    "VLLM_SERVER_DEV_MODE": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}


_turns: Final = itertools.count()


def _next_cpu() -> int:
    """A CPU of those that this process may use, each in its turn; see `guard` for why an engine gets only one."""
    cpus = sorted(os.sched_getaffinity(0))
    return cpus[next(_turns) % len(cpus)]


def inherited_environment() -> dict[str, str]:
    """That of this process, but with leave to keep compiled bytecode. Without it each of an engine's processes compiles
    all of torch and vLLM anew, which takes a quarter of a minute of one core every time."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class EngineNotReadyError(Exception):
    """An engine ended, or did not answer in time; the message carries the end of its log."""


class RealEngine:
    """A vLLM server with the tiny model, as a context manager. It cannot outlive this process.

    Args:
        host: an address of this machine, such as 127.0.0.9.
        extra_args: added to the `vllm serve` command line.
        environment: added to the variables that it is started with; VLLM_SERVER_DEV_MODE=0 hides the control routes.
        log: the file its output is appended to; None for one in the folder for temporary files.
        installation: None for the one of `ensure_installed`, which is installed if need be.

    Raises:
        InstallationError: on construction, where vLLM is not there and cannot be installed.
    """

    def __init__(
        self,
        frontend: Frontend = "python",
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        extra_args: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
        installation: Installation | None = None,
    ) -> None:
        self.frontend: Final = frontend
        self.host: Final = host
        self.port: Final = port
        self.log: Final = log or Path(tempfile.gettempdir()) / f"vllm-{frontend}-{host}-{port}-{os.getpid()}.log"
        self._installation = installation or ensure_installed()
        self._extra_args = tuple(extra_args)
        self._environment = {**inherited_environment(), **_ENVIRONMENT, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        if frontend == "rust":
            self._environment["VLLM_USE_RUST_FRONTEND"] = "1"
            if self._installation.rust_frontend is not None:
                self._environment["VLLM_RUST_FRONTEND_PATH"] = str(self._installation.rust_frontend)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, *, within: float = START_TIMEOUT_SECONDS) -> None:
        """Start it and return once it answers.

        Raises:
            EngineNotReadyError: it ended, or did not answer within so many seconds; it is stopped then.
        """
        self.launch()
        self.wait_until_ready(within=within)

    def launch(self) -> None:
        """Start it and return at once, so that several can start at the same time."""
        if self._process is not None:
            raise RuntimeError(f"{self.url} is started already")
        supervisor = [sys.executable, "-I", guard.__file__, str(STOP_GRACE_SECONDS), str(_next_cpu())]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [*supervisor, *self._command()],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )

    def _command(self) -> list[str]:
        serve = [str(self._installation.executable), "serve", str(self._installation.model)]
        model = ["--served-model-name", SERVED_NAME, "--load-format", "dummy", "--max-model-len", str(MAX_TOKENS)]
        size = ["--enforce-eager", "--dtype", "bfloat16", "--max-num-seqs", "8"]
        return [*serve, *model, *size, "--host", self.host, "--port", str(self.port), *self._extra_args]

    def wait_until_ready(self, *, within: float = START_TIMEOUT_SECONDS) -> None:
        """Return once `/health` answers 200.

        Raises:
            EngineNotReadyError: it ended, or did not answer within so many seconds; it is stopped then.
        """
        deadline = time.monotonic() + within
        while not self._is_healthy():
            if self._process is None or self._process.poll() is not None:
                raise self._not_ready("ended while it started")
            if time.monotonic() > deadline:
                raise self._not_ready(f"did not answer after {within:g} s")
            time.sleep(_POLL_SECONDS)

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def _not_ready(self, problem: str) -> EngineNotReadyError:
        self.stop()
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])
        return EngineNotReadyError(
            f"vLLM with the {self.frontend} frontend at {self.url} {problem}. {self.log}:\n{tail}"
        )

    def stop(self) -> None:
        """End it in order, and what it started with it; SIGKILL after STOP_GRACE_SECONDS. Idempotent.

        Raises:
            TimeoutExpired: it is there ten seconds after SIGKILL.
        """
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(STOP_GRACE_SECONDS + 10)
        self._process = None

    def kill(self) -> None:
        """End it at once with SIGKILL, as a crash would, and what it started with it. Idempotent."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # it ended by itself
            os.killpg(self._process.pid, signal.SIGKILL)
        self.stop()
