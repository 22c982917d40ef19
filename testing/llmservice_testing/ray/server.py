"""One real Ray Serve LLM app as a tree of child processes."""

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from llmservice_testing.ray.install import ensure_installed
from llmservice_testing.ray.installation import Installation
from llmservice_testing.vllm import guard
from llmservice_testing.vllm.model import SERVED_NAME
from llmservice_testing.vllm.server import inherited_environment

MAX_TOKENS: Final = 4096
"""How long prompt and answer may be together: as many as the tiny model has positions, so that a request lasts."""
START_TIMEOUT_SECONDS: Final = 300.0
"""Ray and its proxy are up after about 15 s on two idle cores."""
DEPLOY_TIMEOUT_SECONDS: Final = 900.0
"""An app with two replicas runs after about 75 s more, on two idle cores; on busy ones it takes several minutes."""
STOP_GRACE_SECONDS: Final = 5.0
"""Between SIGTERM and SIGKILL."""

NAME: Final = "app"
PLAIN_NAME: Final = "plain"
PLAIN_ROUTE: Final = "/plain"
"""As `app` has them, which cannot be imported here."""

_POLL_SECONDS: Final = 0.2

_ENVIRONMENT: Final = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    # With a token of our own (see launch), so that Ray writes none into the home folder.
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    # Ray's own default is 15: on a machine with anything else to do, its replicas would take minutes to start.
    "RAY_worker_niceness": "0",
}


class AppNotReadyError(Exception):
    """Ray or its app ended, or was not ready in time; the message carries the end of its log."""


