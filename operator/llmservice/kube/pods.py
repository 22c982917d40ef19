"""The pods of one selector: a complete list, then a watch, for ever.

A list that failed or was cut concludes nothing, and neither does a watch that cannot be reopened: from then until the next
complete list the view is not conclusive, and whoever acts on it has to hold still. The same holds where this process was not
run for a while (:meth:`PodView.doubt`).
"""

import asyncio
import functools
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from llmservice.api import READINESS_GATE
from llmservice.domain.clocks import to_seconds
from llmservice.domain.fleet import Container, Gate, Owner, Pod
from llmservice.kube.client import ApiError, Kubernetes, KubernetesError

WATCH_SECONDS = 60
WATCH_DEADLINE_SECONDS = 75.0
"""When a watch that the server should have ended counts as dead."""
_RETRY_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0)
_LIVED_SECONDS = 10.0
"""A view that stood so long was a good one: the next interruption is a new one."""
_SHORTEST_WATCH_SECONDS = 1.0
"""A watch that the server closes at once is not reopened faster than this."""

logger = logging.getLogger(__name__)


class PodView:
    """Keeps ``on_pod`` and ``on_view`` told about the pods that ``selector`` matches in ``namespace``.

    ``on_pod(uid, pod)`` is called for each pod that appeared or changed, and with None for one that is gone or no longer
    matches; ``on_left(name)`` for one that still lives but no longer matches; ``on_view()`` after :attr:`is_conclusive`
    changed. ``on_relist()`` is awaited before each list but an undoubted first one: what is to be read anew, too. Where it
    raises KubernetesError the pods are shown, and the view is not conclusive.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        namespace: str,
        selector: str,
        *,
        on_pod: Callable[[str, Pod | None], None],
        on_left: Callable[[str], None],
        on_view: Callable[[], None],
        on_relist: Callable[[], Awaitable[None]],
    ) -> None:
        self._kubernetes = kubernetes
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._query = {"labelSelector": selector}
        self._on_pod = on_pod
        self._on_left = on_left
        self._on_view = on_view
        self._on_relist = on_relist
        self._was_tried = False
        self._opened_at = math.inf
        """When the present view began; infinite while there is none."""
        self._doubts = 0
        self._scope: asyncio.Timeout | None = None
        """Of the present view, from its list on."""
        self._pods: dict[str, Pod] = {}
        self.is_conclusive = False
        """A complete list was read, and the watch that follows it was not interrupted."""

    async def run(self) -> None:
        """Follow the pods until cancelled."""
        attempt = 0
        while True:
            try:
                await self._follow()
            except TimeoutError:
                logger.info("Lists pods again", extra={"path": self._path, **self._query})
            except KubernetesError as error:
                self._conclude(False)
                if asyncio.get_running_loop().time() - self._opened_at > _LIVED_SECONDS:
                    attempt = 0
                level = logging.DEBUG if isinstance(error, ApiError) and error.status == 410 else logging.WARNING
                logger.log(level, "Lost sight of pods", extra={"path": self._path, **self._query, "error": str(error)})
                await asyncio.sleep(max(_RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)], error.retry_after))
                attempt += 1

    async def _follow(self) -> None:
        """One list and the watches after it, until something goes wrong. Raises KubernetesError, and TimeoutError where
        there is doubt."""
        self._opened_at = math.inf
        try:
            async with asyncio.timeout(None) as self._scope:
                version = await self._list()
                while True:
                    version = await self._watch(version)
        finally:
            self._scope = None

    def doubt(self) -> None:
        """What is known may be old, and so may be what is being read: from now on it is not conclusive, and is read anew."""
        self._doubts += 1
        self._conclude(False)
        if self._scope is not None and self._scope.when() is None:
            self._scope.reschedule(asyncio.get_running_loop().time())

    async def _list(self) -> str:
        doubts, trouble = self._doubts, None
        is_again, self._was_tried = self._was_tried or doubts > 0, True
        if is_again:
            try:
                await self._on_relist()
            except KubernetesError as error:
                if error.retry_after:
                    raise
                trouble = error
        items, version = await self._kubernetes.list(self._path, self._query)
        listed = {item["metadata"]["uid"]: item for item in items}
        for uid in self._pods.keys() - listed.keys():
            self._put(uid, None)
        for uid, item in listed.items():
            self._put(uid, to_pod(item))
        if trouble is not None:
            raise trouble
        self._opened_at = asyncio.get_running_loop().time()
        self._conclude(doubts == self._doubts)
        return version

    async def _watch(self, version: str) -> str:
        """One watch from ``version`` to its end; returns the version to go on from."""
        opened = asyncio.get_running_loop().time()
        query = {**self._query, "resourceVersion": version}
        events = self._kubernetes.watch(
            self._path, query, server_seconds=WATCH_SECONDS, deadline=WATCH_DEADLINE_SECONDS
        )
        async for kind, item in events:
            version = item["metadata"]["resourceVersion"]
            if kind == "DELETED":
                self._put(item["metadata"]["uid"], None)
                if await self._is_alive(item["metadata"]):
                    self._on_left(item["metadata"]["name"])
            elif kind in ("ADDED", "MODIFIED"):
                self._put(item["metadata"]["uid"], to_pod(item))
        await asyncio.sleep(max(0.0, opened + _SHORTEST_WATCH_SECONDS - asyncio.get_running_loop().time()))
        return version

    async def _is_alive(self, gone: Mapping[str, Any]) -> bool:
        """A watch with a selector says DELETED for a pod that merely lost its labels, too."""
        if "deletionTimestamp" in gone:
            return False
        try:
            pod = await self._kubernetes.request("GET", f"{self._path}/{gone['name']}", timeout=2.0)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return bool(pod["metadata"]["uid"] == gone["uid"] and "deletionTimestamp" not in pod["metadata"])

    def _put(self, uid: str, pod: Pod | None) -> None:
        if pod is None:
            self._pods.pop(uid, None)
        elif self._pods.get(uid) == pod:
            return
        else:
            self._pods[uid] = pod
        self._on_pod(uid, pod)

    def _conclude(self, conclusive: bool) -> None:
        if self.is_conclusive != conclusive:
            self.is_conclusive = conclusive
            self._on_view()


def to_pod(item: Mapping[str, Any]) -> Pod:
    """The part of a pod (as JSON) that decides anything."""
    metadata, spec, status = item["metadata"], item.get("spec", {}), item.get("status", {})
    statuses = {each["name"]: each for each in status.get("containerStatuses") or ()}
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        labels=metadata.get("labels") or {},
        ip=status.get("podIP") or "",
        counts="deletionTimestamp" not in metadata and status.get("phase") not in ("Succeeded", "Failed"),
        containers=tuple(_container(each, statuses.get(each["name"], {})) for each in spec.get("containers") or ()),
        gate=_gate(spec, status),
        owners=_owners(metadata),
    )


def _owners(metadata: Mapping[str, Any]) -> tuple[Owner, ...]:
    controller = next((each for each in metadata.get("ownerReferences") or () if each.get("controller")), None)
    if controller is None:
        return ()
    return _chain(controller["kind"], controller["name"], (metadata.get("labels") or {}).get("pod-template-hash", ""))


@functools.lru_cache(maxsize=1024)  # a fleet of a thousand pods has one
def _chain(kind: str, name: str, template_hash: str) -> tuple[Owner, ...]:
    """A Deployment names its ReplicaSets after itself and the hash of their template, which their pods carry, too."""
    suffix = f"-{template_hash}"
    if kind == "ReplicaSet" and template_hash and name.endswith(suffix):
        return (kind, name), ("Deployment", name.removesuffix(suffix))
    return ((kind, name),)


def _gate(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Gate | None:
    if all(each.get("conditionType") != READINESS_GATE for each in spec.get("readinessGates") or ()):
        return None
    found = next((each for each in status.get("conditions") or () if each.get("type") == READINESS_GATE), None)
    if found is None:
        return Gate(serving=None)
    changed_at = found.get("lastTransitionTime")
    return Gate(serving=found.get("status") == "True", since=to_seconds(changed_at) if changed_at else 0.0)


async def put_gate(
    kubernetes: Kubernetes, namespace: str, pod: Pod, *, serving: bool, timestamp: str, reason: str, timeout: float
) -> Pod:
    """Write the readiness gate's condition of this very pod; returns it as stored. Raises KubernetesError."""
    condition = {
        "type": READINESS_GATE,
        "status": "True" if serving else "False",
        "lastTransitionTime": timestamp,
        "reason": reason,
        "message": "The engines of this pod run" if serving else "The fleet of this pod is paused or about to be",
    }
    stored = await kubernetes.request(
        "PATCH",
        f"/api/v1/namespaces/{namespace}/pods/{pod.name}/status",
        body={"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}},
        content_type="application/strategic-merge-patch+json",
        timeout=timeout,
    )
    return to_pod(stored)


def _container(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Container:
    ports: dict[str | int, int] = {}
    for port in spec.get("ports") or ():
        ports[port["containerPort"]] = port["containerPort"]
        if port.get("name"):
            ports[port["name"]] = port["containerPort"]
    return Container(
        name=spec["name"],
        ports=ports,
        container_id=status.get("containerID") or "",
        running="running" in (status.get("state") or {}),
        ready=bool(status.get("ready")),
    )
