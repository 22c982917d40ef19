"""Simulated engines and pods: as they really are, whatever an operator believes."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from llmservice.api import READINESS_GATE, PauseMode
from llmservice.domain.fleet import NEVER, ControlCall, Gate, PauseParameters

from .promises import promise

if TYPE_CHECKING:
    from .process import Life

JSON = dict[str, Any]


@dataclass(frozen=True)
class Build:
    """What runs in a container."""

    version: str
    ranks: int = 2
    """Its data-parallel size."""
    can_sleep: bool = False
    has_server_info: bool = True

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version."""
        major, minor, _ = self.version.split(".")
        return int(major), int(minor)

    @property
    def modes(self) -> frozenset[PauseMode]:
        """How it can be paused."""
        return frozenset(PauseMode) if self.release >= (0, 17) else frozenset({PauseMode.ABORT, PauseMode.WAIT})

    @property
    def confirms_wait(self) -> bool:
        """A second ``wait`` is answered when the drain is over."""
        return self.release >= (0, 17)

    @property
    def can_overtake(self) -> bool:
        """A drain can be called off."""
        return self.confirms_wait and self.ranks == 1 and self.has_server_info

    def understands(self, path: str, query: Mapping[str, str]) -> ControlCall:
        """What it makes of a control call. Every parameter has to be sent, as the defaults abort."""
        if path == "/resume":
            return ControlCall(None)
        name = "mode" if self.release >= (0, 16) else "wait_for_inflight_requests"
        promise({name, "clear_cache"} == query.keys(), "R22", f"{path} is sent with {dict(query)} to {self.version}")
        promise(query["clear_cache"] in ("true", "false"), "R22", f"clear_cache={query['clear_cache']}")
        mode = PauseMode(query["mode"]) if name == "mode" else PauseMode.ABORT
        if query.get("wait_for_inflight_requests") == "true":
            mode = PauseMode.WAIT
        return ControlCall(PauseParameters(mode, query["clear_cache"] == "true"))


MODERN = Build("0.32.0", can_sleep=True)
ALONE = Build("0.32.0", ranks=1)
V0_16 = Build("0.16.0")
V0_14 = Build("0.14.1", has_server_info=False)
BUILDS = (MODERN, ALONE, V0_16, V0_14)


class Behaviour(Enum):
    """What an engine does with what it is asked."""

    SOUND = "does as it is asked"
    HANGS = "never answers, and does nothing"
    LOSES_ANSWERS = "does as it is asked, and the answer is lost"
    FAILS_READS = "answers reads with 500"
    FAILS_CALLS = "answers control calls with 500"
    REFUSES_CALLS = "answers control calls with 400"
    HAS_NO_ROUTES = "answers its control routes with 404"
    LIES = "answers control calls with 200, and does nothing"
    DIES = "dies of control calls"


@dataclass(eq=False)
class Engine:
    """One container, as it really is."""

    container_id: str
    build: Build
    is_paused: bool = False
    """What ``/is_paused`` says: true from the start of a pause on."""
    works_until: float = 0.0
    """While paused: when the last running request ends."""
    asked_by: set["Life"] = field(default_factory=set)
    """The actors that asked for the drain that goes on, and live."""
    is_in_the_object: bool = False
    """The object has said, ever since that drain began, that it may go on."""
    is_asleep: bool = False
    asleep_since: float = 0.0
    disagrees: bool = False
    behaviour: Behaviour = Behaviour.SOUND
    latency: float = 0.01
    drain_seconds: float = 0.0
    """How long a ``wait`` takes."""
    open_calls: dict["Life", ControlCall] = field(default_factory=dict)
    """Control calls that are not answered."""
    connections: dict[asyncio.Future[tuple[int, str]], None] = field(default_factory=dict)
    """Requests that are not answered."""
    killed_by: "tuple[Life, int] | None" = None
    """Whose call it died of, and the generation it was sent for."""
    touched_at: float = -NEVER
    """When anything but an operator last changed it."""

    def generates(self, now: float) -> bool:
        """Whether tokens are generated."""
        return not self.is_asleep and (not self.is_paused or now < self.works_until)

    def obey(self, call: ControlCall, now: float) -> float:
        """Do as asked; returns when that is done."""
        self.disagrees = False
        if call.pause is None:
            self.is_paused, self.works_until = False, now
            return now
        is_wait = call.pause.mode is PauseMode.WAIT
        if self.is_paused and not self.build.confirms_wait:
            return now  # before 0.17 a second pause is answered at once, and changes nothing
        if self.is_paused:
            self.works_until = max(self.works_until, now) if is_wait else now
        else:
            self.works_until = now + self.drain_seconds if is_wait else now
        self.is_paused = True
        return self.works_until

    def tell(self, path: str) -> tuple[int, str]:
        """Answer a read."""
        if self.behaviour is Behaviour.FAILS_READS:
            return 500, '{"error": {"message": "boom"}}'
        is_control_route = path == "/is_paused"
        if (self.behaviour is Behaviour.HAS_NO_ROUTES and is_control_route) or (
            path == "/server_info" and not self.build.has_server_info
        ):
            return 404, '{"detail": "Not Found"}'
        match path:
            case "/version":
                return 200, f'{{"version": "{self.build.version}"}}'
            case "/server_info":
                sleeps = str(self.build.can_sleep).lower()
                return 200, f'{{"data_parallel_size": {self.build.ranks}, "enable_sleep_mode": {sleeps}}}'
            case "/metrics":
                value = f"{self.is_asleep:d}.0"
                return 200, f'vllm:engine_sleep_state{{engine="0",sleep_state="weights_offloaded"}} {value}\n'
            case "/is_paused" if self.disagrees:
                return 500, '{"error": {"message": "different is_scheduler_paused results: [True, False]"}}'
            case "/is_paused":
                return 200, f'{{"is_paused": {str(self.is_paused or self.is_asleep).lower()}}}'
        return 404, ""


@dataclass(eq=False)
class Pod:
    """One pod with one container that declares one port."""

    name: str
    uid: str
    engine: Engine
    address: str
    gate: Gate | None = None
    opened_by: "Life | None" = None
    """Who opened its gate last."""
    started: bool = True
    ready: bool = True
    listens: bool = True
    version: int = 0
    """The resourceVersion."""
    former_container_id: str = ""
    """What the container's status says until the next container runs."""

    def item(self) -> JSON:
        """As the API server shows it."""
        state = "running" if self.started else "waiting"
        container_id = self.engine.container_id if self.started else self.former_container_id
        status: JSON = {
            "phase": "Running",
            "podIP": self.address,
            "containerStatuses": [
                {
                    "name": "engine",
                    "containerID": container_id,
                    "ready": self.ready and self.started,
                    "state": {state: {}},
                }
            ],
        }
        spec: JSON = {"containers": [{"name": "engine", "ports": [{"containerPort": 8000}]}]}
        if self.gate is not None:
            spec["readinessGates"] = [{"conditionType": READINESS_GATE}]
            if self.gate.serving is not None:
                since = datetime.fromtimestamp(self.gate.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                status["conditions"] = [
                    {"type": READINESS_GATE, "status": str(self.gate.serving), "lastTransitionTime": since}
                ]
        metadata = {
            "name": self.name,
            "namespace": "default",
            "uid": self.uid,
            "labels": {"app": "qwen", "shard": self.name},
            "resourceVersion": str(self.version),
        }
        return {"metadata": metadata, "spec": spec, "status": status}
