"""Which certificates the engines of one LLMService are checked against, read again while it lives."""

import asyncio
import logging
from collections.abc import Callable

import httpx

from llmservice.api import LLMService
from llmservice.engines.transports import NoTrust, Trust
from llmservice.kube.client import ApiError, KubernetesError
from llmservice.runtime.environment import Environment

CA_KEY = "ca.crt"

logger = logging.getLogger(__name__)


class TrustKeeper:
    """Holds the present transport for one LLMService; ``on_change`` is called after it became another."""

    def __init__(self, service: LLMService, environment: Environment, *, on_change: Callable[[], None]) -> None:
        self._service = service
        self._environment = environment
        self._on_change = on_change
        self._changed = asyncio.Event()
        self.transport: httpx.AsyncBaseTransport = NoTrust("the certificates to trust were not read yet")

    def follow(self, service: LLMService) -> None:
        """``spec.engine`` changed."""
        self._service = service
        self._changed.set()

    async def run(self) -> None:
        """Look again at every resync, as certificates are replaced while engines run; until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._service.spec.resync_seconds):
                    await self._changed.wait()
            except TimeoutError:
                pass
            await self.refresh()

    async def refresh(self) -> None:
        """Read what is to be trusted now. An API server that does not answer leaves it as it was."""
        self._changed.clear()
        tls = self._service.spec.engine.tls
        name = tls.ca_config_map if tls is not None else None
        if name is None:
            self._use(self._environment.transports.get(Trust(insecure=tls is not None and tls.insecure_skip_verify)))
            return
        path = f"/api/v1/namespaces/{self._service.metadata.namespace}/configmaps/{name}"
        try:
            found = await self._environment.kubernetes.request("GET", path)
        except ApiError as error:
            self._use(NoTrust(f"ConfigMap {name} of spec.engine.tls.caConfigMap cannot be read: {error}"))
        except KubernetesError as error:
            logger.warning("Did not read the CA", extra={"service": self._service.key, "error": str(error)})
        else:
            ca = (found.get("data") or {}).get(CA_KEY)
            missing = NoTrust(f"ConfigMap {name} of spec.engine.tls.caConfigMap has no key {CA_KEY}")
            self._use(self._environment.transports.get(Trust(ca)) if ca else missing)

    def _use(self, transport: httpx.AsyncBaseTransport) -> None:
        if transport != self.transport:
            self.transport = transport
            self._on_change()
