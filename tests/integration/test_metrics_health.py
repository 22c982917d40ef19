"""What the operator shows of itself: metrics, liveness, logs, and its end."""

import json

from prometheus_client.parser import text_string_to_metric_families

from llmservice_testing.cluster import wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, OpenRequest
from llmservice_testing.operator_process import OperatorProcess

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(operator: OperatorProcess) -> tuple[set[str], Samples]:
    """The names of the families, and every sample by name and labels."""
    families = list(text_string_to_metric_families(operator.metrics()))
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }
    return {family.name for family in families}, samples


def test_metrics_parse_and_tell_what_the_status_tells(fleet: Fleet, own_operator: OperatorProcess) -> None:
    strayed, _ = fleet.paused(2).members
    strayed.engine.resume()
    fleet.wait_for_event("DriftCorrected")
    fleet.wait("Ready", reason="InDesiredState")
    families, samples = scrape(own_operator)
    assert families >= {
        "llmservice_engine_call_duration_seconds",
        "llmservice_status_writes",
        "llmservice_drift_corrections",
        "llmservice_targets",
        "llmservice_condition",
        "llmservice_desired",
    }
    service = {"namespace": fleet.namespace, "name": fleet.name}

    def value(sample: str, /, **labels: str) -> float:
        return samples[sample, tuple(sorted(labels.items()))]

    assert value("llmservice_targets", state="paused", **service) == 2
    assert value("llmservice_targets", state="running", **service) == 0
    assert value("llmservice_condition", type="Paused", status="True", **service) == 1
    assert value("llmservice_desired", desired="paused", **service) == 1
    assert value("llmservice_drift_corrections_total", **service) == 1
    assert value("llmservice_engine_call_duration_seconds_count", call="pause", outcome="ok") == 3
    assert value("llmservice_status_writes_total", outcome="stored") >= 1


def test_a_fleet_that_is_gone_is_gone_from_the_metrics(fleet: Fleet, own_operator: OperatorProcess) -> None:
    fleet.paused()
    assert f'name="{fleet.name}"' in own_operator.metrics()
    fleet.cluster.delete_llmservice(fleet.namespace, fleet.name)
    wait_until(
        lambda: 'llmservice_targets{name="' not in own_operator.metrics(),
        PATIENCE_SECONDS,
        what="its metrics being gone",
    )


def test_metrics_count_no_pods(fleet: Fleet, own_operator: OperatorProcess) -> None:
    """Labels are bounded: a fleet of thousands costs as many series as one of ten."""
    fleet.paused(2)
    before = len(scrape(own_operator)[1])
    for member in fleet.grow(3):
        wait_until(lambda member=member: member.engine.paused, PATIENCE_SECONDS, what="being paused")  # type: ignore[misc]
    assert len(scrape(own_operator)[1]) == before


def test_it_lives_and_is_ready(own_operator: OperatorProcess) -> None:
    assert (own_operator.liveness(), own_operator.lack()) == (200, "")


def test_sigterm_ends_it_in_seconds_with_status_0_and_leaves_the_engines(
    fleet: Fleet, own_operator: OperatorProcess
) -> None:
    fleet.paused(2)
    assert own_operator.stop(within=15) == 0
    assert fleet.all_paused()
    assert [post.path for post in fleet.posts()] == ["/pause", "/pause"]
    assert [line["message"] for line in own_operator.log_lines() if line.get("level") == "error"] == []


def test_sigterm_ends_it_while_a_drain_is_under_way(fleet: Fleet, own_operator: OperatorProcess) -> None:
    member = fleet.add()
    with OpenRequest(member.engine):
        fleet.declare("paused", pause={"mode": "wait"})
        member.engine.asked("/pause")
        assert own_operator.stop(within=15) == 0


def test_every_log_line_is_json_with_the_same_fields(fleet: Fleet, own_operator: OperatorProcess) -> None:
    fleet.paused()
    for line in own_operator.log.read_text().splitlines():
        assert json.loads(line).keys() >= {"time", "level", "logger", "message"}
    assert "Started" in [line["message"] for line in own_operator.log_lines()]
