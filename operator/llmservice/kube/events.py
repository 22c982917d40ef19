"""Kubernetes Events, written in the background: an Event that cannot be written must not hold up what it tells about."""

import asyncio
import logging
import time
from datetime import UTC, datetime

from llmservice import api
from llmservice.api import LLMService
from llmservice.domain.transitions import Event
from llmservice.kube.client import ApiError, Kubernetes, KubernetesError

_QUEUE_LIMIT = 1000
_MESSAGE_LIMIT = 1024
"""The API server refuses longer messages."""
_RETRY_SECONDS = (1.0, 2.0, 5.0)

logger = logging.getLogger(__name__)


class EventRecorder:
    """Takes Events at any time and writes them one after another."""

    def __init__(self, kubernetes: Kubernetes, instance: str) -> None:
        """``instance`` names this process among operators, e.g. its pod's name."""
        self._kubernetes = kubernetes
        self._instance = instance
        self._queue: asyncio.Queue[tuple[str, dict[str, object]]] = asyncio.Queue(_QUEUE_LIMIT)

    def record(self, service: LLMService, event: Event) -> None:
        """Log one Event about ``service`` and queue it; it is dropped if a thousand are waiting already."""
        level = logging.WARNING if event.warning else logging.INFO
        logger.log(level, event.message, extra={"service": service.key, "reason": event.reason.value})
        try:
            self._queue.put_nowait((service.metadata.namespace, self._body(service, event)))
        except asyncio.QueueFull:
            logger.warning("Dropped an event", extra={"service": service.key, "reason": event.reason.value})

    async def run(self) -> None:
        """Write what is queued until cancelled."""
        while True:
            namespace, body = await self._queue.get()
            await self._write(namespace, body)

    async def _write(self, namespace: str, body: dict[str, object]) -> None:
        for wait in (*_RETRY_SECONDS, None):
            try:
                await self._kubernetes.request("POST", f"/api/v1/namespaces/{namespace}/events", body=body)
            except KubernetesError as error:
                permanent = isinstance(error, ApiError) and error.status < 500 and error.status != 429
                if wait is None or permanent:
                    logger.warning("Did not write an event", extra={"reason": body["reason"], "error": str(error)})
                    return
                await asyncio.sleep(max(wait, error.retry_after))
            else:
                return

    def _body(self, service: LLMService, event: Event) -> dict[str, object]:
        metadata = service.metadata
        now = datetime.now(UTC)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            # Timestamps are whole seconds; a name that grows with time keeps the order for whoever lists them.
            "metadata": {"name": f"{metadata.name[:200]}.{time.time_ns():016x}", "namespace": metadata.namespace},
            "involvedObject": {
                "apiVersion": api.API_VERSION,
                "kind": api.KIND,
                "namespace": metadata.namespace,
                "name": metadata.name,
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
            },
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason.value,
            "message": event.message[:_MESSAGE_LIMIT],
            "firstTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lastTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "count": 1,
            "source": {"component": "llmservice", "host": self._instance},
            "reportingComponent": f"{api.GROUP}/operator",
            "reportingInstance": self._instance,
        }
