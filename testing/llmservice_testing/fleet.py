"""A fleet for one test: simulated engines on addresses of their own, their pods, and the LLMService that selects them.

    fleet.add(); fleet.add(version="0.14.1")
    fleet.declare()
    fleet.want("paused")
    fleet.wait("Paused")
    assert [call.query for call in fleet.posts()] == ...

`History` keeps every version of an object that a watch saw; `OpenRequest` is a request in flight that ends when a test
says so; `Kubectl` runs the real one.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from llmservice_testing.builders import Json, PodBuilder, make_llmservice, make_pod
from llmservice_testing.cluster import Cluster, NotFoundError, wait_until
from llmservice_testing.controlplane.processes import ServerProcess
from llmservice_testing.simulator import Call, MoeGroup, Options, SimulatorThread, ThreadedEngine
from llmservice_testing.simulator.versions import Frontend

PATIENCE_SECONDS: Final = 30.0
"""How long a test waits for what has to happen. Generous, as it is only waited in full by a test that fails."""

READINESS_GATE: Final = "llmservice.io/serving"
VERIFY: Final = "llmservice.io/verify-requested-at"

RIGHTS: Final[tuple[Json, ...]] = (
    {"apiGroups": ["llmservice.io"], "resources": ["llmservices"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["llmservice.io"], "resources": ["llmservices/status"], "verbs": ["update"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
)
"""What an operator must be allowed whatever it is used for, as RBAC rules: neither finalizers nor readiness gates."""


class Addresses:
    """Addresses of this machine that nothing else listens on: a fresh one for each engine, other ones for each process."""

    _taken: ClassVar[Iterator[int]] = itertools.count()

    def take(self) -> str:
        """The next one. All objects of a process share them: an engine of another may still be there."""
        blocks, last = divmod(next(self._taken), 254)
        # A process number and its neighbours are far apart in the second part, those that are 200 later in the third.
        number = os.getpid()
        return f"127.{16 + number % 200}.{(number // 200 + blocks) % 256}.{1 + last}"


@dataclasses.dataclass(eq=False)
class Member:
    """One pod and its engines, one for each port."""

    pod: PodBuilder
    engines: tuple[ThreadedEngine, ...]

    @property
    def name(self) -> str:
        """The pod's name."""
        return self.pod.name

    @property
    def engine(self) -> ThreadedEngine:
        """Its engine, of which there is one."""
        (engine,) = self.engines
        return engine


