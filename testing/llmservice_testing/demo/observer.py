"""What there is to see at one moment: what each engine says itself, and what the LLMService's status says of it."""

import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from llmservice_testing.builders import Json
from llmservice_testing.cluster import ClusterError, NotFoundError
from llmservice_testing.demo.fleet import NAME, NAMESPACE, Member
from llmservice_testing.demo.stage import Stage

_EVERY_SECONDS: Final = 0.15
_END_SECONDS: Final = 5.0


@dataclass(frozen=True)
class Row:
    """One engine. `says` is its own word, `status` the operator's; empty where there is none."""

    pod: str
    address: str
    engine: str
    says: str
    status: str
    request: str


@dataclass(frozen=True)
class Snapshot:
    """The fleet. `headline` names the LLMService, `desired` and `conditions` are its own words."""

    rows: tuple[Row, ...] = ()
    desired: str = ""
    conditions: tuple[tuple[str, str, str], ...] = ()
    """Type, status, reason."""
    problem: str = ""
    """Why nothing could be read of the LLMService; empty if it was."""


def observe(stage: Stage) -> Snapshot:
    """Looks once."""
    problem, service = "", {}
    try:
        service = stage.cluster.get_llmservice(NAMESPACE, NAME)
    except NotFoundError:
        problem = "not there yet"
    except ClusterError as error:
        problem = str(error)
    status = service.get("status", {})
    states = {entry["pod"]: entry for entry in status.get("targetStates", ())}
    return Snapshot(
        rows=tuple(_row(stage, one, states.get(one.pod.name, {})) for one in tuple(stage.members)),
        desired=service.get("spec", {}).get("generation", ""),
        conditions=tuple((one["type"], one["status"], one["reason"]) for one in status.get("conditions", ())),
        problem=problem,
    )


def _row(stage: Stage, one: Member, entry: Json) -> Row:
    request = ""
    if one.request is not None:
        request = one.request.outcome or "open"
    return Row(
        pod=one.pod.name,
        address=one.engine.address if one.pod.obj()["status"].get("podIP") else "",
        engine=f"{entry.get('version', '')} {one.engine.kind}".strip(),
        says=stage.reader.says(one.engine),
        status=entry.get("state", ""),
        request=request,
    )


class Observer:
    """Looks again and again in a thread, until the end of its block; `latest` is what it saw last."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.latest = Snapshot()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(_END_SECONDS)
        if kind is None:
            self.latest = observe(self._stage)

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_SECONDS):
            self.latest = observe(self._stage)
