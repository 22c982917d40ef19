"""When the status of one LLMService is written, and the Events that go with it.

A changed condition is written at once, progress alone at most once a second, what would not change never. One write is
under way at a time; one that failed is not sent again but computed again.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from llmservice.api import ConditionType, Desired, LastPause, LLMService, LLMServiceStatus
from llmservice.domain.fleet import NEVER
from llmservice.domain.report import Decision
from llmservice.domain.status import Fleet, compose
from llmservice.domain.transitions import Event, EventReason, transitions
from llmservice.kube import services
from llmservice.kube.client import JSON, ApiError, KubernetesError
from llmservice.metrics import ChangeClock
from llmservice.runtime.environment import Environment

PROGRESS_SECONDS = 1.0
"""Time between two writes that change no condition."""
_RETRY_SECONDS = (0.0, 1.0, 2.0, 5.0, 10.0)
"""Waits after failed writes in a row. The first is a conflict in most cases, and is settled by reading again."""
_FINALIZER_RETRY_SECONDS = 5.0
_TRUCE_SECONDS = (0.0, 1.0, 2.0, 5.0, 10.0)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Draft:
    """What could be written now."""

    service: LLMService
    effective: Desired | None
    decision: Decision
    fleet: Callable[[], Fleet]
    """Collects the whole fleet; called only for a write."""
    finalizers: tuple[str, ...]
    """What the object's finalizers should be; they are set before anything else is written."""
    verify: str | None
    """The verify annotation whose reads are done; somebody waits for its echo."""
    pause_to_store: LastPause | None
    """A fact that has to be stored before anything else happens (an unanswered ``wait``)."""
    hold_until: float
    """Nothing else is written before this time, because too little is known; in the past if enough is known."""


