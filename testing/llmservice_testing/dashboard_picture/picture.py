"""The whole picture: every panel of the dashboard, at its place."""

from typing import Final

from llmservice_testing import monitoring
from llmservice_testing.dashboard_picture import svg
from llmservice_testing.dashboard_picture.panel import Frame, Series, drawn
from llmservice_testing.monitoring import Panel
from llmservice_testing.prometheus import INTERVAL_SECONDS, Prometheus

COLUMN: Final = 50.0
"""Width of one of the 24 columns of Grafana's grid."""
ROW: Final = 30.0
GAP: Final = 8.0
VARIABLES: Final = {"namespace": ".*", "name": ".*", "__rate_interval": "10s"}


def draw(prometheus: Prometheus, began: float, ended: float) -> str:
    """The dashboard between two times (seconds since the epoch), as SVG; single values are those at the end."""
    panels = monitoring.panels()
    places = [panel.json["gridPos"] for panel in panels]
    parts = [_panel(prometheus, panel, began, ended) for panel in panels]
    height = max(place["y"] + place["h"] for place in places) * ROW
    title = str(monitoring.dashboard()["title"])
    return svg.document(24 * COLUMN, height, f"Dashboard {title}", str(monitoring.dashboard()["description"]), parts)


def _panel(prometheus: Prometheus, panel: Panel, began: float, ended: float) -> str:
    place = panel.json["gridPos"]
    frame = Frame(
        x=place["x"] * COLUMN + GAP / 2,
        y=place["y"] * ROW + GAP / 2,
        width=place["w"] * COLUMN - GAP,
        height=place["h"] * ROW - GAP,
        began=began,
        ended=ended,
        step=INTERVAL_SECONDS,
    )
    is_instant = all(target["instant"] for target in panel.json["targets"])
    found = [
        Series(query.name(one["metric"]), tuple((at, float(value)) for at, value in one["values"]), one["metric"])
        for query in panel.queries
        for one in prometheus.query_range(query.with_variables(VARIABLES), ended if is_instant else began, ended)
    ]
    return drawn(panel, found, frame)
