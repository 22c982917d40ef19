"""The program in `go/`, which is made of Flux's own packages, kstatus, and the Lua interpreter of Argo CD.

It is built once, into the user's cache, under the hash of its sources: a minute or two, and Go 1.26 or newer (an older
one gets it by itself, as Go does).
"""

import dataclasses
import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from llmservice_testing.builders import Json
from llmservice_testing.controlplane.binaries import cache_root, filling
from llmservice_testing.controlplane.build import find_go, run_go
from llmservice_testing.controlplane.progress import Task

MODULE: Final = Path(__file__).parent / "go"
_NAME: Final = "gitops"
_GRACE_SECONDS: Final = 20.0
"""How much longer than its own time limit the program may take, to start and to end."""


class GitOpsError(Exception):
    """The program failed at what it was asked for; the message is its own."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What kstatus says of an object: `Current`, `InProgress`, `Failed` or `Terminating`, and why."""

    status: str
    message: str


def ensure_built(environment: Mapping[str, str] = os.environ) -> Path:
    """The program, built first if it is not in the cache.

    Raises:
        SourceError: there is no Go, or the build failed.
    """
    folder = cache_root(environment).parent / _NAME / _hash_of_sources()
    program = folder / _NAME
    if not program.exists():
        go = find_go()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with filling(folder) as scratch:
            if not program.exists():  # another process may have built it while we waited for the lock
                with Task("Building Flux's patch logic and Argo CD's Lua from their Go modules, once") as task:
                    flags = ["-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w"]
                    run_go([str(go), "build", *flags, "-o", str(scratch / _NAME), "."], MODULE, task)
    return program


def _hash_of_sources() -> str:
    total = hashlib.sha256()
    for source in sorted(MODULE.iterdir()):
        total.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return total.hexdigest()[:16]


class GitOps:
    """The program, on one cluster."""

    def __init__(self, program: Path, kubeconfig: Path) -> None:
        self._program = program
        self._kubeconfig = kubeconfig

    def flux_apply(
        self, manifests: Sequence[Json], *, ignore: Sequence[str] = (), override_managers: Sequence[str] = ()
    ) -> dict[str, str]:
        """Reconciles the manifests once, as kustomize-controller does, and tells what became of each object by name:
        created, configured, unchanged or skipped.

        `ignore` are JSON pointers, as in a Kustomization's `spec.ignore`; `override_managers` is the controller's flag.
        """
        flags = [f"--ignore={pointer}" for pointer in ignore]
        flags += [f"--override-manager={name}" for name in override_managers]
        done: dict[str, str] = self._run("flux-apply", *flags, manifests=manifests)
        return done

    def flux_wait(self, manifests: Sequence[Json], *, timeout: float = 30) -> None:
        """Waits as a Kustomization with `wait: true` does. Raises GitOpsError with what it would report."""
        self._run("flux-wait", f"--timeout={timeout:g}s", manifests=manifests, timeout=timeout)

    def kstatus(self, *objects: Json) -> list[Verdict]:
        """What kstatus says of each object, from what is in it."""
        found: list[Json] = run(self._program, ["kstatus"], _documents(objects))
        return [Verdict(one["status"], one["message"]) for one in found]

    def _run(self, command: str, *flags: str, manifests: Sequence[Json], timeout: float = 30) -> Any:
        arguments = [command, f"--kubeconfig={self._kubeconfig}", *flags]
        return run(self._program, arguments, _documents(manifests), timeout=timeout)


def run(program: Path, arguments: Sequence[str], text: str, *, timeout: float = 30) -> Any:
    """Runs the program and returns its result. Raises GitOpsError."""
    ended = subprocess.run(
        [program, *arguments], input=text, capture_output=True, text=True, timeout=timeout + _GRACE_SECONDS, check=False
    )
    if ended.returncode != 0:
        raise GitOpsError(ended.stderr.strip())
    return json.loads(ended.stdout)


def _documents(objects: Sequence[Json]) -> str:
    return yaml.safe_dump_all(objects)
