"""The two programs of a control plane, and the cache folder they are kept in.

The cache is shared by every checkout and every test process of a user, so two rules hold: a program appears in it only
when it is complete (it is made elsewhere on the same file system, then renamed), and only one process at a time fills
it (a file lock, which the kernel releases whatever happens to its holder).
"""

import contextlib
import dataclasses
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Self

from llmservice_testing.controlplane.progress import Task

PROGRAMS: Final = ("etcd", "kube-apiserver")

LOCK_TIMEOUT_SECONDS: Final = 45 * 60
"""Longer than another process may take for all that it does under the lock (a download and two builds)."""


class SourceError(Exception):
    """One source of the programs gave none; the message says why, in words that follow a colon."""


@dataclasses.dataclass(frozen=True)
class Assets:
    """Where the programs are."""

    etcd: Path
    kube_apiserver: Path

    @classmethod
    def in_folder(cls, folder: Path) -> Self:
        """The programs in one folder. Raises SourceError where one is missing or cannot be executed."""
        for program in PROGRAMS:
            path = folder / program
            if not path.is_file():
                raise SourceError(f"there is no {program} in {folder}")
            if not os.access(path, os.X_OK):
                raise SourceError(f"{path} is not executable")
        return cls(etcd=folder / "etcd", kube_apiserver=folder / "kube-apiserver")


def cache_root(environment: Mapping[str, str]) -> Path:
    """The project's cache folder for control planes; each source and version has its own folder in it.

    By the XDG base directory specification: a relative XDG_CACHE_HOME is ignored, as is an empty one.
    """
    configured = Path(environment.get("XDG_CACHE_HOME", ""))
    base = configured if configured.is_absolute() else Path.home() / ".cache"
    return base / "llmservice" / "controlplane"


@contextlib.contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """Yields an empty scratch folder; what is in it at the end of the block is moved to `folder`, unless it raised.

    The block runs under the lock of `folder`. Whoever waited for that must look into the cache again first.
    Raises SourceError where the lock cannot be had, and OSError where the cache cannot be written.
    """
    with _locked(folder), tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        yield Path(scratch)
        folder.mkdir(exist_ok=True)
        for program in Path(scratch).iterdir():
            program.chmod(0o755)
            program.replace(folder / program.name)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        _acquire(lock.fileno(), folder)
        yield  # closing the file releases the lock


def _acquire(descriptor: int, folder: Path) -> None:
    if _try_lock(descriptor):
        return
    with Task(f"Waiting for another process that fills {folder}") as task:
        while not _try_lock(descriptor):
            if task.elapsed > LOCK_TIMEOUT_SECONDS:
                raise SourceError(f"another process has filled {folder} for {task.elapsed:.0f} s and is not done")
            task.tick()
            time.sleep(0.2)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
