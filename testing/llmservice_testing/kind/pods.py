"""Engines in pods: the objects they are made of, and each engine as it is, asked past the operator.

An engine is reached through the API server's proxy, so that this works wherever the cluster's own network cannot be
reached from, and whether or not a Service leads to the pod.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from llmservice_testing.builders import Json, make_llmservice
from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.fleet import READINESS_GATE, condition
from llmservice_testing.kind.images import ENGINE
from llmservice_testing.kind.running import output_of

PATIENCE_SECONDS: Final = 60.0
"""How long a test waits for what has to happen; a container that crashed is started again only after 10 s."""

PORT: Final = 8000
_ADMIN_PORT: Final = 9000
_ENGINE_NAME: Final = f"0.0.0.0:{PORT}"
"""How the simulator calls its engine."""

RESTRICTED: Final[Json] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def engine_template(labels: Mapping[str, str], *, gated: bool = False, arguments: Sequence[str] = ()) -> Json:
    """The pod template of a simulated engine. `gated` declares the readiness gate; `arguments` are the simulator's."""
    spec: Json = {
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "engine",
                "image": ENGINE,
                "imagePullPolicy": "Never",
                "args": ["--first", "0.0.0.0", "--port", str(PORT), "--admin", f"0.0.0.0:{_ADMIN_PORT}", *arguments],
                "ports": [
                    {"name": "http", "containerPort": PORT},
                    {"name": "admin", "containerPort": _ADMIN_PORT},
                ],
                "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
                "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
                "securityContext": RESTRICTED,
            }
        ],
    }
    if gated:
        spec["readinessGates"] = [{"conditionType": READINESS_GATE}]
    return {"metadata": {"labels": dict(labels)}, "spec": spec}


@dataclasses.dataclass(frozen=True)
class Called:
    """A control call that an engine received."""

    path: str
    query: str


class PodEngine:
    """The engine in one pod."""

    def __init__(self, cluster: Cluster, pod: Json) -> None:
        """`pod` as it was read; a pod of the same name that follows it is another engine."""
        self.pod = pod
        self.name: Final[str] = pod["metadata"]["name"]
        self._cluster = cluster
        self._path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{self.name}"

    def is_paused(self) -> bool:
        """What it says itself. Raises ApiError where it does not answer."""
        return bool(self._cluster.get(f"{self._path}:{PORT}/proxy/is_paused")["is_paused"])

    def state(self) -> Json:
        """What the simulator knows of it: `waiting_requests`, `running_requests`, `starts` and so on."""
        found: Json = self._admin("GET", "/engines")[_ENGINE_NAME]
        return found

    def posts(self) -> list[Called]:
        """The control calls to it since its container started, oldest first."""
        calls = self._admin("GET", "/calls", engine=_ENGINE_NAME)
        return [
            Called(call["path"], call["query"])
            for call in calls
            if call["method"] == "POST" and not call["path"].startswith("/v1/")
        ]

    def reads(self) -> int:
        """How often it was asked whether it is paused, by the operator or by a test."""
        calls = self._admin("GET", "/calls", engine=_ENGINE_NAME)
        return sum(1 for call in calls if call["path"] == "/is_paused")

    def script(self, route: str, *faults: Json) -> None:
        """Lets it misbehave on a route; a fault is the JSON form of the simulator's."""
        self._admin("POST", "/faults", body={"route": route, "faults": list(faults)})

    def change(self, what: str) -> None:
        """Does something to it behind everyone's back: `pause`, `resume`, `die`."""
        self._admin("POST", "/state", body={"do": what})

    def _admin(self, method: str, path: str, body: object = None, **query: str) -> Any:
        return self._cluster.request(method, f"{self._path}:{_ADMIN_PORT}/proxy{path}", body=body, **query)