class Fleet:
    """The members of one LLMService in one namespace, and the LLMService as a user handles it."""

    def __init__(
        self,
        cluster: Cluster,
        simulator: SimulatorThread,
        addresses: Addresses,
        namespace: str,
        *,
        name: str = "qwen",
        ports: Sequence[int] = (8000,),
    ) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.name = name
        self.members: list[Member] = []
        self._simulator = simulator
        self._addresses = addresses
        self._ports = tuple(ports)
        self._numbers = itertools.count()

    def close(self) -> None:
        """Ends the engines."""
        for engine in self.engines:
            self._simulator.remove(engine)

    # Engines and pods

    def add(
        self,
        *,
        name: str | None = None,
        labels: dict[str, str] | None = None,
        address: str | None = None,
        ready: bool = True,
        gated: bool = False,
        create: bool = True,
        start: bool = True,
        version: str = "0.32.0",
        frontend: Frontend = "python",
        options: Options | None = None,
        group: MoeGroup | None = None,
        on_death: Callable[[ThreadedEngine], None] | None = None,
    ) -> Member:
        """Adds a pod with an engine on each port. `create` false leaves the pod to the test, `start` false the engine;
        `gated` declares the readiness gate."""
        host = address or self._addresses.take()
        engines = tuple(
            self._simulator.engine(
                host,
                port,
                version=version,
                frontend=frontend,
                options=options,
                group=group,
                on_death=on_death,
                start=start,
            )
            for port in self._ports
        )
        pod = make_pod(name or f"{self.name}-{next(self._numbers)}").labels(labels or {"app": self.name}).ip(host)
        for port in self._ports:
            pod.port(port)
        if ready:
            pod.ready()
        if gated:
            pod.readiness_gate(READINESS_GATE)
        if create:
            self.cluster.create_pod(self.namespace, pod)
        member = Member(pod, engines)
        self.members.append(member)
        return member

    def grow(self, count: int, **options: Any) -> list[Member]:
        """Adds several alike."""
        return [self.add(**options) for _ in range(count)]

    def update(self, member: Member) -> None:
        """Gives the member's pod the status that its builder has now."""
        self.cluster.set_pod_status(self.namespace, member.pod)

    def gate(self, member: Member) -> Json | None:
        """The condition of the member's readiness gate, None if it has none."""
        conditions = self.cluster.get_pod(self.namespace, member.name)["status"]["conditions"]
        return next((one for one in conditions if one["type"] == READINESS_GATE), None)

    def is_open(self, member: Member) -> bool:
        """Whether the member's readiness gate lets it be served."""
        found = self.gate(member)
        return found is not None and found["status"] == "True"

    def wait_for_gate(self, member: Member, status: str) -> Json:
        """Waits until the member's readiness gate says so, and returns its condition."""

        def says() -> Json | None:
            found = self.gate(member)
            return found if found is not None and found["status"] == status else None

        return wait_until(says, PATIENCE_SECONDS, what=f"the gate of {member.name}: {status}", last=self._shown)

    @property
    def engines(self) -> list[ThreadedEngine]:
        """All engines, in the order of their pods."""
        return [engine for member in self.members for engine in member.engines]

    def posts(self) -> list[Call]:
        """The control calls to all engines, oldest first."""
        return sorted((call for engine in self.engines for call in engine.posts()), key=lambda call: call.at)

    def all_paused(self) -> bool:
        """Whether every engine is paused, in truth."""
        return all(engine.paused for engine in self.engines)

    def let_pass(self, resyncs: int = 2) -> None:
        """Returns after every engine that is up was read so many times more."""
        before = {engine: reads(engine) for engine in self.engines if engine.is_up}
        for engine, seen in before.items():
            engine.asked("/is_paused", times=seen + resyncs, within=PATIENCE_SECONDS)

    # The LLMService

    def declare(self, generation: str | None = None, **spec: Any) -> Json:
        """Creates the LLMService. It looks at its engines every second, so that a test can wait for that."""
        service = make_llmservice(self.name).selector(app=self.name).spec(resyncSeconds=1)
        if self._ports != (8000,):
            service.ports(*self._ports)
        if generation is not None:
            service.generation(generation)
        return self.cluster.create_llmservice(self.namespace, service.spec(**spec))

    def patch(self, **spec: Any) -> Json:
        """Sends a merge patch of the spec; None removes a field."""
        return self.cluster.patch_llmservice(self.namespace, self.name, {"spec": spec})

    def want(self, generation: str | None) -> Json:
        """Sets `spec.generation`, or removes it."""
        return self.patch(generation=generation)

    def verify(self, token: str) -> None:
        """Asks for a fresh read of every engine."""
        self.cluster.patch_llmservice(self.namespace, self.name, {"metadata": {"annotations": {VERIFY: token}}})

    def delete(self) -> None:
        """Deletes it; where it has a finalizer this only begins the deletion."""
        self.cluster.delete_llmservice(self.namespace, self.name)

    def is_gone(self) -> bool:
        """Whether there is none."""
        try:
            self.get()
        except NotFoundError:
            return True
        return False

    def wait_gone(self) -> None:
        """Waits until there is none."""
        wait_until(self.is_gone, PATIENCE_SECONDS, what=f"{self.name} being gone", last=self._shown)

    def finalizers(self) -> list[str]:
        """Its finalizers."""
        found: list[str] = self.get()["metadata"].get("finalizers", [])
        return found

    def get(self) -> Json:
        """The object as it is."""
        return self.cluster.get_llmservice(self.namespace, self.name)

    def _shown(self) -> Json:
        """What of it a failure shows: all but the bookkeeping of who wrote what."""
        service = self.get()
        del service["metadata"]["managedFields"]
        return service

    def status(self) -> Json:
        """Its status as it is."""
        found: Json = self.get().get("status", {})
        return found

    def targets(self) -> Json:
        """`status.targets` without what is zero."""
        return {state: number for state, number in self.status().get("targets", {}).items() if number}

    def target(self, member: Member) -> Json:
        """The only entry of `status.targetStates` about a member."""
        (entry,) = [one for one in self.status()["targetStates"] if one["pod"] == member.name]
        found: Json = entry
        return found

    def wait(self, kind: str, status: str = "True", reason: str | None = None) -> Json:
        """Waits for a condition that is about the present spec, and returns the object that has it."""

        def has() -> Json | None:
            service = self.get()
            found = condition(service, kind)
            if found is None or found["observedGeneration"] != service["metadata"]["generation"]:
                return None
            return service if found["status"] == status and reason in (None, found["reason"]) else None

        expected = f"{kind}={status}" + (f" with reason {reason}" if reason else "")
        return wait_until(has, PATIENCE_SECONDS, what=f"{self.name}: {expected}", last=self._shown)

    def wait_for(self, predicate: Callable[[Json], object], what: str) -> Json:
        """Waits until the status satisfies a predicate, and returns that status."""

        def satisfied() -> Json | None:
            status = self.status()
            return status if status and predicate(status) else None

        return wait_until(satisfied, PATIENCE_SECONDS, what=what, last=self._shown)

    def wait_for_targets(self, **targets: int) -> None:
        """Waits until `status.targets` is this, apart from what is zero."""
        wait_until(lambda: self.targets() == targets, PATIENCE_SECONDS, what=f"targets {targets}", last=self._shown)

    def events(self, reason: str | None = None) -> list[Json]:
        """The events about the LLMService, oldest first."""
        found = self.cluster.list_events(self.namespace, about=self.name)
        return [event for event in found if reason in (None, event["reason"])]

    def wait_for_event(self, reason: str, *, times: int = 1) -> Json:
        """Waits for an event (they are written after the status), and returns the newest."""
        return wait_until(
            lambda: self.events(reason) if len(self.events(reason)) >= times else None,
            PATIENCE_SECONDS,
            what=f"{times} event {reason}",
            last=self.events,
        )[-1]

    def paused(self, count: int = 1, **spec: Any) -> Self:
        """A fleet of so many members that is paused, and settled."""
        self.grow(count)
        self.declare("paused", **spec)
        self.wait("Ready", reason="InDesiredState")
        return self


