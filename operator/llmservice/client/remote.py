"""One LLMService in the API server: read, patched, and followed, in spite of outages.

Whatever may pass by itself (no answer, 429, 5xx, a conflict) is tried again until the time given is over.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from llmservice import api
from llmservice.client.errors import FleetError, ForbiddenError, NotFoundError, RefusedError, UnavailableError
from llmservice.client.snapshot import Snapshot
from llmservice.kube.client import ApiError, Kubernetes, KubernetesError

T = TypeVar("T")

REQUEST_SECONDS = 10.0
WATCH_SECONDS = 5.0
"""A watch that was cut in silence is noticed by reading again after this time."""
_WATCH_DEADLINE_SECONDS = 7.0
_SHORTEST_WATCH_SECONDS = 1.0
"""A watch that is closed or refused at once is not opened faster than this; the object is then read as often."""
_RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)
_CONFLICT = 409
_PASSING = (408, _CONFLICT, 429, 500, 502, 503, 504)


@dataclass(eq=False)
class RemoteFleet:
    """The LLMService ``namespace/name``. ``manager`` is the field manager of its patches.

    ``until`` is always a time of the running event loop's clock.
    """

    kubernetes: Kubernetes
    namespace: str
    name: str
    manager: str

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    async def get(self, until: float) -> Snapshot:
        """The object as it is now. Raises FleetError."""
        return await self._persist(lambda: self._get(until), until)

    async def patch(self, plan: Callable[[Snapshot], Mapping[str, Any] | None], until: float) -> Snapshot:
        """Read the object, send the merge patch that ``plan`` makes of it (None: nothing), and return it as stored; anew where
        it changed in between, or where the answer was lost. Raises FleetError, and what ``plan`` raises."""
        return await self._persist(lambda: self._patch(plan, until), until)

    async def list_pods(self, selector: str, until: float) -> list[Any]:
        """All pods that match, as JSON. Raises FleetError."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"

        async def listed() -> list[Any]:
            items, _ = await self.kubernetes.list(path, {"labelSelector": selector})
            return items

        return await self._persist(listed, until)

    async def follow(self, first: Snapshot, sight: "Sight") -> AsyncGenerator[Snapshot, None]:
        """``first``, then every newer version as it comes, without end. Raises NotFoundError when it is gone; any other error
        is kept in ``sight``, and it goes on."""
        loop, snapshot, tries = asyncio.get_running_loop(), first, 0
        yield snapshot
        while True:
            opened = loop.time()
            # Where there is no watch, for want of the right or of luck, the reads below are a slow poll.
            with contextlib.suppress(KubernetesError):
                async with aclosing(self._watch(snapshot)) as versions:
                    async for newer in versions:
                        yield newer
            # It is over, or was cut, and may have missed something.
            try:
                snapshot = await self._get(loop.time() + REQUEST_SECONDS)
            except KubernetesError as error:
                sight.hindrance = self._translated(error)
                if isinstance(sight.hindrance, NotFoundError):
                    raise sight.hindrance from error
                await asyncio.sleep(_RETRY_SECONDS[min(tries, len(_RETRY_SECONDS) - 1)])
                tries += 1
                continue
            sight.hindrance, tries = None, 0
            yield snapshot
            await asyncio.sleep(max(0.0, opened + _SHORTEST_WATCH_SECONDS - loop.time()))

    async def _watch(self, since: Snapshot) -> AsyncGenerator[Snapshot, None]:
        query = {
            "fieldSelector": f"metadata.name={self.name}",
            "resourceVersion": since.service.metadata.resource_version,
        }
        events = self.kubernetes.watch(
            self._collection, query, server_seconds=int(WATCH_SECONDS), deadline=_WATCH_DEADLINE_SECONDS
        )
        async with aclosing(events) as open_events:
            async for kind, item in open_events:
                if kind == "DELETED":
                    return  # the read that follows says whether there is another one
                if kind in ("ADDED", "MODIFIED"):
                    yield Snapshot(item)

    async def _get(self, until: float) -> Snapshot:
        return Snapshot(await self.kubernetes.request("GET", self._path, timeout=_remaining(until)))

    async def _patch(self, plan: Callable[[Snapshot], Mapping[str, Any] | None], until: float) -> Snapshot:
        found = await self._get(until)
        body = plan(found)
        if body is None:
            return found
        stored = await self.kubernetes.request(
            "PATCH",
            self._path,
            query={"fieldManager": self.manager},
            body=body,
            content_type="application/merge-patch+json",
            timeout=_remaining(until),
        )
        return Snapshot(stored)

    async def _persist(self, attempt: Callable[[], Awaitable[T]], until: float) -> T:
        loop, tries = asyncio.get_running_loop(), 0
        while True:
            try:
                return await attempt()
            except KubernetesError as error:
                wait = _RETRY_SECONDS[min(tries, len(_RETRY_SECONDS) - 1)]
                if not _may_pass(error) or loop.time() + wait >= until:
                    raise self._translated(error) from error
            tries += 1
            await asyncio.sleep(wait)

    def _translated(self, error: KubernetesError) -> FleetError:
        if not isinstance(error, ApiError) or error.status in _PASSING:
            return UnavailableError(f"the API server gave no usable answer: {error}", fleet=self.key)
        if error.status in (401, 403):
            return ForbiddenError(f"the API server refused it: {error}", fleet=self.key, status=error.status)
        # While it starts, an API server says 404 of a resource that it will serve in a moment.
        if error.status == 404 and f'"{self.name}"' in str(error):
            return NotFoundError(f"there is no such LLMService ({error})", fleet=self.key)
        return RefusedError(f"the API server refused it: {error}", fleet=self.key, status=error.status)

    @property
    def _collection(self) -> str:
        return f"/apis/{api.API_VERSION}/namespaces/{self.namespace}/{api.PLURAL}"

    @property
    def _path(self) -> str:
        return f"{self._collection}/{self.name}"


@dataclass(slots=True)
class Sight:
    """Whether the object is seen at present."""

    hindrance: FleetError | None = None
    """Why the last try to read it failed; None while it is seen."""


def _may_pass(error: KubernetesError) -> bool:
    return not isinstance(error, ApiError) or error.status in _PASSING


def _remaining(until: float) -> float:
    return max(0.1, min(REQUEST_SECONDS, until - asyncio.get_running_loop().time()))
