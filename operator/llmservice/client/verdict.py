"""Whether an LLMService, as it stands, confirms a change: a pure function of both.

The whole of what makes a confirmation is here. A status counts only if it answers to *this* change:

- where the change altered the spec, ``metadata.generation`` moved, and the status must be about a generation that is not
  older (and about the spec that stands beside it);
- where it altered nothing, the generation cannot tell an answer from an old word. A fresh read was asked for then, with a
  token that was never used before, and the status must carry its echo.

What the status says before that (paused, stalled, anything) is the answer to an older question and decides nothing.
"""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from llmservice.api import ConditionType, Desired, PauseMode
from llmservice.client.errors import (
    ChangedByOthersError,
    FleetError,
    NotFoundError,
    PausedOtherwiseError,
    StalledError,
)
from llmservice.client.snapshot import Snapshot

_TOKEN = re.compile(r"-[0-9a-f]{32}\Z")
_PAUSED: Mapping[Desired, str] = {Desired.PAUSED: "True", Desired.RUNNING: "False"}


@dataclass(frozen=True, slots=True)
class Manner:
    """How a pause is asked for. None: as the spec says, whatever that is."""

    mode: PauseMode | None = None
    clear_cache: bool | None = None


ANY_MANNER = Manner()


@dataclass(frozen=True, slots=True)
class Asked:
    """The part of the spec that the change is about, as it stood right after the change."""

    desired: Desired | None
    mode: PauseMode
    clear_cache: bool | None
    setters: frozenset[str]
    """The field managers that owned ``spec.generation``."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Asked":
        """What stands in this version."""
        spec = snapshot.service.spec
        return cls(spec.generation, spec.pause.mode, spec.pause.clear_cache, snapshot.setters("spec", "generation"))


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be confirmed."""

    uid: str
    """Of the LLMService: a later one of the same name is another."""
    object_generation: int
    """``metadata.generation`` after the change."""
    wanted: Desired | None
    """The state to be confirmed. None: any, an answer will do."""
    token: str | None = None
    """The fresh read that was asked for. None: the change altered the spec, and its generation tells."""
    asked: Asked | None = None
    """None: the change is not about the spec, and others may change it."""
    manner: Manner = ANY_MANNER
    """How the pause must have been asked for."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """It is as wanted, and that was read after the change."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not yet."""

    why: str
    """A sentence for people: what is in the way."""
    is_silent: bool
    """Nothing in the status answers to the change."""
    is_overwritten: bool = False
    """Somebody else asked for a fresh read before ours was done, under a name that may not be new: ours has to be asked for
    again."""


@dataclass(frozen=True, slots=True)
class Failed:
    """It will not come true by waiting."""

    error: FleetError


def new_token(manager: str) -> str:
    """The name of a request for a fresh read that was never used before and never will be."""
    return f"{manager}-{uuid.uuid4().hex}"


def is_token(name: str | None) -> bool:
    """Whether a request for a fresh read has a name of ours, which nobody uses twice."""
    return name is not None and _TOKEN.search(name) is not None


Verdict: TypeAlias = Confirmed | Waiting | Failed


def judge(snapshot: Snapshot, change: Change) -> Verdict:
    """What this version of the object says about the change."""
    if snapshot.object_generation < change.object_generation and snapshot.service.metadata.uid == change.uid:
        return Waiting("only an older version of the object was seen", is_silent=True)
    if (error := lost(snapshot, change)) is not None:
        return Failed(error)
    if change.asked is not None and (error := _pause_changed(snapshot, change.asked)) is not None:
        return Failed(error)
    if (silence := _unanswered(snapshot, change)) is not None:
        return silence
    if (stalled := stall(snapshot)) is not None:
        return Failed(stalled)
    return _settled(snapshot, change)


