"""Who set a field, and when, as far as the API server keeps a record (``metadata.managedFields``)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from llmservice.client.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Author:
    """A field manager that owns a field: it gave it its present value, or applies the same one."""

    manager: str
    """What a client calls itself (``kubectl-patch``, ``kubectl-llm``, ``argocd-controller``); not who was logged in."""
    operation: str
    """``Update`` or ``Apply``."""
    at: float | None
    """When it last changed anything that it owns, seconds since the epoch: it set the field then or before."""


def authors(snapshot: Snapshot, *path: str) -> tuple[Author, ...]:
    """Of a field such as ``"spec", "generation"``; the latest first. Empty where there is no record."""
    owners = snapshot.setters(*path)
    # An entry of the same manager may own other fields only (with the other operation, or of the status).
    found = [
        Author(str(entry.get("manager", "")), str(entry.get("operation", "")), moment(entry.get("time")))
        for entry in snapshot.raw["metadata"].get("managedFields") or ()
        if entry.get("manager", "") in owners and "subresource" not in entry and _owns(entry, path)
    ]
    return tuple(sorted(found, key=lambda author: author.at or 0.0, reverse=True))


def last_change(snapshot: Snapshot) -> float | None:
    """When anything but the status was last changed, seconds since the epoch; None where there is no record."""
    times = [
        at
        for entry in snapshot.raw["metadata"].get("managedFields") or ()
        if "subresource" not in entry and (at := moment(entry.get("time"))) is not None
    ]
    return max(times, default=None)


def last_status_write(snapshot: Snapshot) -> Author | None:
    """Who last changed the status, and when: the operator, long ago where nothing has changed since."""
    found = [
        Author(str(entry.get("manager", "")), str(entry.get("operation", "")), moment(entry.get("time")))
        for entry in snapshot.raw["metadata"].get("managedFields") or ()
        if entry.get("subresource") == "status"
    ]
    return max(found, key=lambda author: author.at or 0.0, default=None)


def _owns(entry: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    fields: Any = entry.get("fieldsV1") or {}
    for name in path:
        fields = fields.get(f"f:{name}")
        if fields is None:
            return False
    return True


def moment(timestamp: object) -> float | None:
    """Seconds since the epoch of an RFC 3339 time; None where there is none."""
    if not isinstance(timestamp, str):
        return None
    return datetime.fromisoformat(timestamp).astimezone(UTC).timestamp()


def ago(at: float | None, now: float) -> str:
    """``12s``, ``5m``, ``3h`` or ``4d``, as kubectl says it; ``?`` where it is not known."""
    if at is None:
        return "?"
    passed = max(0, int(now - at))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if passed >= 2 * size:
            return f"{passed // size}{unit}"
    return f"{passed}s"


def said(found: tuple[Author, ...], now: float) -> str:
    """``kubectl-llm, 2m ago``; empty where there is no record."""
    return "; ".join(f"{author.manager or 'unnamed'}, {ago(author.at, now)} ago" for author in found)
