"""A real Prometheus scrapes a real operator and evaluates the rules. Only the time that an alert waits is shortened."""

from llmservice_testing.cluster import wait_until
from llmservice_testing.dashboard_picture import story
from llmservice_testing.fleet import PATIENCE_SECONDS
from llmservice_testing.monitored import NAMESPACE, Stage

Firing = set[tuple[str, ...]]


def firing(stage: Stage, alert: str, *labels: str) -> Firing:
    """The values of these labels, for each alert of this name that fires."""
    return {tuple(each["labels"].get(label, "") for label in labels) for each in stage.prometheus.alerts(alert)}


def wait_for(stage: Stage, expected: Firing, alert: str, *labels: str) -> None:
    """Wait until just this fires."""
    wait_until(
        lambda: firing(stage, alert, *labels) == expected,
        PATIENCE_SECONDS,
        what=f"{alert} firing for {expected}",
        last=lambda: {"alerts": stage.prometheus.alerts(), "rules": stage.prometheus.rules()},
    )


def test_a_pause_that_lasts_too_long_is_told(stage: Stage, fleets: story.Fleets) -> None:
    wait_for(stage, {(NAMESPACE, fleets.llama.name)}, "LLMServicePausedTooLong", "namespace", "name")
    (alert,) = stage.prometheus.alerts("LLMServicePausedTooLong")
    assert alert["annotations"]["summary"] == f"LLMService {NAMESPACE}/llama stays paused for too long"


def test_a_fleet_that_needs_a_person_is_told_with_the_reason(stage: Stage, fleets: story.Fleets) -> None:
    wait_for(
        stage, {(NAMESPACE, fleets.phi.name, "UnsupportedMode")}, "LLMServiceStalled", "namespace", "name", "reason"
    )


def test_engines_that_do_not_answer_are_told(stage: Stage, fleets: story.Fleets) -> None:
    wait_for(stage, {(NAMESPACE, fleets.mistral.name)}, "LLMServiceTargetsUnreachable", "namespace", "name")


def test_no_rule_fails(stage: Stage, fleets: story.Fleets) -> None:
    wait_until(
        lambda: {rule["health"] for rule in stage.prometheus.rules()} == {"ok"},
        PATIENCE_SECONDS,
        what="rules being evaluated",
        last=stage.prometheus.rules,
    )


def test_an_operator_that_is_gone_is_told_and_its_return_ends_that(stage: Stage, fleets: story.Fleets) -> None:
    wait_for(stage, set(), "LLMServiceOperatorDown")
    stage.operator.kill()
    try:
        wait_for(stage, {("critical",)}, "LLMServiceOperatorDown", "severity")
        wait_for(stage, set(), "LLMServicePausedTooLong")  # as its description says
    finally:
        stage.operator.start()
    wait_for(stage, set(), "LLMServiceOperatorDown")
    wait_for(stage, {(fleets.llama.name,)}, "LLMServicePausedTooLong", "name")


def test_alerts_end_when_all_is_as_asked(stage: Stage, mended: None) -> None:
    for alert in ("LLMServicePausedTooLong", "LLMServiceStalled", "LLMServiceTargetsUnreachable"):
        wait_for(stage, set(), alert)