def lost(snapshot: Snapshot, change: Change) -> FleetError | None:
    """Why this object no longer asks for what the change asked for, or may not have all the time since; None where it does.

    Who sets a field to another value owns it from then on, also when he sets it back. A field that is as it was but has
    lost its owner was something else in between. Appliers who want the same are welcome: they join the owners.
    """
    metadata, fleet = snapshot.service.metadata, snapshot.fleet
    if metadata.uid != change.uid:
        return NotFoundError("it was deleted and created anew meanwhile", fleet=fleet)
    if change.asked is None:
        return None
    if metadata.deletion_timestamp is not None:
        return NotFoundError("it is being deleted", fleet=fleet)
    desired, setters = snapshot.service.spec.generation, snapshot.setters("spec", "generation")
    if desired is not change.asked.desired or not change.asked.setters <= setters:
        return ChangedByOthersError("spec.generation", desired or "absent", setters, fleet=fleet)
    return None


def stall(snapshot: Snapshot) -> StalledError | None:
    """What needs a person, as far as the status is about the present spec."""
    found = snapshot.condition(ConditionType.STALLED)
    if found is None or found.status != "True":
        return None
    return StalledError(found.reason, found.message, fleet=snapshot.fleet)


def otherwise(snapshot: Snapshot, manner: Manner) -> PausedOtherwiseError | None:
    """Whether the present pause is another one than asked for; None also where none is under way yet."""
    last = snapshot.service.status.last_pause
    if last is None:
        return None
    if manner.mode not in (None, last.mode):
        return PausedOtherwiseError(f"mode {manner.mode}", f"mode {last.mode}", fleet=snapshot.fleet)
    if manner.clear_cache not in (None, last.clear_cache):
        asked, found = (f"clearCache {str(each).lower()}" for each in (manner.clear_cache, last.clear_cache))
        return PausedOtherwiseError(asked, found, fleet=snapshot.fleet)
    return None


def _pause_changed(snapshot: Snapshot, asked: Asked) -> ChangedByOthersError | None:
    """Until a pause is confirmed, another ``spec.pause`` may still decide how it is made."""
    pause = snapshot.service.spec.pause
    if pause.mode is not asked.mode:
        setters = snapshot.setters("spec", "pause", "mode")
        return ChangedByOthersError("spec.pause.mode", pause.mode, setters, fleet=snapshot.fleet)
    if pause.clear_cache is not asked.clear_cache:
        now = "absent" if pause.clear_cache is None else str(pause.clear_cache).lower()
        setters = snapshot.setters("spec", "pause", "clearCache")
        return ChangedByOthersError("spec.pause.clearCache", now, setters, fleet=snapshot.fleet)
    return None


def _unanswered(snapshot: Snapshot, change: Change) -> Waiting | None:
    status = snapshot.service.status
    if not snapshot.is_current:
        why = f"status.observedGeneration is {status.observed_generation}, metadata.generation {snapshot.object_generation}"
        return Waiting(why, is_silent=status.observed_generation < change.object_generation)
    if change.token is None or _is_echoed(snapshot, change.token):
        return None
    why = f"the fresh read {change.token} is not done, the last one was {status.last_handled_verify or 'never'}"
    is_overwritten = snapshot.verify_token != change.token and not is_token(snapshot.verify_token)
    return Waiting(why, is_silent=True, is_overwritten=is_overwritten)


def _is_echoed(snapshot: Snapshot, token: str) -> bool:
    """Whether every engine was read after ``token`` was asked for.

    Ours, or one that took its place: what stands in the annotation instead was written later, and as a token is never used
    twice, so were the reads that it stands for made later. Whoever asks at the same time thus helps.
    """
    echo = snapshot.service.status.last_handled_verify
    return echo == token or (is_token(echo) and echo == snapshot.verify_token)


def _settled(snapshot: Snapshot, change: Change) -> Verdict:
    if change.wanted is None:
        return Confirmed()
    found = snapshot.condition(ConditionType.PAUSED)
    if found is None or found.status != _PAUSED[change.wanted]:
        return Waiting(_in_the_way(snapshot), is_silent=False)
    if change.wanted is Desired.PAUSED and (error := otherwise(snapshot, change.manner)) is not None:
        return Failed(error)
    return Confirmed()


def _in_the_way(snapshot: Snapshot) -> str:
    found = [snapshot.condition(kind) for kind in (ConditionType.PAUSED, ConditionType.READY)]
    said = [f"{each.type} is {each.status}, {each.reason}: {each.message}" for each in found if each is not None]
    return "; ".join(said) or "the status has no conditions"
