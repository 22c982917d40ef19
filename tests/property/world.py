"""A small world for the pure core: engines with faults, pods with gates, and an API server with one LLMService.

Time stands still unless :meth:`World.advance` moves it, from one event to the next; there is one clock, in seconds since the
epoch. One or two operators (:mod:`.replica`) act on this world. Each promise that can be checked at one instant is checked
where it could be broken: when a call is sent, when a status is made, and when a write is stored.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum, StrEnum

from llmservice.api import FINALIZER, VERIFY_ANNOTATION, LLMService, LLMServiceStatus, PauseMode
from llmservice.domain import clocks
from llmservice.domain.fleet import (
    NEVER,
    ControlCall,
    Failure,
    Gate,
    Reading,
    Sight,
    Target,
    TargetKey,
    Traits,
)
from llmservice.runtime.slots import Slot
from llmservice_testing.builders import make_llmservice
from llmservice_testing.domain import (
    ALONE,
    ANSWERED_400,
    ANSWERED_404,
    ANSWERED_500,
    CONNECTION_REFUSED,
    EPOCH,
    MODERN,
    TIMED_OUT,
    V0_16,
    make_service,
)

from .promises import promise
from .replica import Operator

REQUEST_TIMEOUT, PAUSE_TIMEOUT = 5.0, 30.0
WRITE_SECONDS = 0.02
WATCH_SECONDS = 0.05
"""How long the watch takes to show a gate that was written."""
RELEASE_SECONDS = 60.0
STORM, STORM_SECONDS = 100, 5.0
"""So many writes within so short a time are a fight between operators."""
V0_14 = replace(V0_16, version="0.14.1")
VERSIONS = (MODERN, ALONE, V0_16, V0_14)


class Behaviour(Enum):
    """What an engine does with what it is asked."""

    SOUND = "does as it is asked"
    HANGS = "never answers, and does nothing"
    LOSES_ANSWERS = "does as it is asked, and the answer is lost"
    FAILS_READS = "answers reads with 500"
    FAILS_CALLS = "answers control calls with 500"
    REFUSES_CALLS = "answers control calls with 400"
    HAS_NO_ROUTES = "answers everything with 404"
    LIES = "answers control calls with 200, and does nothing"
    DIES = "dies of control calls"


class Api(Enum):
    """What the API server does with writes."""

    SOUND = "stores and answers"
    FAILS = "answers 500"
    LOSES_ANSWERS = "stores, and the answer is lost"


class Outcome(StrEnum):
    """What became of a write, as its sender sees it."""

    STORED = "stored"
    CONFLICT = "conflict"
    FAILED = "failed"


@dataclass(eq=False)
class Engine:
    """One container, as it really is."""

    container_id: str
    traits: Traits
    is_paused: bool = False
    """What ``/is_paused`` says: true from the start of a pause on."""
    works_until: float = 0.0
    """While paused: when the last running request ends."""
    asked_by: set[Operator] = field(default_factory=set)
    """The operators that asked for the drain that goes on, and live."""
    is_in_the_object: bool = False
    """The object has said, ever since that drain began, that it may go on."""
    is_asleep: bool = False
    asleep_since: float = 0.0
    disagrees: bool = False
    behaviour: Behaviour = Behaviour.SOUND
    latency: float = 0.01
    drain_seconds: float = 0.0
    """How long a ``wait`` takes."""
    open_calls: dict[Operator, ControlCall] = field(default_factory=dict)
    """Control calls that are not answered."""
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
        if self.is_paused and not self.traits.confirms_wait:
            return now  # before 0.17 a second pause is answered at once, and changes nothing
        if self.is_paused:
            self.works_until = max(self.works_until, now) if is_wait else now
        else:
            self.works_until = now + self.drain_seconds if is_wait else now
        self.is_paused = True
        return self.works_until


@dataclass(eq=False)
class Pod:
    """One pod with one container that declares one port."""

    uid: str
    engine: Engine
    address: str
    gate: Gate | None = None
    opened_by: Operator | None = None
    """Who opened its gate last."""
    started: bool = True
    ready: bool = True
    listens: bool = True

    @property
    def target(self) -> Target:
        """As the watch shows it."""
        url = f"http://{self.address}:8000"
        key = TargetKey(self.uid, self.engine.container_id, "8000", url if self.started else None)
        return Target(key, self.uid, started=self.started, ready=self.ready and self.started)


@dataclass(frozen=True)
class Spec:
    """What can be changed of the object's spec."""

    desired: str | None = None
    mode: str = "abort"
    max_paused: int | None = None
    on_max_paused: str = "warn"
    deletion_policy: str = "leave"
    drain_delay: int = 0
    resync: int = 10
    deadline: int = 600


