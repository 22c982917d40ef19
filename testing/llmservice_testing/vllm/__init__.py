"""Real vLLM engines on a CPU: installed once into the user's cache, and started as tests need them.

`python -m llmservice_testing.vllm install` installs, `python -m llmservice_testing.vllm serve` starts one by hand.
"""

from llmservice_testing.vllm.install import InstallationError, ensure_installed
from llmservice_testing.vllm.installation import Installation
from llmservice_testing.vllm.server import EngineNotReadyError, RealEngine

__all__ = ["EngineNotReadyError", "Installation", "InstallationError", "RealEngine", "ensure_installed"]
