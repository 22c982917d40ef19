"""LLMServices in the API server: lists of all, one by name, and the write of a status."""

from collections.abc import Sequence

from llmservice import api
from llmservice.api import LLMService, LLMServiceStatus
from llmservice.kube.client import JSON, ApiError, Kubernetes

_API = f"/apis/{api.API_VERSION}"


async def is_served(kubernetes: Kubernetes) -> bool:
    """Whether the API server knows the resource. Raises KubernetesError if it does not answer."""
    try:
        resources = await kubernetes.request("GET", _API)
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return any(each["name"] == api.PLURAL for each in resources.get("resources", ()))


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


async def put_status(kubernetes: Kubernetes, service: LLMService, status: LLMServiceStatus) -> JSON:
    """Replace the whole status of ``service`` as it was read; returns the object as stored.

    Whole, because a merge patch without ``paused`` would leave an old true standing; with the resourceVersion that was
    read, so that a second operator that is behind is refused. Raises ApiError (409: read again and compute again) or
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
        },
        "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
    return await kubernetes.request("PUT", f"{_path(metadata.namespace, metadata.name)}/status", body=body)


def _path(namespace: str, name: str) -> str:
    return f"{_API}/namespaces/{namespace}/{api.PLURAL}/{name}"
