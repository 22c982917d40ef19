"""The picture of the dashboard in the docs. That it is drawn from real answers is in test_scraped.py."""

import re
from xml.etree import ElementTree

import pytest

from llmservice_testing import monitoring
from llmservice_testing.dashboard_picture import scale

PICTURE = monitoring.ROOT / "docs" / "images" / "dashboard.svg"
TITLES = {panel.title for panel in monitoring.panels()}
SVG = "{http://www.w3.org/2000/svg}"


def words(picture: str) -> set[str]:
    """All that is written in a picture."""
    return {each.text or "" for each in ElementTree.fromstring(picture).iter(f"{SVG}text")}


def test_the_picture_in_the_docs_has_the_panels_of_the_dashboard() -> None:
    """Else: python -m llmservice_testing.dashboard_picture docs/images/dashboard.svg."""
    assert words(PICTURE.read_text()) >= TITLES


def test_the_docs_show_the_picture() -> None:
    shown = re.findall(r"!\[.*?\]\((.*?)\)", monitoring.DOCUMENT.read_text())
    assert [(monitoring.DOCUMENT.parent / path).resolve() for path in shown] == [PICTURE]


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        pytest.param(0.0, "s", "0 s"),
        pytest.param(0.0835, "s", "83.5 ms"),
        pytest.param(75.0, "s", "75 s"),
        pytest.param(600.0, "s", "10 min"),
        pytest.param(1.5, "percentunit", "150 %"),
        pytest.param(80 * 1024**2, "bytes", "80 MiB"),
        pytest.param(12.25, "reqps", "12.2 calls/s"),
        pytest.param(1200.0, "short", "1,200"),
    ],
)
def test_values_are_written_with_their_unit(value: float, unit: str, expected: str) -> None:
    assert scale.written(value, unit) == expected


@pytest.mark.parametrize(
    ("highest", "unit", "expected"),
    [
        pytest.param(0.0, "short", [0, 1], id="nothing"),
        pytest.param(13.0, "short", [0, 5, 10, 15], id="engines"),
        pytest.param(0.42, "s", [0, 0.2, 0.4, 0.6], id="parts of a second"),
        pytest.param(75 * 1024**2, "bytes", [0, 20 * 1024**2, 40 * 1024**2, 60 * 1024**2, 80 * 1024**2], id="bytes"),
    ],
)
def test_ticks_are_round_and_enclose_all_values(highest: float, unit: str, expected: list[float]) -> None:
    assert scale.ticks(highest, unit) == pytest.approx(expected)


def test_every_unit_of_the_dashboard_can_be_written() -> None:
    assert all(scale.written(1.0, panel.unit) for panel in monitoring.panels())
