"""The commands and rules that docs/metrics.md tells people to use."""

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from llmservice_testing import monitoring
from llmservice_testing.prometheus import Programs

TEXT = monitoring.DOCUMENT.read_text()


def blocks(language: str, containing: str) -> list[str]:
    """The code blocks of a language that contain some words."""
    found = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    return [block for block in found if containing in block]


def test_the_rules_are_drawn_from_the_manifest_and_checked_as_documented(programs: Programs, tmp_path: Path) -> None:
    (commands,) = blocks("console", "promtool")
    (tmp_path / "manifests").symlink_to(monitoring.ROOT / "manifests")
    path = os.pathsep.join([str(Path(sys.executable).parent), str(programs.promtool.parent), os.environ["PATH"]])
    finished = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert "rules found" in finished.stdout
    assert yaml.safe_load((tmp_path / "llmservice-rules.yaml").read_text()) == {"groups": monitoring.groups()}


def test_the_further_rule_is_one_that_prometheus_takes(programs: Programs, tmp_path: Path) -> None:
    (rule,) = blocks("yaml", "LLMServicePausedForADay")
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "own", "rules": yaml.safe_load(rule)}]}))
    assert "1 rules found" in programs.promtool_says("check", "rules", str(rules))


def test_every_alert_is_documented_with_its_time_and_severity() -> None:
    rows = re.findall(r"^\| `(LLMService\w+)` \|.*\| (\d+) min \| (\w+) \|$", TEXT, re.MULTILINE)
    rules = [rule for group in monitoring.groups() for rule in group["rules"]]
    assert rows == [(rule["alert"], rule["for"].removesuffix("m"), rule["labels"]["severity"]) for rule in rules]
