"""How a broken promise is told, and what an operator was really told, kept apart from the core to judge it."""

from dataclasses import dataclass

from llmservice.domain.fleet import NEVER, ControlCall, Failure, Sight


class BrokenPromiseError(AssertionError):
    """A promise is broken."""


def promise(kept: bool, rule: str, why: str) -> None:
    """Raise BrokenPromiseError unless ``kept``."""
    if not kept:
        raise BrokenPromiseError(f"{rule}: {why}")


@dataclass
class Known:
    """What one operator was told about one target."""

    sight: Sight | None = None
    object_generation: int = -1
    read_at: float = -NEVER
    sent_at: float = -NEVER
    """When the last read was sent that was answered or failed."""
    failure: Failure | None = None
    is_called_since: bool = False
    was_effective: bool = True
    last_call: tuple[ControlCall, int] | None = None
    called_at: float = -NEVER
