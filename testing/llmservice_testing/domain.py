"""Builders for tests of the pure core: terms, targets, LLMServices, and the story of one target.

A target's state is never put together by hand. It is what a :class:`Story` tells: seen, read, called, answered, all through
`llmservice.domain.observe` as the operator does it, on a clock that only the story moves:

    story = Story(make_wanted("paused")).read(RUNNING).call().answered()
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from llmservice.api import Desired, LastPause, LLMService, LLMServiceStatus, PauseMode, Reason
from llmservice.domain import observe, report, step
from llmservice.domain.fleet import (
    ControlCall,
    Failure,
    Obstacle,
    PauseParameters,
    Reading,
    Sight,
    State,
    Target,
    TargetKey,
    TargetState,
    Traits,
)
from llmservice.domain.policy import Wanted
from llmservice.domain.status import Fleet, compose
from llmservice_testing.builders import LLMServiceBuilder, make_llmservice

EPOCH = "2026-12-01T10:00:00Z"

MODERN = Traits("0.32.0", frozenset(PauseMode), confirms_wait=True)
"""vLLM from 0.17 on: does and confirms everything."""
ALONE = replace(MODERN, can_overtake=True)
"""The same without data parallelism: a drain can be called off."""
V0_16 = Traits("0.16.0", frozenset({PauseMode.ABORT, PauseMode.WAIT}), confirms_wait=False)
"""vLLM before 0.17: no keep, and a lost answer to a wait cannot be had again."""

TIMED_OUT = Failure(Obstacle.LOST, "timed out", "GET /is_paused was not answered within 5 s")
ANSWERED_500 = Failure(Obstacle.LOST, "answered 500", "POST /pause answered 500: Failed to pause generation: boom")
CONNECTION_REFUSED = Failure(Obstacle.NOT_LISTENING, "refused", "the connection to 10.0.0.1:8000 was refused")
ANSWERED_404 = Failure(Obstacle.REFUSED, "answered 404", "GET /is_paused answered 404", Reason.ENDPOINT_MISSING)
ANSWERED_401 = Failure(Obstacle.REFUSED, "answered 401", "GET /is_paused answered 401", Reason.UNAUTHORIZED)
ANSWERED_400 = Failure(Obstacle.REFUSED, "answered 400", "POST /pause answered 400: bad", Reason.ENGINE_ERROR)


def make_wanted(
    desired: str | None = "paused",
    *,
    mode: str = "abort",
    clear_cache: bool = True,
    object_generation: int = 2,
    wait_unanswered: bool = False,
    wait_stored: bool | None = None,
    may_call: bool = True,
    is_held: bool = True,
    drain_delay: float = 0.0,
    paused_replicas: str | None = None,
) -> Wanted:
    """Terms with the defaults of the API; an unanswered wait is stored unless said otherwise."""
    return Wanted(
        object_generation=object_generation,
        desired=Desired(desired) if desired is not None else None,
        effective=Desired(desired) if desired is not None else None,
        pause=PauseParameters(PauseMode(mode), clear_cache),
        wait_unanswered=wait_unanswered,
        is_held=is_held,
        wait_stored=wait_unanswered if wait_stored is None else wait_stored,
        paused_replicas=paused_replicas,
        may_call=may_call,
        request_timeout=5.0,
        pause_timeout=300.0,
        drain_delay=drain_delay,
        resync=10.0,
    )


def make_target(
    pod: str = "qwen-0",
    *,
    port: str = "8000",
    container: str = "containerd://1",
    started: bool = True,
    ready: bool = True,
    port_missing: bool = False,
    proxies: tuple[str, ...] = (),
) -> Target:
    """A target of a pod that is up and ready."""
    has_url = started and not port_missing
    key = TargetKey(f"uid-{pod}", container, port, f"http://{pod}:{port}" if has_url else None)
    return Target(key, pod, started=started, ready=ready, port_missing=port_missing, proxies=proxies)


@dataclass
class Story:
    """What happens to one target, step by step; each method returns the story, so that it can be told in one line."""

    wanted: Wanted
    target: Target = field(default_factory=make_target)
    now: float = 0.0
    traits: Traits = MODERN

    def __post_init__(self) -> None:
        self.state: TargetState = observe.discovered(self.target, self.now)

    # What happens

    def read(self, sight: Sight, words: str = "", *, replicas: str = "") -> Self:
        """A read is sent and answered at once."""
        return self.ask().answer(sight, words, replicas=replicas)

    def ask(self) -> Self:
        """A read is sent."""
        self.state = observe.read_sent(self.state, self.wanted)
        return self

    def answer(self, sight: Sight, words: str = "", *, replicas: str = "", sent_under: Wanted | None = None) -> Self:
        """The open read is answered; it was sent under the present terms unless others are given."""
        reading = Reading(sight, self.traits, words, replicas)
        self.state = observe.read_answered(self.state, reading, sent_under or self.wanted, self.wanted, self.now)
        return self

    def fail(self, failure: Failure = TIMED_OUT, times: int = 1) -> Self:
        """Reads are sent and fail at once."""
        for _ in range(times):
            self.ask()
            self.state = observe.read_failed(self.state, failure, self.wanted, self.wanted, self.now)
        return self

    def call(self) -> Self:
        """The control call that is due now is sent. Raises AssertionError if none is."""
        match self.action:
            case ControlCall() as call:
                self.state = observe.call_sent(self.state, call, self.wanted, self.now)
                return self
            case other:
                raise AssertionError(f"no control call is due, but {other}")

    def answered(self, failure: Failure | None = None) -> Self:
        """The open control call ends: with success, or as ``failure`` says."""
        self.state = observe.call_ended(self.state, failure, self.wanted, self.now)
        return self

    def wait(self, seconds: float) -> Self:
        """Time passes."""
        self.now += seconds
        return self

    def terms(self, **changes: Any) -> Self:
        """The terms change under the same object generation (a view becomes incomplete, a status is stored)."""
        self.wanted = replace(self.wanted, **changes)
        return self

    def respec(self, desired: str | None, **terms: Any) -> Self:
        """The spec changes: the next object generation."""
        self.wanted = make_wanted(desired, object_generation=self.wanted.object_generation + 1, **terms)
        self.state = replace(observe.spec_changed(self.state), condemned=None)
        return self

    def call_off(self) -> Self:
        """The open call is given up. Raises AssertionError if it may not be."""
        if not step.may_call_off(self.wanted, self.state):
            raise AssertionError("nothing may be called off")
        self.state = observe.call_given_up(self.state, self.now)
        return self

    def verify(self) -> Self:
        """Somebody asks for everything to be read afresh."""
        self.state = observe.verify_requested(self.state)
        return self

    def gated(self, may_pause_at: float) -> Self:
        """Its pod's readiness gate allows no pause before this time."""
        self.state = replace(self.state, may_pause_at=may_pause_at)
        return self

    def pod(self, **changes: Any) -> Self:
        """The pod shows something new about the same container."""
        self.target = replace(self.target, **changes)
        self.state = observe.updated(self.state, self.target, self.now)
        return self

    def condemned(self, failure: Failure) -> Self:
        """It died of our calls."""
        self.state = replace(self.state, condemned=failure)
        return self

    # What comes of it

    @property
    def action(self) -> step.Action:
        """What is done next."""
        return step.next_action(self.wanted, self.state, self.now)

    @property
    def shown(self) -> State:
        """The state that people see."""
        return step.state_of(self.wanted, self.state, self.now)

    @property
    def standing(self) -> report.Standing:
        """What of it counts for the fleet."""
        return report.standing(self.wanted, self.state, self.now)

    def posts_within(self, seconds: float) -> list[float]:
        """When control calls are sent if the same keeps happening: each read gives the present sight, each call is answered
        as its last one was. The story itself does not go on."""
        told = replace(self)
        told.state = self.state
        ends, posts, last = (
            self.now + seconds,
            [],
            self.state.refusal.failure if self.state.refusal else self.state.setback,
        )
        while told.now <= ends:
            match told.action:
                case ControlCall():
                    posts.append(told.now - self.now)
                    told.call().answered(last)
                case step.Read():
                    if told.state.sight is None:
                        raise AssertionError("it was never read")
                    told.read(told.state.sight)
                case step.Until(at):
                    told.now = max(at, told.now + 0.001)
                case step.Prepare() as what:
                    raise AssertionError(f"first: {what.value}")
        return posts


