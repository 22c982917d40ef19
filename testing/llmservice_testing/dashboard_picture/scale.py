"""Numbers on an axis: where the ticks are, and how a value is written with its unit."""

import math
from collections.abc import Callable
from typing import Final

_STEPS: Final = (1, 2, 2.5, 5, 10)
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def ticks(highest: float, unit: str, wanted: int = 4) -> list[float]:
    """Numbers from 0 to at least `highest` that are round in this unit, about as many as are wanted."""
    if highest <= 0:
        return [0.0, 1.0]
    if unit == "bytes":
        larger = 1024 ** _power(highest)
        return [number * larger for number in ticks(highest / larger, "short", wanted)]
    rough = highest / wanted
    power = 10 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in _STEPS if factor * power >= rough * 0.999)
    return [number * step for number in range(math.ceil(highest / step - 1e-9) + 1)]


def written(value: float, unit: str) -> str:
    """A value as people read it; `unit` as Grafana names it. Raises KeyError for a unit that is not known here."""
    return _WRITTEN[unit](value)


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _seconds(value: float) -> str:
    if value and abs(value) < 1:
        return f"{_number(value * 1000)} ms"
    return f"{_number(value)} s" if abs(value) < 120 else f"{_number(value / 60)} min"


def _bytes(value: float) -> str:
    power = _power(value)
    return f"{_number(value / 1024**power)} {_BINARY[power]}"


def _power(value: float) -> int:
    """Which power of 1024 a number of bytes is counted in."""
    return min(int(math.log(value, 1024)), len(_BINARY) - 1) if value >= 1 else 0


_WRITTEN: Final[dict[str, Callable[[float], str]]] = {
    "short": _number,
    "s": _seconds,
    "percentunit": lambda value: f"{_number(value * 100)} %",
    "reqps": lambda value: f"{_number(value)} calls/s",
    "wps": lambda value: f"{_number(value)} writes/s",
    "bytes": _bytes,
}
