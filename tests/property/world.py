"""A small world for the pure core: engines with faults, pods, an API server, and an operator without any I/O.

Time stands still unless :meth:`World.advance` moves it, from one event to the next. The operator here does what
`llmservice.runtime` does around the core (what is in flight, what is stored, when it is written), on this clock. Each
promise that can be checked at one instant is checked where it could be broken: when a call is sent, and when a status is
made.
"""

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum

from llmservice.api import Desired, LastPause, LLMService, LLMServiceStatus, PauseMode, Reason
from llmservice.domain import deaths, observe, policy, report, step
from llmservice.domain.deaths import Deaths
from llmservice.domain.fleet import (
    NEVER,
    ControlCall,
    Failure,
    Obstacle,
    Reading,
    Sight,
    State,
    Target,
    TargetKey,
    Traits,
)
from llmservice.domain.policy import Wanted
from llmservice.domain.status import Fleet, compose
from llmservice.runtime.slots import Slot, SlotKey, Slots
from llmservice_testing.builders import make_llmservice
from llmservice_testing.domain import (
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

REQUEST_TIMEOUT, PAUSE_TIMEOUT = 5.0, 30.0
WRITE_SECONDS = 0.02
V0_14 = replace(V0_16, version="0.14.1")
VERSIONS = (MODERN, V0_16, V0_14)


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


class BrokenPromiseError(AssertionError):
    """A promise is broken."""


def promise(kept: bool, rule: str, why: str) -> None:
    """Raise BrokenPromiseError unless ``kept``."""
    if not kept:
        raise BrokenPromiseError(f"{rule}: {why}")


@dataclass(eq=False)
class Engine:
    """One container, as it really is."""

    container_id: str
    traits: Traits
    is_paused: bool = False
    """What ``/is_paused`` says: true from the start of a pause on."""
    works_until: float = 0.0
    """While paused: when the last running request ends."""
    is_ours: bool = False
    """The drain that goes on was asked for by an operator that can know of it."""
    is_asleep: bool = False
    asleep_since: float = 0.0
    disagrees: bool = False
    behaviour: Behaviour = Behaviour.SOUND
    latency: float = 0.01
    drain_seconds: float = 0.0
    """How long a ``wait`` takes."""
    open_calls: int = 0
    """Control calls of the living operator that are not answered."""

    def generates(self, now: float) -> bool:
        """Whether tokens are generated."""
        return not self.is_asleep and (not self.is_paused or now < self.works_until)

    def obey(self, call: ControlCall, now: float) -> float:
        """Do as asked; returns when that is done."""
        self.disagrees = False
        if call.pause is None:
            self.is_paused, self.works_until, self.is_ours = False, now, False
            return now
        is_wait = call.pause.mode is PauseMode.WAIT
        if self.is_paused and not self.traits.confirms_wait:
            return now  # before 0.17 a second pause is answered at once, and changes nothing
        if self.is_paused:
            self.works_until = max(self.works_until, now) if is_wait else now
        else:
            self.works_until = now + self.drain_seconds if is_wait else now
        self.is_paused, self.is_ours = True, is_wait
        return self.works_until


@dataclass(eq=False)
class Pod:
    """One pod with one container that declares one port."""

    uid: str
    engine: Engine
    started: bool = True
    ready: bool = True
    listens: bool = True

    @property
    def target(self) -> Target:
        """As the watch shows it."""
        url = f"http://{self.uid}:8000"
        key = TargetKey(self.uid, self.engine.container_id, "8000", url if self.started else None)
        return Target(key, self.uid, started=self.started, ready=self.ready and self.started)


@dataclass
class Known:
    """What the operator was really told about one target; kept apart from the core, to judge it."""

    sight: Sight | None = None
    object_generation: int = -1
    read_at: float = -NEVER
    failure: Failure | None = None
    is_called_since: bool = False
    was_effective: bool = True
    last_call: tuple[ControlCall, int] | None = None
    called_at: float = -NEVER


@dataclass(eq=False)
class World:
    """Everything outside the operator, and the operator."""

    now: float = 1000.0
    pods: dict[str, Pod] = field(default_factory=dict)
    desired: str | None = None
    mode: str = "abort"
    resync: int = 10
    object_generation: int = 1
    version: int = 1
    """The resourceVersion."""
    stored: LLMServiceStatus = field(default_factory=LLMServiceStatus)
    api_answers: bool = True
    view_is_complete: bool = True
    posts: int = 0
    writes: int = 0
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _sequence: int = 0

    def __post_init__(self) -> None:
        self.operator = Operator(self)

    @property
    def service(self) -> LLMService:
        """The object as the API server has it."""
        builder = make_llmservice("qwen").selector(app="qwen").pause(mode=self.mode, timeoutSeconds=int(PAUSE_TIMEOUT))
        builder.spec(requestTimeoutSeconds=int(REQUEST_TIMEOUT), resyncSeconds=self.resync)
        if self.desired is not None:
            builder.generation(self.desired)
        return make_service(builder, object_generation=self.object_generation, status=self.stored)

    # What happens

    def at(self, when: float, event: Callable[[], None]) -> None:
        """Let something happen later."""
        self._sequence += 1
        heapq.heappush(self._events, (when, self._sequence, event))

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        end, passes = self.now + seconds, 0
        self.operator.go()
        while True:
            following = min(self._events[0][0] if self._events else NEVER, self.operator.due)
            if following > end:
                break
            passes = passes + 1 if following <= self.now else 0
            promise(passes < 300, "R14", "the operator goes on and on while no time passes")
            self.now = max(self.now, following)
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            self.operator.go()
        self.now = end

    def respec(self, desired: str | None, mode: str) -> None:
        """The spec changes; where it does not, nothing happens."""
        if (desired, mode) != (self.desired, self.mode):
            self.desired, self.mode = desired, mode
            self._changed()

    def touch(self) -> None:
        """Something in the spec changes that no engine has to do with."""
        self.resync = 19 - self.resync
        self._changed()

    def _changed(self) -> None:
        self.object_generation += 1
        self.version += 1
        self.operator.hear()

    def crash(self) -> None:
        """The operator dies at this instant, and another one starts."""
        is_known = self.stored.last_pause is not None and not self.stored.last_pause.answered
        for pod in self.pods.values():
            pod.engine.open_calls = 0
            # Documented: a drain from before a resume that was never sent is not remembered over a restart.
            pod.engine.is_ours = pod.engine.is_ours and is_known
        self.operator = Operator(self)

    def restart(self, pod: Pod) -> None:
        """The container ends, and another one runs a second later."""
        number = int(pod.engine.container_id.rpartition("/")[2]) + 1
        old = pod.engine
        pod.engine = Engine(
            f"containerd://{pod.uid}/{number}", old.traits, behaviour=old.behaviour, latency=old.latency
        )
        pod.engine.drain_seconds = old.drain_seconds
        pod.started, pod.ready, pod.listens = False, False, False

        def up() -> None:
            if self.pods.get(pod.uid) is pod:
                pod.started = pod.ready = pod.listens = True
                self.operator.see(pod.uid)

        self.operator.see(pod.uid)
        self.at(self.now + 1.0, up)

    def mend(self) -> None:
        """Everything that was wrong is right from now on; old versions stay old and who sleeps goes on sleeping."""
        self.api_answers = True
        self.view_is_complete = True
        for pod in self.pods.values():
            pod.started = pod.ready = pod.listens = True
            pod.engine.behaviour, pod.engine.latency, pod.engine.disagrees = Behaviour.SOUND, 0.01, False
            self.operator.see(pod.uid)

    # What the operator asks

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

    def call(self, slot: Slot, call: ControlCall, timeout: float, done: Callable[[Failure | None], None]) -> None:
        """POST /pause or /resume."""
        pod = self.pods[slot.key[0]]
        engine = pod.engine
        self.posts += 1
        self._judge_call(engine, call)
        engine.open_calls += 1
        operator = self.operator

        def end(failure: Failure | None) -> None:
            if operator is self.operator:
                engine.open_calls = 0
            done(failure)

        ends, failure = self._effect(pod, engine, call)
        ends += engine.latency
        if ends > self.now + timeout:
            self.at(self.now + timeout, lambda: end(TIMED_OUT))
        else:
            self.at(ends, lambda: end(failure))

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

    def _judge_call(self, engine: Engine, call: ControlCall) -> None:
        promise(engine.open_calls == 0, "R2", "a second control call is sent while one is open")
        # It may fall asleep in the second between the read and the call.
        slept = engine.is_asleep and engine.asleep_since <= self.operator.known[engine.container_id].read_at
        promise(not slept, "R7", "a sleeping engine is called")
        promise(self.view_is_complete, "R11", "a call begins with an incomplete view")
        promise(call.aim.value == self.desired, "R13", f"a call to be {call.aim} while {self.desired} is wanted")
        if call.pause is not None:
            promise(
                call.pause.mode in engine.traits.modes, "R6", f"{call.pause.mode} is sent to {engine.traits.version}"
            )
        if call.is_wait:
            pause = self.stored.last_pause
            promise(pause is not None and not pause.answered, "R5", f"a wait is sent while {pause} is stored")

    def write(self, status: LLMServiceStatus, version: int, done: Callable[[bool], None]) -> None:
        """PUT /status, judged by what the operator knew when it made it."""

        def arrive() -> None:
            stored = self.api_answers and version == self.version
            if stored:
                self._judge_write(status)
                self.version += 1
                self.stored = status
                self.writes += 1
            self.at(self.now + WRITE_SECONDS, lambda: done(stored))

        self.at(self.now + WRITE_SECONDS, arrive)

    def _judge_write(self, status: LLMServiceStatus) -> None:
        promise(status != self.stored, "R14", "the same is written again")
        promise(status.observed_generation >= self.stored.observed_generation, "R19", "observedGeneration goes back")
        promise(status.observed_generation <= self.object_generation, "R19", "observedGeneration is ahead")


@dataclass(eq=False)
class Operator:
    """One life of the operator, for one LLMService."""

    world: World

    def __post_init__(self) -> None:
        world = self.world
        self.service = world.service
        self.version = world.version
        self.pause: LastPause | None = self.service.status.last_pause
        self.slots = Slots()
        self.known: dict[str, Known] = {}
        """By container."""
        self.is_busy: set[Slot] = set()
        self.deaths: dict[SlotKey, Deaths] = {}
        self.verdicts = deaths.stored_verdicts(self.service.status, self.service.metadata.object_generation)
        self.writing: LLMServiceStatus | None = None
        self.is_stale = True
        self.written_at = self.next_write_at = -NEVER
        self.publish_at = -NEVER
        self.spec_seen_at = world.now
        self.wanted = self._want()
        for uid in world.pods:
            self.see(uid)

    @property
    def due(self) -> float:
        """When it wants to be woken."""
        return min(self.slots.next_due(), self.publish_at)

    @property
    def _is_alive(self) -> bool:
        return self.world.operator is self

    # What it hears

    def hear(self) -> None:
        """The object changed."""
        self.service, self.version = self.world.service, self.world.version
        self.publish_at = self.world.now

    def see(self, uid: str) -> None:
        """A pod changed, came or went."""
        key, now = (uid, "8000"), self.world.now
        pod = self.world.pods.get(uid)
        target = pod.target if pod is not None else None
        slot = self.slots.get(key)
        if slot is not None and target is not None and deaths.is_death(slot.state, target, now):
            self.deaths[key] = deaths.counted(self.deaths.get(key), self.service.metadata.object_generation)
        if slot is not None and (target is None or target.key != slot.state.target.key):
            self.slots.remove(slot)
            self.is_busy.discard(slot)
            slot = None
        self.is_stale = True
        self.publish_at = now
        if target is None:
            return
        if slot is None:
            slot = Slot(key, observe.discovered(target, now))
            self.slots.put(slot)
        else:
            slot.state = observe.updated(slot.state, target, now)
        stored = self.verdicts.get((target.key.pod_uid, target.key.url))
        verdict = deaths.verdict(self.deaths.get(key) or stored, self.service.metadata.object_generation)
        slot.state = replace(slot.state, condemned=verdict)
        self._step(slot)

    # One pass

    def go(self) -> None:
        """Look at everything that is due."""
        self.publish_at = NEVER
        self._refresh()
        for slot in self.slots.pop_due(self.world.now):
            self._step(slot)
        self._publish()
        self._judge_tally()

    def _want(self) -> Wanted:
        before, self.pause = (
            self.pause,
            policy.present_pause(self.service.spec, self.service.spec.generation, self.pause),
        )
        if before is None and self.pause is not None and any(slot.state.undrained for slot in self.slots):
            self.pause = policy.unanswered(self.pause)
        is_storing = self.writing is not None and self.writing.last_pause != self.pause
        return policy.wanted(
            self.service,
            self.service.spec.generation,
            self.pause,
            may_call=self.world.view_is_complete,
            is_storing=is_storing,
        )

    def _refresh(self) -> None:
        before, self.wanted = self.wanted, self._want()
        if self.wanted == before:
            return
        self.is_stale = True
        spec_changed = self.wanted.object_generation != before.object_generation
        if spec_changed:
            self.spec_seen_at = self.world.now
        for slot in self.slots:
            if spec_changed:
                slot.state = replace(observe.spec_changed(slot.state), condemned=None)
            self._step(slot)

    def _step(self, slot: Slot) -> None:
        if slot not in self.is_busy:
            match step.next_action(self.wanted, slot.state, self.world.now):
                case step.Read():
                    self._read(slot)
                case ControlCall() as call:
                    self._call(slot, call)
                case step.Prepare():
                    if self.pause is not None:
                        self.pause = policy.unanswered(self.pause)
                    self.publish_at = self.world.now
                    self._rest(slot, slot.state.next_read_at)
                case step.Until(at):
                    promise(at > self.world.now, "R14", "it waits for a time that is past")
                    self._rest(slot, at)
        else:
            self._rest(slot, NEVER)
        self._account(slot)

    def _rest(self, slot: Slot, at: float) -> None:
        self.slots.schedule(slot, min(at, step.next_change_at(self.wanted, slot.state, self.world.now)))

    def _account(self, slot: Slot) -> None:
        if self.slots.holds(slot) and self.slots.stand(slot, report.standing(self.wanted, slot.state, self.world.now)):
            self.is_stale = True
            self.publish_at = self.world.now

    def _ledger(self, slot: Slot) -> Known:
        return self.known.setdefault(slot.state.target.key.container_id, Known())

    def _read(self, slot: Slot) -> None:
        sent_for = self.wanted
        slot.state = observe.read_sent(slot.state, sent_for)
        self.is_busy.add(slot)

        def done(result: Reading | Failure) -> None:
            if not self._is_alive or not self.slots.holds(slot):
                return
            self.is_busy.discard(slot)
            known, before = self._ledger(slot), slot.state
            if isinstance(result, Failure):
                slot.state = observe.read_failed(slot.state, result, sent_for, self.wanted, self.world.now)
                known.failure = result
            else:
                slot.state = observe.read_answered(slot.state, result, sent_for, self.wanted, self.world.now)
                known.sight, known.object_generation = result.sight, sent_for.object_generation
                known.read_at, known.failure, known.is_called_since = self.world.now, None, False
                known.was_effective |= observe.is_as(self.wanted, slot.state)
            self.is_stale |= (slot.state.failure, slot.state.traits) != (None, before.traits)
            self._step(slot)
            self.publish_at = min(self.publish_at, self.world.now)

        self.world.read(slot, sent_for.request_timeout, done)
        self._rest(slot, NEVER)

    def _call(self, slot: Slot, call: ControlCall) -> None:
        known, now = self._ledger(slot), self.world.now
        generation = self.wanted.object_generation
        promise(
            known.failure is None and now - known.read_at <= 1.0, "R1", "a call does not follow a valid, fresh read"
        )
        promise(known.object_generation == generation, "R1", "a call follows a read of an older spec")
        if call.pause is not None and known.sight is Sight.PAUSED:
            promise(
                self.wanted.wait_unanswered or slot.state.undrained,
                "R5",
                "an engine that is paused is paused once more",
            )
        is_repeated = known.last_call == (call, generation) and not known.was_effective
        promise(not is_repeated or now - known.called_at >= 1.0, "R4", "what failed is tried again within a second")
        count = self.deaths.get(slot.key)
        promise(
            count is None or count.object_generation != generation or count.count < 2,
            "R21",
            "it died twice of our calls",
        )
        known.last_call, known.called_at, known.is_called_since, known.was_effective = (
            (call, generation),
            now,
            True,
            False,
        )
        timeout = self.wanted.request_timeout if call.pause is None else self.wanted.pause_timeout
        slot.state = observe.call_sent(slot.state, call, self.wanted, now)
        self.is_busy.add(slot)

        def done(failure: Failure | None) -> None:
            if not self._is_alive or not self.slots.holds(slot):
                return
            self.is_busy.discard(slot)
            slot.state = observe.call_ended(slot.state, failure, self.wanted, self.world.now)
            self.is_stale = True
            self._step(slot)
            self.publish_at = min(self.publish_at, self.world.now)

        self.world.call(slot, call, timeout, done)
        self._rest(slot, NEVER)

    # The report

    def _publish(self) -> None:
        now = self.world.now
        if self.writing is not None:
            return
        if now < self.next_write_at:
            self.publish_at = min(self.publish_at, self.next_write_at)
            return
        decision = report.decide(self.wanted.effective, self.slots.tally, report.Circumstances())
        if decision.paused[0] == "True" and self.wanted.wait_unanswered and self.pause is not None:
            self.pause = self.pause.model_copy(update={"answered": True})
            self._refresh()
        stored, pause = self.service.status, self.pause
        has_to_store = pause is not None and not pause.answered and stored.last_pause != pause
        hold_until = self.spec_seen_at + REQUEST_TIMEOUT
        if not report.is_everything_answered(self.slots.tally) and now < hold_until:
            if has_to_store:
                self._write(stored.model_copy(update={"last_pause": pause}))
            else:
                self.publish_at = min(self.publish_at, hold_until)
            return
        if not self.is_stale and not has_to_store:
            return
        members = tuple((slot.state, slot.standing) for slot in self.slots if slot.standing is not None)
        differs = policy.spec_pause_differs(self.service.spec, pause)
        fleet = Fleet(
            self.wanted, members, dict(self.slots.tally), {}, pause, differs, report.Circumstances(), None, None
        )
        status = compose(fleet, stored, EPOCH)
        shows = [(each.type, each.reason) for each in status.conditions]
        if not has_to_store and shows == [(each.type, each.reason) for each in stored.conditions]:
            wait = self.written_at + 1.0
            if now < wait and status.observed_generation == stored.observed_generation:
                self.publish_at = min(self.publish_at, wait)
                return
        self.is_stale = False
        if status != stored:
            self._judge_status(status)
            self._write(status)

    def _write(self, status: LLMServiceStatus) -> None:
        self.written_at, self.writing = self.world.now, status

        def done(stored: bool) -> None:
            if not self._is_alive:
                return
            self.writing = None
            self.service, self.version = self.world.service, self.world.version
            if not stored:
                self.is_stale = True
                self.next_write_at = self.world.now + 1.0
            self.publish_at = self.world.now

        self.world.write(status, self.version, done)

    def _judge_tally(self) -> None:
        now = self.world.now
        anew = Counter(report.standing(self.wanted, slot.state, now) for slot in self.slots)
        promise(
            dict(self.slots.tally) == dict(anew), "ADR 3", f"the tally is {self.slots.tally}, made anew it is {anew}"
        )

    def _judge_status(self, status: LLMServiceStatus) -> None:
        conditions = {each.type: each for each in status.conditions}
        promise(
            not {"Stalled", "Reconciling"} <= set(conditions), "conditions", "Stalled and Reconciling stand together"
        )
        promise(
            "Stalled" not in conditions or conditions["Ready"].status == "False", "conditions", "Ready although Stalled"
        )
        promise(
            all(each.observed_generation == status.observed_generation for each in status.conditions),
            "R19",
            "conditions lag",
        )
        says = {"True": True, "False": False, "Unknown": None}[conditions["Paused"].status]
        promise(status.paused is says, "R18", "status.paused and the condition differ")
        expected = [slot for slot in self.slots if self._is_expected(slot)]
        if status.paused is not None:
            promise(bool(expected), "R18", "paused is known although nobody is expected")
            for slot in expected:
                self._judge_read(slot, status.paused)
        ready, desired = conditions["Ready"], self.wanted.effective
        if ready.reason == Reason.IN_DESIRED_STATE:
            for slot in expected:
                self._judge_read(slot, desired is Desired.PAUSED)

    def _is_expected(self, slot: Slot) -> bool:
        """By its own reading of R9, and the core must agree."""
        known, target = self._ledger(slot), slot.state.target
        refused = known.failure is not None and known.failure.obstacle is Obstacle.NOT_LISTENING
        may_start = not target.started or (not target.ready and (refused or known.sight is None))
        shown = step.state_of(self.wanted, slot.state, self.world.now)
        promise(shown is not State.STARTING or may_start, "R9", "a target that may generate counts as starting")
        return shown is not State.STARTING

    def _judge_read(self, slot: Slot, is_paused: bool) -> None:
        known = self._ledger(slot)
        fitting = (Sight.PAUSED, Sight.SLEEPING) if is_paused else (Sight.RUNNING,)
        name = slot.state.target.pod
        promise(known.sight in fitting, "R18", f"{name} was last read as {known.sight}")
        promise(known.object_generation >= self.wanted.object_generation, "R18", f"{name} was not read for this spec")
        promise(not known.is_called_since, "R1", f"{name} was called after it was read")
        pod = self.world.pods[slot.key[0]]
        # Under another spec than paused nobody waits for a drain, so that there paused means what is_paused says.
        if is_paused and pod.engine.is_ours and self.wanted.effective is Desired.PAUSED:
            promise(not pod.engine.generates(self.world.now), "R5", f"{name} drains, and is told to be paused")