class PodFleet:
    """Engines that a Deployment (or a StatefulSet) makes, and the LLMService that selects them, in one namespace."""

    def __init__(self, cluster: Cluster, namespace: str, name: str = "qwen") -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.name = name
        self._kind = "deployments"

    # Engines

    def deploy(self, replicas: int, **template: Any) -> None:
        """Makes a Deployment, and returns when its engines answer. `template`: see `engine_template`."""
        self.begin(replicas, **template)
        self.wait_for_engines(replicas)

    def begin(self, replicas: int, **template: Any) -> None:
        """Makes a Deployment, or changes it, and returns at once."""
        self.begin_with(replicas, engine_template({"app": self.name}, **template))

    def begin_with(self, replicas: int, template: Json) -> None:
        """The same with a pod template of one's own; its label `app` is the fleet's name."""
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": self.name}}, "template": template}
        self._apply({"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec})

    def deploy_stateful(self, replicas: int) -> None:
        """Makes a StatefulSet instead, with the Service that it needs, and returns when its engines answer."""
        self._kind = "statefulsets"
        labels = {"app": self.name}
        self.expose(f"{self.name}-members", clusterIP="None")
        spec = {
            "replicas": replicas,
            "serviceName": f"{self.name}-members",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": engine_template(labels),
        }
        self._apply({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": spec})
        self.wait_for_engines(replicas)

    def deploy_pods(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        """Makes pods that nothing owns, with these labels by their names, and returns when their engines answer."""
        for name, more in labels.items():
            template = engine_template({"app": self.name, **more})
            pod = {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}
            self._apply(pod | {"metadata": {"labels": template["metadata"]["labels"]}}, name=name)
        self.wait_for_engines(len(labels))

    def scale(self, replicas: int) -> None:
        """Changes how many there should be."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/{self._kind}/{self.name}"
        self.cluster.merge_patch(path, {"spec": {"replicas": replicas}})

    def expose(self, name: str | None = None, **spec: Any) -> None:
        """Makes a Service for the engines; `spec` is added to it."""
        ports = [{"name": "http", "port": PORT, "targetPort": PORT}]
        service = {"selector": {"app": self.name}, "ports": ports} | spec
        self._apply({"apiVersion": "v1", "kind": "Service", "spec": service}, name=name)

    def pods(self) -> list[Json]:
        """The pods that are there to stay, by name."""
        found = self.cluster.get(f"/api/v1/namespaces/{self.namespace}/pods", labelSelector=f"app={self.name}")["items"]
        staying = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return sorted(staying, key=lambda pod: str(pod["metadata"]["name"]))

    def engines(self) -> list[PodEngine]:
        """The engine of each pod."""
        return [PodEngine(self.cluster, pod) for pod in self.pods()]

    def wait_for_engines(self, count: int) -> list[PodEngine]:
        """Waits until there are so many pods and no other, and each engine passes its probe."""

        def answering() -> bool:
            pods = self.pods()
            return len(pods) == count and all(map(container_is_ready, pods))

        wait_until(answering, PATIENCE_SECONDS, what=f"{count} engines of {self.name}", last=self._summary)
        return self.engines()

    def log(self) -> str:
        """The end of the engines' log."""
        where = ["--kubeconfig", str(self.cluster.kubeconfig), "--namespace", self.namespace]
        return output_of(["kubectl", *where, "logs", "--selector", f"app={self.name}", "--tail", "40"])

    def posts(self) -> dict[str, list[Called]]:
        """The control calls to each engine, by its pod."""
        return {engine.name: engine.posts() for engine in self.engines()}

    def let_pass(self, resyncs: int = 2) -> None:
        """Returns after every engine was read by the operator so many times more."""
        before = {engine.name: engine.reads() for engine in self.engines()}
        for engine in self.engines():
            wait_until(
                lambda engine=engine: engine.reads() >= before[engine.name] + resyncs,  # type: ignore[misc]
                PATIENCE_SECONDS,
                what=f"{engine.name} being read {resyncs} times more",
            )

    # The LLMService

    def declare(self, generation: str | None = None, **spec: Any) -> Json:
        """Creates the LLMService. It looks at its engines every second, so that a test can wait for that."""
        service = make_llmservice(self.name).selector(app=self.name).spec(resyncSeconds=1)
        if generation is not None:
            service.generation(generation)
        return self.cluster.create_llmservice(self.namespace, service.spec(**spec))

    def want(self, generation: str, **spec: Any) -> Json:
        """Sets `spec.generation`."""
        return self.cluster.patch_llmservice(self.namespace, self.name, {"spec": {"generation": generation} | spec})

    def get(self) -> Json:
        """The object as it is."""
        return self.cluster.get_llmservice(self.namespace, self.name)

    def status(self) -> Json:
        """Its status."""
        found: Json = self.get().get("status", {})
        return found

    def wait(
        self, kind: str, status: str = "True", reason: str | None = None, *, within: float = PATIENCE_SECONDS
    ) -> Json:
        """Waits `within` seconds for a condition that is about the present spec, and returns the object that has it."""

        def has() -> Json | None:
            service = self.get()
            found = condition(service, kind)
            if found is None or found["observedGeneration"] != service["metadata"]["generation"]:
                return None
            return service if found["status"] == status and reason in (None, found["reason"]) else None

        expected = f"{kind}={status}" + (f" with reason {reason}" if reason else "")
        return wait_until(has, within, what=f"{self.name}: {expected}", last=self.status)

    def wait_for(self, predicate: Callable[[Json], object], what: str) -> Json:
        """Waits until the status satisfies a predicate, and returns that status."""

        def satisfied() -> Json | None:
            status = self.status()
            return status if predicate(status) else None

        return wait_until(satisfied, PATIENCE_SECONDS, what=what, last=self.status)

    def wait_for_targets(self, **targets: int) -> None:
        """Waits until `status.targets` is this, apart from what is zero."""
        self.wait_for(
            lambda status: {state: number for state, number in status.get("targets", {}).items() if number} == targets,
            f"targets {targets}",
        )

    def _apply(self, manifest: Json, name: str | None = None) -> None:
        metadata = {**manifest.get("metadata", {}), "name": name or self.name}
        self.cluster.apply(manifest | {"metadata": metadata}, namespace=self.namespace)

    def _summary(self) -> dict[str, object]:
        return {pod["metadata"]["name"]: pod["status"].get("containerStatuses") for pod in self.pods()}


def container_is_ready(pod: Json) -> bool:
    """Whether its containers run and pass their probes; a readiness gate does not count."""
    statuses = pod["status"].get("containerStatuses", [])
    return bool(statuses) and all(status["ready"] for status in statuses)


def is_ready(pod: Json) -> bool:
    """Whether the pod is ready, readiness gates included: only then is it in its Services."""
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True"


def seconds_up(pod: Json) -> float:
    """How long the youngest container of a pod runs, in seconds; 0 if one does not."""
    started = [status["state"].get("running", {}).get("startedAt") for status in pod["status"]["containerStatuses"]]
    if not all(started):
        return 0.0
    return time.time() - max(datetime.fromisoformat(one).astimezone(UTC).timestamp() for one in started)
