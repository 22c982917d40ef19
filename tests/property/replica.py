"""An operator without any I/O: what `llmservice.runtime` does around the core, for one LLMService, on the clock of a world.

It mirrors `runtime.actor`, `targets`, `gates` and `publisher`: what is in flight, what is stored, and when it is written.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from llmservice.api import VERIFY_ANNOTATION, LastPause, LLMService, LLMServiceStatus, PauseMode, Reason
from llmservice.domain import clocks, deaths, gate, observe, policy, report, step
from llmservice.domain.deaths import Deaths
from llmservice.domain.fleet import NEVER, ControlCall, Failure, Gate, Obstacle, Reading, Sight, State, TargetKey
from llmservice.domain.gate import Attempt
from llmservice.domain.policy import Wanted
from llmservice.domain.status import Fleet, compose
from llmservice.runtime.slots import Slot, SlotKey, Slots

from .promises import Known, promise

if TYPE_CHECKING:
    from .world import Pod, World

PROGRESS_SECONDS = 1.0
FIRST_REPORT_SECONDS = 0.25
RETRY_SECONDS = (0.0, 1.0, 2.0, 5.0, 10.0)
TRUCE_SECONDS = (0.0, 1.0, 2.0, 5.0, 10.0)
GATE_RETRY_SECONDS = 1.0


@dataclass(eq=False)
class Gated:
    """The readiness gate of one pod, as this operator sees it."""

    seen: Gate
    serving: bool | None = None
    is_writing: bool = False
    may_be_open: bool = False
    refused: Attempt | None = None
    retry_at: float = -NEVER

    @property
    def present(self) -> Gate:
        """As it has to be taken before a pause."""
        return Gate(serving=True) if self.may_be_open else self.seen


@dataclass(eq=False)
class Operator:
    """One life of the operator."""

    world: World
    known: dict[TargetKey, Known] = field(default_factory=dict)
    is_alive: bool = True

    def __post_init__(self) -> None:
        world = self.world
        self.service = world.service
        self.version = world.version
        self.pause: LastPause | None = self.service.status.last_pause
        self.is_answered_here = False
        self.slots = Slots()
        self.gates: dict[str, Gated] = {}
        self.is_busy: set[Slot] = set()
        self.deaths: dict[SlotKey, Deaths] = {}
        self.verdicts = deaths.stored_verdicts(self.service.status, self.service.metadata.object_generation)
        self.verify_done = self.verify_seen = self.service.status.last_handled_verify
        self.valid_from = 0
        self.next_strike = NEVER
        self.writing: LLMServiceStatus | None = None
        self.last_written: LLMServiceStatus | None = None
        self.contests = 0
        self.failures = 0
        self.is_stale = True
        self.written_at = self.next_write_at = -NEVER
        self.publish_at = world.now
        self.spec_seen_at = world.now
        self.wanted = self._want()
        for uid in world.pods:
            self.see(uid)

    @property
    def due(self) -> float:
        """When it wants to be woken."""
        retries = (each.retry_at for each in self.gates.values() if each.retry_at > self.world.now)
        return min(self.slots.next_due(), self.publish_at, *retries)

    # What it hears

    def wake(self) -> None:
        """Look again in this very instant."""
        self.publish_at = self.world.now

    def hear(self, service: LLMService, version: int) -> None:
        """The object changed."""
        if version >= self.version:
            self.service, self.version = service, version
        self.wake()

    def see(self, uid: str) -> None:
        """A pod changed, came or went."""
        key, now = (uid, "8000"), self.world.now
        pod = self.world.pods.get(uid)
        target = pod.target if pod is not None else None
        self._follow(uid, pod)
        slot = self.slots.get(key)
        if pod is None:
            self.deaths.pop(key, None)
        if slot is not None and target is not None and deaths.is_death(slot.state, target, now):
            self.deaths[key] = deaths.counted(self.deaths.get(key), self.wanted.object_generation)
        if slot is not None and (target is None or target.key != slot.state.target.key):
            self.slots.remove(slot)
            self.world.forget(self, slot)
            self.is_busy.discard(slot)
            slot = None
        self.is_stale = True
        self.wake()
        if target is None:
            return
        if slot is None:
            slot = Slot(key, observe.discovered(target, now))
            self.slots.put(slot)
        else:
            slot.state = observe.updated(slot.state, target, now)
        slot.state = replace(slot.state, condemned=self._verdict(slot), may_pause_at=self._pause_allowed_at(uid))
        self._step(slot)
        self._follow_gate(uid)

    def _verdict(self, slot: Slot) -> Failure | None:
        key = slot.state.target.key
        stored = self.verdicts.get((key.pod_uid, key.url))
        return deaths.verdict(self.deaths.get(slot.key) or stored, self.wanted.object_generation)

    # One pass

    def go(self) -> None:
        """Look at everything that is due."""
        self.publish_at = NEVER
        self._refresh()
        for slot in self.slots.pop_due(self.world.now):
            self._step(slot)
        for uid, gated in tuple(self.gates.items()):
            if gated.retry_at <= self.world.now:
                self._write_gate_if_due(uid, gated)
        self.publish_at = min(self.publish_at, self._publish())
        self._judge_tally()

    def _want(self) -> Wanted:
        stored = self.service.status.last_pause
        aim = policy.effective(self.service, self.world.now)
        before, self.pause = self.pause, policy.present_pause(self.service.spec, aim, self.pause)
        if before is None:
            self.is_answered_here = False
            if self.pause is not None and any(slot.state.undrained for slot in self.slots):
                self.pause = policy.unanswered(self.pause)
        if self.pause is not None and not self.is_answered_here:
            adopted = policy.with_stored(self.pause, stored)
            if adopted != self.pause:
                self.pause = adopted
                for slot in self.slots:
                    slot.state = observe.wait_adopted(slot.state)
        is_storing = self.writing is not None and self.writing.last_pause != self.pause
        may_call = self.world.view_is_complete
        return policy.wanted(self.service, aim, self.pause, may_call=may_call, is_storing=is_storing)

    def _refresh(self) -> None:
        strike = clocks.next_strike(self.service, self.world.now)
        if strike != self.next_strike:
            self.next_strike = strike
            self.is_stale = True
        before, wanted = self.wanted, self._want()
        requested = self.service.metadata.annotations.get(VERIFY_ANNOTATION)
        if requested != self.verify_seen:
            self.verify_seen = requested
            self.spec_seen_at = self.world.now
            self.is_stale = True
            self.valid_from += 1
            for slot in self.slots:
                slot.state = observe.verify_requested(slot.state)
                self._step(slot)
        if wanted == before:
            return
        if wanted.object_generation != before.object_generation:
            self.spec_seen_at = self.world.now
        self.is_stale = True
        self._take_terms(wanted)

    def _take_terms(self, wanted: Wanted) -> None:
        before, self.wanted = self.wanted, wanted
        spec_changed = (before.object_generation, before.effective) != (wanted.object_generation, wanted.effective)
        for uid in tuple(self.gates):
            self._follow_gate(uid)
        for slot in self.slots:
            slot.state = replace(slot.state, may_pause_at=self._pause_allowed_at(slot.key[0]))
            if spec_changed:
                slot.state = replace(observe.spec_changed(slot.state), condemned=self._verdict(slot))
            if step.may_call_off(wanted, slot.state):
                self.world.give_up(self, slot)
                self.is_busy.discard(slot)
                slot.state = observe.call_given_up(slot.state, self.world.now)
            self._step(slot)

    def _step(self, slot: Slot) -> None:
        if slot not in self.is_busy:
            match step.next_action(self.wanted, slot.state, self.world.now):
                case step.Read():
                    self._read(slot)
                case ControlCall() as call:
                    self._call(slot, call)
                case step.Prepare() as what:
                    if what is step.Prepare.STORE_PAUSE and self.pause is not None:
                        self.pause = policy.unanswered(self.pause)
                        self.is_answered_here = False
                    self.wake()
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
            self._follow_gate(slot.key[0])
            self.is_stale = True
            self.wake()

    def _ledger(self, slot: Slot) -> Known:
        return self.known.setdefault(slot.state.target.key, Known())

    def _read(self, slot: Slot) -> None:
        sent_for, sent_at, valid_from = self.wanted, self.world.now, self.valid_from
        slot.state = observe.read_sent(slot.state, sent_for)
        self.is_busy.add(slot)

        def done(result: Reading | Failure) -> None:
            if not self.is_alive or not self.slots.holds(slot):
                return
            self.is_busy.discard(slot)
            known, before, now = self._ledger(slot), slot.state, self.world.now
            terms = sent_for if valid_from == self.valid_from else replace(sent_for, object_generation=-1)
            known.sent_at = sent_at
            if isinstance(result, Failure):
                slot.state = observe.read_failed(slot.state, result, terms, self.wanted, now)
                known.failure = result
            else:
                slot.state = observe.read_answered(slot.state, result, terms, self.wanted, now)
                known.sight, known.object_generation = result.sight, sent_for.object_generation
                known.read_at, known.failure, known.is_called_since = now, None, False
                known.was_effective |= observe.is_as(self.wanted, slot.state)
            self.is_stale |= (slot.state.failure, slot.state.traits) != (None, before.traits)
            self._step(slot)
            self.wake()

        self.world.read(slot, sent_for.request_timeout, done)
        self._rest(slot, NEVER)

    def _call(self, slot: Slot, call: ControlCall) -> None:
        known, now = self._ledger(slot), self.world.now
        generation = self.wanted.object_generation
        self._judge_call(slot, call)
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
            if not self.is_alive or not self.slots.holds(slot):
                return
            self.is_busy.discard(slot)
            slot.state = observe.call_ended(slot.state, failure, self.wanted, self.world.now)
            self.is_stale = True
            self._step(slot)
            self.wake()

        self.world.call(self, slot, call, timeout, done)
        self._rest(slot, NEVER)

    def _judge_call(self, slot: Slot, call: ControlCall) -> None:
        known, now, generation = self._ledger(slot), self.world.now, self.wanted.object_generation
        promise(
            known.failure is None and now - known.read_at <= 1.0, "R1", "a call does not follow a valid, fresh read"
        )
        promise(known.object_generation == generation, "R1", "a call follows a read of an older spec")
        if call.pause is not None and known.sight is Sight.PAUSED:
            may_drain = self.wanted.wait_unanswered or slot.state.undrained
            promise(may_drain, "R5", "an engine that is paused is paused once more")
        is_repeated = known.last_call == (call, generation) and not known.was_effective
        promise(not is_repeated or now - known.called_at >= 1.0, "R4", "what failed is tried again within a second")
        count = self.deaths.get(slot.key)
        is_dead = count is not None and count.object_generation == generation and count.count >= 2
        promise(not is_dead, "R21", "it died twice of our calls")

    # Gates

    def has_seen_gate(self, pod: Pod) -> bool:
        """Whether the watch has shown the gate as it is."""
        gated = self.gates.get(pod.uid)
        return gated is not None and gated.seen == pod.gate

    def refused_gate_at(self, uid: str) -> float | None:
        """When the first of the refused writes in a row began."""
        gated = self.gates.get(uid)
        return gated.refused.at if gated is not None and gated.refused is not None else None

    def _follow(self, uid: str, pod: Pod | None) -> None:
        if pod is None or pod.gate is None:
            self.gates.pop(uid, None)
        elif uid in self.gates:
            self.gates[uid].seen = pod.gate
            self.gates[uid].may_be_open &= not pod.gate.serving
        else:
            self.gates[uid] = Gated(pod.gate)

    def _follow_gate(self, uid: str) -> None:
        if (gated := self.gates.get(uid)) is None:
            return
        states = [slot.state for slot in self.slots if slot.key[0] == uid]
        serving = gate.wanted_serving(self.wanted, states)
        if gated.serving is not serving:
            gated.refused, gated.retry_at = None, -NEVER
        gated.serving = serving
        self._write_gate_if_due(uid, gated)

    def _write_gate_if_due(self, uid: str, gated: Gated) -> None:
        present = gated.seen if gated.serving else gated.present
        if gated.is_writing or self.world.now < gated.retry_at or uid not in self.world.pods:
            return
        if not gate.is_to_be_set(present, gated.serving):
            return
        serving, began = bool(gated.serving), self.world.now
        gated.is_writing = True
        gated.may_be_open |= serving

        def done(stored: Gate | None) -> None:
            if not self.is_alive:
                return
            if stored is not None:
                gated.seen, gated.refused, gated.retry_at = stored, None, -NEVER
                gated.may_be_open &= serving
            else:
                gated.refused = gated.refused or Attempt(began)
                gated.retry_at = self.world.now + GATE_RETRY_SECONDS
            gated.is_writing = False
            slot = self.slots.get((uid, "8000"))
            if slot is not None:
                slot.state = replace(slot.state, may_pause_at=self._pause_allowed_at(uid))
                self._step(slot)
            self.wake()

        self.world.write_gate(self, uid, serving, done)

    def _pause_allowed_at(self, uid: str) -> float:
        gated = self.gates.get(uid)
        if gated is None:
            return -NEVER
        return gate.pause_allowed_at(gated.present, self.wanted.drain_delay, gated.refused)

    # The report

    def _publish(self) -> float:
        now, wanted = self.world.now, self.wanted
        around = report.Circumstances(
            expired=clocks.is_expired(self.service, now), overdue=now >= clocks.deadline_at(self.service)
        )
        decision = report.decide(wanted.effective, self.slots.tally, around)
        if decision.paused[0] == "True" and wanted.wait_unanswered and self.pause is not None:
            self.pause = self.pause.model_copy(update={"answered": True})
            self.is_answered_here = True
            self._refresh()
        is_everything_answered = report.is_everything_answered(self.slots.tally)
        hold_until = -NEVER
        if is_everything_answered:
            if self.verify_done != self.verify_seen:
                self._judge_verify()
            self.verify_done = self.verify_seen
            is_new = self.service.status.observed_generation < wanted.object_generation
            if decision.reconciling is Reason.PROGRESSING and is_new:
                hold_until = self.spec_seen_at + FIRST_REPORT_SECONDS
        else:
            hold_until = self.spec_seen_at + wanted.request_timeout
        ahead = (self.next_strike, policy.release_ends_at(self.service))
        next_limit = min((at for at in ahead if at > now), default=NEVER)
        return min(self._write_if_due(decision, around, hold_until), next_limit)

    def _write_if_due(self, decision: report.Decision, around: report.Circumstances, hold_until: float) -> float:
        now, stored, pause = self.world.now, self.service.status, self.pause
        if self.writing is not None:
            return NEVER
        if now < self.next_write_at:
            return self.next_write_at
        is_done = policy.is_release_over(self.service, now) or report.is_released(self.slots.tally)
        finalizers = policy.wanted_finalizers(self.service, now, is_released_done=is_done)
        if finalizers != self.service.metadata.finalizers:
            self.writing = stored
            self.world.write(self, None, finalizers, self.version, self._written)
            return NEVER
        has_to_store = (
            pause is not None
            and pause.mode is PauseMode.WAIT
            and not pause.answered
            and self.service.status.last_pause != pause
        )
        if now < hold_until:
            if not has_to_store:
                return hold_until
            self._start(stored.model_copy(update={"last_pause": pause}))
            return NEVER
        is_foreign = self.last_written is not None and stored != self.last_written
        truce_ends = self.written_at + TRUCE_SECONDS[min(self.contests, len(TRUCE_SECONDS) - 1)]
        if is_foreign and now < truce_ends:
            return truce_ends
        if not has_to_store and self._shows(decision):
            if not self.is_stale:
                return NEVER
            if now < self.written_at + PROGRESS_SECONDS:
                return self.written_at + PROGRESS_SECONDS
        self.is_stale = False
        status = compose(self._fleet(around), stored, self.world.timestamp)
        if status == stored:
            self.contests = 0
        else:
            self.contests = self.contests + 1 if is_foreign else 0
            self._judge_status(status)
            self._start(status)
        return NEVER

    def _shows(self, decision: report.Decision) -> bool:
        stored = self.service.status
        expected = {"Ready": decision.ready, "Paused": decision.paused}
        if decision.reconciling is not None:
            expected["Reconciling"] = ("True", decision.reconciling)
        if decision.stalled is not None:
            expected["Stalled"] = ("True", decision.stalled)
        shown = {each.type: (each.status, each.reason) for each in stored.conditions}
        is_current = stored.observed_generation == self.service.metadata.object_generation
        return is_current and shown == expected and stored.last_handled_verify == self.verify_done

    def _fleet(self, around: report.Circumstances) -> Fleet:
        spec = self.service.spec
        is_too_long = clocks.is_paused_too_long(self.service, self.world.now)
        return Fleet(
            wanted=self.wanted,
            members=tuple((slot.state, slot.standing) for slot in self.slots if slot.standing is not None),
            tally=dict(self.slots.tally),
            claimed_by={},
            pause=self.pause,
            spec_pause_differs=policy.spec_pause_differs(spec, self.pause),
            around=around,
            max_paused=spec.max_paused_seconds if is_too_long else None,
            verify=self.verify_done,
        )

    def _start(self, status: LLMServiceStatus) -> None:
        self.written_at, self.writing, self.last_written = self.world.now, status, status
        self.world.write(self, status, None, self.version, self._written)

    def _written(self, outcome: str) -> None:
        if not self.is_alive:
            return
        self.writing = None
        if outcome == "stored":
            self.failures, self.next_write_at = 0, -NEVER
        else:
            is_conflict = outcome == "conflict"
            wait = RETRY_SECONDS[min(self.failures if is_conflict else self.failures + 1, len(RETRY_SECONDS) - 1)]
            self.failures += 1
            self.next_write_at = self.world.now + wait
            self.is_stale = True
        if outcome != "failed":
            self.hear(self.world.service, self.world.version)
            pause = self.service.status.last_pause
            if pause is not None and pause.answered:
                self.is_answered_here = False  # whatever another operator stores from now on is about something newer
        self.wake()

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
                self._judge_read(slot, is_paused=status.paused)
        if conditions["Ready"].reason == Reason.IN_DESIRED_STATE:
            for slot in expected:
                self._judge_read(slot, is_paused=self.wanted.effective == "paused")
        self._judge_times(status)

    def _judge_times(self, status: LLMServiceStatus) -> None:
        stalled = {each.type: each.reason for each in status.conditions}.get("Stalled")
        if stalled == Reason.PROGRESS_DEADLINE_EXCEEDED and any(self._is_expected(slot) for slot in self.slots):
            promise(status.progressing_since is not None, "progressDeadlineSeconds", "overdue without a clock")
        if (
            status.paused_since is not None
            and self.service.status.paused_since_generation != self.wanted.object_generation
        ):
            sights = [self._ledger(slot).sight for slot in self.slots]
            is_any = Sight.PAUSED in sights or Sight.SLEEPING in sights
            promise(is_any, "maxPausedSeconds", "the clock of a pause runs, and nothing was read as paused")

    def _judge_verify(self) -> None:
        """What is asked for afresh is done: every target was read, or failed, by a read that was sent since."""
        if self.verify_seen is None:
            return
        for slot in self.slots:
            is_asked = slot.state.target.started and slot.state.condemned is None
            is_fresh = self._ledger(slot).sent_at >= self.world.verify_asked_at[self.verify_seen]
            promise(is_fresh or not is_asked, "verify", f"{slot.state.target.pod} was not read since it was asked for")

    def _is_expected(self, slot: Slot) -> bool:
        """By its own reading of R9, and the core must agree."""
        known, target = self._ledger(slot), slot.state.target
        refused = known.failure is not None and known.failure.obstacle is Obstacle.NOT_LISTENING
        may_start = not target.started or (not target.ready and (refused or known.sight is None))
        shown = step.state_of(self.wanted, slot.state, self.world.now)
        promise(shown is not State.STARTING or may_start, "R9", "a target that may generate counts as starting")
        return shown is not State.STARTING

    def _judge_read(self, slot: Slot, *, is_paused: bool) -> None:
        known, now = self._ledger(slot), self.world.now
        fitting = (Sight.PAUSED, Sight.SLEEPING) if is_paused else (Sight.RUNNING,)
        name = slot.state.target.pod
        promise(known.sight in fitting, "R18", f"{name} was last read as {known.sight}")
        promise(known.object_generation >= self.wanted.object_generation, "R18", f"{name} was not read for this spec")
        promise(not known.is_called_since, "R1", f"{name} was called after it was read")
        # Under another spec than paused nobody waits for a drain, so that there paused means what is_paused says.
        # Where this operator is behind, its write will be refused.
        is_current = self.version == self.world.version and self.writing is None
        if not is_paused or not is_current or self.wanted.effective != "paused":
            return
        engine = self.world.pods[slot.key[0]].engine
        if self in engine.asked_by or engine.is_in_the_object:
            promise(not engine.generates(now), "R5", f"{name} drains, and is told to be paused")
