"""Nothing that a test started outlives it: neither what hides in a session of its own, nor what lost its parent."""

import os
import subprocess
import sys
from pathlib import Path

from llmservice_testing.cluster import wait_until
from llmservice_testing.vllm import guard

FAMILY = """
import subprocess, sys, time
hidden = subprocess.Popen(["sleep", "3600"], start_new_session=True)
parent = subprocess.Popen(["sh", "-c", "setsid sleep 3600 >/dev/null & echo $!"], stdout=subprocess.PIPE, text=True)
orphan = parent.communicate()[0].strip()
open(sys.argv[1] + ".new", "w").write(f"{hidden.pid} {orphan}")
import os; os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(3600)
"""


def is_alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_every_descendant_ends_when_the_pipe_is_closed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    command = [sys.executable, "-I", guard.__file__, "0.1", cpus, sys.executable, "-c", FAMILY, str(pids)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as guarded:
        wait_until(pids.exists, 30, what="the family being complete")
        hidden, orphan = map(int, pids.read_text().split())
        assert is_alive(hidden)
        assert is_alive(orphan)

        assert guarded.stdin is not None
        guarded.stdin.close()
        guarded.wait(30)

    assert not is_alive(hidden)
    assert not is_alive(orphan)
