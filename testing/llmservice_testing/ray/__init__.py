"""A real Ray Serve LLM app on a CPU: installed once into the user's cache, and started as tests need it.

`python -m llmservice_testing.ray install` installs, `python -m llmservice_testing.ray serve` starts one by hand.
"""

from llmservice_testing.ray.installation import Installation
from llmservice_testing.ray.server import AppNotReadyError, OrderError, RealApp

__all__ = ["AppNotReadyError", "Installation", "OrderError", "RealApp"]