@dataclass(eq=False, slots=True)
class Publisher:
    """Writes for one LLMService. ``on_stored`` gets the object as the API server returned it; ``on_end`` is called after
    each attempt, whatever became of it."""

    environment: Environment
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    """Starts a task that ends with the actor."""
    on_stored: Callable[[JSON], None]
    on_pause: Callable[[], None]
    """Called when the beginning of a pause was stored."""
    on_end: Callable[[], None]
    facts: list[Event] = field(default_factory=list)
    """Events that are true already and go out with the next write, or alone if there is none."""
    is_stale: bool = True
    """Something that the status shows may have changed since it was last computed."""
    writing: LLMServiceStatus | None = None
    """The status that stands in the object after the write that is under way; None if none is."""
    _failures: int = 0
    _next_at: float = -NEVER
    """No write starts before this time, after a failure."""
    _written_at: float = -NEVER
    hindrance: str | None = None
    """Why the finalizers could not be written; None if they were, or need not be."""
    _finalizers_at: float = -NEVER
    """They are not tried again before this time."""
    _written: LLMServiceStatus | None = None
    """The status of our last write."""
    _contests: int = 0
    """Writes in a row that undid somebody else's."""
    _changes: ChangeClock = field(default_factory=ChangeClock)

    def publish(self, draft: Draft, now: float) -> float:
        """Start a write if one is due; returns when to ask again."""
        self.environment.metrics.confirmed(self._changes.see(draft.service, now))
        if self.writing is not None:
            return NEVER
        if now < self._next_at:
            return self._next_at
        if draft.finalizers == draft.service.metadata.finalizers:
            self.hindrance = None
        elif now >= self._finalizers_at:
            self.writing = draft.service.status
            self.spawn(self._write_finalizers(draft.service, draft.finalizers))
            return NEVER
        return min(self._publish_status(draft, now), self._finalizers_at if self.hindrance is not None else NEVER)

    def _publish_status(self, draft: Draft, now: float) -> float:
        stored = draft.service.status
        if now < draft.hold_until:
            if draft.pause_to_store is None:
                return draft.hold_until
            status = stored.model_copy(update={"last_pause": draft.pause_to_store})
            self._start(draft, status, now)
            return NEVER
        is_foreign = self._written is not None and stored != self._written
        if is_foreign and now < self._written_at + self._truce():
            return self._written_at + self._truce()
        if draft.pause_to_store is not None or not _shows(stored, draft):
            pass
        elif not self.is_stale:
            self._tell(draft.service)
            return NEVER
        elif now < self._written_at + PROGRESS_SECONDS:
            return self._written_at + PROGRESS_SECONDS
        self.is_stale = False
        status = compose(draft.fleet(), stored, self.environment.timestamp())
        if status == stored:
            self._contests = 0
            self._tell(draft.service)
        else:
            self._contests = self._contests + 1 if is_foreign else 0
            self._start(draft, status, now)
        return NEVER

    def _truce(self) -> float:
        """Seconds that another operator's status is left standing before it is undone: two that know different things must
        not write as fast as they can."""
        return _TRUCE_SECONDS[min(self._contests, len(_TRUCE_SECONDS) - 1)]

    def _start(self, draft: Draft, status: LLMServiceStatus, now: float) -> None:
        self._written_at = now
        self.writing = self._written = status
        events = transitions(draft.service.status, status, draft.effective)
        put = services.put_status(self.environment.kubernetes, draft.service, status)
        self.spawn(self._write(draft.service, put, events))

    async def _write_finalizers(self, service: LLMService, finalizers: tuple[str, ...]) -> None:
        try:
            self.on_stored(await services.put_finalizers(self.environment.kubernetes, service, finalizers))
            self.hindrance = None
        except KubernetesError as error:
            conflict = isinstance(error, ApiError) and error.status == 409
            self._finalizers_at = self.environment.clock() + (
                0.0 if conflict else max(_FINALIZER_RETRY_SECONDS, error.retry_after)
            )
            if conflict:
                await self._read_again(service)
            else:
                self.hindrance = f"The finalizers of this object could not be written: {error}"
                self.is_stale = True
                logger.warning("Did not write the finalizers", extra={"service": service.key, "error": str(error)})
        finally:
            self.writing = None
            self.on_end()

    async def _write(self, service: LLMService, put: Awaitable[JSON], events: tuple[Event, ...]) -> None:
        try:
            stored = await put
            self.environment.metrics.status_writes.labels("stored").inc()
            self._failures, self._next_at = 0, -NEVER
            self.on_stored(stored)
            for event in events:
                self.environment.events.record(service, event)
                if event.reason is EventReason.PAUSE_STARTED:
                    self.on_pause()
            self._tell(service)
        except KubernetesError as error:
            conflict = isinstance(error, ApiError) and error.status == 409
            self.environment.metrics.status_writes.labels("conflict" if conflict else "failed").inc()
            self._back_off(service, error, conflict=conflict)
            if conflict:
                await self._read_again(service)
        finally:
            self.writing = None
            self.on_end()

    def _back_off(self, service: LLMService, error: KubernetesError, *, conflict: bool) -> None:
        wait = _RETRY_SECONDS[min(self._failures if conflict else self._failures + 1, len(_RETRY_SECONDS) - 1)]
        self._failures += 1
        self._next_at = self.environment.clock() + max(wait, error.retry_after)
        self.is_stale = True
        level = logging.DEBUG if conflict else logging.WARNING
        logger.log(level, "Did not write the object", extra={"service": service.key, "error": str(error)})

    async def _read_again(self, service: LLMService) -> None:
        try:
            metadata = service.metadata
            self.on_stored(await services.get(self.environment.kubernetes, metadata.namespace, metadata.name))
        except KubernetesError as error:
            logger.warning("Did not read the object again", extra={"service": service.key, "error": str(error)})

    def _tell(self, service: LLMService) -> None:
        for event in self.facts:
            self.environment.events.record(service, event)
        self.facts.clear()


def _shows(stored: LLMServiceStatus, draft: Draft) -> bool:
    """Whether the stored conditions are those of the draft, apart from their words, and the verify annotation is echoed."""
    decision = draft.decision
    expected = {ConditionType.READY: decision.ready, ConditionType.PAUSED: decision.paused}
    if decision.reconciling is not None:
        expected[ConditionType.RECONCILING] = ("True", decision.reconciling)
    if decision.stalled is not None:
        expected[ConditionType.STALLED] = ("True", decision.stalled)
    shown = {each.type: (each.status, each.reason) for each in stored.conditions}
    is_current = stored.observed_generation == draft.service.metadata.object_generation
    return is_current and shown == expected and stored.last_handled_verify == draft.verify
