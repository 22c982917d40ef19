"""Child processes that cannot outlive the process that started them.

A test run that is killed (a time limit, `kill -9`, an out-of-memory killer) runs no clean-up code, and would leave an
etcd and a kube-apiserver of 300 MB behind each time. Linux can end a child when its parent dies: `PR_SET_PDEATHSIG`.
Two things about it decide how this module is built:

- The signal comes when the *thread* that forked the child ends, not the process. Tests restart servers from worker
  threads, so every fork is done by one thread that lives as long as the interpreter.
- It must be set in the child, between fork and exec. `preexec_fn` runs Python there and may deadlock where other
  threads hold locks, so the child starts as a tiny Python program (`LAUNCHER`) that sets it and then becomes the
  server by exec: the process id stays the same, and so does the setting.

A pipe that the child watches would do the same without Linux, but neither etcd nor kube-apiserver watches one, and a
guard process between them and us would hide their process ids, which tests need to stop and continue them.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

LAUNCHER: Final = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
    sys.exit("prctl(PR_SET_PDEATHSIG): " + os.strerror(ctypes.get_errno()))
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent died before the child was set up")
os.execv(sys.argv[2], sys.argv[2:])
"""

_forker: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="controlplane-forker")


class ProcessStuckError(Exception):
    """A process did not end within its deadline, not even after SIGKILL (it hangs in the kernel)."""


class ServerNotReadyError(Exception):
    """A server ended, or did not get ready in time; the message carries the end of its log."""

    def __init__(self, process: "ServerProcess", problem: str) -> None:
        super().__init__(f"{process.name} {problem}. The end of {process.log}:\n{process.log_tail()}")


class ServerProcess:
    """One running server: its log goes to a file, and it is signalled by its process id only."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @classmethod
    def start(cls, command: Sequence[str], *, log: Path) -> "ServerProcess":
        """Starts `command`, whose first word is the absolute path of a program; its output is appended to `log`.

        It gets a session of its own: Ctrl-C in a terminal reaches only the parent, which then stops it in order.
        Raises OSError where the program cannot be started at all.
        """
        launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid()), *command]

        def fork() -> "subprocess.Popen[bytes]":
            with log.open("ab") as output:
                return subprocess.Popen(
                    launcher,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )

        return cls(Path(command[0]).name, _forker.submit(fork).result(), log)

    @property
    def pid(self) -> int:
        """The process id, also after the process has ended."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """What the process returned (negative: the signal that ended it); None while it runs."""
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal; without effect on a process that has ended."""
        self._process.send_signal(number)

    def stop(self, *, grace_seconds: float) -> None:
        """Ends the process: SIGTERM, then SIGKILL after `grace_seconds` (0: SIGKILL at once). Idempotent.

        Raises ProcessStuckError if it is there ten seconds after SIGKILL.
        """
        if grace_seconds > 0 and self.exit_status is None:
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGCONT)  # a stopped process would not see SIGTERM
            with contextlib.suppress(subprocess.TimeoutExpired):  # it had its chance; SIGKILL follows
                self._process.wait(grace_seconds)
        self._process.kill()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired as error:
            raise ProcessStuckError(f"{self.name} (pid {self.pid}) is still there 10 s after SIGKILL") from error

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of its log, for error messages."""
        text = self.log.read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])


def wait_until_ready(
    process: ServerProcess, whats_missing: Callable[[], str | None], *, timeout: float, interval: float = 0.05
) -> None:
    """Waits until `whats_missing` answers None.

    Raises ServerNotReadyError, with the last answer and the end of the log, when the process ends or `timeout` seconds
    have passed.
    """
    deadline = time.monotonic() + timeout
    while (missing := whats_missing()) is not None:
        if process.exit_status is not None:
            raise ServerNotReadyError(process, f"ended with status {process.exit_status}")
        if time.monotonic() > deadline:
            raise ServerNotReadyError(process, f"was not ready after {timeout:g} s: {missing}")
        time.sleep(interval)
