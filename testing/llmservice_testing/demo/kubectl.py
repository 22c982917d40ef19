"""kubectl as a user would type it: printed, run, and its answer printed."""

import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from llmservice_testing.demo.errors import DemoError
from llmservice_testing.demo.screen import Screen

_LIMIT_SECONDS: Final = 60.0
_CHECK_EVERY_SECONDS: Final = 0.25


def check_kubectl() -> None:
    """Raises DemoError where there is no kubectl."""
    if shutil.which("kubectl") is None:
        raise DemoError(
            "There is no kubectl on the PATH, and the demo shows what it answers: "
            "install it as https://kubernetes.io/docs/tasks/tools/ says, and run make demo again."
        )


class Kubectl:
    """Runs commands in `folder`, so that a file is named as a user would name it.

    `check` is called while a command takes its time, and raises DemoError where it waits in vain.
    """

    def __init__(self, screen: Screen, folder: Path, check: Callable[[], None]) -> None:
        self._screen = screen
        self._folder = folder
        self._check = check

    def __call__(self, *arguments: str) -> None:
        """Runs one command. Raises DemoError, with what it said, where it fails or takes longer than a minute."""
        command = ["kubectl", *arguments]
        self._screen.command(shlex.join(command))
        with subprocess.Popen(
            command,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                said = self._said(process)
            except BaseException:
                process.kill()
                raise
        self._screen.answer(said)
        if process.returncode != 0:
            raise DemoError(f"{shlex.join(command)} ended with status {process.returncode}: {said.strip()}")

    def _said(self, process: "subprocess.Popen[str]") -> str:
        deadline = time.monotonic() + _LIMIT_SECONDS
        while True:
            try:
                return process.communicate(timeout=_CHECK_EVERY_SECONDS)[0]
            except subprocess.TimeoutExpired as error:
                self._check()
                if time.monotonic() > deadline:
                    raise DemoError(f"It took longer than {_LIMIT_SECONDS:g} s.") from error
