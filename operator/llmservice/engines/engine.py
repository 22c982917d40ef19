"""The interface of an engine type. To add one: write such a class, and name it in :func:`engine_for` (docs/engines.md)."""

from collections.abc import Sequence
from typing import Protocol

import httpx

from llmservice import api
from llmservice.domain.fleet import ControlCall, Failure, Pod, Reading, Target, Traits
from llmservice.engines.ray_serve import RayServe
from llmservice.engines.vllm import VLLM


class Engine(Protocol):
    """How one type of engine is found, read and called. Nothing is raised for what an engine does."""

    def place_of(self, pod_uid: str) -> str:
        """Pods of the same place are engines together: the pod's own UID where each pod has engines of its own."""

    def targets_of(self, pods: Sequence[Pod]) -> tuple[Target, ...]:
        """The targets of one place, given all pods of it that count; there is at least one."""

    async def read(
        self, target: Target, traits: Traits | None, *, identify: bool, with_replicas: bool = False, timeout: float
    ) -> Reading | Failure:
        """Ask for the state; for the traits too if ``identify``, and, of an aggregate, for its replicas if
        ``with_replicas``. Each request may take ``timeout`` seconds."""

    async def call(self, target: Target, call: ControlCall, traits: Traits, *, timeout: float) -> Failure | None:
        """Send a control call with all its parameters; None if it was answered with success."""


def engine_for(engine: api.Engine, transport: httpx.AsyncBaseTransport) -> Engine:
    """The engine that ``spec.engine`` names, over ``transport``."""
    match engine.type:
        case api.EngineType.VLLM:
            return VLLM(engine, transport)
        case api.EngineType.RAY_SERVE:
            return RayServe(engine, transport)
