"""Draws one panel of the dashboard from the series that Prometheus answered, much as Grafana would."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from llmservice_testing.builders import Json
from llmservice_testing.dashboard_picture import scale, svg
from llmservice_testing.monitoring import Panel

Point = tuple[float, float]

_COLOURS: Final = {
    "blue": "#3274d9",
    "light-blue": "#8ab8ff",
    "green": "#56a64b",
    "light-green": "#96d98d",
    "yellow": "#e0b400",
    "orange": "#ff780a",
    "red": "#e02f44",
    "purple": "#a352cc",
    "text": "#afb8c1",
}
"""Grafana's names."""
_PALETTE: Final = (
    "#56a64b",
    "#e0b400",
    "#3274d9",
    "#ff780a",
    "#e02f44",
    "#a352cc",
    "#37872d",
    "#1f60c4",
    "#b877d9",
    "#6e7781",
)
_INK, _FAINT, _GRID, _EDGE = "#24292f", "#57606a", "#eaeef2", "#d0d7de"
_PADDING: Final = 12.0
_TITLE: Final = 30.0
_LEGEND_LINE: Final = 16.0


@dataclass(frozen=True)
class Series:
    """What a query found under one name: seconds since the epoch and values, oldest first; and its labels."""

    name: str
    points: tuple[Point, ...]
    labels: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Frame:
    """Where a panel is drawn, and the time that it shows."""

    x: float
    y: float
    width: float
    height: float
    began: float
    ended: float
    step: float

    @property
    def inner(self) -> float:
        """The width between the paddings."""
        return self.width - 2 * _PADDING


def drawn(panel: Panel, series: Sequence[Series], frame: Frame) -> str:
    """The panel, with its title and border. Raises KeyError for a kind that cannot be drawn."""
    title = svg.shortened(panel.title, frame.inner, 13)
    parts = [
        svg.box(0, 0, frame.width, frame.height, "#ffffff", stroke=_EDGE, rx=4),
        svg.text(_PADDING, 20, title, size=13, fill=_INK, font_weight=600),
        *_KINDS[panel.kind](panel, [one for one in series if one.points], frame),
    ]
    return svg.element("g", "\n".join(parts), transform=f"translate({frame.x:g} {frame.y:g})")


# Kinds


def _stat(panel: Panel, series: Sequence[Series], frame: Frame) -> list[str]:
    value = series[0].points[-1][1] if series else math.nan
    steps = panel.json["fieldConfig"]["defaults"]["thresholds"]["steps"]
    colour = [step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]
    shown = "No data" if math.isnan(value) else scale.written(value, panel.unit)
    middle = {"x": frame.width / 2, "text_anchor": "middle"}
    return [
        svg.element("text", shown, y=frame.height - 24, font_size=34, font_weight=600, fill=_COLOURS[colour], **middle)
    ]


def _table(panel: Panel, series: Sequence[Series], frame: Frame) -> list[str]:
    (transformation,) = panel.json["transformations"]
    options = transformation["options"]
    names = sorted(options["indexByName"], key=lambda name: options["indexByName"][name])
    column = frame.inner / len(names)
    parts = [
        svg.text(_PADDING + number * column, _TITLE + 18, options["renameByName"][name], fill=_INK, font_weight=600)
        for number, name in enumerate(names)
    ]
    for row, one in enumerate(series):
        y = _TITLE + 44 + row * 24
        parts.append(svg.line(_PADDING, y - 17, frame.width - _PADDING, y - 17, _GRID))
        parts += [
            svg.text(_PADDING + number * column, y, svg.shortened(one.labels.get(name, ""), column), fill=_INK)
            for number, name in enumerate(names)
        ]
    return parts


def _state_timeline(panel: Panel, series: Sequence[Series], frame: Frame) -> list[str]:
    (mapping,) = panel.json["fieldConfig"]["defaults"]["mappings"]
    names = max((svg.width_of(one.name) for one in series), default=0.0)
    left, top = _PADDING + names + 8, _TITLE + 2
    row = (frame.height - top - 24) / max(len(series), 1)
    across = _across(frame, left)
    parts = _times(frame, left, frame.height - 10)
    for number, one in enumerate(series):
        y = top + number * row
        parts.append(svg.text(left - 8, y + row / 2 + 4, one.name, text_anchor="end"))
        for began, ended, value in _spans(one.points, frame):
            state = mapping["options"][f"{value:g}"]
            x, width = across(began), across(ended) - across(began)
            parts.append(svg.box(x, y + 2, width, row - 4, _COLOURS[state["color"]], rx=2))
            if svg.width_of(state["text"]) + 8 < width:
                parts.append(svg.text(x + 6, y + row / 2 + 4, state["text"], fill="#ffffff", font_weight=600))
    return parts


