"""What a real Prometheus has of a real operator: by its conventions, documented, and answering the dashboard's queries."""

import re
import time
from xml.etree import ElementTree

import pytest
from prometheus_client.parser import text_string_to_metric_families

from llmservice_testing import monitoring
from llmservice_testing.cluster import wait_until
from llmservice_testing.dashboard_picture import story
from llmservice_testing.dashboard_picture.picture import draw
from llmservice_testing.fleet import PATIENCE_SECONDS
from llmservice_testing.monitored import NAMESPACE, Stage
from llmservice_testing.monitoring import Panel, Query
from llmservice_testing.prometheus import Programs, QueryError

QUERIES = [(panel, query) for panel in monitoring.panels() for query in panel.queries]
IDS = [f"{panel.title}-{number}" for panel in monitoring.panels() for number, _ in enumerate(panel.queries)]
ALL = {"namespace": ".*", "name": ".*", "__rate_interval": "10s"}
NAME = re.compile(r"\bllmservice_[a-z_]+[a-z]\b")
SUFFIX = re.compile(r"_(bucket|sum|count)$")


def names_in(text: str) -> set[str]:
    """The metrics that a text speaks of."""
    return {SUFFIX.sub("", name) for name in NAME.findall(text)} - {"llmservice_testing"}


def exported(stage: Stage) -> set[str]:
    """Our metrics, with the names that queries use."""
    families = text_string_to_metric_families(stage.operator.metrics())
    return {SUFFIX.sub("", sample.name) for family in families for sample in family.samples} - {""}


def test_promtool_finds_no_fault_with_the_metrics(stage: Stage, fleets: story.Fleets, programs: Programs) -> None:
    assert programs.promtool_says("check", "metrics", stdin=stage.operator.metrics()) == ""


def test_every_metric_is_documented_and_every_documented_one_is_there(stage: Stage, fleets: story.Fleets) -> None:
    ours = {name for name in exported(stage) if name.startswith("llmservice_")}
    assert names_in(monitoring.DOCUMENT.read_text()) == ours


def test_rules_and_dashboard_speak_of_metrics_that_are_there(stage: Stage, fleets: story.Fleets) -> None:
    spoken_of = names_in(monitoring.RULES.read_text()) | names_in(monitoring.DASHBOARD.read_text())
    assert spoken_of <= exported(stage)


def test_the_namespace_of_a_series_is_that_of_the_fleet(stage: Stage, fleets: story.Fleets) -> None:
    """Service discovery gives the operator's own namespace to all that it answers, unless labels are honoured."""
    wait_until(
        lambda: {one["metric"]["namespace"] for one in stage.prometheus.query("llmservice_desired")} == {NAMESPACE},
        PATIENCE_SECONDS,
        what="the namespace of the fleets",
        last=lambda: stage.prometheus.query("llmservice_desired"),
    )


@pytest.mark.parametrize(("panel", "query"), QUERIES, ids=IDS)
def test_each_query_finds_series(stage: Stage, fleets: story.Fleets, panel: Panel, query: Query) -> None:
    expression = query.with_variables(ALL)

    def found() -> bool:
        now = time.time()
        series = stage.prometheus.query_range(expression, now - 60, now)
        return any(value != "NaN" for one in series for _, value in one["values"])

    wait_until(found, PATIENCE_SECONDS, what=f"data for {expression}")


@pytest.mark.parametrize(("panel", "query"), QUERIES, ids=IDS)
def test_each_series_has_a_name_of_its_own(stage: Stage, fleets: story.Fleets, panel: Panel, query: Query) -> None:
    if panel.kind in {"stat", "table"}:
        return  # it shows values or labels, not names
    series = stage.prometheus.query(query.with_variables(ALL))
    names = [query.name(one["metric"]) for one in series]
    assert len(set(names)) == len(names)
    assert not [name for name in names if "{{" in name or not name.strip()]


def test_a_choice_of_one_fleet_leaves_out_the_others(stage: Stage, fleets: story.Fleets) -> None:
    def names_of(chosen: str) -> set[str]:
        found: set[str] = set()
        for _, query in QUERIES:
            series = stage.prometheus.query(query.with_variables({**ALL, "name": chosen}))
            found |= {one["metric"]["name"] for one in series if "name" in one["metric"]}
        return found

    wait_until(lambda: len(names_of(".*")) >= 4, PATIENCE_SECONDS, what="four fleets")
    assert names_of(fleets.llama.name) == {fleets.llama.name}


def test_the_picture_is_drawn_from_what_prometheus_answers(stage: Stage, fleets: story.Fleets) -> None:
    def drawn() -> str | None:
        now = time.time()
        written = draw(stage.prometheus, now - 30, now)
        return written if "UnsupportedMode" in written and "No data" not in written else None

    written = wait_until(drawn, PATIENCE_SECONDS, what="a picture with the reason why phi is stalled")
    texts = {each.text for each in ElementTree.fromstring(written).iter("{http://www.w3.org/2000/svg}text")}
    assert texts >= {panel.title for panel, _ in QUERIES}
    assert texts >= {"models/llama asked", "models/llama observed", "unreachable", "pause: ok"}


def test_a_query_that_is_wrong_is_refused_in_its_words(stage: Stage) -> None:
    with pytest.raises(QueryError, match=r"sum by: .*parse error: unexpected end of input"):
        stage.prometheus.query("sum by")