def condition(service: Json, kind: str) -> Json | None:
    """The condition of this type, None if there is none."""
    found: list[Json] = [one for one in service.get("status", {}).get("conditions", []) if one["type"] == kind]
    return found[0] if found else None


def allow(cluster: Cluster, namespace: str, user: str, rules: Sequence[Json]) -> None:
    """Lets a user do just this in a namespace."""
    rbac = "rbac.authorization.k8s.io"
    named = {"apiVersion": f"{rbac}/v1", "metadata": {"name": user}}
    cluster.apply({**named, "kind": "Role", "rules": list(rules)}, namespace=namespace)
    binding = {
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": user},
        "subjects": [{"kind": "User", "name": user, "apiGroup": rbac}],
    }
    cluster.apply({**named, "kind": "RoleBinding", **binding}, namespace=namespace)


def to_seconds(timestamp: str) -> float:
    """The time of a field of the API, in seconds since the epoch."""
    return datetime.fromisoformat(timestamp).timestamp()


def began_at(call: Call) -> float:
    """When an engine received a call, in seconds since the epoch."""
    return time.time() - (time.monotonic() - call.at)


def reads(engine: ThreadedEngine) -> int:
    """How often it was asked whether it is paused."""
    return sum(1 for call in engine.calls if call.path == "/is_paused")


