"""What an installed Ray with vLLM consists of, and where it is kept."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from llmservice_testing.vllm.installation import Layout, cache_root

RAY_VERSION: Final = "2.60.0"
VLLM_VERSION: Final = "0.29.0"
"""The vLLM that this Ray names in its extra `llm`."""

PYTHON_VARIABLE: Final = "LLMSERVICE_RAY"
"""Points at a Python that can import `ray.serve.llm` and `vllm`, to use as it is; nothing is installed then."""


@dataclass(frozen=True)
class Installation:
    """A Ray that can be started.

    Attributes:
        python: the interpreter that can import it.
        model: the folder of the tiny random model.
    """

    python: Path
    model: Path


def layout_of(name: str, environment: Mapping[str, str] = os.environ) -> Layout:
    """Where the parts of one installation are; those of Ray lie beside those of vLLM."""
    return Layout(cache_root(environment).with_name("ray") / name)
