"""What actors are given from outside: clients, clocks and counters. Nothing in it belongs to one LLMService."""

from collections.abc import Callable
from dataclasses import dataclass

from llmservice.engines.transports import Transports
from llmservice.kube.client import Kubernetes
from llmservice.kube.events import EventRecorder
from llmservice.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Environment:
    """The surroundings of all actors of one process."""

    kubernetes: Kubernetes
    events: EventRecorder
    transports: Transports
    metrics: Metrics
    clock: Callable[[], float]
    """Monotonic seconds."""
    timestamp: Callable[[], str]
    """The time of day as RFC 3339 in UTC, whole seconds."""
