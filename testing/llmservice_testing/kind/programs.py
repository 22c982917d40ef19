"""Programs built from Go modules: kind, and all that runs on a node. Only Go and a Go module proxy are needed.

As in `controlplane.build`, each folder in `go/` is a module of ours that requires the module that has the code, and its
go.sum makes the build reproducible. On two cores it takes ten minutes, once; etcd and the API server are built from the
same modules as those of the integration tests.
"""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from llmservice_testing.controlplane import build as controlplane
from llmservice_testing.controlplane.binaries import SourceError, filling
from llmservice_testing.controlplane.progress import Task
from llmservice_testing.kind.places import cache
from llmservice_testing.kind.running import KindError, output_of

KUBERNETES: Final = controlplane.VERSION
KIND: Final = "0.33.0"

_MODULES: Final = Path(__file__).with_name("go")
_KUBERNETES_PROGRAMS: Final = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubeadm",
    "kubectl",
)


@dataclasses.dataclass(frozen=True)
class Program:
    """A program: its name, its package, the folder of the module that builds it, and what the linker sets in it."""

    name: str
    package: str
    module: Path
    variables: tuple[str, ...] = ()


def _version_variables() -> tuple[str, ...]:
    """The same as the API server of the integration tests has."""
    (apiserver,) = (program for program in controlplane.BUILT if program.name == "kube-apiserver")
    return apiserver.variables


NODE_PROGRAMS: Final = (
    *(
        Program(name, f"k8s.io/kubernetes/cmd/{name}", _MODULES / "kubernetes", _version_variables())
        for name in _KUBERNETES_PROGRAMS
    ),
    Program("etcd", "go.etcd.io/etcd/server/v3", controlplane.MODULES / "etcd"),
    Program("coredns", ".", _MODULES / "coredns"),
    Program("pause", ".", _MODULES / "pause"),
)
_KIND_PROGRAM: Final = Program("kind", "sigs.k8s.io/kind", _MODULES / "kind")


def find_kind() -> Path:
    """kind on the PATH, in the cache, or built now. Raises KindError."""
    found = shutil.which("kind")
    return Path(found) if found is not None else _built(cache() / f"kind-{KIND}", [_KIND_PROGRAM]) / "kind"


def files_of_kind() -> Path:
    """The files that kind puts on a node, from its sources. Raises KindError."""
    go = _go()
    output_of([go, "-C", _KIND_PROGRAM.module, "mod", "download", "sigs.k8s.io/kind"], timeout=300)
    folder = output_of([go, "-C", _KIND_PROGRAM.module, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kind"])
    return Path(folder) / "images" / "base" / "files"


def node_programs() -> Path:
    """The folder with all that runs on a node. Raises KindError."""
    return _built(cache() / f"v{KUBERNETES}", NODE_PROGRAMS)


def _built(folder: Path, programs: Sequence[Program]) -> Path:
    """A folder of the cache with these programs; one that is missing is built."""
    try:
        # Each on its own, so that an interrupted build goes on where it was.
        for program in programs:
            with filling(folder) as scratch:
                if not (folder / program.name).exists():
                    _build(program, scratch)
    except (OSError, SourceError) as error:
        raise KindError(f"{folder} cannot be filled: {error}") from error
    return folder


def _build(program: Program, folder: Path) -> None:
    linker = " ".join(["-s -w", *(f"-X {variable}" for variable in program.variables)])
    flags = ["-mod=readonly", "-trimpath", "-buildvcs=false", f"-ldflags={linker}"]
    command = [str(_go()), "build", *flags, "-o", str(folder / program.name), program.package]
    with Task(f"Building {program.name} from its Go module") as task:
        controlplane.run_go(command, program.module, task)


def _go() -> Path:
    try:
        return controlplane.find_go()
    except SourceError as error:
        raise KindError(
            f"{error}. Install Go 1.25 or newer, or set KIND_NODE_IMAGE and put kind on the PATH"
        ) from error