@dataclass(eq=False)
class World:
    """Everything outside the operators, and the operators."""

    now: float = field(default_factory=lambda: clocks.to_seconds(EPOCH))
    pods: dict[str, Pod] = field(default_factory=dict)
    spec: Spec = Spec()
    object_generation: int = 1
    version: int = 1
    """The resourceVersion."""
    uid: int = 1
    stored: LLMServiceStatus = field(default_factory=LLMServiceStatus)
    finalizers: tuple[str, ...] = ()
    deleted: str | None = None
    verify: int | None = None
    verify_asked_at: dict[str, float] = field(default_factory=dict)
    api: Api = Api.SOUND
    gates_are_refused: bool = False
    view_is_complete: bool = True
    lag: float = 0.0
    """How late the second operator hears of the object."""
    posts: int = 0
    writes: int = 0
    gate_writes: int = 0
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _sequence: int = 0
    _service: LLMService | None = None
    _bare: LLMService | None = None
    """The object without its status."""
    _made_for: object = None
    _stored_at: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.operators = [Operator(self)]

    @property
    def service(self) -> LLMService:
        """The object as the API server has it."""
        if self._service is not None:
            return self._service
        identity = (self.spec, self.object_generation, self.uid, self.deleted, self.finalizers, self.verify)
        if self._made_for != identity:
            self._made_for = identity
            spec = self.spec
            builder = make_llmservice("qwen").selector(app="qwen").deletion_policy(spec.deletion_policy)
            builder.pause(mode=spec.mode, timeoutSeconds=int(PAUSE_TIMEOUT), drainDelaySeconds=spec.drain_delay)
            builder.spec(requestTimeoutSeconds=int(REQUEST_TIMEOUT), resyncSeconds=spec.resync)
            builder.spec(progressDeadlineSeconds=spec.deadline, onMaxPaused=spec.on_max_paused)
            if spec.max_paused is not None:
                builder.spec(maxPausedSeconds=spec.max_paused)
            if spec.desired is not None:
                builder.generation(spec.desired)
            if self.verify is not None:
                builder.annotations({VERIFY_ANNOTATION: str(self.verify)})
            self._bare = make_service(
                builder,
                object_generation=self.object_generation,
                uid=f"uid-{self.uid}",
                deleted=self.deleted,
                finalizers=self.finalizers,
            )
        assert self._bare is not None
        self._service = self._bare.model_copy(update={"status": self.stored})
        return self._service

    @property
    def timestamp(self) -> str:
        """The present time as the API writes it."""
        return datetime.fromtimestamp(self.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    # What happens

    def at(self, when: float, event: Callable[[], None]) -> None:
        """Let something happen later."""
        self._sequence += 1
        heapq.heappush(self._events, (when, self._sequence, event))

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        end, passes = self.now + seconds, 0
        while True:
            following = min(self._events[0][0] if self._events else NEVER, *(each.due for each in self.operators))
            if following > end:
                break
            passes = passes + 1 if following <= self.now else 0
            promise(passes < 300, "R14", "the operator goes on and on while no time passes")
            self.now = max(self.now, following)
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            for operator in tuple(self.operators):
                if operator.due <= self.now and operator in self.operators:
                    operator.go()
        self.now = end

    def respec(self, spec: Spec) -> None:
        """The spec changes; where it does not, nothing happens."""
        if spec != self.spec:
            self.spec = spec
            self.object_generation += 1
            self._changed()

    def ask_to_verify(self) -> None:
        """Somebody sets the annotation."""
        self.verify = (self.verify or 0) + 1
        self.verify_asked_at[str(self.verify)] = self.now
        self._changed()

    def delete(self) -> None:
        """The object is deleted: it goes at once, or when its finalizers are gone."""
        if self.deleted is None and self.finalizers:
            self.deleted = self.timestamp
            self.object_generation += 1
            self._changed()
        elif not self.finalizers:
            self._gone()

    def _gone(self) -> None:
        """The object is gone, and another of the same name is made at once."""
        self.object_generation, self.stored, self.finalizers, self.deleted = 1, LLMServiceStatus(), (), None
        self.uid += 1
        self.version += 1
        self._service = None
        for pod in self.pods.values():
            pod.engine.is_in_the_object = False
        for place in range(len(self.operators)):
            self.crash(place)

    def _changed(self, by: Operator | None = None) -> None:
        self.version += 1
        self._service = None
        service, version = self.service, self.version
        for place, operator in enumerate(self.operators):
            if operator is by:
                continue
            if place == 0 or not self.lag:
                operator.hear(service, version)
            else:
                self.at(self.now + self.lag, lambda who=operator: who.hear(service, version))  # type: ignore[misc]

    def crash(self, place: int = 0) -> None:
        """One operator dies at this instant, and another one starts."""
        self._dies(self.operators[place])
        self.operators[place] = Operator(self)

    def join(self) -> None:
        """A second operator starts, as in a rolling update. Documented: before 0.17 the second of two waits is answered at
        once, so that two operators deceive each other; the world spares such engines that."""
        if len(self.operators) == 1 and all(pod.engine.traits.confirms_wait for pod in self.pods.values()):
            self.operators.append(Operator(self))

    def leave(self, place: int) -> None:
        """One of two operators dies, and none replaces it."""
        if len(self.operators) == 2:
            self._dies(self.operators[place])
            del self.operators[place]
            self.operators[0].hear(self.service, self.version)

    def _dies(self, operator: Operator) -> None:
        operator.is_alive = False
        for pod in self.pods.values():
            pod.engine.open_calls.pop(operator, None)
            pod.engine.asked_by.discard(operator)

    def see(self, uid: str) -> None:
        """The watch shows a pod to everybody."""
        for operator in self.operators:
            operator.see(uid)

    def restart(self, pod: Pod) -> None:
        """The container ends, and another one runs a second later."""
        number = int(pod.engine.container_id.rpartition("/")[2]) + 1
        old = pod.engine
        pod.engine = Engine(
            f"containerd://{pod.uid}/{number}", old.traits, behaviour=old.behaviour, latency=old.latency
        )
        pod.engine.drain_seconds, pod.engine.touched_at = old.drain_seconds, self.now
        pod.started, pod.ready, pod.listens = False, False, False

        def up() -> None:
            if self.pods.get(pod.uid) is pod:
                pod.started = pod.ready = pod.listens = True
                pod.engine.touched_at = self.now
                self.see(pod.uid)

        self.see(pod.uid)
        self.at(self.now + 1.0, up)

    def swap_addresses(self, one: str, other: str) -> None:
        """Two pods change their addresses, as after a restart of both sandboxes."""
        first, second = self.pods[one], self.pods[other]
        first.address, second.address = second.address, first.address
        first.engine.touched_at = second.engine.touched_at = self.now
        self.see(one)
        self.see(other)

    def mend(self) -> None:
        """Everything that was wrong is right from now on; old versions stay old and who sleeps goes on sleeping."""
        self.api, self.gates_are_refused, self.view_is_complete, self.lag = Api.SOUND, False, True, 0.0
        for operator in self.operators:
            operator.hear(self.service, self.version)
        for pod in self.pods.values():
            pod.started = pod.ready = pod.listens = True
            pod.engine.behaviour, pod.engine.latency, pod.engine.disagrees = Behaviour.SOUND, 0.01, False
            pod.engine.touched_at = self.now
            self.see(pod.uid)

    # What an operator asks of engines

    def read(self, slot: Slot, timeout: float, done: Callable[[Reading | Failure], None]) -> None:
        """GET /is_paused."""
        pod = self.pods[slot.key[0]]
        engine = pod.engine

        def answer() -> Reading | Failure:
            if not pod.listens:
                return CONNECTION_REFUSED
            match engine.behaviour:
                case Behaviour.HANGS | Behaviour.LOSES_ANSWERS:
                    return TIMED_OUT
                case Behaviour.FAILS_READS:
                    return ANSWERED_500
                case Behaviour.HAS_NO_ROUTES:
                    return ANSWERED_404
            if engine.is_asleep:
                return Reading(Sight.SLEEPING, engine.traits)
            if engine.disagrees:
                return Reading(Sight.INCONSISTENT, engine.traits, "[True, False]")
            return Reading(Sight.PAUSED if engine.is_paused else Sight.RUNNING, engine.traits)

        if engine.latency >= timeout or engine.behaviour in (Behaviour.HANGS, Behaviour.LOSES_ANSWERS):
            self.at(self.now + timeout, lambda: done(TIMED_OUT))
        else:
            self.at(self.now + engine.latency, lambda: done(answer()))

    def call(
        self, by: Operator, slot: Slot, call: ControlCall, timeout: float, done: Callable[[Failure | None], None]
    ) -> None:
        """POST /pause or /resume."""
        pod = self.pods.get(slot.key[0])
        promise(
            pod is not None and pod.target.key == slot.state.target.key, "R8", "another target is called than is meant"
        )
        assert pod is not None
        engine = pod.engine
        self.posts += 1
        self._judge_call(by, slot, pod, call)
        engine.open_calls[by] = call

        def end(failure: Failure | None) -> None:
            if engine.open_calls.get(by) is call:
                del engine.open_calls[by]
                done(failure)

        was_draining = engine.is_paused and engine.generates(self.now)
        ends, failure = self._effect(pod, engine, call)
        if call.is_wait and engine.generates(self.now):
            pause = self.stored.last_pause
            engine.asked_by.add(by)
            is_in_the_object = pause is not None and not pause.answered
            engine.is_in_the_object = is_in_the_object and (engine.is_in_the_object or not was_draining)
        elif not engine.generates(self.now) or not engine.is_paused:
            engine.asked_by.clear()
        ends += engine.latency
        if ends > self.now + timeout:
            self.at(self.now + timeout, lambda: end(TIMED_OUT))
        else:
            self.at(ends, lambda: end(failure))

    def give_up(self, by: Operator, slot: Slot) -> None:
        """The connection of an open control call is closed; the engine does not notice."""
        engine = self.pods[slot.key[0]].engine
        call = engine.open_calls.pop(by)
        promise(call.is_wait, "R2", "another call than a wait is called off")
        promise(engine.traits.can_overtake, "R2", "a drain is called off that nothing can overtake")
        aim = aim_of(by.service, self.now)
        promise(
            aim == "running" or (aim == "paused" and by.service.spec.pause.mode is PauseMode.ABORT),
            "R2",
            f"a drain is called off while {aim} is wanted",
        )

    def forget(self, by: Operator, slot: Slot) -> None:
        """The place of a target is another's now: the answer to a call that is open no longer counts."""
        for pod in self.pods.values():
            if pod.engine.container_id == slot.state.target.key.container_id:
                pod.engine.open_calls.pop(by, None)

    def _effect(self, pod: Pod, engine: Engine, call: ControlCall) -> tuple[float, Failure | None]:
        """What a control call does; when it is done, and what is answered then."""
        if not pod.listens:
            return self.now, CONNECTION_REFUSED
        match engine.behaviour:
            case Behaviour.HANGS:
                return NEVER, None
            case Behaviour.LOSES_ANSWERS:
                engine.obey(call, self.now)
                return NEVER, None
            case Behaviour.FAILS_CALLS:
                return self.now, ANSWERED_500
            case Behaviour.REFUSES_CALLS:
                return self.now, ANSWERED_400
            case Behaviour.HAS_NO_ROUTES:
                return self.now, ANSWERED_404
            case Behaviour.LIES:
                return self.now, None
            case Behaviour.DIES:
                self.at(self.now, lambda: self.restart(pod) if pod.engine is engine else None)
                return self.now, TIMED_OUT
        return engine.obey(call, self.now), None

    def _judge_call(self, by: Operator, slot: Slot, pod: Pod, call: ControlCall) -> None:
        engine, service = pod.engine, by.service
        promise(by not in engine.open_calls, "R2", "a second control call is sent while one is open")
        # It may fall asleep in the second between the read and the call.
        slept = engine.is_asleep and engine.asleep_since <= by.known[slot.state.target.key].read_at
        promise(not slept, "R7", "a sleeping engine is called")
        promise(self.view_is_complete, "R11", "a call begins with an incomplete view")
        # Between two passes of the operator no time passes, but a limit may be reached.
        aims = {aim_of(service, self.now), aim_of(service, self.now - 0.001)}
        promise(call.aim.value in aims, "R13", f"a call to be {call.aim} while {aims} is wanted")
        if call.pause is None:
            return
        promise(call.pause.mode in engine.traits.modes, "R6", f"{call.pause.mode} is sent to {engine.traits.version}")
        is_held = service.spec.deletion_policy == "leave" or FINALIZER in service.metadata.finalizers
        promise(is_held, "deletionPolicy", "a pause is sent without the finalizer")
        pause = service.status.last_pause
        if call.is_wait:
            promise(pause is not None and not pause.answered, "R5", f"a wait is sent while {pause} is stored")
        self._judge_gate(by, pod)

    def _judge_gate(self, by: Operator, pod: Pod) -> None:
        gate, delay = pod.gate, by.service.spec.pause.drain_delay_seconds
        if gate is None or gate.serving is None:
            return
        refused_at = by.refused_gate_at(pod.uid)
        if refused_at is not None and self.now >= refused_at + delay:
            return
        if gate.serving:
            is_known = pod.opened_by is by or by.has_seen_gate(pod)
            promise(not is_known, "readiness gate", "a pause is sent while the pod is in service")
        else:
            promise(self.now >= gate.since + delay, "drainDelaySeconds", "a pause is sent before the delay is over")

    # What an operator writes

    def write(
        self,
        by: Operator,
        status: LLMServiceStatus | None,
        finalizers: tuple[str, ...] | None,
        version: int,
        done: Callable[[Outcome], None],
    ) -> None:
        """PUT /status, or PUT of the object for its finalizers; with the resourceVersion that is known."""

        def arrive() -> None:
            api = self.api
            if api is Api.FAILS or not by.is_alive:
                outcome = Outcome.FAILED
            elif version != self.version:
                outcome = Outcome.CONFLICT
            else:
                outcome = Outcome.STORED if api is Api.SOUND else Outcome.FAILED
                self._store(by, status, finalizers)
            self.at(self.now + WRITE_SECONDS, lambda: done(outcome))

        self.at(self.now + WRITE_SECONDS, arrive)

    def _store(self, by: Operator, status: LLMServiceStatus | None, finalizers: tuple[str, ...] | None) -> None:
        self.writes += 1
        self._stored_at.append(self.now)
        is_storm = len(self._stored_at) > STORM and self.now - self._stored_at[-STORM] < STORM_SECONDS
        promise(not is_storm, "R14", "operators write back and forth")
        if status is not None:
            self._judge_write(status)
            self.stored = status
            if status.last_pause is None or status.last_pause.answered:
                for pod in self.pods.values():
                    pod.engine.is_in_the_object = False
        if finalizers is not None:
            promise(finalizers != self.finalizers, "R14", "the same finalizers are written again")
            if self.deleted is not None and FINALIZER not in finalizers:
                self._judge_release(by)
            self.finalizers = finalizers
            if self.deleted is not None and not finalizers:
                self._gone()
                return
        self._changed(by if self.api is Api.SOUND else None)

    def _judge_write(self, status: LLMServiceStatus) -> None:
        before, generation = self.stored, self.object_generation
        promise(status != before, "R14", "the same is written again")
        promise(status.observed_generation >= before.observed_generation, "R19", "observedGeneration goes back")
        promise(status.observed_generation <= generation, "R19", "observedGeneration is ahead")
        earlier = {each.type: each for each in before.conditions}
        for each in status.conditions:
            known = earlier.get(each.type)
            has_moved = known is None or known.last_transition_time != each.last_transition_time
            promise(
                known is None or has_moved <= (known.status != each.status),
                "R19",
                f"{each.type} moves without its status",
            )
            promise(
                known is None or known.status == each.status or each.last_transition_time >= known.last_transition_time,
                "R19",
                "lastTransitionTime goes back",
            )
        if before.paused_since_generation == generation == status.observed_generation:
            promise(status.paused_since == before.paused_since, "maxPausedSeconds", "the clock of a pause is set anew")
        if status.last_handled_verify not in (None, before.last_handled_verify):
            promise(status.last_handled_verify in self.verify_asked_at, "verify", "an echo of what nobody asked")

    def _judge_release(self, by: Operator) -> None:
        """The finalizer goes: every engine that could be read since the deletion runs, or a minute is over."""
        deleted_at = clocks.to_seconds(self.deleted or EPOCH)
        if self.now >= deleted_at + RELEASE_SECONDS or aim_of(self.service, self.now) != "running":
            return
        for pod in self.pods.values():
            is_sound = pod.engine.behaviour is Behaviour.SOUND and pod.engine.latency < 1.0 and pod.listens
            if is_sound and pod.ready and not pod.engine.is_asleep and pod.engine.touched_at < deleted_at:
                runs = not pod.engine.is_paused and not pod.engine.disagrees
                promise(runs, "deletionPolicy", f"{pod.uid} is left paused although it could be resumed")

    def write_gate(self, by: Operator, uid: str, serving: bool, done: Callable[[Gate | None], None]) -> None:
        """PATCH of the pod's readiness gate; ``done`` gets it as it is then, or None where it was refused."""
        pod = self.pods[uid]

        def arrive() -> None:
            present = pod.gate
            if self.gates_are_refused or present is None or self.pods.get(uid) is not pod:
                self.at(self.now + WRITE_SECONDS, lambda: done(None))
                return
            self.gate_writes += 1
            written = Gate(serving, math.floor(self.now)) if present.serving is not serving else present
            pod.gate = written
            if serving:
                pod.opened_by = by
            self.at(self.now + WRITE_SECONDS, lambda: done(written))
            self.at(self.now + WATCH_SECONDS, lambda: self.see(uid) if uid in self.pods else None)

        self.at(self.now + WRITE_SECONDS, arrive)


def aim_of(service: LLMService, now: float) -> str | None:
    """What the engines are to be, by another reading of DESIGN section 4."""
    spec, status, generation = service.spec, service.status, service.metadata.object_generation
    if spec.generation is None:
        return None
    if service.metadata.deletion_timestamp is not None and spec.deletion_policy == "resume":
        return "running"
    is_timed = spec.max_paused_seconds is not None and spec.on_max_paused == "resume" and spec.generation == "paused"
    is_counted = status.paused_since is not None and status.paused_since_generation == generation
    ends_at = clocks.to_seconds(status.paused_since or EPOCH) + (spec.max_paused_seconds or 0) + 1.0  # whole seconds
    if is_timed and is_counted and now >= ends_at:
        return "running"
    return str(spec.generation)
