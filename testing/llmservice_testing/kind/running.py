"""Runs the programs of others, within a time, and keeps what they say."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from llmservice_testing.controlplane.progress import Task

_POLL_SECONDS: Final = 0.1
_SHOWN_LINES: Final = 25


class KindError(Exception):
    """Something about the cluster could not be done; the message says what, and what helps."""


def run(
    command: Sequence[str | Path],
    title: str,
    *,
    log: Path,
    timeout: float,
    environment: Mapping[str, str] | None = None,
    advice: str = "",
) -> None:
    """Runs a command that may take long, tells how it goes, and writes what it says to `log`.

    `timeout` in seconds; `environment` None: this process's. Raises KindError with the end of the log and `advice`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output, Task(title) as task:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
            )
        except OSError as error:
            raise KindError(f"{command[0]} cannot be run: {error}. {advice}".strip()) from error
        with process:
            while (status := process.poll()) is None:
                if task.elapsed > timeout:
                    process.kill()
                    raise KindError(f"{title}: not done within {timeout:g} s. {advice}\n{_end_of(log)}")
                task.tick(_end_of(log, 1))
                time.sleep(_POLL_SECONDS)
        if status != 0:
            raise KindError(f"{title}: ended with status {status}. {advice}\n{_end_of(log)}")


def output_of(command: Sequence[str | Path], *, timeout: float = 60) -> str:
    """Runs a short command and returns what it prints. Raises KindError with what it complained about."""
    words = " ".join(map(str, command))
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KindError(f"{words}: {error}") from error
    if done.returncode != 0:
        raise KindError(f"{words}: ended with status {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


def succeeds(command: Sequence[str | Path], *, timeout: float = 60) -> bool:
    """Whether a short command ends well."""
    try:
        output_of(command, timeout=timeout)
    except KindError:
        return False
    return True


def _end_of(log: Path, lines: int = _SHOWN_LINES) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
