"""Runs a command, and ends it and all that it started when our standard input closes.

A vLLM server is three or four processes, and those below it outlive it when it is killed (seen on 0.32.0). The parent
of this guard holds the other end of a pipe; when it ends, however it ends, the kernel closes the pipe and the guard
ends the whole process group, which is its own: it must be started as the leader of a new session.

It also binds the group to one CPU. vLLM's engine loop waits for its worker by spinning on sched_yield, which gives up
Python's lock for a moment too short for a thread on another, busy CPU to take it. So the thread that sends tokens may
starve for seconds (seen on two cores, up to the end of a request). On the same CPU, yielding lets it run.

Usage: guard.py GRACE_SECONDS CPU COMMAND...
"""

import os
import select
import signal
import subprocess
import sys


def main(grace_seconds: float, cpu: int, command: list[str]) -> None:
    """Returns never: this process is in the group that it ends. SIGTERM first, SIGKILL after the grace."""
    os.sched_setaffinity(0, {cpu})
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    ended = os.pidfd_open(child.pid)
    poller = select.poll()
    poller.register(ended, select.POLLIN)
    poller.register(sys.stdin.fileno(), select.POLLIN | select.POLLHUP)
    if ended not in dict(poller.poll()):
        poller.unregister(sys.stdin.fileno())
        child.terminate()
        poller.poll(grace_seconds * 1000)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
