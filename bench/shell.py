"""Pausing from a shell: the line that people paste."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

from bench.by_hand import CALLS
from bench.engines import PORT
from bench.figures import Action, Sample
from bench.subject import NAME

_PATIENCE_SECONDS: Final = 600.0


class ShellError(Exception):
    """A program that it needs is missing, or it failed; the message says what."""


class Shell:
    """`kubectl get pods | xargs -P 16 curl`."""

    name: Final = "a shell: kubectl | xargs -P 16 curl"
    note: Final = "POST only, nothing is read"

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        """Raises ShellError."""
        missing = [program for program in ("bash", "kubectl", "xargs", "curl") if shutil.which(program) is None]
        if missing:
            raise ShellError(f"not installed: {', '.join(missing)}")
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        self._namespace = namespace

    def measure(self, action: Action) -> Sample:
        """Raises ShellError."""
        command = ["bash", "-o", "pipefail", "-c", line(self._namespace, action)]
        used, began = _cpu_of_children(), time.perf_counter()
        try:
            done = subprocess.run(
                command, env=self._environment, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise ShellError(f"not done after {_PATIENCE_SECONDS:g} s") from error
        sample = Sample(time.perf_counter() - began, _cpu_of_children() - used)
        if done.returncode != 0:
            raise ShellError(f"exit status {done.returncode}: {done.stderr.strip()[-200:]}")
        return sample


def line(namespace: str, action: Action) -> str:
    """What is given to bash."""
    addresses = "-o jsonpath='{range .items[*]}{.status.podIP}{\"\\n\"}{end}'"
    curl = f"curl --silent --show-error --fail --output /dev/null --request POST 'http://{{}}:{PORT}{CALLS[action]}'"
    return f"kubectl get pods --namespace {namespace} -l app={NAME} {addresses} | xargs -P 16 -I '{{}}' {curl}"


def _cpu_of_children() -> float:
    """Seconds of all descendants that have ended; in between nothing else ends here."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
