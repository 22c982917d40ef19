"""What `manifests/overlays/monitoring` gives to Prometheus and Grafana, read as they read it."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from llmservice_testing.builders import Json

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "manifests" / "overlays" / "monitoring" / "rules.yaml"
DASHBOARD: Final = ROOT / "manifests" / "overlays" / "monitoring" / "dashboard.json"
DOCUMENT: Final = ROOT / "docs" / "metrics.md"

_VARIABLE: Final = re.compile(r"\$\{?(\w+)\}?")


@dataclass(frozen=True)
class Query:
    """One query of a panel, with its variables in it."""

    expression: str
    legend: str
    """Labels in double braces are to be replaced; `__auto` leaves the legend to Grafana."""

    def with_variables(self, values: Mapping[str, str]) -> str:
        """The PromQL that Grafana would send. Raises KeyError for a variable without a value."""
        return _VARIABLE.sub(lambda found: values[found[1]], self.expression)

    def name(self, labels: Mapping[str, str]) -> str:
        """What the legend calls a series."""
        if self.legend == "__auto":
            return ", ".join(f'{key}="{value}"' for key, value in labels.items() if key != "__name__")
        return re.sub(r"{{\s*(\w+)\s*}}", lambda found: labels.get(found[1], ""), self.legend)


@dataclass(frozen=True)
class Panel:
    """One panel of the dashboard."""

    title: str
    kind: str
    unit: str
    queries: tuple[Query, ...]
    json: Json
    """All of it, as Grafana reads it."""


def groups() -> list[Json]:
    """The groups of rules, as they stand in the PrometheusRule: its spec is what a rule file holds."""
    found: list[Json] = yaml.safe_load(RULES.read_text())["spec"]["groups"]
    return found


def hastened(groups: list[Json], wait: str = "1s") -> list[Json]:
    """The same rules, each waiting so long before it fires: a test that looks at a real Prometheus has no minutes."""
    return [{**group, "rules": [{**rule, "for": wait} for rule in group["rules"]]} for group in groups]


def dashboard() -> Json:
    """The dashboard, as Grafana reads it."""
    found: Json = json.loads(DASHBOARD.read_text())
    return found


def panels() -> list[Panel]:
    """The panels of the dashboard, in its order."""
    return list(_panels(dashboard()))


def _panels(dashboard: Json) -> Iterator[Panel]:
    for panel in dashboard["panels"]:
        queries = tuple(Query(target["expr"], target["legendFormat"]) for target in panel["targets"])
        yield Panel(panel["title"], panel["type"], panel["fieldConfig"]["defaults"]["unit"], queries, panel)


def documented_scrape() -> list[Json]:
    """The `scrape_configs` that docs/metrics.md tells people to write."""
    (block,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", DOCUMENT.read_text(), re.DOTALL)
    found: list[Json] = yaml.safe_load(block)["scrape_configs"]
    return found