def _time_series(panel: Panel, series: Sequence[Series], frame: Frame) -> list[str]:
    defaults = panel.json["fieldConfig"]["defaults"]
    is_stacked = defaults["custom"]["stacking"]["mode"] == "normal"
    shown = [one for one in series if not is_stacked or any(value for _, value in one.points)]
    colours = {one.name: _colour(panel, one.name, number) for number, one in enumerate(shown)}
    legend, used = _legend([one.name for one in shown], colours, frame)
    bottom = frame.height - used - 26
    curves = _stacked(shown) if is_stacked else [(one, (), one.points) for one in shown]
    values = [value for _, _, upper in curves for _, value in upper if math.isfinite(value)]
    steps = defaults["thresholds"]["steps"] if "thresholdsStyle" in defaults["custom"] else []
    limits = [step["value"] for step in steps if step["value"] is not None]
    marks = scale.ticks(max([*values, *limits], default=0.0), panel.unit)
    if defaults.get("decimals") == 0:
        step = math.ceil(marks[1])
        marks = [float(mark) for mark in range(0, math.ceil(marks[-1]) + step, step)]
    labels = [scale.written(mark, panel.unit) for mark in marks]
    left = _PADDING + max(svg.width_of(label) for label in labels) + 4
    across = _across(frame, left)
    top = _TITLE + 8

    def up(value: float) -> float:
        return bottom - (bottom - top) * value / marks[-1]

    parts = []
    for mark, label in zip(marks, labels, strict=True):
        parts.append(svg.line(left, up(mark), frame.width - _PADDING, up(mark), _GRID))
        parts.append(svg.text(left - 6, up(mark) + 4, label, text_anchor="end"))
    for one, lower, upper in curves:
        for run in _runs(upper, frame.step):
            path = _stairs([(across(at), up(value)) for at, value in run])
            if is_stacked:
                under = dict(lower)
                back = _stairs([(across(at), up(under.get(at, 0.0))) for at, _ in run])
                parts.append(
                    svg.element("path", d=f"M{path} L{_reversed(back)} Z", fill=colours[one.name], fill_opacity=0.6)
                )
            line = {"stroke": colours[one.name], "stroke_width": 1 if is_stacked else 2, "stroke_linejoin": "round"}
            parts.append(svg.element("path", d=f"M{path}", fill="none", **line))
    right, dashes = frame.width - _PADDING, {"stroke_dasharray": "5 3"}
    parts += [svg.line(left, up(limit), right, up(limit), _COLOURS["red"], **dashes) for limit in limits]
    return [*parts, *_times(frame, left, bottom + 16), *legend]


_KINDS: Final[dict[str, Callable[[Panel, Sequence[Series], Frame], list[str]]]] = {
    "stat": _stat,
    "table": _table,
    "state-timeline": _state_timeline,
    "timeseries": _time_series,
}

# Parts


def _colour(panel: Panel, name: str, number: int) -> str:
    for override in panel.json["fieldConfig"]["overrides"]:
        if override["matcher"]["options"] == name:
            return _COLOURS[override["properties"][0]["value"]["fixedColor"]]
    return _PALETTE[number % len(_PALETTE)]


def _legend(names: Sequence[str], colours: dict[str, str], frame: Frame) -> tuple[list[str], float]:
    """The legend at the bottom of the frame, and its height."""
    places: list[tuple[float, int, str]] = []
    x, row = 0.0, 0
    for name in names:
        width = svg.width_of(name) + 28
        if x and x + width > frame.inner:
            x, row = 0.0, row + 1
        places.append((x, row, name))
        x += width
    height = (row + 1) * _LEGEND_LINE if names else 0.0
    parts = []
    for x, row, name in places:
        left, y = _PADDING + x, frame.height - 10 - (height / _LEGEND_LINE - 1 - row) * _LEGEND_LINE
        parts.append(svg.box(left, y - 7, 12, 4, colours[name], rx=2))
        parts.append(svg.text(left + 16, y, name, fill=_FAINT))
    return parts, height


def _across(frame: Frame, left: float) -> Callable[[float], float]:
    """From a time to its place."""
    width = frame.width - _PADDING - left
    return lambda at: left + width * (at - frame.began) / (frame.ended - frame.began)


def _times(frame: Frame, left: float, y: float) -> list[str]:
    """The axis of time, in minutes and seconds from the beginning."""
    across = _across(frame, left)
    seconds = range(0, int(frame.ended - frame.began) + 1, 30 if frame.inner < 800 else 15)
    return [
        svg.text(
            across(frame.began + second), y, _clock(second), text_anchor="middle" if second else "start", fill=_FAINT
        )
        for second in seconds
        if across(frame.began + second) < frame.width - 1.5 * _PADDING
    ]


def _clock(second: int) -> str:
    return f"{second // 60}:{second % 60:02}" + (" min" if not second else "")


def _stacked(series: Sequence[Series]) -> list[tuple[Series, tuple[Point, ...], tuple[Point, ...]]]:
    """Each series with its lower and upper edge."""
    edges, ground = [], dict[float, float]()
    for one in series:
        upper = tuple((at, ground.get(at, 0.0) + value) for at, value in one.points)
        edges.append((one, tuple(ground.items()), upper))
        ground |= dict(upper)
    return edges


def _runs(points: Sequence[Point], step: float) -> list[list[Point]]:
    """The points without gaps and without what is no number."""
    runs: list[list[Point]] = [[]]
    for at, value in points:
        if runs[-1] and at - runs[-1][-1][0] > 1.5 * step:
            runs.append([])
        if math.isfinite(value):
            runs[-1].append((at, value))
    return [[*run, (run[-1][0] + step, run[-1][1])] for run in runs if run]


def _spans(points: Sequence[Point], frame: Frame) -> list[tuple[float, float, float]]:
    """From when to when which value stood."""
    spans: list[tuple[float, float, float]] = []
    for run in _runs(points, frame.step):
        for (at, value), (until, _) in pairwise(run):
            if spans and spans[-1][1] == at and spans[-1][2] == value:
                spans[-1] = (spans[-1][0], until, value)
            else:
                spans.append((at, until, value))
    return [(began, min(ended, frame.ended), value) for began, ended, value in spans]


def _stairs(places: Sequence[Point]) -> str:
    """A path that stays at a value until the next one."""
    corners = [places[0]]
    for (_, before), (x, y) in pairwise(places):
        if y != before:
            corners += [(x, before), (x, y)]
    corners.append(places[-1])
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)


def _reversed(path: str) -> str:
    return " ".join(reversed(path.split(" ")))
