"""What an installed vLLM consists of, and where it is kept."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

DEFAULT_VERSION: Final = "0.32.0"

VERSION_VARIABLE: Final = "LLMSERVICE_VLLM_VERSION"
"""Chooses another version of vLLM; one without a committed set of requirements is resolved anew."""
EXECUTABLE_VARIABLE: Final = "LLMSERVICE_VLLM"
"""Points at a `vllm` command to use as it is; nothing is installed then."""


@dataclass(frozen=True)
class Installation:
    """A vLLM that can be started.

    Attributes:
        executable: the `vllm` command.
        rust_frontend: the Rust frontend's program; None leaves it to vLLM to find the one that it was shipped with.
        model: the folder of the tiny random model.
    """

    executable: Path
    rust_frontend: Path | None
    model: Path


@dataclass(frozen=True)
class Layout:
    """Where the parts of one installation are, below its folder."""

    folder: Path

    @classmethod
    def of(cls, version: str, environment: Mapping[str, str] = os.environ) -> Self:
        return cls(cache_root(environment) / version)

    @property
    def environment(self) -> Path:
        """The virtual environment."""
        return self.folder / "venv"

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def rust_frontend(self) -> Path:
        return self.folder / "vllm-rs"

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def log(self) -> Path:
        """What the programs that install said."""
        return self.folder / "install.log"

    @property
    def marker(self) -> Path:
        """There once everything else is; a folder without it is made anew."""
        return self.folder / "complete.json"

    def installation(self) -> Installation:
        return Installation(self.environment / "bin" / "vllm", self.rust_frontend, self.model)


def cache_root(environment: Mapping[str, str]) -> Path:
    """The project's cache folder for vLLM. As XDG says, an XDG_CACHE_HOME that is empty or relative is ignored."""
    configured = Path(environment.get("XDG_CACHE_HOME", ""))
    base = configured if configured.is_absolute() else Path.home() / ".cache"
    return base / "llmservice" / "vllm"
