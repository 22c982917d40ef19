"""The dashboard as a document. What its queries find is in test_scraped.py."""

import itertools
import re

from llmservice_testing import monitoring

PANELS = monitoring.panels()
WIDTH = 24
"""Columns of Grafana's grid."""


def test_every_panel_is_described() -> None:
    for panel in PANELS:
        assert panel.title
        assert panel.json["description"].endswith(".")
        assert panel.unit


def test_panels_have_their_own_place_and_number() -> None:
    ids = [panel.json["id"] for panel in PANELS]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel.json["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        cells = set(
            itertools.product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"]))
        )
        assert not cells & taken, panel.title
        taken |= cells


def test_every_variable_is_one_of_the_dashboard_or_of_grafana() -> None:
    declared = {variable["name"] for variable in monitoring.dashboard()["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)\}?", monitoring.DASHBOARD.read_text())) - {"__all", "__rate_interval"}
    assert used == declared


def test_the_data_source_is_left_to_the_reader() -> None:
    for panel in PANELS:
        for part in (panel.json, *panel.json["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
