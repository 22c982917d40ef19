"""The little of SVG that is needed."""

from typing import Final
from xml.sax.saxutils import escape, quoteattr

FONT: Final = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_WIDE: Final = 0.56
"""Width of a letter, as a part of the size: enough for most letters of most fonts."""


def element(name: str, content: str = "", /, **attributes: object) -> str:
    """One element. An underscore in the name of an attribute is a hyphen; numbers are rounded to tenths."""
    given = "".join(
        f" {key.strip('_').replace('_', '-')}={quoteattr(_value(value))}" for key, value in attributes.items()
    )
    return f"<{name}{given}>{content}</{name}>" if content else f"<{name}{given}/>"


def text(x: float, y: float, words: str, *, size: float = 11, fill: str = "#57606a", **attributes: object) -> str:
    """Words, whose base line is at `y`."""
    return element("text", escape(words), x=x, y=y, font_size=size, fill=fill, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, stroke: str, **attributes: object) -> str:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, **attributes)


def box(x: float, y: float, width: float, height: float, fill: str, **attributes: object) -> str:
    """A rectangle."""
    return element("rect", x=x, y=y, width=max(width, 0.0), height=max(height, 0.0), fill=fill, **attributes)


def width_of(words: str, size: float = 11) -> float:
    """About how wide words are drawn."""
    return len(words) * size * _WIDE


def shortened(words: str, room: float, size: float = 11) -> str:
    """Words that fit into the room, with dots where some were left out."""
    most = int(room / (size * _WIDE))
    return words if len(words) <= most else words[: max(most - 1, 1)] + "…"


def document(width: float, height: float, title: str, description: str, parts: list[str]) -> str:
    """A whole picture on white."""
    body = "\n".join(
        [
            element("title", escape(title)),
            element("desc", escape(description)),
            box(0, 0, width, height, "#ffffff"),
            *parts,
        ]
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
        f'role="img" font-family="{FONT}">\n{body}\n</svg>\n'
    )


def _value(value: object) -> str:
    return f"{round(value, 1):g}" if isinstance(value, float) else str(value)
