"""The life of one LLMService: wake, see what is wanted, step every target that is due, report, sleep.

A wake-up is a level, not an edge: the flag is cleared *before* a pass looks at the world, so that what changes during the
pass wakes the next one.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from llmservice.api import VERIFY_ANNOTATION, LastPause, LLMService, PauseMode, Reason
from llmservice.domain import autoscalers, clocks, ownership, policy, report, step
from llmservice.domain.fleet import NEVER, Pod
from llmservice.domain.policy import Wanted
from llmservice.domain.status import Fleet
from llmservice.domain.transitions import Event, EventReason
from llmservice.engines.engine import engine_for
from llmservice.kube import services
from llmservice.kube.autoscalers import list_autoscalers
from llmservice.kube.client import JSON, ApiError, KubernetesError
from llmservice.kube.pods import PodView
from llmservice.runtime.environment import Environment
from llmservice.runtime.publisher import Draft, Publisher
from llmservice.runtime.targets import Targets
from llmservice.runtime.trust import TrustKeeper

TICK_SECONDS = 0.05
"""What is due by time alone is gathered this long: a thousand targets at rest would wake the actor a hundred times a second.
What happens wakes it at once."""
FIRST_REPORT_SECONDS = 0.25
"""What is done within this time after a new spec is reported once, as done. The status says by its observedGeneration that
it is about an older spec so long."""
_GATE_SECONDS = 10.0
_NAMESPACE_SECONDS = 5.0
"""How often it is looked at whether the namespace of a deleted object is going, too."""

logger = logging.getLogger(__name__)


class Actor:
    """Drives the fleet of one LLMService until its task is cancelled."""

    def __init__(self, service: LLMService, environment: Environment, notice_stall: Callable[[], bool]) -> None:
        """``notice_stall()`` is asked before each control call; where it says yes, it has called :meth:`doubt`."""
        self.service = service
        self._environment = environment
        self._older: tuple[LLMService, ...] | None = None
        """The LLMServices of this namespace that go before this one; None until all are known."""
        self._pause: LastPause | None = service.status.last_pause
        self._is_answered_here = False
        """This process has seen every answer to the present ``wait``."""
        self._was_listed = False
        """A complete list of the pods was read at least once."""
        self._spec_seen_at = environment.clock()
        self._is_retired = False
        self._deleted = asyncio.Event()
        self._namespace_ends = False
        self._is_namespace_known = False
        """It was looked at since the object is deleted, or could not be."""
        self._verify_done = service.status.last_handled_verify
        """The one whose reads are done."""
        self._verify_seen = service.status.last_handled_verify
        """The verify annotation for which every target is read, or was."""
        self._is_doubted = False
        """What was read may be old."""
        self._next_strike = NEVER
        self._verdicts_of = service
        """The object whose verdicts are known to the targets."""
        self._wake = asyncio.Event()
        self._group = asyncio.TaskGroup()
        self._view = PodView(
            environment.kubernetes,
            service.metadata.namespace,
            ownership.to_query(service.spec.selector),
            on_pod=self._pod_changed,
            on_left=self._pod_left,
            on_view=self._wake.set,
            on_relist=self._read_again,
        )
        self._publisher = Publisher(
            environment,
            spawn=self._spawn,
            on_stored=self._stored,
            on_pause=self._pause_began,
            on_end=self._wake.set,
        )
        self._trust = TrustKeeper(service, environment, on_change=self._engine_changed)
        self._targets = Targets(
            service,
            environment,
            engine_for(service.spec.engine, self._trust.transport),
            policy.wanted(service, None, self._pause, may_call=False),
            spawn=self._spawn,
            wake=self._wake.set,
            on_change=self._changed,
            on_prepare=self._prepare,
            on_fact=self._fact,
            notice_stall=notice_stall,
        )

    # What the outside tells

    def record(self, service: LLMService) -> None:
        """The object as it is now; an older one than is known is ignored."""
        if _is_older(service, self.service):
            return
        engine_differs = service.spec.engine != self.service.spec.engine
        self.service = service
        if policy.is_released(service):
            self._deleted.set()
        if engine_differs:
            self._trust.follow(service)
            self._engine_changed()
        self._wake.set()

    def know_services(self, older: tuple[LLMService, ...]) -> None:
        """All LLMServices are known; ``older`` are those of this namespace that go before this one."""
        if older != self._older:
            self._older = older
            self._targets.know_older(older)
        self._wake.set()

    def doubt(self) -> None:
        """The world may have changed unseen: the object, the pods and the engines are read again before any call."""
        self._view.doubt()
        self._targets.hold()
        self._is_doubted = True
        self._wake.set()

    def retire(self) -> float:
        """The object is gone: call no engine and write no status any more, but open the readiness gates of pods that run.
        Returns how many seconds that may take; then the actor is to be cancelled."""
        self._is_retired = True
        self._wake.set()
        return _GATE_SECONDS if self._targets.has_gates else 0.0

    # The loop

    async def run(self) -> None:
        """Until cancelled. A defect in any part ends the whole with an ExceptionGroup: nothing goes on by halves."""
        async with self._group as group:
            await self._trust.refresh()
            group.create_task(self._view.run())
            group.create_task(self._trust.run())
            group.create_task(self._watch_namespace())
            group.create_task(self._loop())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start ``work``, which ends with this actor. Where the actor is ending already, so does the task that wants it: it
        is cancelled, and may only have had something else to do before it noticed."""
        try:
            return self._group.create_task(work)
        except RuntimeError as error:
            work.close()
            raise asyncio.CancelledError from error

    async def _loop(self) -> None:
        while True:
            self._wake.clear()
            now = self._environment.clock()
            self._refresh_wanted(now)
            self._targets.step_due(now)
            publish_at = self._publish(now)
            await self._sleep(max(min(publish_at, self._targets.next_due()), now + TICK_SECONDS))

    async def _sleep(self, until: float) -> None:
        delay = None if until == NEVER else max(0.0, until - self._environment.clock())
        try:
            async with asyncio.timeout(delay):
                await self._wake.wait()
        except TimeoutError:
            pass

    # What is wanted

    def _want(self) -> Wanted:
        is_left = self._is_retired or self._namespace_ends
        aim = None if is_left else policy.effective(self.service, self._environment.wall())
        before = self._pause
        if before is not None and before.answered and policy.spec_pause_differs(self.service.spec, before):
            # A pause that no engine was given, because none can do it, say, need not be asked in the old way.
            before = before if self._targets.may_be_paused() or not self._was_listed else None
        self._pause = policy.present_pause(self.service.spec, aim, before)
        if before is None:
            self._is_answered_here = False
            if self._pause is not None and self._targets.may_drain():
                # An engine may still drain from an earlier pause, which a read cannot tell from a finished one.
                self._pause = policy.unanswered(self._pause)
        if self._pause is not None and not self._is_answered_here:
            adopted = policy.with_stored(self._pause, self.service.status.last_pause)
            if adopted != self._pause:
                self._pause = adopted
                self._targets.adopt_wait()
        may_call = self._older is not None and self._view.is_conclusive
        if policy.is_released(self.service) and not self._is_namespace_known:
            may_call = False
        writing = self._publisher.writing
        is_storing = writing is not None and writing.last_pause != self._pause
        return policy.wanted(self.service, aim, self._pause, may_call=may_call, is_storing=is_storing)

    def _refresh_wanted(self, now: float) -> None:
        if self._view.is_conclusive and not self._was_listed:
            self._was_listed = True
            self._spec_seen_at = now
        self._notice_strike()
        if self._view.is_conclusive or self._is_retired:
            self._targets.release()
        if self.service is not self._verdicts_of:
            self._verdicts_of = self.service
            self._targets.know_verdicts(self.service)
        before, wanted = self._targets.wanted, self._want()
        is_requested = self._verify_requested not in (None, self._verify_seen)
        if is_requested or self._is_doubted:
            self._is_doubted = False
            self._verify_seen = self._verify_requested if is_requested else self._verify_seen
            self._spec_seen_at = now
            self._publisher.is_stale = True
            self._targets.verify()
        if wanted == before:
            return
        if wanted.object_generation != before.object_generation:
            self._spec_seen_at = now
        self._publisher.is_stale = True
        self._targets.want(wanted)

    @property
    def _verify_requested(self) -> str | None:
        return self.service.metadata.annotations.get(VERIFY_ANNOTATION)

    def _notice_strike(self) -> None:
        """A limit in time that was reached changes what the status says."""
        strike = clocks.next_strike(self.service, self._environment.wall())
        if strike != self._next_strike:
            self._next_strike = strike
            self._publisher.is_stale = True

    # What the parts tell

    def _pod_changed(self, uid: str, pod: Pod | None) -> None:
        self._targets.pod_changed(uid, pod)

    async def _read_again(self) -> None:
        """What the pods are wanted for may have changed together with them. Raises KubernetesError."""
        metadata = self.service.metadata
        raw = await services.get(self._environment.kubernetes, metadata.namespace, metadata.name)
        found = services.to_service(raw)
        if found.metadata.uid != metadata.uid:
            raise ApiError(404, f"{self.service.key} is another object now")
        self.record(found)

    def _pod_left(self, name: str) -> None:
        message = f"{name} is no longer selected; its engine was left as it is"
        self._fact(Event(EventReason.LEFT_SELECTION, message, warning=True))

    def _engine_changed(self) -> None:
        self._targets.use(engine_for(self.service.spec.engine, self._trust.transport))
        self._wake.set()

    def _changed(self) -> None:
        self._publisher.is_stale = True
        self._wake.set()

    def _fact(self, event: Event) -> None:
        self._publisher.facts.append(event)
        self._wake.set()

    def _prepare(self, what: step.Prepare) -> None:
        if what is step.Prepare.STORE_PAUSE and self._pause is not None:
            self._pause = policy.unanswered(self._pause)
            self._is_answered_here = False
        self._wake.set()

    def _stored(self, raw: JSON) -> None:
        service = services.to_service(raw)
        if service.metadata.uid != self.service.metadata.uid:
            return
        self.record(service)
        if service.status.last_pause is not None and service.status.last_pause.answered:
            self._is_answered_here = False  # whatever another operator stores from now on is about something newer

    # The report

    def _publish(self, now: float) -> float:
        """Start a write if one is due; returns when to look again."""
        if not self._was_listed or self._older is None or self._is_retired:
            return NEVER
        wanted, tally = self._targets.wanted, self._targets.tally
        around = self._circumstances()
        decision = report.decide(wanted.effective, tally, around)
        if decision.paused[0] == "True" and wanted.wait_unanswered and self._pause is not None:
            # From here on a target that appears needs the fact to be stored anew before it is sent a wait.
            self._pause = self._pause.model_copy(update={"answered": True})
            self._is_answered_here = True
            self._refresh_wanted(now)
        if report.is_everything_answered(tally):
            self._verify_done = self._verify_seen
        hold_until = -NEVER
        if not report.is_everything_answered(tally):
            hold_until = self._spec_seen_at + wanted.request_timeout
        elif (
            decision.reconciling is Reason.PROGRESSING
            and self.service.status.observed_generation < wanted.object_generation
        ):
            hold_until = self._spec_seen_at + FIRST_REPORT_SECONDS
        draft = Draft(
            service=self.service,
            effective=wanted.effective,
            decision=decision,
            fleet=lambda: self._fleet(around),
            finalizers=self._finalizers(),
            verify=self._verify_done,
            pause_to_store=self._pause_to_store(),
            hold_until=hold_until,
        )
        ahead = (self._next_strike, policy.release_ends_at(self.service))
        next_limit = min((at for at in ahead if at > self._environment.wall()), default=NEVER)
        return min(self._publisher.publish(draft, now), self._environment.monotonic(next_limit))

    def _pause_to_store(self) -> LastPause | None:
        pause = self._pause
        if pause is None or pause.mode is not PauseMode.WAIT or pause.answered:
            return None
        return None if self.service.status.last_pause == pause else pause

    def _circumstances(self) -> report.Circumstances:
        wall = self._environment.wall()
        return report.Circumstances(
            claimed=bool(self._targets.claims),
            expired=clocks.is_expired(self.service, wall),
            overdue=wall >= clocks.deadline_at(self.service),
        )

    def _fleet(self, around: report.Circumstances) -> Fleet:
        spec, wall = self.service.spec, self._environment.wall()
        return Fleet(
            wanted=self._targets.wanted,
            members=self._targets.members(),
            tally=dict(self._targets.tally),
            claimed_by=self._targets.claims,
            pause=self._pause,
            spec_pause_differs=policy.spec_pause_differs(spec, self._pause),
            around=around,
            max_paused=spec.max_paused_seconds if clocks.is_paused_too_long(self.service, wall) else None,
            verify=self._verify_done,
            hindrance=self._publisher.hindrance,
        )

    def _finalizers(self) -> tuple[str, ...]:
        wall = self._environment.wall()
        is_over = self._namespace_ends or policy.is_release_over(self.service, wall)
        is_done = is_over or report.is_released(self._targets.tally)
        return policy.wanted_finalizers(self.service, wall, is_released_done=is_done)

    def _pause_began(self) -> None:
        self._spawn(self._warn_of_autoscalers())

    async def _warn_of_autoscalers(self) -> None:
        found = await list_autoscalers(self._environment.kubernetes, self.service.metadata.namespace)
        for event in autoscalers.warnings(found, self._targets.pods()):
            self._environment.events.record(self.service, event)

    async def _watch_namespace(self) -> None:
        """A namespace that goes takes the engines with it: nothing is to be resumed first."""
        await self._deleted.wait()
        metadata = self.service.metadata
        while not self._namespace_ends:
            try:
                self._namespace_ends = await services.is_namespace_ending(
                    self._environment.kubernetes, metadata.namespace
                )
            except KubernetesError as error:
                logger.warning(
                    "Did not look at the namespace", extra={"service": self.service.key, "error": str(error)}
                )
            self._is_namespace_known = True
            self._wake.set()
            await asyncio.sleep(_NAMESPACE_SECONDS)


def _is_older(service: LLMService, known: LLMService) -> bool:
    """resourceVersions are opaque by contract and numbers in fact; where they are not, the order of arrival counts."""
    versions = (service.metadata.resource_version, known.metadata.resource_version)
    return all(version.isdecimal() for version in versions) and int(versions[0]) < int(versions[1])