class OpenRequest:
    """A request that an engine works on until `end`, which is its client hanging up."""

    def __init__(self, engine: ThreadedEngine) -> None:
        body = json.dumps({"model": "tiny", "max_tokens": 100_000_000}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: engine\r\nContent-Length: {len(body)}\r\n\r\n"
        before = engine.running_requests
        self._socket = socket.create_connection((engine.host, engine.port), timeout=10)
        self._socket.sendall(head.encode() + body)
        wait_until(lambda: engine.running_requests > before, PATIENCE_SECONDS, what="a request in flight")

    def end(self) -> None:
        """Ends it; the engine has nothing left of it."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()


class Kubectl:
    """The real one, as a user types it: `kubectl("get", "llms").stdout`."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._environment = os.environ | {"KUBECONFIG": str(kubeconfig)}
        self._namespace = namespace

    def __call__(self, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Runs it to its end. Raises AssertionError with its own words when it fails, unless `check` is false."""
        done = subprocess.run(
            ["kubectl", "--namespace", self._namespace, *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done


class History:
    """Every version of a fleet's LLMService while the block runs, as kubectl's watch saw it."""

    def __init__(self, fleet: Fleet, directory: Path) -> None:
        """`directory` gets a file."""
        self._fleet = fleet
        self._file = directory / f"history-{fleet.namespace}-{fleet.name}.json"
        self._process: ServerProcess | None = None

    def __enter__(self) -> Self:
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            raise FileNotFoundError("kubectl is not installed")
        fleet = self._fleet
        watch = ["get", "llmservice", fleet.name, "-n", fleet.namespace, "-w", "-o", "json", "--output-watch-events"]
        self._process = ServerProcess.start(
            ["/usr/bin/env", f"KUBECONFIG={fleet.cluster.kubeconfig}", kubectl, *watch], log=self._file
        )
        wait_until(lambda: self._parsed(), PATIENCE_SECONDS, what="the first version", last=self._process.log_tail)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.stop(grace_seconds=0)

    def versions(self) -> list[Json]:
        """All so far, oldest first; the present one is among them."""
        present = self._fleet.get()["metadata"]["resourceVersion"]
        wait_until(
            lambda: any(one["metadata"]["resourceVersion"] == present for one in self._parsed()),
            PATIENCE_SECONDS,
            what=f"the watch seeing version {present}",
        )
        return self._parsed()

    def _parsed(self) -> list[Json]:
        text, decoder, found = self._file.read_text(), json.JSONDecoder(), []
        position = 0
        while (position := text.find("{", position)) >= 0:
            try:
                event, position = decoder.raw_decode(text, position)
            except ValueError:
                break  # the last one is still being written
            found.append(event["object"])
        return found


@contextlib.contextmanager
def nothing_false_is_said(fleet: Fleet) -> Iterator[None]:
    """While the block runs, `status.paused: true` about the present spec is compared with the engines all the time.

    The status is read first: nobody but the operator changes the engines here, and it never resumes while paused is wanted,
    so that an engine which is not paused now was not paused when the status said so either.
    """
    wrong: list[str] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            service = fleet.get()
            if service["metadata"]["generation"] != service["status"].get("observedGeneration"):
                continue
            desired, said = service["spec"].get("generation"), service["status"].get("paused")
            truth = [engine.paused for engine in fleet.engines]
            if fleet.get()["metadata"]["generation"] != service["metadata"]["generation"]:
                continue
            if desired == "paused" and said is True and not all(truth):
                wrong.append(f"paused: true, but {truth}")
            if desired == "running" and said is False and any(truth):
                wrong.append(f"paused: false, but {truth}")

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
    if wrong:
        raise AssertionError(f"something false was said: {wrong}")
