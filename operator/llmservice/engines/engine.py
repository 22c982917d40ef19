"""The interface of an engine type. To add one: write such a class, and name it in :func:`engine_for`."""

from typing import Protocol

import httpx

from llmservice import api
from llmservice.domain.fleet import ControlCall, Failure, Pod, Reading, Target, Traits
from llmservice.engines.vllm import VLLM


class Engine(Protocol):
    """How one type of engine is found, read and called. Nothing is raised for what an engine does."""

    def targets_of(self, pod: Pod) -> tuple[Target, ...]:
        """The targets of one pod; none if the pod does not count."""

    async def read(self, target: Target, traits: Traits | None, *, identify: bool, timeout: float) -> Reading | Failure:
        """Ask for the state, and for the traits too if ``identify``. Each request may take ``timeout`` seconds."""

    async def call(self, target: Target, call: ControlCall, traits: Traits, *, timeout: float) -> Failure | None:
        """Send a control call with all its parameters; None if it was answered with success."""


def engine_for(engine: api.Engine, transport: httpx.AsyncBaseTransport) -> Engine:
    """The engine that ``spec.engine`` names, over ``transport``."""
    match engine.type:
        case api.EngineType.VLLM:
            return VLLM(engine, transport)
