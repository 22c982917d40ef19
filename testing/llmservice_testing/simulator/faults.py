"""Faults: what an engine does instead of, or besides, what it was asked.

A fault has three parts that combine freely: whether the engine does what was asked, what it says, and when. A script
for a route is a list of them; each applies to its number of calls, the first that has some left is played.
"""

from __future__ import annotations

import enum
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

EVERY_ROUTE: Final = "*"
"""The route of a script that applies to calls of any route, after the script of the call's own route."""

HUGE_BODY_BYTES: Final = 20 * 1024 * 1024


class Says(enum.Enum):
    """What the client hears."""

    TRUTH = "truth"
    """What a healthy engine would say; success, where the effect is left out."""
    STATUS = "status"
    """`status`, `body` and `headers` of the fault."""
    NOTHING = "nothing"
    """Never an answer; the connection stays open."""
    CUT = "cut"
    """The connection is closed without an answer."""
    CUT_IN_BODY = "cut_in_body"
    """The head and half the body, then the connection is closed."""
    NOT_HTTP = "not_http"
    NOT_JSON = "not_json"
    """200 and a JSON content type, with a body that does not parse."""
    WRONG_SHAPE = "wrong_shape"
    """200 and JSON, but a list where an object should be."""
    HUGE = "huge"
    """200 and 20 MB of valid JSON."""
    ENDLESS = "endless"
    """200 and a body without length or end."""


class Dies(enum.Enum):
    """When the engine dies of the call: it refuses connections from then on, and what it held is gone."""

    AT_ONCE = "at_once"
    """On receipt, without an answer."""
    AFTER_ANSWER = "after_answer"


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of misbehaviour; use the constructors below for the common ones.

    Attributes:
        says: what the client hears.
        effect: whether the engine does what was asked.
        delay_before: seconds between receipt and effect.
        delay_after: seconds between effect and answer.
        dies: whether and when the engine dies of it.
        times: to how many calls it applies; None is for ever.
    """

    says: Says = Says.TRUTH
    effect: bool = True
    delay_before: float = 0.0
    delay_after: float = 0.0
    dies: Dies | None = None
    times: int | None = 1
    status: int = 500
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def answering(
        cls,
        status: int,
        body: object = b"",
        *,
        effect: bool = False,
        times: int | None = 1,
        headers: Mapping[str, str] | None = None,
    ) -> Fault:
        """An answer of your own; a body that is not bytes is sent as JSON."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        pairs = tuple((headers or {}).items())
        return cls(Says.STATUS, effect=effect, times=times, status=status, body=raw, headers=pairs)

    @classmethod
    def slow(cls, *, before: float = 0.0, after: float = 0.0, times: int | None = 1) -> Fault:
        """The truth, late: seconds before the effect, or between the effect and the answer."""
        return cls(delay_before=before, delay_after=after, times=times)

    @classmethod
    def hang(cls, *, effect: bool = False, times: int | None = 1) -> Fault:
        """Never an answer."""
        return cls(Says.NOTHING, effect=effect, times=times)

    @classmethod
    def cut(cls, *, effect: bool = False, times: int | None = 1) -> Fault:
        """The connection closes without an answer; with `effect`, the answer alone was lost."""
        return cls(Says.CUT, effect=effect, times=times)

    @classmethod
    def cut_in_body(cls, *, effect: bool = True, times: int | None = 1) -> Fault:
        return cls(Says.CUT_IN_BODY, effect=effect, times=times)

    @classmethod
    def garbage(cls, says: Says, *, effect: bool = False, times: int | None = 1) -> Fault:
        """An answer that is none: NOT_HTTP, NOT_JSON, WRONG_SHAPE, HUGE or ENDLESS."""
        return cls(says, effect=effect, times=times)

    @classmethod
    def redirect(cls, to: str, *, times: int | None = 1) -> Fault:
        """307 to another URL."""
        return cls.answering(307, times=times, headers={"location": to})

    @classmethod
    def lie(cls, *, times: int | None = 1) -> Fault:
        """The answer of success, and nothing done."""
        return cls(effect=False, times=times)

    @classmethod
    def death(cls, *, after_answer: bool = False, times: int | None = 1) -> Fault:
        """The engine dies: at once and without an answer, or right after the answer."""
        return cls(dies=Dies.AFTER_ANSWER if after_answer else Dies.AT_ONCE, effect=after_answer, times=times)

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Fault:
        """A fault from its attributes by name, as the admin API takes them; `body` may be any JSON.

        Raises:
            ValueError: an attribute that there is not, or a value of it.
            TypeError: an attribute that there is not.
        """
        given = dict(value)
        body = given.pop("body", b"")
        headers = given.pop("headers", {})
        if not isinstance(headers, Mapping):
            raise TypeError("headers is an object of names and values")
        if "says" in given:
            given["says"] = Says(given["says"])
        if given.get("dies") is not None:
            given["dies"] = Dies(given["dies"])
        fault = cls(**given)  # type: ignore[arg-type]  # the names are checked by the call itself
        pairs = tuple((str(name), str(content)) for name, content in headers.items())
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return replace(fault, body=raw, headers=pairs)


@dataclass(eq=False)
class FaultScript:
    """The faults of one engine, by route."""

    _by_route: dict[str, list[Fault]] = field(default_factory=lambda: defaultdict(list))

    def script(self, route: str, *faults: Fault) -> None:
        """Add to the script of a route such as `/pause`, or of EVERY_ROUTE."""
        self._by_route[route] += faults

    def clear(self, route: str | None = None) -> None:
        """Forget the script of a route, or all."""
        if route is None:
            self._by_route.clear()
        else:
            self._by_route.pop(route, None)

    def take(self, path: str) -> Fault | None:
        """The fault that applies to a call just received; it counts as used."""
        if not self._by_route:
            return None
        for route in (path, EVERY_ROUTE):
            faults = self._by_route.get(route)
            if faults:
                fault = faults[0]
                if fault.times is not None:
                    if fault.times > 1:
                        faults[0] = replace(fault, times=fault.times - 1)
                    else:
                        del faults[0]
                return fault
        return None
