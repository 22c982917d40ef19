"""How a broken promise is told, and what one actor was really told by engines, kept apart from the operator to judge it."""

from dataclasses import dataclass, field

from llmservice.domain.fleet import NEVER, ControlCall, Sight

broken: list["BrokenPromiseError"] = []
"""All that were broken in the present world, first the first: an operator that is told of one survives it."""


class BrokenPromiseError(AssertionError):
    """A promise is broken."""


def promise(kept: bool, rule: str, why: str) -> None:
    """Raise BrokenPromiseError unless ``kept``, and remember it."""
    if not kept:
        error = BrokenPromiseError(f"{rule}: {why}")
        broken.append(error)
        raise error


@dataclass(frozen=True)
class Fact:
    """What an actor was told about one engine."""

    sight: Sight | None = None
    """The last valid read."""
    read_at: float = -NEVER
    read_sent_at: float = -NEVER
    asked_at: float = -NEVER
    """When the last read was sent that was answered or failed."""
    failure: str | None = None
    """Of the last read."""
    is_called_since: bool = False


@dataclass
class Known:
    """What an actor was told about one engine at one address, and what it asked of it.

    All that happens at one instant counts as simultaneous: each of the facts of an instant may be what a decision rests on.
    """

    facts: list[tuple[float, Fact]] = field(default_factory=lambda: [(-NEVER, Fact())])
    asked_at: float = -NEVER
    """When the read that is under way was sent."""
    pending: Sight | None = None
    """What it said so far."""
    tells_sleep: bool | None = None
    """Whether ``/server_info`` said that it may sleep; None: not answered."""
    last_call: tuple[ControlCall, int] | None = None
    called_at: float = -NEVER
    was_effective: bool = True
    is_undrained: bool = False

    @property
    def fact(self) -> Fact:
        """The newest."""
        return self.facts[-1][1]

    def learn(self, now: float, fact: Fact) -> None:
        """From now on this is known."""
        before = [each for each in self.facts if each[0] < now][-1:]
        self.facts = [*before, *(each for each in self.facts if each[0] == now), (now, fact)]

    def facts_at(self, now: float) -> list[Fact]:
        """All that may be known at this instant."""
        before = [fact for at, fact in self.facts if at < now][-1:]
        return before + [fact for at, fact in self.facts if at == now]
