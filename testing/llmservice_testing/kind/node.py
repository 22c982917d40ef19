"""Faults of a node, done to the container that is the node."""

import time
from datetime import UTC, datetime
from typing import Final

from llmservice_testing.builders import Json
from llmservice_testing.cluster import ApiError, Cluster, wait_until
from llmservice_testing.kind.places import NODE
from llmservice_testing.kind.running import output_of

RECOVERY_SECONDS: Final = 180.0
"""How long a control plane may take after its API server was killed. The others end themselves when they cannot renew
their leases, are started again after a growing delay, and wait for the old lease to run out."""

_LEADERS: Final = ("kube-controller-manager", "kube-scheduler")
_RENEWED_SECONDS: Final = 5.0  # they renew every two
_CONTAINERD: Final = ("ctr", "--namespace", "k8s.io")


def on_node(*command: str) -> str:
    """Runs a command on the node, as root, and returns what it prints. Raises KindError."""
    return output_of(["docker", "exec", NODE, *command])


def kill_container(pod: Json) -> None:
    """Ends the first container of a pod as the kernel does when memory runs out: SIGKILL, without a word."""
    identity = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    on_node(*_CONTAINERD, "task", "kill", "--signal", "SIGKILL", identity)


def kill_api_server() -> None:
    """Ends the API server with SIGKILL; the node's kubelet starts it again."""
    on_node("pkill", "-KILL", "kube-apiserver")


def wait_for_api_server(cluster: Cluster, timeout: float = RECOVERY_SECONDS) -> None:
    """Waits until the API server answers as usual. Just after its start it refuses some of what it will allow."""
    wait_until(lambda: _answers(cluster), timeout, what="the API server answering as usual")


def wait_for_controllers(cluster: Cluster, timeout: float = RECOVERY_SECONDS) -> None:
    """Waits until what makes and places pods is at work again."""

    def at_work() -> bool:
        return _answers(cluster) and all(_leads(cluster, name) for name in _LEADERS)

    wait_until(at_work, timeout, what=f"{' and '.join(_LEADERS)} being at work")


def _answers(cluster: Cluster) -> bool:
    try:
        cluster.get("/api/v1/nodes")
        cluster.get("/api/v1/namespaces/kube-system/pods")
    except ApiError:
        return False
    return True


def _leads(cluster: Cluster, name: str) -> bool:
    lease = cluster.get(f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}")["spec"]
    renewed = datetime.fromisoformat(lease["renewTime"]).astimezone(UTC).timestamp()
    return bool(lease.get("holderIdentity")) and time.time() - renewed < _RENEWED_SECONDS
