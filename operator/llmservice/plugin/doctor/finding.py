"""One thing that was found."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from llmservice.plugin.doctor.facts import Facts


class Weight(StrEnum):
    """How much it matters."""

    PROBLEM = "problem"
    """It keeps the fleet from being as asked, or will, until a person does something."""
    WARNING = "warning"
    """The fleet can be as asked in spite of it; something else suffers, now or later."""
    NOTE = "note"
    """Worth knowing: it explains what is seen, or says what could not be looked at."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, how, and what to do."""

    weight: Weight
    cause: str
    """One word for scripts, e.g. ``DevModeOff``."""
    what: str
    """A sentence."""
    how: tuple[str, ...]
    """Which object, field or answer shows it, with its value."""
    do: tuple[str, ...] = ()
    """What to do: commands, or sentences that begin with a capital. Empty where nothing is to be done."""


Check: TypeAlias = Callable[[Facts], Iterable[Finding]]


def problem(cause: str, what: str, how: Iterable[str], do: Iterable[str]) -> Finding:
    """A finding that has to be mended."""
    return Finding(Weight.PROBLEM, cause, what, tuple(how), tuple(do))


def warning(cause: str, what: str, how: Iterable[str], do: Iterable[str]) -> Finding:
    """A finding that should be mended."""
    return Finding(Weight.WARNING, cause, what, tuple(how), tuple(do))


def note(cause: str, what: str, how: Iterable[str], do: Iterable[str] = ()) -> Finding:
    """A finding that explains."""
    return Finding(Weight.NOTE, cause, what, tuple(how), tuple(do))
