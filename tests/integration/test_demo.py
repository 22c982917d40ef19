"""`make demo` as whoever has just cloned the repository meets it: not on a terminal, and told to end in the middle."""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from llmservice_testing.cluster import wait_until
from llmservice_testing.controlplane import Assets

pytestmark = pytest.mark.usefixtures("assets")

_LINE_SECONDS = 90
_END_SECONDS = 15

_ESSENTIAL = [
    '$ kubectl patch llmservice qwen --type merge -p \'{"spec":{"generation":"paused"}}\'',
    "$ kubectl wait llmservice/qwen --for=condition=Paused --timeout=30s",
    "✓ All 5 engines themselves say: paused",
    "✓ The request to qwen-0 is frozen",
    "✓ qwen-5 at ",
    "/resume",
    "✓ qwen-1 is paused again",
    "$ kubectl wait llmservice/qwen --for=condition=Paused=False --timeout=30s",
    "✓ All 6 engines themselves say: running",
    "✓ The request to qwen-0 got all its",
    "DriftCorrected",
    "7 pauses, 6 resumes",
    "make demo KEEP=1",
    "export KUBECONFIG=",
]


class Demo:
    """The demo as a child process, with a folder for temporary files of its own: what is left shows."""

    def __init__(self, folder: Path, arguments: Sequence[str]) -> None:
        self._folder = folder
        self.said = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "llmservice_testing.demo", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(folder)},
        )

    def says(self, text: str) -> None:
        """Returns once it has said so."""
        deadline = time.monotonic() + _LINE_SECONDS
        assert self._process.stdout is not None
        while text not in self.said:
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"not said within {_LINE_SECONDS} s: {text}\n{self.said}"
            chunk = os.read(self._process.stdout.fileno(), 65536)
            assert chunk, f"it ended without saying: {text}\n{self.said}"
            self.said += chunk.decode()

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def ends(self, within: float = _END_SECONDS) -> int:
        """Its exit status."""
        rest, _ = self._process.communicate(timeout=within)
        self.said += rest.decode()
        return self._process.returncode

    def processes(self) -> list[psutil.Process]:
        """Itself and what it started: all that knows its folder."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                if str(self._folder) in " ".join([*process.cmdline(), *process.environ().values()]):
                    found.append(process)
        return found

    def operators(self) -> list[psutil.Process]:
        """The operator; nothing for the moment in which it is just being started."""
        return [process for process in self.processes() if "operator" in process.cmdline()]

    def leaves_nothing(self) -> None:
        assert self.processes() == []
        assert list(self._folder.iterdir()) == []
        assert "Traceback" not in self.said

    def close(self) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.communicate(timeout=_END_SECONDS)


@contextlib.contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[Demo]:
    running = Demo(folder, arguments)
    with contextlib.closing(running):
        yield running


def test_the_demo_shows_the_main_job_and_ends_by_itself(tmp_path: Path) -> None:
    with demo(tmp_path) as running:
        status = running.ends(within=_LINE_SECONDS)

        assert status == 0, running.said
        missing = [line for line in _ESSENTIAL if line not in running.said]
        assert not missing, running.said
        assert "\x1b" not in running.said, "control codes are for terminals"
        running.leaves_nothing()


@pytest.mark.parametrize("moment", ["Starting etcd", "Its log:", "2. ", "5. "])
def test_an_interrupt_ends_everything_quickly(tmp_path: Path, moment: str) -> None:
    with demo(tmp_path) as running:
        running.says(moment)
        running.interrupt()

        assert running.ends() == 130, running.said
        running.leaves_nothing()


def test_kept_running_it_serves_ones_own_kubectl_until_interrupted(tmp_path: Path) -> None:
    with demo(tmp_path, "--keep") as running:
        running.says("tail -f")
        found = re.search(r"export KUBECONFIG=(\S+)", running.said)
        assert found is not None
        command = ["kubectl", "--kubeconfig", found[1], "get", "llmservices", "--cache-dir", str(tmp_path / "cache")]
        assert "qwen" in subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout
        subprocess.run(["rm", "-r", str(tmp_path / "cache")], check=True, timeout=30)
        running.interrupt()

        assert running.ends() == 0, running.said
        running.leaves_nothing()


def test_an_operator_that_dies_fails_the_demo_with_the_end_of_its_log(tmp_path: Path) -> None:
    with demo(tmp_path) as running:
        running.says("1. ")
        wait_until(running.operators, timeout=_END_SECONDS)[0].kill()

        assert running.ends() == 1
        assert "The operator ended with status -9" in running.said
        (kept,) = tmp_path.iterdir()
        assert f"The end of the operator's log, all of which is in {kept}" in running.said
        assert "Traceback" not in running.said
        wait_until(lambda: not running.processes(), timeout=_END_SECONDS)


def test_without_kubectl_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, assets: Assets) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with demo(tmp_path) as running:
        assert running.ends() == 1
        assert "There is no kubectl on the PATH" in running.said
        running.leaves_nothing()
