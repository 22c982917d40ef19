"""Docker: the daemon that answers, or one that is started here and can be stopped here again.

Some machines withhold CAP_SYS_RESOURCE, even from root. Docker asks for all capabilities for a privileged container,
which kind's nodes are, and then none starts ("unable to apply caps"). There, and only there, containers are run through
`runc-without-resource.sh`, which asks for all but that one.
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

from llmservice_testing.controlplane.progress import Task
from llmservice_testing.kind.places import cache
from llmservice_testing.kind.running import KindError, output_of, succeeds

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.2
_CAP_SYS_RESOURCE: Final = 24
_RUNTIME: Final = "without-resource"
_WRAPPER: Final = Path(__file__).with_name("runc-without-resource.sh")
_ADVICE: Final = "Install Docker and start it; on Debian, as root: apt-get install docker.io iptables"


def ensure_daemon() -> None:
    """Makes sure that a Docker daemon answers which can run a node. Raises KindError."""
    if not answers():
        _start()
    if withholds_a_capability() and output_of(["docker", "info", "--format", "{{.DefaultRuntime}}"]) != _RUNTIME:
        raise KindError(
            "This machine withholds CAP_SYS_RESOURCE, so the Docker daemon that runs here cannot run kind's nodes. "
            f"Stop it, so that one is started here, or start it with: {' '.join(_runtime_options())}"
        )


def answers() -> bool:
    """Whether a daemon answers."""
    return shutil.which("docker") is not None and succeeds(["docker", "version"])


def stop_daemon() -> bool:
    """Stops the daemon if it was started here, with all containers. Returns whether it was. Raises KindError."""
    pid = _our_pid()
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    with Task("Stopping Docker") as task:
        while _our_pid() is not None:
            if task.elapsed > STOP_SECONDS:
                raise KindError(f"dockerd (pid {pid}) is still there {STOP_SECONDS:g} s after SIGTERM")
            time.sleep(_POLL_SECONDS)
    _pid_file().unlink()
    return True


def withholds_a_capability() -> bool:
    """Whether even root cannot have CAP_SYS_RESOURCE here."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapBnd:"):
            return not int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1
    return False


def _start() -> None:
    dockerd = shutil.which("dockerd")
    if dockerd is None:
        raise KindError(f"No Docker daemon answers, and there is no dockerd. {_ADVICE}")
    if os.geteuid() != 0:
        raise KindError(f"No Docker daemon answers, and only root may start one. {_ADVICE}")
    cache().mkdir(parents=True, exist_ok=True)
    log = cache() / "dockerd.log"
    options = _runtime_options() if withholds_a_capability() else []
    with log.open("wb") as output:
        process = subprocess.Popen(
            [dockerd, *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is not meant for it
        )
    _pid_file().write_text(str(process.pid))
    with Task("Starting Docker") as task:
        while not answers():
            if process.poll() is not None or task.elapsed > START_SECONDS:
                process.kill()
                raise KindError(f"dockerd does not answer. {log}:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(_POLL_SECONDS)


def _runtime_options() -> list[str]:
    return ["--add-runtime", f"{_RUNTIME}={_wrapper()}", "--default-runtime", _RUNTIME]


def _wrapper() -> Path:
    """The wrapper in the cache, where it stays while this checkout may go."""
    cache().mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(_WRAPPER, cache()))


def _pid_file() -> Path:
    return cache() / "dockerd.pid"


def _our_pid() -> int | None:
    """The process that was started here, if it still runs."""
    try:
        pid = int(_pid_file().read_text())
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ValueError, ProcessLookupError):
        return None
    return pid if name == "dockerd" and state != "Z" else None
