"""The programs built from their Go modules: only Go and a Go module proxy are needed.

`go/etcd` and `go/kube-apiserver` are Go modules of ours that contain no code: they require the module that does, and
their committed go.sum makes the build reproducible. It takes four to five minutes on two cores, once.
"""

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from llmservice_testing.controlplane.binaries import SourceError
from llmservice_testing.controlplane.progress import Task

VERSION: Final = "1.34.4"
BUILD_TIMEOUT_SECONDS: Final = 20 * 60
"""For each program, its dependencies' download included."""

MODULES: Final = Path(__file__).parent / "go"
_USUAL_GO: Final = Path("/usr/local/go/bin/go")  # where Go's own installation instructions put it


@dataclasses.dataclass(frozen=True)
class Program:
    """A Go program: the name it gets, and its package. The module in `go/` that builds it bears the same name."""

    name: str
    package: str
    variables: tuple[str, ...] = ()
    """Variables that the linker sets, as `path.name=value`."""


def _version_variables(package: str) -> tuple[str, ...]:
    """Without these the server calls itself v0.0.0, and kubectl complains."""
    major, minor, _ = VERSION.split(".")
    values = {
        "gitVersion": f"v{VERSION}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "unknown",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    return tuple(f"{package}.{name}={value}" for name, value in values.items())


BUILT: Final = (
    Program("etcd", "go.etcd.io/etcd/server/v3"),
    Program(
        "kube-apiserver",
        "k8s.io/kubernetes/cmd/kube-apiserver",
        _version_variables("k8s.io/component-base/version") + _version_variables("k8s.io/client-go/pkg/version"),
    ),
)


def build(folder: Path) -> None:
    """Builds every program into `folder`. Raises SourceError without Go, and with Go's words where a build fails."""
    go = find_go()
    for program in BUILT:
        with Task(f"Building {program.name} from its Go module, minutes the first time") as task:
            run_go([str(go), *_arguments(program, folder)], MODULES / program.name, task)


def find_go() -> Path:
    """Go on the PATH or where it is usually installed. Raises SourceError."""
    found = shutil.which("go") or shutil.which(_USUAL_GO)
    if found is None:
        raise SourceError(f"there is no Go: neither `go` on the PATH nor {_USUAL_GO}")
    return Path(found)


def _arguments(program: Program, folder: Path) -> list[str]:
    linker = " ".join(["-s -w", *(f"-X {variable}" for variable in program.variables)])
    # -trimpath and -buildvcs=false: nothing of this checkout gets into the program, or into the key of Go's cache.
    flags = ["-mod=readonly", "-trimpath", "-buildvcs=false", f"-ldflags={linker}"]
    return ["build", *flags, "-o", str(folder / program.name), program.package]


def run_go(command: Sequence[str], module: Path, task: Task, *, timeout: float = BUILD_TIMEOUT_SECONDS) -> None:
    """Runs Go in a module of ours, says how it goes, and ends it after `timeout` seconds. Raises SourceError."""
    with tempfile.NamedTemporaryFile() as output, _group(command, module, output.fileno()) as process:
        log = Path(output.name)
        while (status := _wait_a_moment(process)) is None:
            if task.elapsed > timeout:
                raise SourceError(f"{module.name} was not built within {timeout:g} s:\n{_last_lines(log, 15)}")
            task.tick(_last_lines(log, 1))
        if status != 0:
            raise SourceError(f"go build of {module.name} ended with status {status}:\n{_last_lines(log, 15)}")


@contextlib.contextmanager
def _group(command: Sequence[str], module: Path, output: int) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs a command as a process group, which is killed at the end of the block: `go` starts compilers of its own."""
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    try:
        process = subprocess.Popen(
            command,
            cwd=module,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise SourceError(f"{command[0]} cannot be run: {error}") from error
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def _wait_a_moment(process: "subprocess.Popen[bytes]") -> int | None:
    try:
        return process.wait(0.5)
    except subprocess.TimeoutExpired:
        return None


def _last_lines(log: Path, count: int) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
