"""Runs a command, and ends it and all that it started when our standard input closes.

A vLLM server is three or four processes, and those below it outlive it when it is killed (seen on 0.32.0); a Ray cluster
is dozens, in sessions of their own. The parent of this guard holds the other end of a pipe; when it ends, however it
ends, the kernel closes the pipe and the guard ends every descendant: orphans among them become its children, and not
those of init. It must be started as the leader of a new session.

It also binds them to some CPUs. vLLM's engine loop waits for its worker by spinning on sched_yield, which gives up
Python's lock for a moment too short for a thread on another, busy CPU to take it. So the thread that sends tokens may
starve for seconds (seen on two cores, up to the end of a request). On the same CPU, yielding lets it run.

Usage: guard.py GRACE_SECONDS CPU[,CPU...] COMMAND...
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_KILL_WITHIN_SECONDS = 10.0


def main(grace_seconds: float, cpus: set[int], command: list[str]) -> None:
    """Returns never: this process is in the group that it ends. SIGTERM first, SIGKILL after the grace."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl refused to make this process the parent of orphans")
    os.sched_setaffinity(0, cpus)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    ended = os.pidfd_open(child.pid)
    poller = select.poll()
    poller.register(ended, select.POLLIN)
    poller.register(sys.stdin.fileno(), select.POLLIN | select.POLLHUP)
    if ended not in dict(poller.poll()):
        poller.unregister(sys.stdin.fileno())
        child.terminate()
        poller.poll(grace_seconds * 1000)
    _kill_descendants()
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _kill_descendants() -> None:
    """Kill them until there are none left: one may have started another meanwhile."""
    deadline = time.monotonic() + _KILL_WITHIN_SECONDS
    while (descendants := _descendants()) and time.monotonic() < deadline:
        for descendant in descendants:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                os.kill(descendant, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # they ended, and were waited for
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        time.sleep(0.01)


def _descendants() -> list[int]:
    """The ids of the processes below this one."""
    children = defaultdict(list)
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended by itself
                # "id (name) state parent ...", where the name may hold anything
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                children[int(parent)].append(int(folder.name))
    found: list[int] = []
    below = [os.getpid()]
    while below:
        below = [child for parent in below for child in children[parent]]
        found += below
    return found


if __name__ == "__main__":
    main(float(sys.argv[1]), {int(cpu) for cpu in sys.argv[2].split(",")}, sys.argv[3:])
