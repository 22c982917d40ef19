"""The values that everything else is computed from: pods, targets, and what is known about a target.

All are frozen. A change is a new value, so that any of them can be printed, compared and kept by a test.
Times are seconds of one monotonic clock that the caller owns; they are compared and subtracted, never shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from llmservice.api import Desired, PauseMode, Reason

NEVER = float("inf")
"""A time that does not come: something else has to change first."""


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod, from its spec and its ``containerStatuses`` entry."""

    name: str
    ports: Mapping[str | int, int]
    """Port numbers by name and by themselves."""
    container_id: str = ""
    """``containerStatuses[].containerID``; empty before the first start. A restart changes it."""
    running: bool = False
    """False while waiting or terminated."""
    ready: bool = False
    """What its readiness probe says; true without a probe, as soon as it runs."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The readiness gate ``llmservice.io/serving`` of a pod that declares it."""

    serving: bool | None
    """The condition's status; None while it has no condition yet, which keeps the pod unready."""
    since: float = 0.0
    """Its lastTransitionTime, seconds since the epoch; 0 without a condition."""


Owner = tuple[str, str]
"""Kind and name."""


@dataclass(frozen=True, slots=True)
class Pod:
    """The part of a pod that decides anything."""

    name: str
    uid: str
    labels: Mapping[str, str]
    ip: str
    """``status.podIP``; empty before it is assigned."""
    counts: bool
    """False for a pod that is terminating, Succeeded or Failed: such pods are never called."""
    containers: tuple[Container, ...]
    gate: Gate | None = None
    """None for a pod that does not declare the readiness gate."""
    owners: tuple[Owner, ...] = ()
    """What controls it, and the Deployment above a ReplicaSet."""


@dataclass(frozen=True, slots=True)
class TargetKey:
    """Which engine endpoint this is. Another key is another target, about which nothing is known."""

    pod_uid: str
    container_id: str
    """``containerID`` of the container that declares the port; of all, joined, if none does."""
    port: str
    """As written in ``spec.engine.ports``."""
    url: str | None
    """Base URL without a trailing slash; None without a pod address or where no container has the named port."""


@dataclass(frozen=True, slots=True)
class Target:
    """One engine endpoint, and what its pod says of it at present."""

    key: TargetKey
    pod: str
    started: bool
    """The pod has an address and the container runs."""
    ready: bool
    """``containerStatuses`` says that the container is ready. Without a readiness probe this is true from the start, so a
    refused connection then counts as unreachable."""
    port_missing: bool = False
    """No container has a port of this name."""
    proxies: tuple[str, ...] = ()
    """Base URLs of which each speaks for the same engine, for an engine that consists of several processes (Ray Serve);
    empty for one that speaks for itself at ``key.url``. The key's container_id then names all proxies."""

    @property
    def is_aggregate(self) -> bool:
        """Whether its answers are about several processes at once."""
        return bool(self.proxies)


class State(StrEnum):
    """The state of a target as people see it; the first that fits, in this order."""

    STARTING = "starting"
    SLEEPING = "sleeping"
    PAUSING = "pausing"
    RESUMING = "resuming"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    PAUSED = "paused"
    RUNNING = "running"
    UNREAD = "unread"
    """Not read yet, and the time for it has not passed. Counted in the total only."""


class Sight(StrEnum):
    """What a valid answer says about an engine."""

    PAUSED = "paused"
    RUNNING = "running"
    SLEEPING = "sleeping"
    INCONSISTENT = "inconsistent"
    """The ranks of one engine disagree."""


class Obstacle(StrEnum):
    """Why a call brought no usable answer, as far as the difference decides anything."""

    NOT_LISTENING = "not listening"
    """Refused, or answered 502/503 by something in the engine's place: an engine that is starting does this, too."""
    STARTING = "starting"
    """The engine's own front says that there is nothing behind it yet, whatever its container's readiness says."""
    LOST = "lost"
    """No, half or nonsensical answer, a timeout, a redirect, 5xx and the like: unknown what happened; try again later."""
    REFUSED = "refused"
    """A permanent 4xx: trying again will not help until something changes."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A call without a usable answer."""

    obstacle: Obstacle
    kind: str
    """What happened, in words that are the same when the same happens again: ``timed out``, ``answered 500``."""
    message: str
    """A sentence with the engine's own words, bounded in length."""
    reason: Reason | None = None
    """What a person has to look at; given exactly with :attr:`Obstacle.REFUSED`."""

    def is_like(self, other: "Failure") -> bool:
        """Whether both are the same trouble, though perhaps in other words."""
        return (self.obstacle, self.kind, self.reason) == (other.obstacle, other.kind, other.reason)


