"""`kubectl llm` for the fleet of the test.

`llm(...)` runs a command within the test's process, which spares a second of imports each time; `kubectl_llm` is the real
thing: kubectl finds an executable `kubectl-llm` on the PATH and runs it.
"""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from llmservice.plugin.app import app
from llmservice_testing.cluster import wait_until
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import PATIENCE_SECONDS


@dataclass(frozen=True)
class Answer:
    """How a command ended, and what it printed."""

    status: int
    output: str
    errors: str


@dataclass(frozen=True)
class Plugin:
    """The commands, in the test's namespace unless `-A` or `-n` is given."""

    kubeconfig: Path
    namespace: str

    def __call__(self, *arguments: str) -> Answer:
        """Runs one to its end."""
        place = [] if {"-A", "-n"} & set(arguments) else ["-n", self.namespace]
        done = CliRunner().invoke(app, [*arguments, *place, f"--kubeconfig={self.kubeconfig}"], prog_name="kubectl-llm")
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Answer(done.exit_code, done.stdout, done.stderr)

    def ok(self, *arguments: str) -> str:
        """Runs one that must succeed, and returns what it prints."""
        done = self(*arguments)
        assert done.status == 0, f"{arguments}: {done}"
        return done.output


class KubectlPlugin:
    """`kubectl llm ...` as a user types it."""

    def __init__(self, kubeconfig: Path, namespace: str, programs: Path, directory: Path) -> None:
        self._namespace, self._directory = namespace, directory
        self.started: list[Running] = []
        self.environment = os.environ | {
            "KUBECONFIG": str(kubeconfig),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "160",
        }

    def words(self, *arguments: str) -> list[str]:
        """The words that are typed."""
        return ["kubectl", "llm", *arguments, "-n", self._namespace]

    def __call__(self, *arguments: str) -> Answer:
        """Runs one to its end."""
        done = subprocess.run(
            self.words(*arguments), env=self.environment, capture_output=True, text=True, timeout=90, check=False
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str) -> "Running":
        """Starts one."""
        self.started.append(Running(self.words(*arguments), self.environment, self._directory))
        return self.started[-1]


class Running:
    """A command that runs; what it prints goes to files, so that it never waits for a reader."""

    def __init__(self, words: list[str], environment: dict[str, str], directory: Path) -> None:
        name = uuid.uuid4().hex
        self._output, self._errors = directory / f"{name}.out", directory / f"{name}.err"
        with self._output.open("w") as output, self._errors.open("w") as errors:
            self._process = subprocess.Popen(words, env=environment, stdout=output, stderr=errors)

    def line(self, words: str) -> str:
        """Waits for a line of its output that says this, and returns it."""
        return wait_until(
            lambda: next((each for each in self._output.read_text().splitlines() if words in each), None),
            PATIENCE_SECONDS,
            what=f"a line with {words!r}",
            last=lambda: self._output.read_text() + self._errors.read_text(),
        )

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> Answer:
        """Ctrl-C, or another signal, and its end."""
        self._process.send_signal(number)
        status = self._process.wait(PATIENCE_SECONDS)
        return Answer(status, self._output.read_text(), self._errors.read_text())

    def close(self) -> None:
        """Ends it, if it has not."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the plugin, and with what kubectl runs to complete its words."""
    folder = tmp_path_factory.mktemp("programs")
    for name, call in {
        "kubectl-llm": "from llmservice.plugin.app import app; app(prog_name='kubectl-llm')",
        "kubectl_complete-llm": "from llmservice.plugin.completion import main; main()",
    }.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} -c "{call}" "$@"\n')
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def make_llm(control_plane: ControlPlane, namespace: str) -> Callable[..., Plugin]:
    """Makes the commands for another user: `make_llm(kubeconfig)`."""

    def make(kubeconfig: Path | None = None) -> Plugin:
        return Plugin(kubeconfig or control_plane.kubeconfig, namespace)

    return make


@pytest.fixture
def llm(make_llm: Callable[..., Plugin]) -> Plugin:
    """The commands, with the administrator's rights."""
    return make_llm()


@pytest.fixture
def kubectl_llm(control_plane: ControlPlane, namespace: str, programs: Path, tmp_path: Path) -> Iterator[KubectlPlugin]:
    """The real plugin."""
    plugin = KubectlPlugin(control_plane.kubeconfig, namespace, programs, tmp_path)
    yield plugin
    for running in plugin.started:
        running.close()
