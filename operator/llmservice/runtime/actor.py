"""The life of one LLMService: wake, see what is wanted, step every target that is due, report, sleep.

A wake-up is a level, not an edge: the flag is cleared *before* a pass looks at the world, so that what changes during the
pass wakes the next one.
"""

import asyncio

from llmservice.api import LastPause, LLMService, PauseMode, Reason
from llmservice.domain import ownership, policy, report
from llmservice.domain.fleet import NEVER, Pod
from llmservice.domain.policy import Wanted
from llmservice.domain.transitions import Event, EventReason
from llmservice.engines.engine import engine_for
from llmservice.kube.client import JSON
from llmservice.kube.pods import PodView
from llmservice.runtime.environment import Environment
from llmservice.runtime.publisher import Draft, Publisher
from llmservice.runtime.targets import Targets
from llmservice.runtime.trust import TrustKeeper

FIRST_REPORT_SECONDS = 0.25
"""What is done within this time after a new spec is reported once, as done. The status says by its observedGeneration that
it is about an older spec so long."""


class Actor:
    """Drives the fleet of one LLMService until its task is cancelled."""

    def __init__(self, service: LLMService, environment: Environment) -> None:
        self.service = service
        self._environment = environment
        self._older: tuple[LLMService, ...] | None = None
        """The LLMServices of this namespace that go before this one; None until all are known."""
        self._pause: LastPause | None = service.status.last_pause
        self._was_listed = False
        """A complete list of the pods was read at least once."""
        self._spec_seen_at = environment.clock()
        self._wake = asyncio.Event()
        self._group = asyncio.TaskGroup()
        self._view = PodView(
            environment.kubernetes,
            service.metadata.namespace,
            ownership.to_query(service.spec.selector),
            on_pod=self._pod_changed,
            on_left=self._pod_left,
            on_view=self._wake.set,
        )
        self._publisher = Publisher(
            environment, spawn=self._group.create_task, on_stored=self._stored, on_end=self._wake.set
        )
        self._trust = TrustKeeper(service, environment, on_change=self._engine_changed)
        self._targets = Targets(
            service,
            environment,
            engine_for(service.spec.engine, self._trust.transport),
            policy.wanted(service, policy.present_pause(service.spec, self._pause), may_call=False),
            spawn=self._group.create_task,
            wake=self._wake.set,
            on_change=self._changed,
            on_prepare=self._pause_is_unanswered,
            on_fact=self._fact,
        )

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
        if older != self._older:
            self._older = older
            self._targets.know_older(older)
        self._wake.set()

    # The loop

    async def run(self) -> None:
        """Until cancelled. A defect in any part ends the whole with an ExceptionGroup: nothing goes on by halves."""
        async with self._group as group:
            await self._trust.refresh()
            group.create_task(self._view.run())
            group.create_task(self._trust.run())
            group.create_task(self._loop())

    async def _loop(self) -> None:
        while True:
            self._wake.clear()
            now = self._environment.clock()
            self._refresh_wanted(now)
            self._targets.step_due(now)
            publish_at = self._publish(now)
            await self._sleep(min(publish_at, self._targets.next_due()))

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
        if before is None and self._pause is not None and self._targets.may_drain():
            # An engine may still drain from an earlier pause, which a read cannot tell from a finished one.
            self._pause = policy.unanswered(self._pause)
        may_call = self._older is not None and self._view.is_conclusive
        writing = self._publisher.writing
        is_storing = writing is not None and writing.last_pause != self._pause
        return policy.wanted(self.service, self._pause, may_call=may_call, is_storing=is_storing)

    def _refresh_wanted(self, now: float) -> None:
        if self._view.is_conclusive and not self._was_listed:
            self._was_listed = True
            self._spec_seen_at = now
        before, wanted = self._targets.wanted, self._want()
        if wanted == before:
            return
        if wanted.object_generation != before.object_generation:
            self._spec_seen_at = now
        self._publisher.is_stale = True
        self._targets.want(wanted)

    # What the parts tell

    def _pod_changed(self, uid: str, pod: Pod | None) -> None:
        self._targets.pod_changed(uid, pod)

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

    def _pause_is_unanswered(self) -> None:
        if self._pause is not None:
            self._pause = policy.unanswered(self._pause)
        self._wake.set()

    def _stored(self, raw: JSON) -> None:
        service = LLMService.model_validate(raw)
        if service.metadata.uid == self.service.metadata.uid:
            self.record(service)

    # The report

    def _publish(self, now: float) -> float:
        """Start a write if one is due; returns when to look again."""
        if not self._was_listed or self._older is None:
            return NEVER
        wanted, tally = self._targets.wanted, self._targets.tally
        decision = report.decide(wanted.effective, tally, claimed=bool(self._targets.claims))
        if decision.paused[0] == "True" and wanted.wait_unanswered and self._pause is not None:
            # From here on a target that appears needs the fact to be stored anew before it is sent a wait.
            self._pause = self._pause.model_copy(update={"answered": True})
            self._refresh_wanted(now)
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
            compose=self._fleet,
            pause_to_store=self._pause_to_store(),
            hold_until=hold_until,
        )
        return self._publisher.publish(draft, now)

    def _pause_to_store(self) -> LastPause | None:
        pause = self._pause
        if pause is None or pause.mode is not PauseMode.WAIT or pause.answered:
            return None
        return None if self.service.status.last_pause == pause else pause

    def _fleet(self) -> report.Fleet:
        return report.Fleet(
            wanted=self._targets.wanted,
            members=self._targets.members(),
            tally=dict(self._targets.tally),
            claimed_by=self._targets.claims,
            pause=self._pause,
            spec_pause_differs=policy.spec_pause_differs(self.service.spec, self._pause),
        )


def _is_older(service: LLMService, known: LLMService) -> bool:
    """resourceVersions are opaque by contract and numbers in fact; where they are not, the order of arrival counts."""
    versions = (service.metadata.resource_version, known.metadata.resource_version)
    return all(version.isdecimal() for version in versions) and int(versions[0]) < int(versions[1])
