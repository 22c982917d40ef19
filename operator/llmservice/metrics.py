"""Prometheus metrics. Labels are bounded: LLMServices, states, calls and outcomes, never pods.

Times of a pause are exported as the moment it began, not as a number of seconds: a scrape that is missed or an operator that
hangs then cannot make a pause look shorter than it is, and ``time() - since`` in a query is always right.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from llmservice.api import ConditionType, Desired, LLMService, Reason
from llmservice.domain import clocks, policy
from llmservice.domain.fleet import Obstacle
from llmservice.domain.status import condition

_CALL_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_CONFIRMATION_BUCKETS = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_CALLS = ("read", "pause", "resume")
_OUTCOMES = ("ok", *(obstacle.name.lower() for obstacle in Obstacle))
_WRITE_OUTCOMES = ("stored", "conflict", "failed")


class Fleets(Protocol):
    """Where the state of all fleets is read at the moment of a scrape."""

    def services(self) -> Iterable[LLMService]:
        """Every LLMService as it was last stored."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A change of ``spec.generation`` that is done."""

    desired: Desired
    seconds: float
    """From the moment this process saw the change until the status that confirms it was stored."""


class ChangeClock:
    """Times the changes of ``spec.generation`` of one LLMService, which is shown to it in every version.

    The first version that it sees is where it starts from: how long a change took that began before, under another operator
    or before the object was there, nobody here knows. A change that is changed again before it is done is not counted, nor is
    one that finds no pods, as it would count until somebody adds one.
    """

    def __init__(self) -> None:
        self._latest: LLMService | None = None
        self._began: float | None = None

    def see(self, service: LLMService, now: float) -> Confirmation | None:
        """What this version of the object confirms, if anything. ``now``: monotonic seconds."""
        latest, self._latest = self._latest, service
        if latest is not None and latest.spec.generation is not service.spec.generation:
            self._began = now
        desired = service.spec.generation
        if self._began is None or desired is None or not _is_ready(service):
            return None
        began, self._began = self._began, None
        ready = condition(service.status, ConditionType.READY)
        if ready is None or ready.reason != Reason.IN_DESIRED_STATE:
            return None
        return Confirmation(desired, now - began)


