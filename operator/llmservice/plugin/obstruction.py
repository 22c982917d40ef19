"""What is in the way of a fleet being as asked, in a sentence: pure."""

from llmservice.api import ConditionType, TargetStatus
from llmservice.client.snapshot import Snapshot
from llmservice.domain.status import PAUSED_TOO_LONG

SILENCE = "the operator has not answered to this change yet"


def in_the_way(snapshot: Snapshot) -> str:
    """Empty where nothing is."""
    service = snapshot.service
    if service.metadata.deletion_timestamp is not None:
        holders = ", ".join(service.metadata.finalizers) or "nothing"
        return f"it is being deleted; held by {holders}"
    if not snapshot.is_current:
        observed = service.status.observed_generation
        return f"{SILENCE} (observedGeneration {observed}, generation {snapshot.object_generation})"
    for kind in (ConditionType.STALLED, ConditionType.READY):
        found = snapshot.condition(kind)
        if found is not None and found.status != ("False" if kind is ConditionType.STALLED else "True"):
            words = f"{found.reason}: {found.message}"
            return f"Stalled, {words}" if kind is ConditionType.STALLED else words
    ready = snapshot.condition(ConditionType.READY)
    if ready is None:
        return "the status has no conditions"
    return ready.message if PAUSED_TOO_LONG in ready.message or ready.reason == "NoPods" else ""


def in_the_way_of(target: TargetStatus) -> str:
    """The same of one engine."""
    return ": ".join(part for part in (target.reason, target.message) if part)
