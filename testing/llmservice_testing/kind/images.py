"""The images of this repository: the operator, as its users get it, and the simulator as an engine."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from llmservice_testing.kind.docker import build, has_image, recipe_of
from llmservice_testing.kind.places import ROOT, cache
from llmservice_testing.kind.running import KindError, run

OPERATOR: Final = "llmservice/operator:0.1.0"
"""The name in `manifests/`."""
ENGINE: Final = "llmservice/engine:test"
REAL_ENGINE: Final = "llmservice/real-engine:test"
"""What vLLM needs of the system; see `real_engine`."""

BASE_VARIABLE: Final = "BASE_IMAGE"
BUILD: Final = "build"

_FOLDER: Final = ROOT / "testing" / "images"
_BASE_SCRIPT: Final = _FOLDER / "python-base.sh"
_BASE_TIMEOUT_SECONDS: Final = 10 * 60
_INDEX_VARIABLES: Final = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST")
"""What the build takes over from this machine; see the Dockerfile."""


def build_all(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Builds the images, as far as something changed, and returns their names. Raises KindError."""
    build_operator(environment=environment)
    bases = _bases(environment)
    build(ENGINE, _FOLDER / "engine.Dockerfile", {key: bases[key] for key in bases if key == "BASE_IMAGE"})
    return OPERATOR, ENGINE


def build_operator(name: str = OPERATOR, *, cached: bool = True, environment: Mapping[str, str] = os.environ) -> None:
    """Builds the operator's image; without `cached` from nothing, whatever was built before. Raises KindError."""
    index = {variable: environment[variable] for variable in _INDEX_VARIABLES if environment.get(variable)}
    build(name, ROOT / "Dockerfile", _bases(environment) | index, cached=cached)


def build_real_engine(environment: Mapping[str, str] = os.environ) -> str:
    """Builds the image in which a real vLLM runs, and returns its name. Raises KindError."""
    bases = _bases(environment)
    wanted = {"BUILD_IMAGE": bases.get("BUILD_IMAGE", bases["BASE_IMAGE"])} if bases else {}
    build(REAL_ENGINE, _FOLDER / "real-engine.Dockerfile", wanted)
    return REAL_ENGINE


def _bases(environment: Mapping[str, str]) -> dict[str, str]:
    """The build arguments that name the images to begin with; none: those of the Dockerfile."""
    value = environment.get(BASE_VARIABLE)
    if not value:
        return {}
    return _bases_of_debian() if value == BUILD else {"BASE_IMAGE": value}


def _bases_of_debian() -> dict[str, str]:
    tag = recipe_of(_BASE_SCRIPT)
    names = {"BASE_IMAGE": f"llmservice/python:{tag}", "BUILD_IMAGE": f"llmservice/python-build:{tag}"}
    if not all(map(has_image, names.values())):
        if shutil.which("debootstrap") is None:
            raise KindError("A base image is made of Debian packages by debootstrap: apt-get install debootstrap")
        command: list[str | Path] = [_BASE_SCRIPT, *names.values(), cache() / "python-base"]
        title = "Making a Python base image of Debian packages"
        run(command, title, log=cache() / "python-base.log", timeout=_BASE_TIMEOUT_SECONDS)
    return names
