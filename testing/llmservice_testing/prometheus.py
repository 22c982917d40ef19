"""The real Prometheus: its two programs, and a server that scrapes and evaluates every second.

    PrometheusError
    ├── PrometheusNotFoundError   there are no programs and none can be had; the message says what to do
    ├── PromtoolError             promtool finds fault with something; the message is its own
    └── QueryError                a query is refused; the message is Prometheus' own

The programs on the PATH are taken, or else Debian's package is unpacked into the user's cache, without being installed.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import httpx
import yaml

from llmservice_testing.builders import Json
from llmservice_testing.controlplane.binaries import SourceError, cache_root, filling
from llmservice_testing.controlplane.processes import ServerProcess, wait_until_ready
from llmservice_testing.controlplane.progress import Task
from llmservice_testing.ports import free_ports

INTERVAL_SECONDS: Final = 1
"""Between two scrapes, and two evaluations of the rules."""
START_TIMEOUT_SECONDS: Final = 60.0
_PROGRAMS: Final = ("prometheus", "promtool")
_REQUEST_TIMEOUT_SECONDS: Final = 10.0


class PrometheusError(Exception):
    """Anything that went wrong with Prometheus."""


class PrometheusNotFoundError(PrometheusError):
    """There is no Prometheus, and none can be had."""


class PromtoolError(PrometheusError):
    """promtool finds fault; the message has its words."""


class QueryError(PrometheusError):
    """A query is refused."""


@dataclass(frozen=True)
class Programs:
    """Where the two programs are."""

    prometheus: Path
    promtool: Path

    def promtool_says(self, *arguments: str, stdin: str | None = None) -> str:
        """What promtool prints. Raises PromtoolError if it fails or finds fault."""
        command = [str(self.promtool), *arguments]
        finished = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        said = f"{finished.stdout}{finished.stderr}".strip()
        if finished.returncode:
            raise PromtoolError(f"promtool {' '.join(arguments)}: {said}")
        return said


def find_prometheus(environment: Mapping[str, str] | None = None) -> Programs:
    """Both on the PATH, or in the cache, or fetched there from Debian (some seconds). Raises PrometheusNotFoundError."""
    environment = os.environ if environment is None else environment
    found = [shutil.which(name, path=environment.get("PATH")) for name in _PROGRAMS]
    if all(found):
        return Programs(*(Path(path) for path in found if path))
    folder = cache_root(environment).parent / "prometheus" / "debian"
    programs = Programs(*(folder / name for name in _PROGRAMS))
    try:
        if not programs.promtool.is_file():
            with filling(folder) as scratch:
                if not programs.promtool.is_file():  # another process may have fetched it while we waited for the lock
                    _unpack(scratch, environment)
    except (SourceError, OSError, subprocess.SubprocessError) as error:
        raise PrometheusNotFoundError(
            f"prometheus and promtool are not both on the PATH, and Debian's package cannot be unpacked: {error}. "
            "Install Prometheus 2.42 or later as https://prometheus.io/docs/prometheus/latest/installation/ says."
        ) from error
    return programs


def _unpack(scratch: Path, environment: Mapping[str, str]) -> None:
    with Task("Fetching Debian's package prometheus"):
        _run(["apt-get", "-o", "APT::Sandbox::User=", "download", "prometheus"], scratch, environment)
        (package,) = scratch.glob("prometheus_*.deb")
        _run(["dpkg-deb", "-x", str(package), "tree"], scratch, environment)
        for name in _PROGRAMS:
            (scratch / "tree" / "usr" / "bin" / name).replace(scratch / name)
        shutil.rmtree(scratch / "tree")
        package.unlink()


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    program = shutil.which(command[0], path=environment.get("PATH"))
    if program is None:
        raise SourceError(f"there is no {command[0]}")
    finished = subprocess.run(
        [program, *command[1:]], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    if finished.returncode:
        raise SourceError(f"{' '.join(command)}: {finished.stderr.strip()}")


class Prometheus:
    """One server, which scrapes what its configuration says and evaluates rules. Use it as a context manager.

    It keeps its data, configuration and log in a folder that the caller removes.
    """

    def __init__(
        self, programs: Programs, folder: Path, *, scrape_configs: Sequence[Json], groups: Sequence[Json] = ()
    ) -> None:
        """`scrape_configs` and `groups` as in Prometheus' own files; every interval is INTERVAL_SECONDS."""
        self.folder = folder
        interval = f"{INTERVAL_SECONDS}s"
        rules, self._configuration = folder / "rules.yaml", folder / "prometheus.yaml"
        folder.mkdir(parents=True, exist_ok=True)
        rules.write_text(yaml.safe_dump({"groups": list(groups)}))
        self._configuration.write_text(
            yaml.safe_dump(
                {
                    "global": {
                        "scrape_interval": interval,
                        "scrape_timeout": interval,
                        "evaluation_interval": interval,
                    },
                    "rule_files": [str(rules)],
                    "scrape_configs": list(scrape_configs),
                }
            )
        )
        programs.promtool_says("check", "config", str(self._configuration))
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self._command = [
            str(programs.prometheus),
            f"--config.file={self._configuration}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ]
        self._process: ServerProcess | None = None
        self._client = httpx.Client(base_url=self.url, timeout=_REQUEST_TIMEOUT_SECONDS, trust_env=False)

    def __enter__(self) -> Self:
        self._process = ServerProcess.start(self._command, log=self.folder / "prometheus.log")
        try:
            wait_until_ready(self._process, self._lacks, timeout=START_TIMEOUT_SECONDS)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def query(self, expression: str) -> list[Json]:
        """The samples of an expression now: `{"metric": labels, "value": [seconds, "number"]}`. Raises QueryError."""
        return self._asked("/api/v1/query", query=expression)

    def value(self, expression: str) -> float | None:
        """The only sample of an expression; None while there is none. Raises QueryError, or ValueError for several."""
        samples = self.query(expression)
        if not samples:
            return None
        (sample,) = samples
        return float(sample["value"][1])

    def query_range(self, expression: str, began: float, ended: float, step: float = INTERVAL_SECONDS) -> list[Json]:
        """The series of an expression between two times, seconds since the epoch. Raises QueryError."""
        return self._asked("/api/v1/query_range", query=expression, start=f"{began}", end=f"{ended}", step=f"{step}")

    def alerts(self, name: str | None = None, *, state: str = "firing") -> list[Json]:
        """The alerts in a state (`firing` or `pending`), with their labels and annotations."""
        answer: list[Json] = self._get("/api/v1/alerts")["alerts"]
        return [each for each in answer if each["state"] == state and name in (None, each["labels"]["alertname"])]

    def rules(self) -> list[Json]:
        """All rules as it evaluates them, with `health` and `lastError`."""
        groups: list[Json] = self._get("/api/v1/rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def _asked(self, path: str, **query: str) -> list[Json]:
        found: list[Json] = self._get(path, **query)["result"]
        return found

    def _get(self, path: str, **query: str) -> Json:
        response = self._client.get(path, params=query)
        try:
            answer: Json = response.json()
        except json.JSONDecodeError as error:
            raise QueryError(f"{path}: {response.status_code}: {response.text.strip()}") from error
        if answer["status"] != "success":
            raise QueryError(f"{query.get('query', path)}: {answer.get('error')}")
        data: Json = answer["data"]
        return data

    def _lacks(self) -> str | None:
        try:
            response = self._client.get("/-/ready")
        except httpx.TransportError as error:
            return str(error) or type(error).__name__
        return None if response.status_code == 200 else response.text.strip()

    def _end(self) -> None:
        self._client.close()
        if self._process is not None:
            self._process.stop(grace_seconds=0)  # what it would save goes away with its folder
            self._process = None


def wait_for_scrape(prometheus: Prometheus, *, within: float = 30.0) -> None:
    """Returns once a scrape that began after this call has been stored. Raises TimeoutError."""
    asked, deadline = time.time(), time.monotonic() + within
    while not any(float(sample["value"][1]) > asked for sample in prometheus.query("timestamp(up)")):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{prometheus.url} has scraped nothing within {within:g} s")
        time.sleep(0.05)
