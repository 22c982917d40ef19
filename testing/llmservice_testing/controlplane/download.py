"""The programs out of the archive that the Kubernetes project publishes for tests of controllers ("envtest").

An archive is published for some patch releases of each minor version only. Its checksum is known beforehand, from the
index that setup-envtest uses (https://github.com/kubernetes-sigs/controller-tools/blob/main/envtest-releases.yaml):
a checksum fetched from beside the archive would only say that both came from the same place.
"""

import dataclasses
import hashlib
import platform
import shutil
import socket
import tarfile
import threading
import time
from pathlib import Path
from typing import Final
from urllib.request import getproxies

import httpx

from llmservice_testing.controlplane.binaries import PROGRAMS, SourceError
from llmservice_testing.controlplane.progress import Task

VERSION: Final = "1.34.1"
RELEASES: Final = "https://github.com/kubernetes-sigs/controller-tools/releases/download"

_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_SHA512: Final = {
    "amd64": (
        "c5e7c237ae18a8c65d0df1214b864ecd19aa9ff4f1383dbd477c202546d778c0"
        "f74efe15750ec38f57d8de26ba17cd62f404446cdd3c975399a5d4589de35cdd"
    ),
    "arm64": (
        "bf13d2456183e66d084e28e1c9eed6a408fb77a06d8d1fd0461a7d9bc0c90b63"
        "d29ea67870b28f80d1f992acb026007d6f43987753c859c81d6a78bc1ca2c903"
    ),
}


@dataclasses.dataclass(frozen=True)
class Archive:
    """A gzipped tar file with the programs in it, in whatever folder."""

    url: str
    sha512: str


@dataclasses.dataclass(frozen=True)
class Limits:
    """How long, in seconds, a download may take. A machine without a network must be done with it soon."""

    connect: float = 5
    """To find the host, and again to connect to it."""
    silence: float = 20
    """Without a single byte."""
    total: float = 900


def envtest_archive(machine: str | None = None) -> Archive:
    """The official archive for a machine, named as by `uname -m` (None: this one). Raises SourceError if unknown."""
    machine = machine or platform.machine()
    architecture = _MACHINES.get(machine)
    if platform.system() != "Linux" or architecture is None:
        raise SourceError(f"no archive is known for {platform.system()} on {machine}")
    name = f"envtest-v{VERSION}-linux-{architecture}.tar.gz"
    return Archive(f"{RELEASES}/envtest-v{VERSION}/{name}", _SHA512[architecture])


def download(archive: Archive, folder: Path, *, limits: Limits | None = None) -> None:
    """Fetches an archive, verifies it and unpacks the programs into `folder`. Raises SourceError."""
    limits = limits or Limits()
    packed = folder / ".archive"
    try:
        with Task(f"Downloading {archive.url}") as task:
            _resolve(archive.url, limits.connect)
            digest = _fetch(archive.url, packed, limits, task)
        if digest != archive.sha512:
            raise SourceError(f"{archive.url} has the SHA-512 checksum {digest}, not {archive.sha512}")
        _unpack(packed, folder)
    finally:
        packed.unlink(missing_ok=True)


def _resolve(url: str, timeout: float) -> None:
    """Looks the host up within `timeout` seconds.

    httpx's connect timeout does not bound that: the resolver's own (5 s for each try at each name server) does. The
    thread cannot be cancelled, but a daemon thread keeps nobody waiting. A proxy looks hosts up itself.
    """
    target = httpx.URL(url)
    if getproxies().keys() & {target.scheme, "all"}:
        return
    failures: list[OSError] = []

    def look_up() -> None:
        try:
            socket.getaddrinfo(target.host, target.port or target.scheme)
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=look_up, name="controlplane-resolver", daemon=True)
    thread.start()
    thread.join(timeout)
    if thread.is_alive():
        raise SourceError(f"the name {target.host} was not resolved within {timeout:g} s")
    if failures:
        raise SourceError(f"the name {target.host} cannot be resolved: {failures[0]}")


def _fetch(url: str, target: Path, limits: Limits, task: Task) -> str:
    """Stores what is at `url` and returns its SHA-512 checksum in hexadecimal."""
    deadline = time.monotonic() + limits.total
    checksum = hashlib.sha512()
    timeout = httpx.Timeout(limits.silence, connect=limits.connect)
    try:
        with httpx.stream("GET", url, timeout=timeout, follow_redirects=True) as response, target.open("wb") as file:
            response.raise_for_status()
            size = int(response.headers.get("Content-Length", 0))
            for chunk in response.iter_bytes():
                file.write(chunk)
                checksum.update(chunk)
                task.tick(f"{file.tell() / 1e6:.1f} of {size / 1e6:.1f} MB")
                if time.monotonic() > deadline:
                    raise SourceError(f"{url} took more than {limits.total:g} s")
    except httpx.HTTPError as error:
        raise SourceError(f"{url}: {str(error) or type(error).__name__}") from error
    return checksum.hexdigest()


def _unpack(packed: Path, folder: Path) -> None:
    """Takes the programs out by their names alone, so no path in the archive decides where anything goes."""
    try:
        with tarfile.open(packed) as archive:
            for member in archive:
                name = Path(member.name).name
                content = archive.extractfile(member) if name in PROGRAMS and member.isfile() else None
                if content is not None:
                    with content, (folder / name).open("wb") as target:
                        shutil.copyfileobj(content, target)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise SourceError(f"the archive cannot be unpacked: {error}") from error
    missing = [program for program in PROGRAMS if not (folder / program).exists()]
    if missing:
        raise SourceError(f"the archive contains no {' and no '.join(missing)}")
