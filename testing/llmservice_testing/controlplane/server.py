"""A real etcd and kube-apiserver on this machine, for one test session or one demo.

There is no kubelet, no scheduler and no controller manager. So a pod is an object and nothing else (its status is
patched by the test), a deleted namespace stays `Terminating`, and nothing is garbage-collected by owner references;
what the API server itself does (validation, CEL, defaults, watches, server-side apply, RBAC, tokens of service
accounts, events) is the real thing.
"""

import csv
import dataclasses
import io
import json
import secrets
import shutil
import signal
import ssl
import tempfile
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import httpx

from llmservice_testing.controlplane.assets import find_assets
from llmservice_testing.controlplane.binaries import Assets
from llmservice_testing.controlplane.processes import ServerProcess, wait_until_ready
from llmservice_testing.ports import free_ports

START_TIMEOUT_SECONDS: Final = 60.0
"""How long etcd or kube-apiserver may take to get ready; 4 s are usual, a busy CI machine takes several times that."""

_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


class ControlPlaneStateError(Exception):
    """The control plane was asked for something that its present state (not started, stopped) does not allow."""


@dataclasses.dataclass(frozen=True)
class User:
    """Somebody whom the API server knows by a bearer token, without any right unless a group or RBAC gives one."""

    name: str
    groups: tuple[str, ...] = ()
    token: str = dataclasses.field(default_factory=lambda: secrets.token_hex(16), repr=False)


