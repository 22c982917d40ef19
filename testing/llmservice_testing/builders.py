"""Builders of pods and LLMServices for tests: `make_pod("qwen-0").labels(app="qwen").ip("127.0.0.7").ready().obj()`.

A builder is changed by its methods, each of which returns it; `obj` and `status` give plain JSON that shares nothing
with the builder, so a test can keep one, change it, and apply it again: this is how a container restarts or a pod moves
(`Cluster.set_pod_status(namespace, pod.ip("127.0.0.8"))`).

A pod is kept consistent in the way a kubelet does it: without an address it is Pending and its containers wait, with
one it is Running; a container that does not run is not ready; the pod's Ready condition follows its containers. What a
test says explicitly (`phase`, `condition`) wins, so that impossible pods can be built too, but never by accident.
"""

import copy
import dataclasses
import uuid
from typing import Any, Final, Self

Json = dict[str, Any]

API_VERSION: Final = "llmservice.io/v1alpha1"
DEFAULT_CONTAINER: Final = "engine"
DEFAULT_NODE: Final = "node-1"

# A fixed past: nothing may depend on how old a pod is.
_STARTED_AT: Final = "2026-01-01T00:00:00Z"


@dataclasses.dataclass
class _Container:
    name: str
    ports: list[Json] = dataclasses.field(default_factory=list)
    ready: bool = False
    state: Json | None = None  # None: as the pod is, waiting without an address, running with one, ended with it
    restarts: int = 0
    identity: str = ""  # empty: never started

    def start(self) -> None:
        self.identity = f"containerd://{uuid.uuid4().hex}{uuid.uuid4().hex}"