def fleet_of(
    *stories: Story,
    wanted: Wanted | None = None,
    claimed_by: Mapping[str, str] | None = None,
    pause: LastPause | None = None,
    spec_pause_differs: bool = False,
    expired: bool = False,
    overdue: bool = False,
    max_paused: int | None = None,
    verify: str | None = None,
) -> Fleet:
    """The fleet of these targets; their terms are the first one's unless given."""
    terms = wanted or stories[0].wanted
    members = tuple((story.state, report.standing(terms, story.state, story.now)) for story in stories)
    return Fleet(
        wanted=terms,
        members=members,
        tally=Counter(standing for _, standing in members),
        claimed_by=claimed_by or {},
        pause=pause,
        spec_pause_differs=spec_pause_differs,
        around=report.Circumstances(claimed=bool(claimed_by), expired=expired, overdue=overdue),
        max_paused=max_paused,
        verify=verify,
    )


def status_of(fleet: Fleet, before: LLMServiceStatus | None = None, timestamp: str = EPOCH) -> LLMServiceStatus:
    """The status that this fleet publishes."""
    return compose(fleet, before or LLMServiceStatus(), timestamp)


def make_service(
    builder: LLMServiceBuilder | None = None,
    *,
    object_generation: int = 2,
    uid: str = "uid-qwen",
    namespace: str = "default",
    created: str = EPOCH,
    status: LLMServiceStatus | None = None,
    deleted: str | None = None,
    finalizers: tuple[str, ...] = (),
) -> LLMService:
    """An LLMService as the API server returns it; selecting app=qwen unless a builder says otherwise. ``deleted``: its
    deletionTimestamp."""
    body = (builder or make_llmservice("qwen").selector(app="qwen")).obj()
    body["metadata"].update(
        namespace=namespace, uid=uid, resourceVersion="1", creationTimestamp=created, generation=object_generation
    )
    if finalizers:
        body["metadata"]["finalizers"] = list(finalizers)
    if deleted is not None:
        body["metadata"]["deletionTimestamp"] = deleted
    service = LLMService.model_validate(body)
    return service if status is None else service.model_copy(update={"status": status})
