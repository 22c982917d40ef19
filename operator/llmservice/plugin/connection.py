"""The API server, with the rights of whoever runs the command."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from llmservice import api
from llmservice.client.errors import ConfigurationError, FleetError, ForbiddenError, RefusedError, UnavailableError
from llmservice.client.remote import RemoteFleet, Sight
from llmservice.client.snapshot import Snapshot
from llmservice.kube.client import JSON, ApiError, Kubernetes, KubernetesError, default_namespace
from llmservice.plugin.options import Where, Which

MANAGER = "kubectl-llm"
"""The field manager of what the plugin sets, unless told otherwise."""


class Rehearsal(Kubernetes):
    """Every change is checked by the API server as if it were made, defaults, admission and all, and is not stored."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: JSON = None,
        content_type: str = "application/json",
        timeout: float = 10.0,
    ) -> JSON:
        """As :meth:`Kubernetes.request`."""
        full = query if method == "GET" else {**(query or {}), "dryRun": "All"}
        return await super().request(method, path, query=full, body=body, content_type=content_type, timeout=timeout)


@dataclass(frozen=True)
class Cluster:
    """An open connection, and the part of the cluster that is meant."""

    kubernetes: Kubernetes
    namespace: str | None
    """None: all of them."""

    @property
    def collection(self) -> str:
        """The path of the LLMServices that may be meant."""
        within = f"/namespaces/{self.namespace}" if self.namespace is not None else ""
        return f"/apis/{api.API_VERSION}{within}/{api.PLURAL}"

    @property
    def place(self) -> str:
        """For people: where was looked."""
        return f"namespace {self.namespace}" if self.namespace is not None else "all namespaces"

    async def snapshots(self, which: Which) -> list[Snapshot]:
        """The fleets that are meant, by namespace and name; of ``names`` those that exist. Raises FleetError."""
        query = {"labelSelector": which.selector} if which.selector else {}
        if len(which.names) == 1:  # so that rights on this one object will do
            query = {"fieldSelector": f"metadata.name={which.names[0]}"}
        try:
            items, _ = await self.kubernetes.list(self.collection, query)
        except KubernetesError as error:
            raise translated(error) from error
        found = [Snapshot(item) for item in items]
        chosen = [each for each in found if not which.names or each.service.metadata.name in which.names]
        return sorted(chosen, key=lambda each: (each.service.metadata.namespace, each.service.metadata.name))


@dataclass(eq=False)
class ObservedFleet(RemoteFleet):
    """Tells what it sees while somebody waits for it."""

    on_version: Callable[[Snapshot, Sight], None] = lambda _snapshot, _sight: None

    async def follow(self, first: Snapshot, sight: Sight) -> AsyncGenerator[Snapshot, None]:
        """As :meth:`RemoteFleet.follow`."""
        async with aclosing(super().follow(first, sight)) as versions:
            async for version in versions:
                self.on_version(version, sight)
                yield version


@asynccontextmanager
async def connected(where: Where, *, rehearse: bool = False) -> AsyncIterator[Cluster]:
    """Raises ConfigurationError where there is no way to an API server."""
    kind = Rehearsal if rehearse else Kubernetes
    try:
        kubernetes = await kind.connect(where.kubeconfig, where.context)
        namespace = where.namespace or default_namespace(where.kubeconfig, where.context)
    except KubernetesError as error:
        raise ConfigurationError(str(error)) from error
    try:
        yield Cluster(kubernetes, None if where.all_namespaces else namespace)
    finally:
        await kubernetes.close()


def translated(error: KubernetesError) -> FleetError:
    """What an answer of the API server that is about no fleet in particular means."""
    if not isinstance(error, ApiError):
        return UnavailableError(f"the API server gave no usable answer: {error}")
    if error.status in (401, 403):
        return ForbiddenError(f"the API server refused it: {error}", fleet="", status=error.status)
    if error.status == 404:
        message = (
            f"the API server does not know {api.CRD_NAME}; "
            "install it: llmservice crd | kubectl apply --server-side -f -"
        )
        return RefusedError(message, fleet="", status=404)
    if error.status in (429, 500, 502, 503, 504):
        return UnavailableError(f"the API server gave no usable answer: {error}")
    return RefusedError(f"the API server refused it: {error}", fleet="", status=error.status)