class RealApp:
    """Ray Serve on an address of this machine, and an LLM app with the tiny model, as a context manager.

    The proxy is there from `launch` on, the app from `deploy` on; entering the context does both. Nothing of it outlives
    this process.

    Args:
        host: an address of this machine, such as 127.0.0.9.
        port: of the proxy.
        replicas: of the model, when the context is entered.
        log: the file its output is appended to; None for one in the folder for temporary files.
        installation: None for the one of `ensure_installed`, which is installed if need be.

    Raises:
        InstallationError: on construction, where Ray is not there and cannot be installed.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        replicas: int = 2,
        log: Path | None = None,
        installation: Installation | None = None,
    ) -> None:
        self.host: Final = host
        self.port: Final = port
        self.log: Final = log or Path(tempfile.gettempdir()) / f"ray-{host}-{port}-{os.getpid()}.log"
        self._replicas = replicas
        self._installation = installation or ensure_installed()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def __enter__(self) -> Self:
        self.launch()
        self.wait_until_started()
        self.deploy(self._replicas)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Its life

    def launch(self) -> None:
        """Start Ray and return at once."""
        if self._process is not None:
            raise RuntimeError(f"{self.url} is started already")
        # Short, and not in a test's own folder: the paths of Ray's sockets may have 107 bytes.
        self._folder = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
        cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        supervisor = [sys.executable, "-I", guard.__file__, str(STOP_GRACE_SECONDS), cpus]
        program = [str(self._installation.python), "-P", str(Path(__file__).with_name("app.py"))]
        settings = {
            "host": self.host,
            "port": self.port,
            "model": str(self._installation.model),
            "model_id": SERVED_NAME,
            "max_tokens": MAX_TOKENS,
            "cpus": 8,
            "folder": self._folder.name,
            "socket": self._socket,
        }
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [*supervisor, *program, json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**inherited_environment(), **_ENVIRONMENT, "RAY_AUTH_TOKEN": secrets.token_hex(16)},
                start_new_session=True,
            )

    @property
    def _socket(self) -> str:
        assert self._folder is not None
        return f"{self._folder.name}/orders"

    def wait_until_started(self, *, within: float = START_TIMEOUT_SECONDS) -> None:
        """Return once the proxy listens and orders are taken.

        Raises:
            AppNotReadyError: it ended, or did not within so many seconds; it is stopped then.
        """
        deadline = time.monotonic() + within
        while not (Path(self._socket).exists() and self._is_listening()):
            if self._process is None or self._process.poll() is not None:
                raise self._not_ready("ended while it started")
            if time.monotonic() > deadline:
                raise self._not_ready(f"was not there after {within:g} s")
            time.sleep(_POLL_SECONDS)

    def _is_listening(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/healthz", timeout=5):
                return True
        except urllib.error.HTTPError:
            return True  # 503 while there is no route
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def _not_ready(self, problem: str) -> AppNotReadyError:
        self.stop()
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])
        return AppNotReadyError(f"Ray Serve at {self.url} {problem}. {self.log}:\n{tail}")

    def stop(self) -> None:
        """End all of it, in order for STOP_GRACE_SECONDS, then with SIGKILL. Idempotent.

        Raises:
            TimeoutExpired: it is there twenty seconds after that.
        """
        if self._process is not None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process.wait(STOP_GRACE_SECONDS + 20)
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    # Its app

    def deploy(self, replicas: int) -> None:
        """Have the app run with so many replicas; return once that is so.

        Raises:
            AppNotReadyError: it is not; all is stopped then.
        """
        try:
            self.begin_deploy(replicas)
            self.wait_for_replicas(replicas)
            self._wait_until(self._reaches_replicas, "answer of the control routes", DEPLOY_TIMEOUT_SECONDS)
        except (OrderError, TimeoutError, ConnectionError) as error:
            raise self._not_ready(f"did not deploy its app: {error}") from error

    def begin_deploy(self, replicas: int) -> None:
        """Have the app run with so many replicas, and return at once."""
        self._order("deploy", replicas=replicas)

    def _reaches_replicas(self) -> bool:
        """Whether the ingress knows its replicas. It begins to learn them at the first call, which fails after 30 s."""
        try:
            with urllib.request.urlopen(f"{self.url}/is_paused?model={SERVED_NAME}", timeout=60) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError:
            return False

    def wait_for_route(self, *, within: float = DEPLOY_TIMEOUT_SECONDS) -> None:
        """Return once the proxy has a route, which is long before the app behind it answers.

        Raises:
            TimeoutError: it has none within so many seconds.
        """
        self._wait_until(self._has_route, "route", within)

    def _has_route(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/routes", timeout=5) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError:
            return False

    def wait_for_replicas(self, number: int, *, without: str = "", within: float = DEPLOY_TIMEOUT_SECONDS) -> None:
        """Return once the app has just so many replicas, which all run, and the one named is not among them.

        Raises:
            TimeoutError: that was not so within so many seconds.
            OrderError: the app cannot be deployed, says Serve.
        """

        def has_them() -> bool:
            app = self.status().get(NAME, {"status": None, "deployments": {}})
            if app["status"] == "DEPLOY_FAILED":
                raise OrderError(f"Serve says: {app['message']}")
            replicas = [found["replicas"] for each, found in app["deployments"].items() if "LLMServer" in each]
            if app["status"] != "RUNNING" or replicas != [{"RUNNING": number}]:
                return False
            names = self.replicas()  # of one that has just died Serve says for a while that it runs
            return len(names) == number and without not in names

        self._wait_until(has_them, f"{number} replicas", within)
        self._order("bind")

    def add_plain(self) -> str:
        """Add an app without the control routes, and return its URL once it answers. Its model has no replica."""

        def answers() -> bool:
            plain = self.status().get(PLAIN_NAME, {"deployments": {}})
            found = plain["deployments"].get("OpenAiIngress", {"replicas": {}})
            return bool(found["replicas"] == {"RUNNING": 1})

        self._order("add_plain")
        self._wait_until(answers, "an app without control routes", DEPLOY_TIMEOUT_SECONDS)
        return f"{self.url}{PLAIN_ROUTE}"

    def remove_plain(self) -> None:
        """Undo `add_plain`, and return once that app is gone."""
        self._order("remove_plain")
        self._wait_until(lambda: PLAIN_NAME not in self.status(), "one app alone", DEPLOY_TIMEOUT_SECONDS)

    def status(self) -> dict[str, Any]:
        """What Serve says of each app: `status` (DEPLOYING, RUNNING, ...), `message`, and the `deployments`."""
        apps: dict[str, Any] = self._order("status")["apps"]
        return apps

    def replicas(self) -> dict[str, bool]:
        """The replicas by name, and whether each is paused: the truth, which no public route tells."""
        paused: dict[str, bool] = self._order("replicas")["replicas"]
        return paused

    def call_replica(self, replica: str, method: str, **options: Any) -> None:
        """Call a method of one replica, such as `pause` or `resume`, past the ingress."""
        self._order("call", replica=replica, method=method, options=options)

    def kill_replica(self, replica: str) -> None:
        """End the process of one replica, as a crash would; Serve starts another."""
        self._order("kill", replica=replica)

    def _wait_until(self, is_so: Callable[[], bool], what: str, within: float) -> None:
        deadline = time.monotonic() + within
        while not is_so():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {what} after {within:g} s: {self.status()}")
            time.sleep(_POLL_SECONDS)

    def _order(self, do: str, within: float = 120.0, /, **parameters: Any) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(within)
            connection.connect(self._socket)
            with connection.makefile("rw") as stream:
                stream.write(json.dumps({"do": do, **parameters}) + "\n")
                stream.flush()
                line = stream.readline()
        if not line:
            raise OrderError(f"{do} was not answered: Ray has ended; see {self.log}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise OrderError(f"{do}: {answer['error']}")
        return answer


class OrderError(Exception):
    """An order to the app was not carried out; the message says why."""