@dataclass(frozen=True, slots=True)
class Traits:
    """What an engine said about itself. Belongs to one container: a restart may bring another version."""

    version: str
    """As reported; empty if it reported none."""
    modes: frozenset[PauseMode]
    """The pause modes that this version can be asked for without doing something else."""
    confirms_wait: bool
    """A repeated ``wait`` answers only when the drain is over, so that a lost answer can be had again."""
    assumed: bool = False
    """The version is missing, unknown or too old, and taken for the newest known."""
    can_overtake: bool = False
    """A drain can be called off by another call: the engine is alone (data-parallel size 1) and its version does that."""
    sleep_mode: bool | None = False
    """Whether the engine can be asleep. None: it could not be asked this time; it counts as awake and is asked again."""
    product: str = "vLLM"
    """What it is, for people."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A valid answer to a read."""

    sight: Sight
    traits: Traits
    message: str = ""
    """The engine's own words where ``sight`` is INCONSISTENT."""
    replicas: str = ""
    """Of an aggregate: a digest of the proxies and replicas that the answer is about."""


@dataclass(frozen=True, slots=True)
class PauseParameters:
    """How a pause is asked for."""

    mode: PauseMode
    clear_cache: bool


@dataclass(frozen=True, slots=True)
class ControlCall:
    """A POST that changes an engine: a pause with its parameters, or, without, a resume."""

    pause: PauseParameters | None

    @property
    def aim(self) -> Desired:
        """What the engine should be after it."""
        return Desired.RUNNING if self.pause is None else Desired.PAUSED

    @property
    def is_wait(self) -> bool:
        """Whether it is answered only when running requests are finished."""
        return self.pause is not None and self.pause.mode is PauseMode.WAIT


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A control call that is not answered yet."""

    call: ControlCall
    object_generation: int
    """The ``metadata.generation`` it was sent for."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A permanent refusal of a control call, and what it was about: when any of this changes it is tried at once."""

    call: ControlCall
    object_generation: int
    sight: Sight | None
    at: float
    failure: Failure


@dataclass(frozen=True, slots=True)
class TargetState:
    """All that is known about one target. It starts empty and grows only by :mod:`llmservice.domain.observe`."""

    target: Target
    first_seen: float

    traits: Traits | None = None
    sight: Sight | None = None
    """The last valid read of this container; None before the first."""
    words: str = ""
    """The engine's words that came with it."""
    read_at: float = -NEVER
    """When that read was answered."""
    read_object_generation: int = -1
    """The newest ``metadata.generation`` that was known when that read was sent."""
    asked_object_generation: int = -1
    """The same for the last read that was sent, whatever became of it."""
    failed_object_generation: int = -1
    """The same for the last read that brought no valid answer."""
    is_called_since: bool = False
    """A control call was sent after that read, which therefore says nothing about the present."""

    failures: int = 0
    """Reads in a row without a valid answer."""
    failure: Failure | None = None
    """Why the last read brought no valid answer; None when it did."""
    next_read_at: float = -NEVER
    """When it is read again if nothing else happens."""

    open_call: OpenCall | None = None
    setbacks: int = 0
    """Control calls in a row after which the engine was not as asked."""
    setback: Failure | None = None
    """Why the last one failed; None if it was answered with success."""
    next_call_at: float = -NEVER
    may_pause_at: float = -NEVER
    """No pause is sent before this time: its pod has to leave the Service first. NEVER until the gate is closed."""
    refusal: Refusal | None = None

    drained: bool = False
    """While a ``wait`` is unanswered: this engine has answered it, or was paused before it was asked."""
    has_answered: bool = False
    """It answered a pause of ours and was not seen running since: it does not drain, whatever others store."""
    undrained: bool = False
    """A ``wait`` was sent to this engine and not answered, and it was not seen running since: whatever is wanted by now,
    "paused" may mean "draining"."""
    replicas: str = ""
    """Of an aggregate: the digest that came with the last valid read."""
    paused_replicas: str | None = None
    """Of an aggregate: the digest for which a pause of ours was answered, with no resume sent since."""
    effective_object_generation: int = -1
    """The ``metadata.generation`` for which it was last read as effective: a difference under the same one is drift."""
    called_at: float = -NEVER
    """When the last control call was sent."""
    condemned: Failure | None = None
    """It died twice of our calls and is left alone (see :mod:`llmservice.domain.deaths`)."""