class PodBuilder:
    """A pod with one container `engine`, on a node, without an address."""

    def __init__(self, name: str) -> None:
        self._metadata: Json = {"name": name, "labels": {}, "annotations": {}}
        self._node = DEFAULT_NODE
        self._containers = {DEFAULT_CONTAINER: _Container(DEFAULT_CONTAINER)}
        self._addresses: list[str] = []
        self._phase: str | None = None
        self._conditions: dict[str, str] = {}
        self._gates: list[str] = []

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self._metadata["name"])

    # Metadata and spec. After the pod was created only labels and annotations can still change.

    def labels(self, labels: dict[str, str] | None = None, **more: str) -> Self:
        """Adds labels; the dictionary is for keys that are no Python names."""
        self._metadata["labels"].update(labels or {}, **more)
        return self

    def annotations(self, annotations: dict[str, str]) -> Self:
        """Adds annotations."""
        self._metadata["annotations"].update(annotations)
        return self

    def finalizer(self, name: str) -> Self:
        """Adds a finalizer: even deletion without grace then leaves the pod there, terminating."""
        self._metadata.setdefault("finalizers", []).append(name)
        return self

    def owner(self, kind: str, name: str, *, api_version: str = "apps/v1", uid: str | None = None) -> Self:
        """Sets the controller that owns the pod (a ReplicaSet, say)."""
        reference = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid or str(uuid.uuid4())}
        self._metadata["ownerReferences"] = [{**reference, "controller": True}]
        return self

    def node(self, name: str) -> Self:
        """Sets the node that it runs on; no Node object is needed."""
        self._node = name
        return self

    def port(self, number: int, *, name: str | None = None, container: str = DEFAULT_CONTAINER) -> Self:
        """Declares a port of a container; a container that does not exist yet is added."""
        port = {"containerPort": number, "protocol": "TCP"} | ({"name": name} if name else {})
        self.container(container)._containers[container].ports.append(port)
        return self

    def container(self, name: str) -> Self:
        """Adds a container (a sidecar, say) unless it is there already."""
        if name not in self._containers:
            self._containers[name] = _Container(name)
            if self._addresses:
                self._containers[name].start()
        return self

    def readiness_gate(self, condition_type: str) -> Self:
        """Declares a readiness gate; the pod's Ready condition then waits for `condition` of that type."""
        self._gates.append(condition_type)
        return self

    # Status

    def ip(self, *addresses: str) -> Self:
        """Gives the pod its address (two in a dual-stack cluster, the primary one first); its containers run."""
        self._addresses = list(addresses)
        for container in self._containers.values():
            if not container.identity:
                container.start()
        return self

    def no_ip(self) -> Self:
        """Takes the address away, as when the pod's sandbox dies."""
        self._addresses = []
        return self

    def ready(self, container: str | None = None) -> Self:
        """Makes one container ready, or all."""
        return self._set_ready(container, True)

    def unready(self, container: str | None = None) -> Self:
        """Makes one container not ready (its readiness probe fails), or all; they still run."""
        return self._set_ready(container, False)

    def restarted(self, container: str = DEFAULT_CONTAINER) -> Self:
        """Gives a container a new identity: it died and a new one runs, not ready yet, in the same pod."""
        chosen = self._containers[container]
        chosen.restarts += 1
        chosen.ready = False
        chosen.state = None
        chosen.start()
        return self

    def running(self, container: str = DEFAULT_CONTAINER) -> Self:
        """Undoes `waiting` or `terminated`; the container is the same as before, and not ready yet."""
        self._containers[container].state = None
        return self

    def waiting(self, reason: str = "CrashLoopBackOff", *, container: str = DEFAULT_CONTAINER) -> Self:
        """The container does not run; it is about to be started (ContainerCreating) or started again."""
        return self._set_state(container, {"waiting": {"reason": reason}})

    def terminated(
        self, exit_code: int = 137, *, reason: str = "OOMKilled", container: str = DEFAULT_CONTAINER
    ) -> Self:
        """The container has ended and nothing has started it again yet."""
        return self._set_state(container, _terminated(exit_code, reason))

    def phase(self, phase: str) -> Self:
        """Sets the phase. With Succeeded or Failed the containers have ended, unless they were given other states."""
        self._phase = phase
        return self

    def condition(self, condition_type: str, status: str) -> Self:
        """Sets a condition, that of a readiness gate, say; `Ready` given so wins over what the containers say."""
        self._conditions[condition_type] = status
        return self

    # Results

    def status(self) -> Json:
        """The whole status. What is absent is None, so that a patch with it removes what was there."""
        running = bool(self._addresses)
        return {
            "phase": self._phase or ("Running" if running else "Pending"),
            "podIP": self._addresses[0] if running else None,
            "podIPs": [{"ip": address} for address in self._addresses] if running else None,
            "startTime": _STARTED_AT,
            "conditions": [
                {"type": kind, "status": status, "lastTransitionTime": _STARTED_AT}
                for kind, status in (self._standard_conditions() | self._conditions).items()
            ],
            "containerStatuses": [self._container_status(container) for container in self._containers.values()],
        }

    def obj(self) -> Json:
        """The pod as JSON, status included (`Cluster.create_pod` stores both)."""
        spec: Json = {
            "nodeName": self._node,
            "containers": [
                {"name": container.name, "image": f"{container.name}:test", "ports": container.ports}
                for container in self._containers.values()
            ],
        }
        if self._gates:
            spec["readinessGates"] = [{"conditionType": gate} for gate in self._gates]
        status = {key: value for key, value in self.status().items() if value is not None}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": self._metadata, "spec": spec, "status": status}
        return copy.deepcopy(pod)

    def _set_ready(self, name: str | None, ready: bool) -> Self:
        for container in [self._containers[name]] if name else self._containers.values():
            container.ready = ready
        return self

    def _set_state(self, name: str, state: Json) -> Self:
        self._containers[name].state = state
        self._containers[name].ready = False
        return self

    def _standard_conditions(self) -> dict[str, str]:
        containers_ready = all(container.ready and self._runs(container) for container in self._containers.values())
        ready = containers_ready and all(self._conditions.get(gate) == "True" for gate in self._gates)
        return {
            "PodScheduled": "True",
            "Initialized": "True",
            "ContainersReady": str(containers_ready),
            "Ready": str(ready),
        }

    def _container_status(self, container: _Container) -> Json:
        status: Json = {
            "name": container.name,
            "image": f"{container.name}:test",
            "imageID": "",
            "ready": container.ready and self._runs(container),
            "restartCount": container.restarts,
            "state": copy.deepcopy(self._state(container)),
        }
        return status | ({"containerID": container.identity} if container.identity else {})

    def _runs(self, container: _Container) -> bool:
        return "running" in self._state(container)

    def _state(self, container: _Container) -> Json:
        if container.state is not None:
            return container.state
        if self._phase in ("Succeeded", "Failed"):
            return _terminated(0, "Completed") if self._phase == "Succeeded" else _terminated(1, "Error")
        if self._addresses:
            return {"running": {"startedAt": _STARTED_AT}}
        return {"waiting": {"reason": "ContainerCreating"}}


