"""A client in the cluster: it uses Services and the cluster's DNS, as those who use the engines do."""

import json
import os
import subprocess
from types import TracebackType
from typing import Any, Final, Self

from llmservice_testing.builders import Json
from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.kind.images import ENGINE
from llmservice_testing.kind.pods import PATIENCE_SECONDS, PORT, RESTRICTED, container_is_ready

_POD: Final = "client"
_EXEC_SECONDS: Final = 120
_WAITS: Final = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit()); signal.pause()"
_COMPLETES: Final = """\
import json, sys, urllib.request
url, seconds = sys.argv[1], float(sys.argv[2])
body = json.dumps({"model": "tiny", "prompt": "a", "max_tokens": 8}).encode()
request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
try:
    with urllib.request.urlopen(request, timeout=seconds) as answer:
        print(json.dumps({"status": answer.status}))
except OSError as error:
    reason = getattr(error, "reason", error)
    print(json.dumps({"error": type(reason).__name__}))
"""
_FETCHES: Final = """\
import json, sys, urllib.request
try:
    with urllib.request.urlopen(sys.argv[1], timeout=10) as answer:
        print(json.dumps(answer.read().decode()))
except OSError:
    print(json.dumps(""))
"""
_RESOLVES: Final = """\
import json, socket, sys
try:
    print(json.dumps(sorted({found[4][0] for found in socket.getaddrinfo(sys.argv[1], None, socket.AF_INET)})))
except socket.gaierror:
    print("[]")
"""


class Client:
    """A pod of the test's namespace in which requests are made."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    def start(self) -> None:
        """Makes the pod, and returns when it runs."""
        container = {
            "name": "client",
            "image": ENGINE,
            "imagePullPolicy": "Never",
            "command": ["python3", "-c", _WAITS],
            "securityContext": RESTRICTED,
        }
        spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": _POD}, "spec": spec}
        self._cluster.apply(pod, namespace=self._namespace)
        wait_until(
            lambda: container_is_ready(self._cluster.get_pod(self._namespace, _POD)),
            PATIENCE_SECONDS,
            what="the client's pod",
        )

    def complete(self, service: str, *, within: float = 10) -> Json:
        """Asks for a completion: `{"status": 200}`, or `{"error": "ConnectionRefusedError"}` and the like."""
        found: Json = self._output(_COMPLETES, _url(service), str(within))
        return found

    def fetch(self, url: str) -> str:
        """What a URL answers to a GET; empty where it does not answer."""
        found: str = self._output(_FETCHES, url)
        return found

    def addresses(self, name: str) -> list[str]:
        """What a name of the cluster's DNS resolves to."""
        found: list[str] = self._output(_RESOLVES, f"{name}.{self._namespace}.svc.cluster.local")
        return found

    def request(self, service: str) -> "OpenRequest":
        """A completion that is asked for and may take its time."""
        return OpenRequest(self._command(_COMPLETES, _url(service), "120"), self._environment())

    def _output(self, script: str, *arguments: str) -> Any:
        done = subprocess.run(
            self._command(script, *arguments),
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=_EXEC_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"in the client's pod: {done.stderr}")
        return json.loads(done.stdout)

    def _command(self, script: str, *arguments: str) -> list[str]:
        where = ["--namespace", self._namespace, "exec", _POD, "--"]
        return ["kubectl", *where, "python3", "-c", script, *arguments]

    def _environment(self) -> dict[str, str]:
        return os.environ | {"KUBECONFIG": str(self._cluster.kubeconfig)}


class OpenRequest:
    """A request in flight; it is given up at the end of the block."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def is_open(self) -> bool:
        """Whether it was neither answered nor refused yet."""
        return self._process.poll() is None

    def answer(self, *, within: float = PATIENCE_SECONDS) -> Json:
        """Waits for the answer: as of `Client.complete`."""
        output, _ = self._process.communicate(timeout=within)
        found: Json = json.loads(output)
        return found


def _url(service: str) -> str:
    return f"http://{service}:{PORT}/v1/completions"
