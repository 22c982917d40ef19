"""The alert rules, checked by Prometheus' own tool, and what they say of themselves."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmservice_testing import monitoring
from llmservice_testing.prometheus import Programs, PromtoolError

ALERT_TESTS = Path(__file__).with_name("alerts.test.yaml")
TROUBLESHOOTING = monitoring.ROOT / "docs" / "troubleshooting.md"
RULES: list[dict[str, Any]] = [rule for group in monitoring.groups() for rule in group["rules"]]
ALERTS = [rule["alert"] for rule in RULES]


@pytest.fixture
def rule_file(tmp_path: Path) -> Path:
    """The rules of the PrometheusRule as Prometheus reads them."""
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": monitoring.groups()}))
    return path


def test_promtool_finds_no_fault_with_the_rules(programs: Programs, rule_file: Path) -> None:
    assert f"SUCCESS: {len(RULES)} rules found" in programs.promtool_says("check", "rules", str(rule_file))


def test_each_alert_fires_after_its_time_and_not_for_less(programs: Programs, rule_file: Path) -> None:
    tests = shutil.copy(ALERT_TESTS, rule_file.parent)
    assert "SUCCESS" in programs.promtool_says("test", "rules", str(tests))


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_that_fires_at_once_is_noticed(programs: Programs, rule_file: Path, alert: str) -> None:
    """The test before this one has teeth."""
    groups = monitoring.groups()
    for rule in groups[0]["rules"]:
        rule["for"] = "0s" if rule["alert"] == alert else rule["for"]
    rule_file.write_text(yaml.safe_dump({"groups": groups}))
    tests = shutil.copy(ALERT_TESTS, rule_file.parent)
    with pytest.raises(PromtoolError, match=alert):
        programs.promtool_says("test", "rules", str(tests))


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_is_tested_to_fire_and_not_to_fire(alert: str) -> None:
    tests = yaml.safe_load(ALERT_TESTS.read_text())["tests"]
    fires = {
        bool(case.get("exp_alerts")) for test in tests for case in test["alert_rule_test"] if case["alertname"] == alert
    }
    assert fires == {True, False}


@pytest.mark.parametrize("rule", RULES, ids=ALERTS)
def test_each_alert_says_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["for"]
    assert rule["labels"]["severity"] in {"warning", "critical"}
    annotations = rule["annotations"]
    assert annotations["summary"]
    assert annotations["description"]
    document, _, anchor = annotations["runbook"].partition("#")
    assert monitoring.ROOT / document == TROUBLESHOOTING
    headings = re.findall(r"^#+ (.*)$", TROUBLESHOOTING.read_text(), re.MULTILINE)
    assert anchor in {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
