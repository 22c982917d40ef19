"""What is to be installed: vLLM by itself, or vLLM and what serves it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """One environment with vLLM in it.

    Attributes:
        title: what people call it, with its version.
        vllm: the version of vLLM.
        committed: the file with the whole set of requirements, with hashes; what was not committed is resolved anew.
        lock_command: writes that file; it says so in its head.
        otherwise: what to do where it cannot be installed, as a sentence.
        added: requirements beside those of vLLM.
        rust_frontend: whether the program of vLLM's Rust frontend is wanted too.
    """

    title: str
    vllm: str
    committed: Path
    lock_command: str
    otherwise: str
    added: tuple[str, ...] = ()
    rust_frontend: bool = True
