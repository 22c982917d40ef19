"""LLMServices as an API server stores them, with what the operator wrote and with the record of who set what, for tests of
what reads them:

    make_stored().set("paused", by="trainer").reported(paused="True").obj()

Each change of the spec moves `metadata.generation`, each change at all `metadata.resourceVersion`, and whoever gives a field
another value owns it from then on, as the API server has it.
"""

import copy
from typing import Final, Self

from llmservice_testing.builders import API_VERSION, Json

UID: Final = "0b6f2b1e-52b0-4c43-9a53-6f6d9c1f2f10"
VERIFY: Final = "llmservice.io/verify-requested-at"
_SOME_TIME: Final = "2026-01-01T00:00:00Z"
_REASONS: Final = {"True": "AllPaused", "False": "AllRunning", "Unknown": "Mixed"}


class StoredBuilder:
    """An LLMService `default/qwen` that nobody has set to anything and no operator has seen."""

    def __init__(self) -> None:
        self._metadata: Json = {
            "name": "qwen",
            "namespace": "default",
            "uid": UID,
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": _SOME_TIME,
        }
        self._spec: Json = {"selector": {"matchLabels": {"app": "qwen"}}, "pause": {"mode": "abort"}}
        self._owners: dict[tuple[str, ...], set[str]] = {}
        self._status: Json = {}

    # What people and programs do

    def set(self, generation: str | None, *, by: str) -> Self:
        """Gives `spec.generation` this value."""
        return self._write(("generation",), generation, by)

    def pausing(self, mode: str | None = None, clear_cache: bool | None = None, *, by: str) -> Self:
        """Gives the fields of `spec.pause` these values, where given."""
        if mode is not None:
            self._write(("pause", "mode"), mode, by)
        if clear_cache is not None:
            self._write(("pause", "clearCache"), clear_cache, by)
        return self

    def resync(self, seconds: int, *, by: str) -> Self:
        """Sets a field that has nothing to do with pausing."""
        return self._write(("resyncSeconds",), seconds, by)

    def joined(self, manager: str) -> Self:
        """`manager` applies the present `spec.generation`, and owns it, too."""
        self._owners.setdefault(("generation",), set()).add(manager)
        return self._moved()

    def asked(self, token: str) -> Self:
        """Asks for a fresh read."""
        self._metadata.setdefault("annotations", {})[VERIFY] = token
        return self._moved()

    def deleted(self) -> Self:
        """It is being deleted, and something holds it."""
        self._metadata |= {"deletionTimestamp": _SOME_TIME, "finalizers": ["llmservice.io/resume"]}
        return self._moved()

    def created_anew(self) -> Self:
        """It is another one of the same name, alike."""
        self._metadata["uid"] = "another"
        return self._moved()

    def without_record(self) -> Self:
        """The API server says nothing of who set what."""
        self._owners = {}
        return self

    # What the operator does

    def reported(
        self,
        paused: str,
        *,
        about: int | None = None,
        echo: str | None = None,
        mode: str | None = None,
        clear_cache: bool = True,
        stalled: tuple[str, str] | None = None,
        targets: list[Json] | None = None,
    ) -> Self:
        """A whole status: the condition Paused, and what else is given. `about` is the generation that it is about, None
        the present one; `mode` that of the present pause; `stalled` reason and message; `targets` the listed ones, which
        are also counted."""
        observed = self._metadata["generation"] if about is None else about

        def condition(kind: str, status: str, reason: str, message: str) -> Json:
            times = {"observedGeneration": observed, "lastTransitionTime": _SOME_TIME}
            return {"type": kind, "status": status, "reason": reason, "message": message} | times

        conditions = [condition("Paused", paused, _REASONS[paused], "2 targets: 1 paused, 1 running")]
        if stalled is not None:
            conditions.append(condition("Stalled", "True", *stalled))
        self._status = {"observedGeneration": observed, "conditions": conditions}
        if echo is not None:
            self._status["lastHandledVerify"] = echo
        if mode is not None:
            self._status["lastPause"] = {"mode": mode, "clearCache": clear_cache, "answered": True}
        if targets is not None:
            self._status["targetStates"] = targets[:64]
            self._status["targets"] = {"total": len(targets)} | _counted(targets)
        return self._moved()

    def obj(self) -> Json:
        """The object, which shares nothing with the builder."""
        metadata = self._metadata | {"managedFields": self._managed_fields()}
        return copy.deepcopy(
            {
                "apiVersion": API_VERSION,
                "kind": "LLMService",
                "metadata": metadata,
                "spec": self._spec,
                "status": self._status,
            }
        )

    def _write(self, path: tuple[str, ...], value: object, manager: str) -> Self:
        *parents, name = path
        place = self._spec
        for parent in parents:
            place = place.setdefault(parent, {})
        if place.get(name) != value:
            place[name] = value
            self._owners[path] = {manager}
            self._metadata["generation"] += 1
        return self._moved()

    def _moved(self) -> Self:
        self._metadata["resourceVersion"] = str(int(self._metadata["resourceVersion"]) + 1)
        return self

    def _managed_fields(self) -> list[Json]:
        managers = {manager for owners in self._owners.values() for manager in owners}
        entries: list[Json] = [
            {"manager": "llmservice", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}}
        ]
        for manager in sorted(managers):
            fields: Json = {}
            for path in (path for path, owners in self._owners.items() if manager in owners):
                place = fields
                for name in ("spec", *path):
                    place = place.setdefault(f"f:{name}", {})
            entries.append({"manager": manager, "operation": "Update", "fieldsV1": fields})
        return entries


def make_stored() -> StoredBuilder:
    """See `StoredBuilder`."""
    return StoredBuilder()


def make_target(pod: str, state: str = "paused", *, port: int = 8000) -> Json:
    """One entry of `status.targetStates`."""
    return {"pod": pod, "podUID": f"uid-of-{pod}", "url": f"http://{pod}:{port}", "state": state, "version": "0.32.0"}


def _counted(targets: list[Json]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for target in targets:
        counts[target["state"]] = counts.get(target["state"], 0) + 1
    return counts
