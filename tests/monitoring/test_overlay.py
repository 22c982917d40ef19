"""What `kubectl apply -k manifests/overlays/monitoring` would bring."""

import json

import pytest

from llmservice_testing import monitoring
from llmservice_testing.builders import Json
from llmservice_testing.manifests import kustomize


@pytest.fixture(scope="module")
def objects() -> list[Json]:
    """As kustomize builds it."""
    return kustomize(monitoring.RULES.parent)


def only(objects: list[Json], kind: str) -> Json:
    """The only object of this kind."""
    (found,) = [one for one in objects if one["kind"] == kind]
    return found


def test_the_rules_are_there(objects: list[Json]) -> None:
    assert only(objects, "PrometheusRule")["spec"]["groups"] == monitoring.groups()


def test_the_dashboard_is_where_grafana_looks_for_it(objects: list[Json]) -> None:
    configuration = only(objects, "ConfigMap")
    assert configuration["metadata"]["labels"]["grafana_dashboard"] == "1"
    (dashboard,) = [json.loads(text) for name, text in configuration["data"].items() if name.endswith(".json")]
    assert dashboard == monitoring.dashboard()


def test_the_service_monitor_keeps_the_labels_of_the_metrics(objects: list[Json]) -> None:
    (endpoint,) = only(objects, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True


def test_the_documented_scrape_asks_the_service(objects: list[Json]) -> None:
    (service,) = [one for one in objects if one["kind"] == "Service" and one["spec"]["ports"][0]["name"] == "metrics"]
    metadata, (port,) = service["metadata"], service["spec"]["ports"]
    (job,) = monitoring.documented_scrape()
    assert job["honor_labels"] is True
    (static,) = job["static_configs"]
    assert static["targets"] == [f"{metadata['name']}.{metadata['namespace']}.svc:{port['port']}"]
