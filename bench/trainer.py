"""Pausing by a trainer: SkyRL's own client, as published, in a process of its own (`trainer_child.py`)."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from bench.figures import Action, Sample
from llmservice_testing.controlplane.progress import Task
from llmservice_testing.vllm.installation import cache_root

VERSION: Final = "0.3.0"
_REQUIREMENT: Final = f"skyrl=={VERSION} --hash=sha256:0110e9434a58d6eb2aa533dd06e6346c8303757800af3c2b5a0d3f341cbad414"
_INSTALL_SECONDS: Final = 180.0
_ANSWER_SECONDS: Final = 120.0
_END_SECONDS: Final = 10.0


class TrainerMissingError(Exception):
    """SkyRL's client cannot be had; the message says why."""


class Trainer:
    """SkyRL's `RemoteInferenceClient`: it posts to all engines and believes their answers."""

    name: Final = f"a trainer: SkyRL {VERSION}"
    note: Final = "POST only, nothing is read"

    def __init__(self, child: subprocess.Popen[str], requests: IO[str], answers: IO[str]) -> None:
        self._child = child
        self._requests = requests
        self._answers = answers

    def measure(self, action: Action) -> Sample:
        """Raises TrainerMissingError where its process ends or does not answer."""
        told = self.ask(action)
        return Sample(told["wall"], told["cpu"])

    def ask(self, line: str) -> dict[str, float]:
        """Say a line to the child, and return what it answers. Raises TrainerMissingError."""
        try:
            self._requests.write(line + "\n")
            self._requests.flush()
        except BrokenPipeError as error:
            raise TrainerMissingError(f"SkyRL's client has ended (exit status {self._child.poll()})") from error
        ready, _, _ = select.select([self._answers], [], [], _ANSWER_SECONDS)
        line = self._answers.readline() if ready else ""
        if not line:
            raise TrainerMissingError(f"SkyRL's client did not answer (exit status {self._child.poll()})")
        told: dict[str, float] = json.loads(line)
        return told


@contextlib.contextmanager
def training(urls: Sequence[str], log: Path) -> Iterator[Trainer]:
    """SkyRL's client for these engines, installed if need be. Raises TrainerMissingError."""
    command = [sys.executable, str(Path(__file__).with_name("trainer_child.py")), str(_installed())]
    with (
        log.open("a") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as child,
    ):
        if child.stdin is None or child.stdout is None:
            raise AssertionError("both are pipes")
        trainer = Trainer(child, child.stdin, child.stdout)
        try:
            trainer.ask(json.dumps(list(urls)))
            yield trainer
        finally:
            with contextlib.suppress(BrokenPipeError):  # it has ended already, which `ask` has told
                child.stdin.close()
            try:
                child.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()


def _installed() -> Path:
    folder = cache_root(os.environ).parent / "bench" / f"skyrl-{VERSION}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with Task(f"Installing skyrl {VERSION} for comparison"), tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        (Path(scratch) / "requirements.txt").write_text(_REQUIREMENT + "\n")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        target = ["--only-binary", ":all:", "--target", f"{scratch}/packages", "-r", f"{scratch}/requirements.txt"]
        try:
            done = subprocess.run(
                [*pip, *target], capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise TrainerMissingError(f"pip was not done with it after {_INSTALL_SECONDS:g} s") from error
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()
            raise TrainerMissingError(f"not installed: {said[-1] if said else f'exit status {done.returncode}'}")
        try:
            (Path(scratch) / "packages").rename(folder)
        except OSError as error:
            if not folder.exists():  # else another run was faster
                raise TrainerMissingError(f"not installed: {error}") from error
    return folder
