"""Prometheus metrics. Labels are bounded: LLMServices, states, routes and outcomes, never pods."""

import time
from collections.abc import Iterable, Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from llmservice.api import LLMService
from llmservice.domain import clocks

_CALL_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Fleets(Protocol):
    """Where the state of all fleets is read at the moment of a scrape."""

    def services(self) -> Iterable[LLMService]:
        """Every LLMService as it was last stored."""


class Metrics:
    """All metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
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
        self.drift_corrections = Counter(
            "llmservice_drift_corrections",
            "Engines that had been changed by somebody else and were brought back.",
            ["namespace", "name"],
            registry=self.registry,
        )

    def observe(self, fleets: Fleets) -> None:
        """Report the state of ``fleets`` at each scrape."""
        self.registry.register(_FleetCollector(fleets))


class _FleetCollector(Collector):
    def __init__(self, fleets: Fleets) -> None:
        self._fleets = fleets

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        labels = ["namespace", "name"]
        targets = GaugeMetricFamily("llmservice_targets", "Targets by state.", labels=[*labels, "state"])
        conditions = GaugeMetricFamily(
            "llmservice_condition", "1 for the present status of each condition.", labels=[*labels, "type", "status"]
        )
        desired = GaugeMetricFamily(
            "llmservice_desired", "1 for what spec.generation asks for.", labels=[*labels, "desired"]
        )
        paused_since = GaugeMetricFamily(
            "llmservice_paused_since_timestamp_seconds",
            "When the first engine was confirmed paused under the present spec, in seconds since the epoch.",
            labels=labels,
        )
        too_long = GaugeMetricFamily(
            "llmservice_paused_too_long", "1 while a pause lasts longer than spec.maxPausedSeconds.", labels=labels
        )
        for service in self._fleets.services():
            key = [service.metadata.namespace, service.metadata.name]
            desired.add_metric([*key, service.spec.generation or "none"], 1)
            if service.status.paused_since is not None:
                paused_since.add_metric(key, clocks.to_seconds(service.status.paused_since))
            too_long.add_metric(key, float(clocks.is_paused_too_long(service, time.time())))
            for condition in service.status.conditions:
                conditions.add_metric([*key, condition.type, condition.status], 1)
            if service.status.targets is not None:
                for state, number in service.status.targets.model_dump(exclude={"total"}).items():
                    targets.add_metric([*key, state], number)
        yield from (targets, conditions, desired, paused_since, too_long)
