"""The targets of one LLMService: found in its pods, called one by one, counted as they change.

Calls run in tasks, one per target and never two; when one is answered only its own target is stepped. A target that comes
to rest says when it wants to be looked at again.
"""

import logging
from asyncio import Task, current_task
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from llmservice.api import Desired, LLMService
from llmservice.domain import deaths, gate, observe, ownership, report, step
from llmservice.domain.deaths import Deaths
from llmservice.domain.fleet import NEVER, ControlCall, Failure, Pod, Sight, Target, TargetState
from llmservice.domain.policy import Wanted
from llmservice.domain.transitions import Event, EventReason
from llmservice.engines.engine import Engine
from llmservice.runtime.environment import Environment
from llmservice.runtime.gates import Gates
from llmservice.runtime.slots import Slot, SlotKey, Slots

logger = logging.getLogger(__name__)


class Targets:
    """Steps every target as ``wanted`` says. The attribute changes only by :meth:`want` and :meth:`hold`."""

    def __init__(
        self,
        service: LLMService,
        environment: Environment,
        engine: Engine,
        wanted: Wanted,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], Task[None]],
        wake: Callable[[], None],
        on_change: Callable[[], None],
        on_prepare: Callable[[step.Prepare], None],
        on_fact: Callable[[Event], None],
        notice_stall: Callable[[], bool],
    ) -> None:
        """``wake()``: a target is due earlier than was said by :meth:`next_due`. ``on_change()``: something that the status
        shows may have changed. ``on_prepare(what)``: a pause is due, and something has to be in place first."""
        self.wanted = wanted
        self._key = service.key
        self._labels = (service.metadata.namespace, service.metadata.name)
        self._environment = environment
        self._engine = engine
        self._spawn = spawn
        self._wake = wake
        self._on_change = on_change
        self._on_prepare = on_prepare
        self._on_fact = on_fact
        self._notice_stall = notice_stall
        self._slots = Slots()
        self._gates = Gates(environment, service.metadata.namespace, spawn, self._gate_changed)
        self._gates_due_at = NEVER
        self._places: dict[str, dict[str, Pod]] = {}
        """The selected pods, by place and UID."""
        self._older: tuple[LLMService, ...] = ()
        self._claims: dict[str, tuple[str, str]] = {}
        """By pod UID: names of the pod and of the LLMService that owns it."""
        self._deaths: dict[SlotKey, Deaths] = {}
        self._verdicts = deaths.stored_verdicts(service.status, service.metadata.object_generation)
        self._versions_assumed: set[str] = set()
        self._looks_again_at = -NEVER
        self._reads_valid_from = 0
        """Counts the requests to read everything afresh."""

    # What there is

    @property
    def tally(self) -> report.Tally:
        """How many targets stand equally."""
        return self._slots.tally

    @property
    def claims(self) -> dict[str, str]:
        """Names of selected pods that another LLMService owns, and that one's name; sorted."""
        return dict(sorted(self._claims.values()))

    @property
    def has_gates(self) -> bool:
        """Whether any pod declares the readiness gate."""
        return self._gates.are_there

    def pods(self) -> tuple[Pod, ...]:
        """The selected pods that count and are not another LLMService's."""
        selected = (pod for pods in self._places.values() for pod in pods.values())
        return tuple(pod for pod in selected if pod.counts and pod.uid not in self._claims)

    def members(self) -> tuple[tuple[TargetState, report.Standing], ...]:
        """Every target and how it stands."""
        return tuple((slot.state, slot.standing) for slot in self._slots if slot.standing is not None)

    def may_be_paused(self) -> bool:
        """Whether any engine is paused, or may be."""
        return any(
            slot.state.sight is not Sight.RUNNING or slot.state.is_called_since or slot.state.failures > 0
            for slot in self._slots
        )

    def may_drain(self) -> bool:
        """Whether an engine may still be draining from an earlier pause."""
        return any(slot.state.undrained for slot in self._slots)

    # What changes

    def want(self, wanted: Wanted) -> None:
        """Step every target on new terms."""
        before, self.wanted = self.wanted, wanted
        spec_changed = (before.object_generation, before.effective) != (wanted.object_generation, wanted.effective)
        for place in self._places:
            self._follow_gates(place)
        for slot in self._slots:
            if self._gates.are_there:
                slot.state = replace(slot.state, may_pause_at=self._may_pause_at(slot.key[0]))
            if spec_changed:
                condemned = self._verdict(slot.state.target, slot.key)
                slot.state = replace(observe.spec_changed(slot.state), condemned=condemned)
                slot.is_drifting = False
            if step.may_call_off(wanted, slot.state) and not self._notice_stall():
                self._call_off(slot)
            self._step(slot)

    def hold(self) -> None:
        """Begin no control call until one is wanted anew, not even after an answer that is on its way, and write no gate until
        :meth:`release`. Everything is to be read afresh (:meth:`verify`) before."""
        self.wanted = replace(self.wanted, may_call=False)
        self._gates.is_held = True

    def release(self) -> None:
        """Gates may be written again."""
        if self._gates.is_held:
            self._gates.is_held = False
            for place in self._places:
                self._follow_gates(place)

    def know_verdicts(self, service: LLMService) -> None:
        """Engines that this or another operator leaves alone, as the status of ``service`` tells. It may come with a spec
        that is not wanted yet."""
        verdicts = deaths.stored_verdicts(service.status, service.metadata.object_generation)
        if verdicts == self._verdicts:
            return
        self._verdicts = verdicts
        for slot in self._slots:
            slot.state = replace(slot.state, condemned=self._verdict(slot.state.target, slot.key))
            self._step(slot)

    def adopt_wait(self) -> None:
        """Another operator sent a ``wait`` that is not answered yet."""
        for slot in self._slots:
            slot.state = observe.wait_adopted(slot.state)

    def verify(self) -> None:
        """Read every target afresh: what was sent before this moment no longer counts."""
        self._reads_valid_from += 1
        for slot in self._slots:
            slot.state = observe.verify_requested(slot.state)
            self._step(slot)

    def pod_changed(self, uid: str, pod: Pod | None) -> None:
        """A pod appeared or is another one now; None: it is gone, or no longer selected."""
        place = self._engine.place_of(uid)
        pods = self._places.setdefault(place, {})
        if pod is None:
            pods.pop(uid, None)
            self._claims.pop(uid, None)
            self._gates.follow(uid, None)
        else:
            pods[uid] = pod
        self._place(place)
        if not pods:
            del self._places[place]
            self._deaths = {key: count for key, count in self._deaths.items() if key[0] != place}
        self._on_change()

    def know_older(self, older: tuple[LLMService, ...]) -> None:
        """The LLMServices that go before this one where both select a pod."""
        self._older = older
        self._place_all()

    def use(self, engine: Engine) -> None:
        """Call through this engine from now on; calls under way go on."""
        self._engine = engine
        self._place_all()

    def step_due(self, now: float) -> None:
        """Step the targets whose time has come."""
        for slot in self._slots.pop_due(now):
            self._step(slot)
        self._gates_due_at = self._gates.retry_due(now)

    def next_due(self) -> float:
        """When to call :meth:`step_due` again. ``wake()`` is called when that becomes earlier."""
        self._looks_again_at = min(self._slots.next_due(), self._gates_due_at)
        return self._looks_again_at

    # Places

    def _place_all(self) -> None:
        for place in tuple(self._places):
            self._place(place)
        self._on_change()

    def _place(self, place: str) -> None:
        """Let the slots of one place be its present targets."""
        own = [pod for pod in self._places[place].values() if self._is_own(pod)]
        found = {target.key.port: target for target in self._engine.targets_of(own)} if own else {}
        own_uids = {pod.uid for pod in own}
        for uid, pod in self._places[place].items():
            self._gates.follow(uid, pod if uid in own_uids else None)
        for port in self._slots.ports_of(place) | found.keys():
            self._fill((place, port), found.get(port))
        self._follow_gates(place)

    def _is_own(self, pod: Pod) -> bool:
        """Whether the pod counts and no older LLMService owns it; such a claim is kept for the report."""
        owner = ownership.owner_among(self._older, pod.labels) if pod.counts else None
        if owner is not None:
            self._claims[pod.uid] = (pod.name, owner.metadata.name)
        else:
            self._claims.pop(pod.uid, None)
        return pod.counts and owner is None

    def _may_pause_at(self, place: str) -> float:
        """When the gates of a place let its engines be paused."""
        delay = self.wanted.drain_delay
        return max((self._gates.pause_allowed_at(uid, delay) for uid in self._places.get(place, ())), default=-NEVER)

    def _fill(self, key: SlotKey, target: Target | None) -> None:
        now = self._environment.clock()
        slot = self._slots.get(key)
        if slot is not None and target is not None and deaths.is_death(slot.state, target, now):
            self._deaths[key] = deaths.counted(self._deaths.get(key), self.wanted.object_generation)
        if slot is not None and (target is None or target.key != slot.state.target.key):
            self._slots.remove(slot)
            slot = None
        if target is None:
            return
        if slot is None:
            slot = Slot(key, observe.discovered(target, now))
            self._slots.put(slot)
        else:
            slot.state = observe.updated(slot.state, target, now)
        verdict, may_pause_at = self._verdict(target, key), self._may_pause_at(key[0])
        slot.state = replace(slot.state, condemned=verdict, may_pause_at=may_pause_at)
        self._step(slot)

    def _verdict(self, target: Target, key: SlotKey) -> Failure | None:
        stored = self._verdicts.get((target.key.pod_uid, target.key.url))
        own, object_generation = self._deaths.get(key), self.wanted.object_generation
        return deaths.verdict(own, object_generation) or deaths.verdict(stored, object_generation)

    # One target

    def _step(self, slot: Slot) -> None:
        """Begin what is due for this target, unless something is under way: that goes on by itself."""
        action = None
        if slot.task is None:
            action = step.next_action(self.wanted, slot.state, self._environment.clock())
            if isinstance(action, step.Read | ControlCall):
                slot.task = self._spawn(self._drive(slot))
        if isinstance(action, step.Prepare | step.Until):
            self._rest(slot, action)
        else:
            self._look_again(slot, NEVER)
        self._account(slot)

    async def _drive(self, slot: Slot) -> None:
        """Do what is due for one target, one call after the other, until there is nothing to do but wait."""
        try:
            while self._slots.holds(slot):
                action = step.next_action(self.wanted, slot.state, self._environment.clock())
                if isinstance(action, step.Read):
                    await self._read(slot, identify=action.identify)
                elif isinstance(action, ControlCall):
                    if not self._notice_stall():
                        await self._call(slot, action)
                else:
                    slot.task = None
                    self._rest(slot, action)
                    return
        finally:
            if slot.task is current_task():
                slot.task = None

    async def _read(self, slot: Slot, *, identify: bool) -> None:
        sent_for, clock = self.wanted, self._environment.clock
        slot.state = observe.read_sent(slot.state, sent_for)
        target, traits, valid_from = slot.state.target, slot.state.traits, self._reads_valid_from
        began = clock()
        result = await self._engine.read(
            target,
            traits,
            identify=identify,
            with_replicas=sent_for.effective is Desired.PAUSED,
            timeout=sent_for.request_timeout,
        )
        self._measure("read", result, clock() - began)
        if not self._slots.holds(slot):
            return
        if valid_from != self._reads_valid_from:
            sent_for = replace(sent_for, object_generation=-1)
        if isinstance(result, Failure):
            slot.state = observe.read_failed(slot.state, result, sent_for, self.wanted, clock())
        else:
            slot.state = observe.read_answered(slot.state, result, sent_for, self.wanted, clock())
            self._notice(slot)
        if (slot.state.failure, slot.state.traits) != (None, traits):
            self._on_change()
        self._account(slot)

    async def _call(self, slot: Slot, call: ControlCall) -> None:
        clock, traits = self._environment.clock, slot.state.traits
        if traits is None:
            raise AssertionError("a control call follows a valid read, which brings the traits")
        if slot.state.effective_object_generation == self.wanted.object_generation:
            slot.is_drifting = True
        timeout = self.wanted.request_timeout if call.pause is None else self.wanted.pause_timeout
        slot.state = observe.call_sent(slot.state, call, self.wanted, clock())
        self._account(slot)
        began = clock()
        failure = await self._engine.call(slot.state.target, call, traits, timeout=timeout)
        self._measure("resume" if call.pause is None else "pause", failure, clock() - began)
        if failure is not None:
            details = {"service": self._key, "pod": slot.state.target.pod, "error": failure.message}
            logger.warning("A control call failed", extra=details)
        if not self._slots.holds(slot):
            return
        slot.state = observe.call_ended(slot.state, failure, self.wanted, clock())
        self._on_change()
        self._account(slot)

    def _call_off(self, slot: Slot) -> None:
        """Give up the open call, which the engine does not notice, for another one that overtakes it."""
        if slot.task is not None:
            slot.task.cancel()
            slot.task = None
        slot.state = observe.call_given_up(slot.state, self._environment.clock())

    def _rest(self, slot: Slot, action: step.Prepare | step.Until) -> None:
        if isinstance(action, step.Until):
            self._look_again(slot, action.at)
        else:
            self._look_again(slot, slot.state.next_read_at)
            self._on_prepare(action)

    def _look_again(self, slot: Slot, at: float) -> None:
        """At this time, or earlier if the target's state changes by time alone before."""
        at = min(at, step.next_change_at(self.wanted, slot.state, self._environment.clock()))
        self._slots.schedule(slot, at)
        if at < self._looks_again_at:
            self._wake()

    def _account(self, slot: Slot) -> None:
        """Let the tally follow this target."""
        if not self._slots.holds(slot):
            return
        standing = report.standing(self.wanted, slot.state, self._environment.clock())
        if self._slots.stand(slot, standing):
            self._follow_gates(slot.key[0])
            self._on_change()

    def _follow_gates(self, place: str) -> None:
        """Let the readiness gates of this place's pods, if they have any, follow what its targets were read as."""
        if not self._gates.are_there:  # mostly, and this is asked at each change of each target
            return
        gated = [uid for uid in self._places.get(place, ()) if self._gates.holds(uid)]
        if gated and not self._notice_stall():
            states = [slot.state for port in self._slots.ports_of(place) if (slot := self._slots.get((place, port)))]
            serving = gate.wanted_serving(self.wanted, states)
            for uid in gated:
                self._gates.want(uid, serving)

    def _gate_changed(self, uid: str) -> None:
        place = self._engine.place_of(uid)
        may_pause_at = self._may_pause_at(place)
        for port in self._slots.ports_of(place):
            slot = self._slots.get((place, port))
            if slot is not None:
                slot.state = replace(slot.state, may_pause_at=may_pause_at)
                self._step(slot)
        self._wake()

    def _notice(self, slot: Slot) -> None:
        """Facts that deserve an Event: drift that is corrected, a version that had to be assumed."""
        state = slot.state
        if slot.is_drifting and observe.is_as(self.wanted, state):
            slot.is_drifting = False
            changed = (
                "had other replicas, or been changed by somebody else,"
                if state.target.is_aggregate
                else ("had been changed by somebody else")
            )
            message = f"{state.target.pod} {changed} and is {self.wanted.effective} again"
            self._on_fact(Event(EventReason.DRIFT_CORRECTED, message))
            self._environment.metrics.drift_corrections.labels(*self._labels).inc()
        if state.traits is not None and state.traits.assumed and state.traits.version not in self._versions_assumed:
            self._versions_assumed.add(state.traits.version)
            named = f"version {state.traits.version}" if state.traits.version else "a version that it does not tell"
            message = (
                f"{state.target.pod} runs {state.traits.product}, {named}, which is treated as the newest known one"
            )
            self._on_fact(Event(EventReason.VERSION_ASSUMED, message, warning=True))

    def _measure(self, call: str, result: object, seconds: float) -> None:
        outcome = result.obstacle.name.lower() if isinstance(result, Failure) else "ok"
        self._environment.metrics.engine_calls.labels(call, outcome).observe(seconds)
