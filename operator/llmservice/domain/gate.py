"""Taking pods out of their Service while they are paused, by the readiness gate ``llmservice.io/serving``.

Only pods that declare the gate take part. The gate follows reads: closed while the fleet is to be paused, before any
``/pause``; open again when every engine of the pod was read as running; otherwise as it is. A gate that has no condition
yet counts as closed for the kubelet, and is left so.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from llmservice.api import Desired
from llmservice.domain.fleet import NEVER, Gate, Sight, TargetState
from llmservice.domain.policy import Wanted


@dataclass(frozen=True, slots=True)
class Attempt:
    """A write of the gate that was refused or lost."""

    at: float
    """Seconds since the epoch at which the first of them began."""


def wanted_serving(wanted: Wanted, states: Iterable[TargetState]) -> bool | None:
    """What the gate should say; None to leave it as it is."""
    if wanted.effective is Desired.PAUSED:
        return False
    known = tuple(states)
    are_running = bool(known) and all(
        state.sight is Sight.RUNNING
        and not state.is_called_since
        and not state.failures
        and state.read_object_generation >= wanted.object_generation
        for state in known
    )
    return True if are_running else None


def is_to_be_set(gate: Gate, serving: bool | None) -> bool:
    """Whether the pod's condition has to be written."""
    return serving is not None and gate.serving is not serving and not (gate.serving is None and not serving)


def pause_allowed_at(gate: Gate | None, drain_delay: float, refused: Attempt | None) -> float:
    """When a pause may be sent to this pod's engines, in seconds since the epoch; NEVER until its gate is closed.

    A gate that cannot be closed delays the pause by no more than the drain delay.
    """
    if gate is None or gate.serving is None:
        return -NEVER
    if gate.serving:
        return NEVER if refused is None else refused.at + drain_delay
    # The condition's time is in whole seconds, rounded down; the delay is never shorter than what was asked.
    return gate.since + drain_delay + (1.0 if drain_delay else 0.0)
