"""The node image: kind's own by default, one of a given name, or one that is built here without any registry."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from llmservice_testing.kind import programs
from llmservice_testing.kind.docker import has_image, recipe_of
from llmservice_testing.kind.places import ROOT, cache
from llmservice_testing.kind.running import KindError, run

VARIABLE: Final = "KIND_NODE_IMAGE"
BUILD: Final = "build"

_SCRIPT: Final = ROOT / "testing" / "images" / "kind-node.sh"
_NAME: Final = "llmservice/kind-node"
_TIMEOUT_SECONDS: Final = 15 * 60


def chosen(environment: Mapping[str, str] = os.environ) -> str | None:
    """The node image to use, built first where `KIND_NODE_IMAGE=build`; None: kind's own. Raises KindError."""
    value = environment.get(VARIABLE) or None
    return build() if value == BUILD else value


def build() -> str:
    """Builds the node image unless it is there already, and returns its name. Raises KindError."""
    image = f"{_NAME}:v{programs.KUBERNETES}-{recipe_of(_SCRIPT)}"
    if has_image(image):
        return image
    if shutil.which("debootstrap") is None:
        raise KindError("A node image is made of Debian packages by debootstrap: apt-get install debootstrap")
    built = programs.node_programs()
    scratch = cache() / "node-image"
    command: list[str | Path] = [_SCRIPT, image, programs.KUBERNETES, built, programs.files_of_kind(), scratch]
    run(command, f"Making the node image {image}", log=cache() / "node-image.log", timeout=_TIMEOUT_SECONDS)
    return image
