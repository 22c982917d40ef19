"""Pausing by the operator: from sending a PATCH until a watch shows `status.paused` for that patch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import aiohttp

from bench.figures import Action, Sample
from bench.subject import NAME, Subject
from llmservice.api import API_VERSION
from llmservice_testing.controlplane import ControlPlane

IDLE_SECONDS: Final = 16.0
"""How long the operator is left alone before it is measured. It keeps connections for 15 s and vLLM's Python frontend for
5 s, so between the pause and the resume of a training step they have to be opened anew. Here, too, then."""

DESIRED: Final[dict[Action, str]] = {"pause": "paused", "resume": "running"}
_PATIENCE_SECONDS: Final = 120.0


class Declared:
    """The operator, by `kubectl patch` as it were."""

    name: Final = "operator: PATCH to status.paused"
    note: Final = "reads, acts, reads back, reports"

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._idle_since = time.monotonic()

    def measure(self, action: Action) -> Sample:
        """Raises TimeoutError where it takes minutes."""
        time.sleep(max(0.0, self._idle_since + IDLE_SECONDS - time.monotonic()))
        before = self._subject.usage().cpu_seconds
        began, ended = asyncio.run(_patch_and_watch(self._subject.stage.plane, self._subject.namespace, action))
        self._idle_since = time.monotonic()
        return Sample(ended - began, self._subject.usage().cpu_seconds - before, began)


async def _patch_and_watch(plane: ControlPlane, namespace: str, action: Action) -> tuple[float, float]:
    """When the PATCH was sent and when the status was seen, by the monotonic clock."""
    folder = path_of(namespace)
    async with asyncio.timeout(_PATIENCE_SECONDS), api_session(plane) as session:
        version = (await read(session, f"{folder}/{NAME}"))["metadata"]["resourceVersion"]
        query = {"watch": "true", "resourceVersion": version, "fieldSelector": f"metadata.name={NAME}"}
        async with session.get(folder, params=query) as watch:
            began = time.monotonic()
            generation = (await patch(session, f"{folder}/{NAME}", action))["metadata"]["generation"]
            async for line in watch.content:
                if _tells(json.loads(line)["object"], generation, paused=action == "pause"):
                    return began, time.monotonic()
    raise TimeoutError(f"the watch of {folder} ended before the status said {DESIRED[action]}")


def _tells(service: dict[str, Any], generation: int, *, paused: bool) -> bool:
    status = service.get("status", {})
    return status.get("observedGeneration") == generation and status.get("paused") is paused


def path_of(namespace: str) -> str:
    """Of the LLMServices of a namespace."""
    return f"/apis/{API_VERSION}/namespaces/{namespace}/llmservices"


@contextlib.asynccontextmanager
async def api_session(plane: ControlPlane) -> AsyncIterator[aiohttp.ClientSession]:
    """A session with the API server, as its administrator; an answer other than 2xx raises aiohttp.ClientError."""
    context = ssl.create_default_context(cafile=str(plane.ca_file))
    async with aiohttp.ClientSession(
        plane.url,
        connector=aiohttp.TCPConnector(limit=0, ssl=context),
        headers={"Authorization": f"Bearer {plane.token}"},
        timeout=aiohttp.ClientTimeout(total=_PATIENCE_SECONDS),
        raise_for_status=True,
        read_bufsize=2**22,  # a line of a watch is a whole object
    ) as session:
        yield session


async def read(session: aiohttp.ClientSession, path: str) -> dict[str, Any]:
    """An object. It opens a connection that the next request finds open."""
    async with session.get(path) as answer:
        found: dict[str, Any] = await answer.json()
        return found


async def patch(session: aiohttp.ClientSession, path: str, action: Action) -> dict[str, Any]:
    """Set `spec.generation`; returns the object as stored."""
    body = json.dumps({"spec": {"generation": DESIRED[action]}})
    async with session.patch(path, data=body, headers={"Content-Type": "application/merge-patch+json"}) as answer:
        stored: dict[str, Any] = await answer.json()
        return stored
