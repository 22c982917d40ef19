"""Helm: the one on the PATH, or else built once from its Go module into the user's cache."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from llmservice_testing.builders import Json
from llmservice_testing.controlplane.binaries import SourceError, cache_root, filling
from llmservice_testing.controlplane.build import VERSION as KUBERNETES
from llmservice_testing.controlplane.build import find_go, run_go
from llmservice_testing.controlplane.progress import Task
from llmservice_testing.manifests import CHART, ManifestError

VERSION: Final = "v3.22.0"
_PACKAGE: Final = "helm.sh/helm/v3/cmd/helm"


class HelmNotFoundError(Exception):
    """There is no helm and none can be built; the message says what to do."""


def find_helm(environment: Mapping[str, str] | None = None) -> Path:
    """Helm on the PATH, or in the cache, or built there, which takes a minute or two once. Raises HelmNotFoundError."""
    environment = os.environ if environment is None else environment
    found = shutil.which("helm", path=environment.get("PATH"))
    if found is not None:
        return Path(found)
    folder = cache_root(environment).parent / "helm" / VERSION
    program = folder / "helm"
    try:
        if not program.is_file():
            with filling(folder) as scratch:
                if not program.is_file():  # another process may have built it while we waited for the lock
                    _build(scratch)
    except (SourceError, OSError) as error:
        raise HelmNotFoundError(
            f"There is no helm on the PATH, and it cannot be built: {error}. "
            "Install it as https://helm.sh/docs/intro/install/ says."
        ) from error
    return program


def _build(scratch: Path) -> None:
    # `go install` puts it into GOBIN, which run_go does not set: `env` does.
    go = find_go()
    command = ["/usr/bin/env", f"GOBIN={scratch}", str(go), "install", "-trimpath", f"{_PACKAGE}@{VERSION}"]
    with Task("Building helm from its Go module, a minute or two the first time") as task:
        run_go(command, scratch, task)


class Helm:
    """`helm` as a user runs it."""

    def __init__(self, program: Path) -> None:
        self.program = program

    def template(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        release: str = "llmservice",
        namespace: str = "llmservice-system",
    ) -> list[Json]:
        """The objects that an installation with these values would have. Raises ManifestError with helm's words."""
        # A helm that was built by `go install` takes the cluster that is not there for a very old one.
        command = ("template", release, str(CHART), "--namespace", namespace, "--kube-version", KUBERNETES)
        return [document for document in yaml.safe_load_all(self._run(*command, values=values)) if document]

    def lint(self) -> str:
        """What helm's linter says. Raises ManifestError where it finds errors or warnings."""
        return self._run("lint", "--strict", "--kube-version", KUBERNETES, str(CHART))

    def install(self, kubeconfig: Path, release: str, namespace: str, values: Mapping[str, Any]) -> str:
        """Installs the chart, and returns what it says. Raises ManifestError."""
        return self._run("install", release, str(CHART), *_at(kubeconfig, namespace), values=values)

    def upgrade(self, kubeconfig: Path, release: str, namespace: str, values: Mapping[str, Any]) -> str:
        """Upgrades a release, and returns what it says. Raises ManifestError."""
        return self._run("upgrade", release, str(CHART), *_at(kubeconfig, namespace), values=values)

    def uninstall(self, kubeconfig: Path, release: str, namespace: str) -> str:
        """Removes a release, and returns what it says. Raises ManifestError."""
        return self._run("uninstall", release, *_at(kubeconfig, namespace))

    def _run(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        finished = subprocess.run(
            [str(self.program), *arguments, *(["--values", "-"] if values is not None else [])],
            input=yaml.safe_dump(dict(values)) if values is not None else None,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if finished.returncode:
            raise ManifestError(f"helm {arguments[0]}: {finished.stderr.strip()}\n{finished.stdout.strip()}".strip())
        return finished.stdout


def _at(kubeconfig: Path, namespace: str) -> tuple[str, ...]:
    return ("--kubeconfig", str(kubeconfig), "--namespace", namespace)