def _terminated(exit_code: int, reason: str) -> Json:
    times = {"startedAt": _STARTED_AT, "finishedAt": _STARTED_AT}
    return {"terminated": {"exitCode": exit_code, "reason": reason, **times}}


class LLMServiceBuilder:
    """An LLMService without a selector and without `generation`: observe only."""

    def __init__(self, name: str) -> None:
        self._metadata: Json = {"name": name}
        self._spec: Json = {}

    def labels(self, labels: dict[str, str] | None = None, **more: str) -> Self:
        """Adds labels to the object itself."""
        self._metadata.setdefault("labels", {}).update(labels or {}, **more)
        return self

    def annotations(self, annotations: dict[str, str]) -> Self:
        """Adds annotations to the object itself."""
        self._metadata.setdefault("annotations", {}).update(annotations)
        return self

    def selector(self, labels: dict[str, str] | None = None, **more: str) -> Self:
        """Sets the labels that a pod must have; the dictionary is for keys that are no Python names."""
        return self.spec(selector={"matchLabels": {**(labels or {}), **more}})

    def generation(self, desired: str) -> Self:
        """Sets what generation is to be: `paused` or `running`."""
        return self.spec(generation=desired)

    def engine(self, **fields: Any) -> Self:
        """Adds fields of `spec.engine`: `type="vllm"`, `ports=[8000, "http"]`, `model=...`."""
        return self._merge("engine", fields)

    def ports(self, *ports: int | str) -> Self:
        """Sets the ports on which each pod's engines listen: numbers, or names of container ports."""
        return self.engine(ports=list(ports))

    def pause(self, **fields: Any) -> Self:
        """Adds fields of `spec.pause`: `mode="wait"`, `clearCache=False`, `timeoutSeconds=300`."""
        return self._merge("pause", fields)

    def max_paused(self, seconds: int, *, then: str) -> Self:
        """Limits how long the fleet may be paused; `then` is `warn` or `resume`."""
        return self.spec(maxPausedSeconds=seconds, onMaxPaused=then)

    def deletion_policy(self, policy: str) -> Self:
        """Sets what deletion does to paused engines: `leave` or `resume`."""
        return self.spec(deletionPolicy=policy)

    def spec(self, **fields: Any) -> Self:
        """Sets any fields of the spec, under their own names: `resyncSeconds=1`."""
        self._spec.update(fields)
        return self

    def obj(self) -> Json:
        """The LLMService as JSON."""
        return copy.deepcopy(
            {"apiVersion": API_VERSION, "kind": "LLMService", "metadata": self._metadata, "spec": self._spec}
        )

    def _merge(self, field: str, fields: Json) -> Self:
        return self.spec(**{field: {**self._spec.get(field, {}), **fields}})


def make_pod(name: str) -> PodBuilder:
    """Begins a pod."""
    return PodBuilder(name)


def make_llmservice(name: str) -> LLMServiceBuilder:
    """Begins an LLMService."""
    return LLMServiceBuilder(name)
