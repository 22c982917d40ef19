"""The life of one LLMService: wake, see what is wanted, step every target that is due, report, sleep.

A wake-up is a level, not an edge: the flag is cleared *before* a pass looks at the world, so that what changes during the
pass wakes the next one. Calls to engines run in tasks of their own, one per target and never two; when one is answered
only its own target is stepped.
"""

import asyncio
import logging
from dataclasses import replace

from llmservice.api import LastPause, LLMService, PauseMode
from llmservice.domain import deaths, observe, ownership, policy, report, step
from llmservice.domain.deaths import Deaths
from llmservice.domain.fleet import NEVER, ControlCall, Failure, Pod, Target
from llmservice.domain.policy import Wanted
from llmservice.domain.transitions import Event, EventReason
from llmservice.engines.engine import Engine, engine_for
from llmservice.kube.client import JSON
from llmservice.kube.pods import PodView
from llmservice.runtime.environment import Environment
from llmservice.runtime.publisher import Draft, Publisher
from llmservice.runtime.slots import Slot, SlotKey, Slots
from llmservice.runtime.trust import TrustKeeper

logger = logging.getLogger(__name__)


class Actor:
    """Drives the fleet of one LLMService until its task is cancelled."""

    def __init__(self, service: LLMService, environment: Environment) -> None:
        self.service = service
        self._environment = environment
        self._all_services_known = False
        self._older: tuple[LLMService, ...] = ()
        self._wake = asyncio.Event()
        self._sleeps_until = -NEVER
        """When the loop wakes by itself: whatever is due earlier has to wake it."""
        self._slots = Slots()
        self._pods: dict[str, Pod] = {}
        self._claims: dict[str, tuple[str, str]] = {}
        """By pod UID: names of the pod and of the LLMService that owns it."""
        self._deaths: dict[SlotKey, Deaths] = {}
        self._verdicts = deaths.stored_verdicts(service.status, service.metadata.object_generation)
        self._versions_assumed: set[str] = set()
        self._pause: LastPause | None = service.status.last_pause
        self._view = PodView(
            environment.kubernetes,
            service.metadata.namespace,
            ownership.to_query(service.spec.selector),
            on_pod=self._pod_changed,
            on_left=self._pod_left,
            on_view=self._wake.set,
        )
        self._was_listed = False
        self._group = asyncio.TaskGroup()
        self._publisher = Publisher(
            environment, spawn=self._group.create_task, on_stored=self._stored, on_end=self._wake.set
        )
        self._trust = TrustKeeper(service, environment, on_change=self._engine_changed)
        self._engine: Engine = engine_for(service.spec.engine, self._trust.transport)
        self._wanted = self._want()
        self._spec_seen_at = environment.clock()

    # What the outside tells

    def record(self, service: LLMService) -> None:
        """The object as it is now; an older one than is known is ignored."""
        if _is_older(service, self.service):
            return
        engine_differs = service.spec.engine != self.service.spec.engine
        self.service = service
        if engine_differs:
            self._trust.follow(service)
            self._engine_changed()
        self._wake.set()

    def know_services(self, older: tuple[LLMService, ...]) -> None:
        """All LLMServices are known; ``older`` are those of this namespace that go before this one."""
        self._all_services_known = True
        if older != self._older:
            self._older = older
            self._place_all()
        self._wake.set()

    # The loop

    async def run(self) -> None:
        """Until cancelled. A defect in any part ends the whole with an ExceptionGroup: nothing goes on by halves."""
        await self._trust.refresh()
        async with self._group as group:
            group.create_task(self._view.run())
            group.create_task(self._trust.run())
            group.create_task(self._loop())

    async def _loop(self) -> None:
        while True:
            self._wake.clear()
            now = self._environment.clock()
            self._refresh_wanted(now)
            for slot in self._slots.pop_due(now):
                self._step(slot)
            publish_at = self._publish(now)
            self._sleeps_until = min(self._slots.next_due(), publish_at)
            await self._sleep(self._sleeps_until)

    async def _sleep(self, until: float) -> None:
        delay = None if until == NEVER else max(0.0, until - self._environment.clock())
        try:
            async with asyncio.timeout(delay):
                await self._wake.wait()
        except TimeoutError:
            pass

    # What is wanted

    def _want(self) -> Wanted:
        before, self._pause = self._pause, policy.present_pause(self.service.spec, self._pause)
        if before is None and self._pause is not None and any(slot.state.undrained for slot in self._slots):
            # An engine may still drain from an earlier pause, which a read cannot tell from a finished one.
            self._pause = policy.unanswered(self._pause)
        may_call = self._all_services_known and self._view.is_conclusive
        writing = self._publisher.writing
        is_storing = writing is not None and writing.last_pause != self._pause
        return policy.wanted(self.service, self._pause, may_call=may_call, is_storing=is_storing)

    def _refresh_wanted(self, now: float) -> None:
        before, self._wanted = self._wanted, self._want()
        if self._view.is_conclusive and not self._was_listed:
            self._was_listed = True
            self._spec_seen_at = now
            self._publisher.is_stale = True
        if self._wanted == before:
            return
        self._publisher.is_stale = True
        spec_changed = self._wanted.object_generation != before.object_generation
        if spec_changed:
            self._spec_seen_at = now
        for slot in self._slots:
            if spec_changed:
                slot.state = observe.spec_changed(slot.state)
                slot.is_drifting = False
            self._step(slot)

    # Targets

    def _pod_changed(self, uid: str, pod: Pod | None) -> None:
        if pod is None:
            self._pods.pop(uid, None)
            self._deaths = {key: count for key, count in self._deaths.items() if key[0] != uid}
        else:
            self._pods[uid] = pod
        self._place(uid, pod)
        self._publisher.is_stale = True
        self._wake.set()

    def _pod_left(self, name: str) -> None:
        message = f"{name} is no longer selected; its engine was left as it is"
        self._publisher.facts.append(Event(EventReason.LEFT_SELECTION, message, warning=True))
        self._wake.set()

    def _engine_changed(self) -> None:
        self._engine = engine_for(self.service.spec.engine, self._trust.transport)
        self._place_all()
        self._wake.set()

    def _place_all(self) -> None:
        for uid, pod in tuple(self._pods.items()):
            self._place(uid, pod)
        self._publisher.is_stale = True

    def _place(self, uid: str, pod: Pod | None) -> None:
        """Let the slots of one pod be its present targets."""
        self._claims.pop(uid, None)
        targets: dict[str, Target] = {}
        if pod is not None and pod.counts:
            owner = ownership.owner_among(self._older, pod.labels)
            if owner is not None:
                self._claims[uid] = (pod.name, owner.metadata.name)
            else:
                targets = {target.key.port: target for target in self._engine.targets_of(pod)}
        for port in self._slots.ports_of(uid) | targets.keys():
            self._fill((uid, port), targets.get(port))

    def _fill(self, key: SlotKey, target: Target | None) -> None:
        now = self._environment.clock()
        slot = self._slots.get(key)
        if slot is not None and target is not None and deaths.is_death(slot.state, target, now):
            self._deaths[key] = deaths.counted(self._deaths.get(key), self.service.metadata.object_generation)
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
        slot.state = replace(slot.state, condemned=self._verdict(target, key))
        self._step(slot)

    def _verdict(self, target: Target, key: SlotKey) -> Failure | None:
        stored = self._verdicts.get((target.key.pod_uid, target.key.url))
        return deaths.verdict(self._deaths.get(key) or stored, self.service.metadata.object_generation)

    # One target

    def _step(self, slot: Slot) -> None:
        """Begin what is due for this target, unless something is under way: that goes on by itself."""
        action = None
        if slot.task is None:
            action = step.next_action(self._wanted, slot.state, self._environment.clock())
            if isinstance(action, step.Read | ControlCall):
                slot.task = self._group.create_task(self._drive(slot))
        if isinstance(action, step.StorePause | step.Until):
            self._rest(slot, action)
        else:
            self._look_again(slot, NEVER)
        self._account(slot)

    async def _drive(self, slot: Slot) -> None:
        """Do what is due for one target, one call after the other, until there is nothing to do but wait."""
        try:
            while self._slots.holds(slot):
                action = step.next_action(self._wanted, slot.state, self._environment.clock())
                if isinstance(action, step.Read):
                    await self._read(slot, action)
                elif isinstance(action, ControlCall):
                    await self._call(slot, action)
                else:
                    slot.task = None
                    self._rest(slot, action)
                    return
        finally:
            slot.task = None

    async def _read(self, slot: Slot, action: step.Read) -> None:
        sent_for, clock = self._wanted, self._environment.clock
        slot.state = observe.read_sent(slot.state, sent_for)
        target, traits = slot.state.target, slot.state.traits
        began = clock()
        result = await self._engine.read(target, traits, identify=action.identify, timeout=sent_for.request_timeout)
        self._measure("read", result, clock() - began)
        if not self._slots.holds(slot):
            return
        if isinstance(result, Failure):
            slot.state = observe.read_failed(slot.state, result, sent_for, self._wanted, clock())
        else:
            slot.state = observe.read_answered(slot.state, result, sent_for, self._wanted, clock())
            self._notice(slot)
        self._publisher.is_stale |= (slot.state.failure, slot.state.traits) != (None, traits)
        self._account(slot)

    async def _call(self, slot: Slot, call: ControlCall) -> None:
        clock, traits = self._environment.clock, slot.state.traits
        if traits is None:
            raise AssertionError("a control call follows a valid read, which brings the traits")
        if slot.state.effective_object_generation == self._wanted.object_generation:
            slot.is_drifting = True
        timeout = self._wanted.request_timeout if call.pause is None else self._wanted.pause_timeout
        slot.state = observe.call_sent(slot.state, call, self._wanted, clock())
        self._account(slot)
        began = clock()
        failure = await self._engine.call(slot.state.target, call, traits, timeout=timeout)
        self._measure("resume" if call.pause is None else "pause", failure, clock() - began)
        if failure is not None:
            logger.warning(
                "A control call failed",
                extra={"service": self.service.key, "pod": slot.state.target.pod, "error": failure.message},
            )
        if not self._slots.holds(slot):
            return
        slot.state = observe.call_ended(slot.state, failure, self._wanted, clock())
        self._publisher.is_stale = True
        self._account(slot)

    def _rest(self, slot: Slot, action: step.StorePause | step.Until) -> None:
        if isinstance(action, step.StorePause):
            if self._pause is not None:
                self._pause = policy.unanswered(self._pause)
            self._wake.set()
            at = slot.state.next_read_at
        else:
            at = action.at
        self._look_again(slot, at)

    def _look_again(self, slot: Slot, at: float) -> None:
        """At this time, or earlier if the target's state changes by time alone before."""
        at = min(at, step.next_change_at(self._wanted, slot.state, self._environment.clock()))
        self._slots.schedule(slot, at)
        if at < self._sleeps_until:
            self._wake.set()

    def _account(self, slot: Slot) -> None:
        """Let the tally follow this target."""
        if not self._slots.holds(slot):
            return
        standing = report.standing(self._wanted, slot.state, self._environment.clock())
        if self._slots.stand(slot, standing):
            self._publisher.is_stale = True
            self._wake.set()

    def _notice(self, slot: Slot) -> None:
        """Facts that deserve an Event: drift that is corrected, a version that had to be assumed."""
        state, metadata = slot.state, self.service.metadata
        if slot.is_drifting and observe.is_as(self._wanted.effective, state, self._wanted):
            slot.is_drifting = False
            message = f"{state.target.pod} had been changed by somebody else and is {self._wanted.effective} again"
            self._publisher.facts.append(Event(EventReason.DRIFT_CORRECTED, message))
            self._environment.metrics.drift_corrections.labels(metadata.namespace, metadata.name).inc()
            self._wake.set()
        if state.traits is not None and state.traits.assumed and state.traits.version not in self._versions_assumed:
            self._versions_assumed.add(state.traits.version)
            named = (
                f"vLLM {state.traits.version}" if state.traits.version else "an engine that does not tell its version"
            )
            message = f"{state.target.pod} runs {named}, which is treated as the newest known version"
            self._publisher.facts.append(Event(EventReason.VERSION_ASSUMED, message, warning=True))
            self._wake.set()

    def _measure(self, call: str, result: object, seconds: float) -> None:
        outcome = result.obstacle.value if isinstance(result, Failure) else "ok"
        self._environment.metrics.engine_calls.labels(call, outcome).observe(seconds)

    # The report

    def _publish(self, now: float) -> float:
        if not (self._was_listed and self._all_services_known):
            return NEVER
        decision = report.decide(self._wanted.effective, self._slots.tally, claimed=bool(self._claims))
        if decision.paused[0] == "True" and self._wanted.wait_unanswered and self._pause is not None:
            # From here on a target that appears needs the fact to be stored anew before it is sent a wait.
            self._pause = self._pause.model_copy(update={"answered": True})
            self._refresh_wanted(now)
        known_enough = report.is_everything_answered(self._slots.tally)
        draft = Draft(
            service=self.service,
            effective=self._wanted.effective,
            decision=decision,
            compose=self._fleet,
            pause_to_store=self._pause_to_store(),
            hold_until=-NEVER if known_enough else self._spec_seen_at + self._wanted.request_timeout,
        )
        return self._publisher.publish(draft, now)

    def _pause_to_store(self) -> LastPause | None:
        pause = self._pause
        if pause is None or pause.mode is not PauseMode.WAIT or pause.answered:
            return None
        return None if self.service.status.last_pause == pause else pause

    def _fleet(self) -> report.Fleet:
        members = tuple((slot.state, slot.standing) for slot in self._slots if slot.standing is not None)
        return report.Fleet(
            wanted=self._wanted,
            members=members,
            tally=dict(self._slots.tally),
            claimed_by=dict(sorted(self._claims.values())),
            pause=self._pause,
            spec_pause_differs=policy.spec_pause_differs(self.service.spec, self._pause),
        )

    def _stored(self, raw: JSON) -> None:
        service = LLMService.model_validate(raw)
        if service.metadata.uid != self.service.metadata.uid:
            return
        self.record(service)


def _is_older(service: LLMService, known: LLMService) -> bool:
    """resourceVersions are opaque by contract and numbers in fact; where they are not, the order of arrival counts."""
    versions = (service.metadata.resource_version, known.metadata.resource_version)
    return all(version.isdecimal() for version in versions) and int(versions[0]) < int(versions[1])