class ControlPlane:
    """One etcd and one kube-apiserver. Use it as a context manager, or call `start` and `stop`.

    `users` are known to the API server beside the administrator; they are fixed here because it reads the file of
    tokens only when it starts. Not thread-safe: only one thread may start, stop, pause or restart.
    """

    def __init__(self, *, users: Sequence[User] = (), assets: Assets | None = None) -> None:
        """`assets` None: they are found, downloaded or built by `start`, which then may take minutes once.

        Raises ValueError for two users of one name; the name of the administrator is taken as well.
        """
        self._assets = assets
        self._admin = User("admin", groups=("system:masters",))
        self._users = {user.name: user for user in users}
        if len({self._admin.name, *self._users}) != len(users) + 1:
            raise ValueError(f"the names of users must differ, and from {self._admin.name!r}")
        self._directory: Path | None = None
        self._port = 0
        self._etcd_port = 0
        self._etcd: ServerProcess | None = None
        self._apiserver: ServerProcess | None = None

    # What a client needs

    @property
    def url(self) -> str:
        """Where the API server listens; the same before and after a restart."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def token(self) -> str:
        """The administrator's bearer token (group system:masters: everything is allowed)."""
        return self._admin.token

    @property
    def ca_file(self) -> Path:
        """The certificate to verify the API server with (PEM)."""
        return self._path("certs") / "apiserver.crt"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig file."""
        return self._path("kubeconfigs") / f"{self._admin.name}.yaml"

    @property
    def logs(self) -> Path:
        """The folder with the logs of both servers; removed by `stop`."""
        return self._path("logs")

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the servers that were started and not stopped, etcd first."""
        return tuple(server.pid for server in (self._etcd, self._apiserver) if server is not None)

    def user_kubeconfig(self, name: str, *, token: str | None = None, namespace: str = "default") -> Path:
        """Writes a kubeconfig file for one of `users`, or for whoever `token` belongs to (a service account, say).

        Raises KeyError for a name that is not among `users` where no token is given.
        """
        path = self._path("kubeconfigs") / f"{name}.yaml"
        self._write_kubeconfig(path, name, token or self._users[name].token, namespace)
        return path

    # Life

    def start(self) -> None:
        """Starts both servers and returns once the API server says that it is ready.

        Raises AssetsNotFoundError where there are no binaries and none can be had, ServerNotReadyError where a server
        fails or hangs; then nothing is left running.
        """
        if self._directory is not None:
            raise ControlPlaneStateError("the control plane is running already")
        self._assets = self._assets or find_assets()
        self._directory = Path(tempfile.mkdtemp(prefix="llmservice-controlplane-"))
        try:
            for name in ("certs", "etcd", "kubeconfigs", "logs"):
                (self._directory / name).mkdir()
            self._port, self._etcd_port, etcd_peer_port = free_ports(3)
            self._write_credentials()
            self._start_etcd(etcd_peer_port)
            self.start_apiserver()
            self._write_kubeconfig(self.kubeconfig, self._admin.name, self._admin.token, "default")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends both servers and removes all they have stored, logs too. Idempotent."""
        servers = [server for server in (self._apiserver, self._etcd) if server is not None]
        directory = self._directory
        self._apiserver = self._etcd = self._directory = None
        try:
            for server in servers:
                server.stop(grace_seconds=0)  # what it would save goes away in a moment
        finally:
            if directory is not None:
                shutil.rmtree(directory)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # Outages of the API server. etcd keeps running, so every object is there again afterwards.

    def start_apiserver(self) -> None:
        """Starts the API server on its old port and waits until it is ready. Errors as `start`."""
        if self._apiserver is not None:
            raise ControlPlaneStateError("the API server is running already")
        self._apiserver = ServerProcess.start(self._apiserver_command(), log=self.logs / "kube-apiserver.log")
        wait_until_ready(self._apiserver, self._apiserver_lacks, timeout=START_TIMEOUT_SECONDS)

    def stop_apiserver(self, *, grace_seconds: float = 0) -> None:
        """Ends the API server: with 0 seconds of grace like a crash, else with SIGTERM first, like a rolling update.

        In the second case it refuses new connections, ends watches, and is killed if that takes longer.
        """
        self._running_apiserver().stop(grace_seconds=grace_seconds)
        self._apiserver = None

    def restart_apiserver(self, *, grace_seconds: float = 0) -> None:
        """`stop_apiserver`, then `start_apiserver`: an outage of a few seconds."""
        self.stop_apiserver(grace_seconds=grace_seconds)
        self.start_apiserver()

    def pause_apiserver(self) -> None:
        """Freezes the API server: connections are accepted by the kernel and nothing is ever answered."""
        self._running_apiserver().signal(signal.SIGSTOP)

    def continue_apiserver(self) -> None:
        """Ends `pause_apiserver`: what was asked meanwhile is answered now."""
        self._running_apiserver().signal(signal.SIGCONT)

    # How it is done

    def _path(self, name: str) -> Path:
        if self._directory is None:
            raise ControlPlaneStateError("the control plane is not running")
        return self._directory / name

    def _running_apiserver(self) -> ServerProcess:
        if self._apiserver is None:
            raise ControlPlaneStateError("the API server is not running")
        return self._apiserver

    def _found_assets(self) -> Assets:
        if self._assets is None:
            raise ControlPlaneStateError("the control plane was never started")
        return self._assets

    def _start_etcd(self, peer_port: int) -> None:
        client_url = f"http://127.0.0.1:{self._etcd_port}"
        peer_url = f"http://127.0.0.1:{peer_port}"
        command = [
            str(self._found_assets().etcd),
            f"--data-dir={self._path('etcd')}",
            f"--listen-client-urls={client_url}",
            f"--advertise-client-urls={client_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            "--unsafe-no-fsync",  # the data does not outlive the processes
            "--log-level=warn",
        ]
        self._etcd = ServerProcess.start(command, log=self.logs / "etcd.log")
        wait_until_ready(self._etcd, self._etcd_lacks, timeout=START_TIMEOUT_SECONDS)

    def _etcd_lacks(self) -> str | None:
        return _lacks(httpx.Client(trust_env=False, timeout=2), f"http://127.0.0.1:{self._etcd_port}/health")

    def _apiserver_command(self) -> list[str]:
        key = self._path("service-account.key")
        return [
            str(self._found_assets().kube_apiserver),
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self._port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self._path('certs')}",  # it makes its own certificate there, and finds it after a restart
            f"--token-auth-file={self._path('tokens.csv')}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            # It refuses a pod whose service account does not exist, and nothing here creates the default one.
            "--disable-admission-plugins=ServiceAccount",
            # Else it writes its own address into an Endpoints object, which nobody needs, and removes it when it ends.
            "--endpoint-reconciler-type=none",
        ]

    def _apiserver_lacks(self) -> str | None:
        try:
            context = ssl.create_default_context(cafile=str(self.ca_file))
        except (FileNotFoundError, ssl.SSLError):  # the file is there before all that is in it
            return "it has not written its certificate yet"
        headers = {"Authorization": f"Bearer {self.token}"}
        client = httpx.Client(verify=context, headers=headers, trust_env=False, timeout=2)
        return _lacks(client, f"{self.url}/readyz?verbose")

    def _write_credentials(self) -> None:
        everybody = [self._admin, *self._users.values()]
        tokens = io.StringIO()
        for user in everybody:
            groups = [",".join(user.groups)] if user.groups else []  # an empty column would be a group without a name
            csv.writer(tokens).writerow([user.token, user.name, f"uid-{user.name}", *groups])
        _write_private(self._path("tokens.csv"), tokens.getvalue())
        _write_private(self._path("service-account.key"), ec_private_key_pem())

    def _write_kubeconfig(self, path: Path, user: str, token: str, namespace: str) -> None:
        cluster = {"server": self.url, "certificate-authority-data": b64encode(self.ca_file.read_bytes()).decode()}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "llmservice", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [
                {"name": "llmservice", "context": {"cluster": "llmservice", "user": user, "namespace": namespace}}
            ],
            "current-context": "llmservice",
        }
        _write_private(path, json.dumps(config, indent=2))  # JSON is YAML


def ec_private_key_pem() -> str:
    """A new P-256 private key, in the format of RFC 5915 without the optional public point (Go computes it).

    The API server signs tokens of service accounts with it. Written out here so that neither openssl nor a
    cryptography library is needed for 51 bytes.
    """
    scalar = (secrets.randbelow(_P256_ORDER - 1) + 1).to_bytes(32, "big")
    version, curve = bytes.fromhex("020101"), bytes.fromhex("a00a06082a8648ce3d030107")
    body = version + b"\x04\x20" + scalar + curve
    encoded = b64encode(b"\x30" + bytes([len(body)]) + body).decode()
    return f"-----BEGIN EC PRIVATE KEY-----\n{encoded}\n-----END EC PRIVATE KEY-----\n"


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def _lacks(client: httpx.Client, url: str) -> str | None:
    with client:
        try:
            response = client.get(url)
        except httpx.TransportError as error:
            return f"{url}: {error or type(error).__name__}"
    return None if response.is_success else f"{url} answered {response.status_code}: {response.text.strip()}"
