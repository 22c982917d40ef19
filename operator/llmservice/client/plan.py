"""What to send, given what stands: pure.

A request is planned on one version of the object and is sent with its ``resourceVersion``, so that it is never applied to
another one than it was planned on. So it is known what it altered, and whose pause it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmservice.api import VERIFY_ANNOTATION, Desired, PauseMode
from llmservice.client.errors import FleetError, NotFoundError, PausedOtherwiseError
from llmservice.client.snapshot import Snapshot
from llmservice.client.verdict import ANY_MANNER, Asked, Change, Manner, lost, otherwise


@dataclass(frozen=True, slots=True)
class Request:
    """One merge patch, and what will have to be confirmed once it is stored."""

    patch: Mapping[str, Any] | None
    """None: what was to be sent stands there already."""
    wanted: Desired | None
    token: str | None
    """The fresh read that the patch asks for; None where it alters the spec."""
    is_ours: bool
    """The state that is asked for is our doing: by this patch, or by an earlier one under the same field manager."""
    manner: Manner = ANY_MANNER
    is_about_spec: bool = True
    """Whether others must leave ``spec.generation`` alone."""

    def change(self, stored: Snapshot) -> Change:
        """What to wait for, given the object as the API server stored it."""
        return Change(
            uid=stored.service.metadata.uid,
            object_generation=stored.object_generation,
            wanted=self.wanted,
            token=self.token,
            asked=Asked.of(stored) if self.is_about_spec else None,
            manner=self.manner,
        )


def pause(snapshot: Snapshot, manner: Manner, manager: str, token: str) -> Request:
    """How to get the fleet paused in this manner. Raises PausedOtherwiseError where it is paused in another one, and
    NotFoundError where the object is being deleted."""
    _refuse_deleted(snapshot)
    if snapshot.service.spec.generation is Desired.PAUSED:
        if (error := otherwise(snapshot, manner) or _begins_otherwise(snapshot, manner)) is not None:
            raise error
        return Request(_verify(snapshot, token), Desired.PAUSED, token, _is_set_by(snapshot, manager), manner)
    how = {"mode": manner.mode, "clearCache": manner.clear_cache}
    spec: dict[str, Any] = {"generation": Desired.PAUSED}
    if given := {name: value for name, value in how.items() if value is not None}:
        spec["pause"] = given
    return Request(_merge(snapshot, {"spec": spec}), Desired.PAUSED, None, True, manner)


def resume(snapshot: Snapshot, token: str) -> Request:
    """How to get the fleet running, whoever paused it, and also where ``spec.generation`` is absent. Raises NotFoundError
    where the object is being deleted."""
    _refuse_deleted(snapshot)
    if snapshot.service.spec.generation is Desired.RUNNING:
        return Request(_verify(snapshot, token), Desired.RUNNING, token, False)
    return Request(_merge(snapshot, {"spec": {"generation": Desired.RUNNING}}), Desired.RUNNING, None, True)


def verify(snapshot: Snapshot, token: str) -> Request:
    """How to have every engine read afresh, whatever the spec says and becomes."""
    return Request(_verify(snapshot, token), None, token, False, is_about_spec=False)


def release(snapshot: Snapshot, held: Change, manager: str, *, is_sent: bool) -> Request:
    """How to end the pause ``held``, which was this field manager's. ``is_sent``: that was sent before, and the answer was
    lost. Raises ChangedByOthersError or NotFoundError where that pause is over already, or may have been in between."""
    if is_sent and snapshot.service.spec.generation is Desired.RUNNING and _is_set_by(snapshot, manager):
        return Request(None, Desired.RUNNING, None, True)
    if (error := lost(snapshot, held)) is not None:
        raise error
    return Request(_merge(snapshot, {"spec": {"generation": Desired.RUNNING}}), Desired.RUNNING, None, True)


def take_back(snapshot: Snapshot, asked_on: str, manager: str, token: str) -> Request:
    """How to end a pause that was asked for, perhaps, and not confirmed: where this field manager is who wants it.

    ``asked_on`` is the resourceVersion that the request for it was made on. Where that still stands, the request may yet
    arrive; any write makes it come too late.
    """
    if snapshot.service.spec.generation is Desired.PAUSED and _is_set_by(snapshot, manager):
        return Request(_merge(snapshot, {"spec": {"generation": Desired.RUNNING}}), Desired.RUNNING, None, True)
    may_arrive = snapshot.service.metadata.resource_version == asked_on
    patch = _verify(snapshot, token) if may_arrive else None
    return Request(patch, None, None, False, is_about_spec=False)


def _is_set_by(snapshot: Snapshot, manager: str) -> bool:
    return manager in snapshot.setters("spec", "generation")


def _begins_otherwise(snapshot: Snapshot, manner: Manner) -> FleetError | None:
    """A pause that nobody has begun yet will be made as the spec says."""
    if snapshot.service.status.last_pause is not None:
        return None
    pause = snapshot.service.spec.pause
    if manner.mode not in (None, pause.mode):
        return PausedOtherwiseError(f"mode {manner.mode}", f"mode {pause.mode}", fleet=snapshot.fleet)
    clears = pause.mode is not PauseMode.KEEP if pause.clear_cache is None else pause.clear_cache
    if manner.clear_cache not in (None, clears):
        asked, found = (f"clearCache {str(each).lower()}" for each in (manner.clear_cache, clears))
        return PausedOtherwiseError(asked, found, fleet=snapshot.fleet)
    return None


def _refuse_deleted(snapshot: Snapshot) -> None:
    if snapshot.service.metadata.deletion_timestamp is not None:
        raise NotFoundError("it is being deleted", fleet=snapshot.fleet)


def _verify(snapshot: Snapshot, token: str) -> Mapping[str, Any]:
    return _merge(snapshot, {"metadata": {"annotations": {VERIFY_ANNOTATION: token}}})


def _merge(snapshot: Snapshot, patch: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = snapshot.service.metadata
    expected = {"resourceVersion": metadata.resource_version, "uid": metadata.uid}
    return {**patch, "metadata": {**patch.get("metadata", {}), **expected}}
