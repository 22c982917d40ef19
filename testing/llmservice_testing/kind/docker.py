"""What is asked of Docker."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from llmservice_testing.kind.places import ROOT, cache
from llmservice_testing.kind.running import output_of, run, succeeds

BUILD_SECONDS: Final = 15 * 60


def has_image(name: str) -> bool:
    """Whether there is an image of this name."""
    return succeeds(["docker", "image", "inspect", name])


def size_of(name: str) -> int:
    """The size of an image in bytes. Raises KindError where there is none."""
    return int(output_of(["docker", "image", "inspect", "--format", "{{.Size}}", name]))


def build(name: str, dockerfile: Path, arguments: Mapping[str, str], *, cached: bool = True) -> None:
    """Builds an image from the repository. Raises KindError with what Docker says.

    The network is that of the machine: an index on a private address is then as reachable as it is for pip outside.
    """
    given = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
    command: list[str | Path] = [
        "docker",
        "build",
        "--network",
        "host",
        "--tag",
        name,
        *([] if cached else ["--no-cache"]),
    ]
    command += ["--file", dockerfile, *given, ROOT]
    log = cache() / f"{name.replace('/', '-').replace(':', '-')}.log"
    run(command, f"Building {name}", log=log, timeout=BUILD_SECONDS)


def recipe_of(script: Path) -> str:
    """A tag that changes when a script changes: an image that an older script made is not mistaken for a new one."""
    return hashlib.sha256(script.read_bytes()).hexdigest()[:8]
