"""The HorizontalPodAutoscalers of a namespace."""

import logging

from llmservice.kube.client import JSON, Kubernetes, KubernetesError

logger = logging.getLogger(__name__)


async def list_autoscalers(kubernetes: Kubernetes, namespace: str) -> list[JSON]:
    """All of them; none where we may not look, or cannot: what they are wanted for is a warning."""
    query = {"resourceVersion": "0"}  # from a cache: many fleets may be paused at once
    try:
        items, _ = await kubernetes.list(f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers", query)
    except KubernetesError as error:
        logger.warning("Did not look for autoscalers", extra={"namespace": namespace, "error": str(error)})
        return []
    return items
