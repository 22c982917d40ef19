"""LLMServices in the API server: lists of all, one by name, and the write of a status."""

import logging
from collections.abc import Sequence

from pydantic import ValidationError

from llmservice import api
from llmservice.api import LLMService, LLMServiceStatus
from llmservice.kube.client import JSON, ApiError, Kubernetes, UnavailableError

_API = f"/apis/{api.API_VERSION}"

logger = logging.getLogger(__name__)


async def list_all(kubernetes: Kubernetes, namespaces: Sequence[str] | None) -> list[JSON]:
    """All LLMServices of these namespaces, or of all where None, read from the quorum and not from a cache. Raises
    KubernetesError; a part of the list is never returned."""
    if namespaces is None:
        items, _ = await kubernetes.list(f"{_API}/{api.PLURAL}")
        return items
    found: list[JSON] = []
    for namespace in namespaces:
        items, _ = await kubernetes.list(f"{_API}/namespaces/{namespace}/{api.PLURAL}")
        found.extend(items)
    return found


async def get(kubernetes: Kubernetes, namespace: str, name: str) -> JSON:
    """The object as it is now. Raises KubernetesError."""
    return await kubernetes.request("GET", _path(namespace, name))


def to_service(raw: JSON) -> LLMService:
    """What the API server answered, read. Raises UnavailableError where it is no LLMService, as from a proxy in between."""
    try:
        return LLMService.model_validate(raw)
    except ValidationError as error:
        raise UnavailableError(f"an answer is no LLMService: {error}") from error


async def put_status(kubernetes: Kubernetes, service: LLMService, status: LLMServiceStatus) -> JSON:
    """Replace the whole status of ``service`` as it was read; returns the object as stored.

    Whole, because a merge patch without ``paused`` would leave an old true standing; with the resourceVersion that was
    read, so that a second operator that is behind is refused. With the labels and so on that were read, which the write
    does not change: where they are absent, the API server takes their ownership away from every field manager, and
    server-side apply can then no longer remove them. Raises ApiError (409: read again and compute again) or
    UnavailableError.
    """
    metadata = service.metadata
    body = {
        "apiVersion": api.API_VERSION,
        "kind": api.KIND,
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
            "labels": dict(metadata.labels),
            "annotations": dict(metadata.annotations),
            "finalizers": list(metadata.finalizers),
            "ownerReferences": [dict(reference) for reference in metadata.owner_references],
        },
        "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
    return await kubernetes.request("PUT", f"{_path(metadata.namespace, metadata.name)}/status", body=body)


async def put_finalizers(kubernetes: Kubernetes, service: LLMService, finalizers: Sequence[str]) -> JSON:
    """Set the finalizers of ``service`` as it was read; returns the object as stored. Raises ApiError (409: it changed
    meanwhile) or UnavailableError."""
    metadata = service.metadata
    patch = {
        "metadata": {"finalizers": list(finalizers), "resourceVersion": metadata.resource_version, "uid": metadata.uid}
    }
    return await kubernetes.request(
        "PATCH", _path(metadata.namespace, metadata.name), body=patch, content_type="application/merge-patch+json"
    )


async def is_namespace_ending(kubernetes: Kubernetes, namespace: str) -> bool:
    """Whether the namespace is being deleted; False where we may not look. Raises KubernetesError."""
    try:
        found = await kubernetes.request("GET", f"/api/v1/namespaces/{namespace}")
    except ApiError as error:
        if error.status == 403:
            logger.warning(
                "May not look at a namespace; it is taken for one that stays",
                extra={"namespace": namespace, "error": str(error)},
            )
            return False
        if error.status == 404:
            return False
        raise
    return "deletionTimestamp" in found["metadata"]


def _path(namespace: str, name: str) -> str:
    return f"{_API}/namespaces/{namespace}/{api.PLURAL}/{name}"
