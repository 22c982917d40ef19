"""Closing and opening the readiness gates of one fleet's pods; nothing is written to a pod that declares none."""

import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from llmservice.domain import gate
from llmservice.domain.fleet import NEVER, Gate, Pod
from llmservice.domain.gate import Attempt
from llmservice.kube import pods
from llmservice.kube.client import KubernetesError
from llmservice.runtime.environment import Environment

WRITE_SECONDS = 5.0
"""How long one write may take."""
_RETRY_SECONDS = 1.0

logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _GatedPod:
    pod: Pod
    serving: bool | None = None
    """What the gate should say; None to leave it."""
    is_writing: bool = False
    may_be_open: bool = False
    """We asked to open it, and neither closed it since nor saw it open: what the watch shows may be older."""

    @property
    def present(self) -> Gate | None:
        """The gate as it has to be taken before a pause."""
        return Gate(serving=True) if self.may_be_open and self.pod.gate is not None else self.pod.gate

    refused: Attempt | None = None
    """The first of the writes that failed in a row."""
    retry_at: float = -NEVER
    """Monotonic seconds."""


@dataclass(eq=False, slots=True)
class Gates:
    """``on_change(pod uid)`` is called after a write ended, whatever became of it."""

    environment: Environment
    namespace: str
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    """Starts a task that ends with the actor."""
    on_change: Callable[[str], None]
    is_held: bool = False
    """Nothing is written."""
    _gated: dict[str, _GatedPod] = field(default_factory=dict)

    def follow(self, uid: str, pod: Pod | None) -> None:
        """The pod as the API server has it now."""
        if pod is None or pod.gate is None or not pod.counts:
            self._gated.pop(uid, None)
        elif uid in self._gated:
            self._gated[uid].pod = pod
            self._gated[uid].may_be_open &= not pod.gate.serving
        else:
            self._gated[uid] = _GatedPod(pod)

    def want(self, uid: str, serving: bool | None) -> None:
        """What this pod's gate should say; None to leave it as it is."""
        gated = self._gated.get(uid)
        if gated is not None:
            if gated.serving is not serving:
                gated.refused, gated.retry_at = None, -NEVER
            gated.serving = serving
            self._write_if_due(uid, gated)

    @property
    def are_there(self) -> bool:
        """Whether any pod has a gate."""
        return bool(self._gated)

    def holds(self, uid: str) -> bool:
        """Whether this pod has a gate."""
        return uid in self._gated

    def pause_allowed_at(self, uid: str, drain_delay: float) -> float:
        """When a pause may be sent to this pod's engines, in monotonic seconds."""
        gated = self._gated.get(uid)
        present = gated.present if gated is not None else None
        refused = gated.refused if gated is not None else None
        return self.environment.monotonic(gate.pause_allowed_at(present, drain_delay, refused))

    def retry_due(self, now: float) -> float:
        """Write what failed before and is due again; returns when to look again."""
        for uid, gated in self._gated.items():
            if gated.retry_at <= now:
                self._write_if_due(uid, gated)
        ahead = [gated.retry_at for gated in self._gated.values() if gated.retry_at > now]
        return min(ahead, default=NEVER)

    def _write_if_due(self, uid: str, gated: _GatedPod) -> None:
        present = gated.pod.gate if gated.serving else gated.present
        if self.is_held or present is None or gated.is_writing or self.environment.clock() < gated.retry_at:
            return
        if gate.is_to_be_set(present, gated.serving):
            gated.is_writing = True
            self.spawn(self._write(uid, gated, serving=bool(gated.serving)))

    async def _write(self, uid: str, gated: _GatedPod, *, serving: bool) -> None:
        began = self.environment.wall()
        gated.may_be_open |= serving
        try:
            gated.pod = await pods.put_gate(
                self.environment.kubernetes,
                self.namespace,
                gated.pod,
                serving=serving,
                timestamp=self.environment.timestamp(),
                reason="Running" if serving else "Paused",
                timeout=WRITE_SECONDS,
            )
            gated.refused, gated.retry_at = None, -NEVER
            gated.may_be_open &= serving
        except KubernetesError as error:
            gated.refused = gated.refused or Attempt(began)
            gated.retry_at = self.environment.clock() + max(_RETRY_SECONDS, error.retry_after)
            logger.warning("Did not write a readiness gate", extra={"pod": gated.pod.name, "error": str(error)})
        finally:
            gated.is_writing = False
            self.on_change(uid)