class Metrics:
    """All metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        # One more series for each counter, which Prometheus has no use for. The switch is a global one.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.engine_calls = Histogram(
            "llmservice_engine_call_duration_seconds",
            "Duration of calls to engines, by what was asked and how it ended.",
            ["call", "outcome"],
            buckets=_CALL_BUCKETS,
            registry=self.registry,
        )
        self.status_writes = Counter(
            "llmservice_status_writes", "Writes of a status, by outcome.", ["outcome"], registry=self.registry
        )
        self.confirmations = Histogram(
            "llmservice_confirmation_duration_seconds",
            "From the sight of a changed spec.generation to the stored status that confirms it, by what was asked for.",
            ["desired"],
            buckets=_CONFIRMATION_BUCKETS,
            registry=self.registry,
        )
        self.drift_corrections = Counter(
            "llmservice_drift_corrections",
            "Engines that had been changed by somebody else and were brought back.",
            ["namespace", "name"],
            registry=None,  # it is collected with the fleets, and forgets those that are gone
        )
        Info("llmservice_build", "The operator that answers.", registry=self.registry).info(
            {"version": version("llmservice")}
        )
        ProcessCollector(registry=self.registry)
        self._begin_at_zero()

    def observe(self, fleets: Fleets) -> None:
        """Report the state of ``fleets`` at each scrape."""
        self.registry.register(_FleetCollector(fleets, self.drift_corrections))

    def confirmed(self, confirmation: Confirmation | None) -> None:
        """Count what :meth:`ChangeClock.see` found."""
        if confirmation is not None:
            self.confirmations.labels(confirmation.desired).observe(confirmation.seconds)

    def _begin_at_zero(self) -> None:
        """A counter that first appears as 1 has never increased, as far as Prometheus can tell."""
        for call in _CALLS:
            for outcome in _OUTCOMES:
                self.engine_calls.labels(call, outcome)
        for outcome in _WRITE_OUTCOMES:
            self.status_writes.labels(outcome)
        for desired in Desired:
            self.confirmations.labels(desired)


class _FleetCollector(Collector):
    def __init__(self, fleets: Fleets, drift_corrections: Counter) -> None:
        self._fleets = fleets
        self._drift_corrections = drift_corrections

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        services, wall = tuple(self._fleets.services()), time.time()
        families = _Families()
        for service in services:
            families.add(service, wall)
        yield from families
        self._count_for(services)
        yield from self._drift_corrections.collect()

    def _count_for(self, services: tuple[LLMService, ...]) -> None:
        """Let drift be counted for these fleets and no others, from zero on."""
        alive = {(service.metadata.namespace, service.metadata.name) for service in services}
        counted = {
            (sample.labels["namespace"], sample.labels["name"])
            for family in self._drift_corrections.collect()
            for sample in family.samples
        }
        for key in counted - alive:
            self._drift_corrections.remove(*key)
        for key in alive - counted:
            self._drift_corrections.labels(*key)


class _Families:
    """The gauges of one scrape."""

    def __init__(self) -> None:
        self.desired = _gauge("desired", "1 for what spec.generation asks for; none where it is absent.", "desired")
        self.targets = _gauge("targets", "Targets (engine endpoints) by state.", "state")
        self.condition = _gauge("condition", "1 for the present status of each condition.", "type", "status")
        self.stalled = _gauge("stalled", "1 for the reason why a person is needed; absent where none is.", "reason")
        self.paused_since = _gauge(
            "paused_since_timestamp_seconds",
            "When the first engine was confirmed paused under the present spec, in seconds since the epoch; "
            "absent where the fleet is not to be paused.",
        )
        self.pause_limit = _gauge(
            "pause_limit_seconds", "spec.maxPausedSeconds: how long a pause may last; absent where it is."
        )
        self.too_long = _gauge(
            "paused_too_long", "1 while a pause lasts longer than spec.maxPausedSeconds, and goes on."
        )

    def __iter__(self) -> Iterator[Metric]:
        return iter(vars(self).values())

    def add(self, service: LLMService, wall: float) -> None:
        """Tell of one LLMService. ``wall``: seconds since the epoch."""
        key = [service.metadata.namespace, service.metadata.name]
        spec, status = service.spec, service.status
        self.desired.add_metric([*key, spec.generation or "none"], 1)
        self.too_long.add_metric(key, float(clocks.is_paused_too_long(service, wall)))
        if spec.max_paused_seconds is not None:
            self.pause_limit.add_metric(key, spec.max_paused_seconds)
        if status.paused_since is not None and _is_to_be_paused(service, wall):
            self.paused_since.add_metric(key, clocks.to_seconds(status.paused_since))
        if status.targets is not None:
            for state, number in status.targets.model_dump(exclude={"total"}).items():
                self.targets.add_metric([*key, state], number)
        for each in status.conditions:
            self.condition.add_metric([*key, each.type, each.status], 1)
            if each.type == ConditionType.STALLED:
                self.stalled.add_metric([*key, each.reason], 1)


def _gauge(name: str, documentation: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"llmservice_{name}", documentation, labels=["namespace", "name", *labels])


def _is_to_be_paused(service: LLMService, wall: float) -> bool:
    """The clock of a pause stands on in the status when the pause has expired, so that it stays expired."""
    counts = service.status.paused_since_generation == service.metadata.object_generation
    return counts and policy.effective(service, wall) is Desired.PAUSED


def _is_ready(service: LLMService) -> bool:
    """Whether the status says so of the present spec."""
    ready = condition(service.status, ConditionType.READY)
    object_generation = service.metadata.object_generation
    return ready is not None and ready.status == "True" and ready.observed_generation == object_generation
