"""What actors are given from outside: clients, clocks and counters. Nothing in it belongs to one LLMService."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

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
    wall: Callable[[], float]
    """Seconds since the epoch, the clock of what is stored in objects."""

    def timestamp(self) -> str:
        """The present time as RFC 3339 in UTC, whole seconds."""
        return datetime.fromtimestamp(self.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def monotonic(self, wall: float) -> float:
        """The time of :attr:`clock` at which the clock on the wall will show ``wall``; infinities stay what they are."""
        return wall if math.isinf(wall) else self.clock() + (wall - self.wall())
