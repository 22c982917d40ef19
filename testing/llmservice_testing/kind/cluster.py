"""One kind cluster: made, loaded with images, and removed."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from llmservice_testing.kind import places
from llmservice_testing.kind.docker import has_image
from llmservice_testing.kind.places import CLUSTER, KUBECONFIG, LOGS, NODE
from llmservice_testing.kind.programs import find_kind
from llmservice_testing.kind.running import KindError, output_of, run, succeeds

CREATE_SECONDS: Final = 10 * 60
"""The download of a node image included."""
READY_SECONDS: Final = 180
LOAD_SECONDS: Final = 5 * 60

_NO_NODE_IMAGE: Final = (
    "Where no container registry can be reached, set KIND_NODE_IMAGE=build to make a node image of Debian packages"
)


def exists() -> bool:
    """Whether the cluster is there, running or not."""
    return CLUSTER in output_of([find_kind(), "get", "clusters"]).splitlines()


def create(node_image: str | None, mounts: Sequence[Path] = ()) -> None:
    """Makes the cluster and waits until its node is ready.

    `mounts` are folders of this machine that the node sees at the same path, read-only. Raises KindError.
    """
    places.ARTIFACTS.mkdir(parents=True, exist_ok=True)
    description = places.ARTIFACTS / "cluster.yaml"
    description.write_text(yaml.safe_dump(_description(mounts)))
    image = [] if node_image is None else ["--image", node_image]
    wait = ["--wait", f"{READY_SECONDS}s", "--retain"]  # its logs are needed where it fails; `delete` removes it
    place = ["--name", CLUSTER, "--kubeconfig", str(KUBECONFIG)]
    command: list[str | Path] = [find_kind(), "create", "cluster", *place, *image, *wait, "--config", description]
    run(
        command,
        f"Making the cluster {CLUSTER}",
        log=places.ARTIFACTS / "create.log",
        timeout=CREATE_SECONDS,
        advice=_NO_NODE_IMAGE if node_image is None else "",
    )


def load(images: Sequence[str]) -> None:
    """Gives images to the node; those it has are skipped. Raises KindError."""
    missing = [image for image in images if not has_image(image)]
    if missing:
        raise KindError(f"there is no image {', '.join(missing)} to load")
    command: list[str | Path] = [find_kind(), "load", "docker-image", "--name", CLUSTER, *images]
    run(command, "Loading images into the node", log=places.ARTIFACTS / "load.log", timeout=LOAD_SECONDS)


def save_logs() -> Path:
    """Writes the logs of the node and of every pod to `.artifacts/e2e/logs`, and returns that.

    What cannot be had is missing there and no error: this is called where something has failed already, and a cluster in
    which nothing works any more must still be removed.
    """
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    kubectl = ["kubectl", "--kubeconfig", str(KUBECONFIG), "--request-timeout", "10s"]
    _save("pods.txt", [*kubectl, "get", "pods", "--all-namespaces", "--output", "wide"])
    _save("llmservices.yaml", [*kubectl, "get", "llmservices.llmservice.io", "--all-namespaces", "--output", "yaml"])
    _save("events.txt", [*kubectl, "get", "events", "--all-namespaces", "--sort-by", ".lastTimestamp"])
    _save("node.log", ["docker", "exec", NODE, "journalctl", "--no-pager"])
    _save("pod-logs.txt", ["docker", "cp", f"{NODE}:/var/log/pods", str(LOGS / "pods")])
    return LOGS


def _save(name: str, command: Sequence[str]) -> None:
    try:
        text = output_of(command, timeout=60)
    except KindError as error:
        text = str(error)
    (LOGS / name).write_text(text + "\n")


def delete() -> None:
    """Removes the cluster, if there is one. Raises KindError."""
    output_of([find_kind(), "delete", "cluster", "--name", CLUSTER, "--kubeconfig", str(KUBECONFIG)], timeout=120)
    KUBECONFIG.unlink(missing_ok=True)


def is_running() -> bool:
    """Whether its node runs."""
    return succeeds(["docker", "exec", NODE, "true"])


def _description(mounts: Sequence[Path]) -> dict[str, Any]:
    node: dict[str, Any] = {"role": "control-plane"}
    if mounts:
        node["extraMounts"] = [{"hostPath": str(path), "containerPath": str(path), "readOnly": True} for path in mounts]
    description: dict[str, Any] = {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [node]}
    if not Path("/sys/fs/cgroup/cgroup.controllers").exists():  # cgroup v1, which kubelets refuse from 1.35 on
        kubelet = {"kind": "KubeletConfiguration", "failCgroupV1": False}
        description["kubeadmConfigPatches"] = [yaml.safe_dump(kubelet)]
    return description
