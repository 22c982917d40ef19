"""Whether the API server knows every field of the resource that this operator reads or writes.

Helm does not update CustomResourceDefinitions, and the API server drops fields that the served one does not know without a
word. An operator that then acted would do something else than was asked.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from llmservice import api, crd
from llmservice.kube.client import ApiError, Kubernetes, KubernetesError

_RETRY_SECONDS = 2.0

logger = logging.getLogger(__name__)


async def missing_fields(kubernetes: Kubernetes) -> tuple[str, ...]:
    """The fields that the served schema lacks, as dotted paths; the resource's own name where it is not served at all.
    Raises KubernetesError if the API server does not answer."""
    try:
        document = await kubernetes.request("GET", f"/openapi/v3/apis/{api.API_VERSION}")
    except ApiError as error:
        if error.status == 404:
            return (api.CRD_NAME,)
        raise
    served = next((each for each in document["components"]["schemas"].values() if _is_ours(each)), None)
    if served is None:
        return (api.CRD_NAME,)
    wanted = crd.custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    lacking = set(_paths(wanted)) - set(_paths(served))
    return tuple(sorted(path for path in lacking if path.rpartition(".")[0] not in lacking))


def _is_ours(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("x-kubernetes-group-version-kind", ())
    return {"group": api.GROUP, "version": api.VERSION, "kind": api.KIND} in kinds


def _paths(schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every property below ``schema``; those of list items count as the list's."""
    for name, child in schema.get("properties", {}).items():
        path = f"{prefix}.{name}" if prefix else name
        if path in ("apiVersion", "kind", "metadata"):
            continue
        yield path
        yield from _paths(child, path)
        yield from _paths(child.get("items", {}), path)


class Gate:
    """Opens when the resource is served with every field that is read. Kopf looks for it once, when it starts; and a field
    that an old definition drops in silence, like ``pause.mode``, would turn what people ask for into something else."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self._kubernetes = kubernetes
        self.why = "the served schema was not compared yet"
        """What it waits for; empty once it is open."""

    async def wait(self) -> None:
        """Until then; the log says once what is missing."""
        while why := await self._lack():
            if why != self.why:
                logger.warning("Waiting for the resource", extra={"why": why})
                self.why = why
            await asyncio.sleep(_RETRY_SECONDS)
        self.why = ""

    async def _lack(self) -> str:
        try:
            missing = await missing_fields(self._kubernetes)
        except KubernetesError as error:
            return str(error)
        if not missing:
            return ""
        return (
            f"the API server serves {api.CRD_NAME} without {', '.join(missing)}; "
            "apply the definition of this version: llmservice crd | kubectl apply --server-side -f -"
        )
