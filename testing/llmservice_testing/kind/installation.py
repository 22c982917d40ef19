"""The operator in the cluster, as its users install it."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import yaml

from llmservice_testing.builders import Json
from llmservice_testing.cluster import Cluster, NotFoundError, wait_until
from llmservice_testing.kind.places import NODE, ROOT
from llmservice_testing.kind.pods import PATIENCE_SECONDS, is_ready

NAMESPACE: Final = "llmservice-system"
DEPLOYMENT: Final = "llmservice-operator"
MANIFEST: Final = ROOT / "manifests" / "install.yaml"
DEFINITION: Final = ROOT / "crds" / "llmservices.llmservice.io.yaml"

_DEPLOYMENT_PATH: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{DEPLOYMENT}"
_PODS_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_OPERATOR_PODS: Final = "app.kubernetes.io/component=operator"
_COMMAND_SECONDS: Final = 180


class Installation:
    """The operator in the namespace llmservice-system."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def apply(self, manifest: Path | Sequence[Json] = MANIFEST) -> None:
        """`kubectl apply --server-side` of a file or of objects, until the operator is ready."""
        self.apply_objects(manifest)
        self.wait_until_ready()

    def apply_objects(self, manifest: Path | Sequence[Json]) -> None:
        """`kubectl apply --server-side`, and no waiting."""
        command = ["apply", "--server-side", "--force-conflicts", "-f"]
        if isinstance(manifest, Path):
            self.kubectl(*command, str(manifest))
        else:
            self.kubectl(*command, "-", standard_input=yaml.safe_dump_all(manifest))

    def remove(self, manifest: Path = MANIFEST) -> None:
        """`kubectl delete` of a file; raises AssertionError where that does not end in time."""
        self.kubectl("delete", "-f", str(manifest), "--ignore-not-found", f"--timeout={_COMMAND_SECONDS - 30}s")

    def wait_until_ready(self) -> None:
        """Waits until the Deployment's newest pods are ready and no other is left."""

        def ready() -> bool:
            deployment = self.cluster.get(_DEPLOYMENT_PATH)
            status, wanted = deployment.get("status", {}), deployment["spec"]["replicas"]
            seen = status.get("observedGeneration") == deployment["metadata"]["generation"]
            counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas")]
            return bool(seen and counts == [wanted] * 3) and len(self.pods()) == wanted

        wait_until(ready, PATIENCE_SECONDS, what="the operator being ready", last=self.log)

    def pods(self) -> list[Json]:
        """The operator's pods, those that are about to go included."""
        found: list[Json] = self.cluster.get(_PODS_PATH, labelSelector=_OPERATOR_PODS)["items"]
        return found

    def pod(self) -> Json:
        """Its only pod."""
        (found,) = self.pods()
        return found

    def is_ready(self) -> bool:
        """Whether any of its pods is ready."""
        return any(map(is_ready, self.pods()))

    def scale(self, replicas: int) -> None:
        """Changes how many there are, and waits until the others are gone."""
        self.cluster.merge_patch(_DEPLOYMENT_PATH, {"spec": {"replicas": replicas}})
        wait_until(lambda: len(self.pods()) == replicas, PATIENCE_SECONDS, what=f"{replicas} operators")

    def delete_pod(self) -> None:
        """Deletes its pod as an eviction does; the Deployment makes another."""
        name = self.pod()["metadata"]["name"]
        self.cluster.request("DELETE", f"{_PODS_PATH}/{name}")

    def log(self) -> str:
        """The end of its log, or why there is none."""
        done = self._run("--namespace", NAMESPACE, "logs", f"deployment/{DEPLOYMENT}", "--tail", "30")
        return done.stdout or done.stderr

    def memory_bytes(self) -> int:
        """The working set of its container, as the kubelet counts it; that is what a limit is held against."""
        summary = self.cluster.get(f"/api/v1/nodes/{NODE}/proxy/stats/summary")
        name = self.pod()["metadata"]["name"]
        (found,) = [pod for pod in summary["pods"] if pod["podRef"]["name"] == name]
        return int(found["containers"][0]["memory"]["workingSetBytes"])

    def kubectl(self, *arguments: str, standard_input: str | None = None) -> str:
        """Kubectl, as the cluster's administrator. Raises AssertionError with its own words."""
        done = self._run(*arguments, standard_input=standard_input)
        if done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def _run(self, *arguments: str, standard_input: str | None = None) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["kubectl", "--kubeconfig", str(self.cluster.kubeconfig), *arguments],
            input=standard_input,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )


def objects(path: Path = MANIFEST) -> list[Json]:
    """The objects of a manifest."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def exists(cluster: Cluster, path: str) -> bool:
    """Whether there is something at an API path; where its kind is not served, there is not."""
    try:
        cluster.get(path)
    except NotFoundError:
        return False
    return True
