"""Pause a fleet of LLM engines from a program, and know that it is paused.

    from llmservice.client import fleet

    with fleet("qwen").paused(mode="keep", clear_cache=False) as p:
        for pod in p.pods:
            ...  # load weights

``fleet`` is for programs without asyncio, ``afleet`` for those with it. The block begins when the operator has confirmed
this very pause, and the fleet is resumed on the way out, also after an exception. What can go wrong is in
:mod:`llmservice.client.errors`, how it is decided in :mod:`llmservice.client.verdict`.
"""

from llmservice.api import PauseMode
from llmservice.client.asynchronous import AsyncFleet
from llmservice.client.errors import (
    ChangedByOthersError,
    ConfigurationError,
    FleetError,
    ForbiddenError,
    NotFoundError,
    OperatorSilentError,
    PausedOtherwiseError,
    RefusedError,
    StalledError,
    TimedOutError,
    UnavailableError,
)
from llmservice.client.pods import Engine, Pod
from llmservice.client.snapshot import Snapshot
from llmservice.client.synchronous import Fleet

__all__ = [
    "AsyncFleet",
    "ChangedByOthersError",
    "ConfigurationError",
    "Engine",
    "Fleet",
    "FleetError",
    "ForbiddenError",
    "NotFoundError",
    "OperatorSilentError",
    "PauseMode",
    "PausedOtherwiseError",
    "Pod",
    "RefusedError",
    "Snapshot",
    "StalledError",
    "TimedOutError",
    "UnavailableError",
    "afleet",
    "fleet",
]

fleet = Fleet
afleet = AsyncFleet
