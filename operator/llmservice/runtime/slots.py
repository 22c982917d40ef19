"""The targets of one actor, counted as they change.

Each change of one target costs that target alone: the tally of standings follows it, and what is due next is kept in a heap
rather than searched for.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from llmservice.domain.fleet import NEVER, TargetState
from llmservice.domain.report import Standing

SlotKey = tuple[str, str]
"""Place (see engines.engine) and port: where a target is, which another container may take over."""


@dataclass(eq=False, slots=True)
class Slot:
    """One target with the work under way for it. A later container gets a slot of its own."""

    key: SlotKey
    state: TargetState
    standing: Standing | None = None
    due: float = NEVER
    """When it is looked at again if nothing happens."""
    task: asyncio.Task[None] | None = None
    """The calls under way; None at rest."""
    is_drifting: bool = field(default=False)
    """It was as desired, was found otherwise, and is being brought back."""


class Slots:
    """All slots of a fleet by place, their tally, and the order in which they are due."""

    def __init__(self) -> None:
        self._slots: dict[SlotKey, Slot] = {}
        self._ports: dict[str, set[str]] = {}
        self._heap: list[tuple[float, int, Slot]] = []
        self._sequence = 0
        self.tally: Counter[Standing] = Counter()

    def __iter__(self) -> Iterator[Slot]:
        return iter(tuple(self._slots.values()))

    def __len__(self) -> int:
        return len(self._slots)

    def get(self, key: SlotKey) -> Slot | None:
        """The slot that holds this place now."""
        return self._slots.get(key)

    def ports_of(self, place: str) -> frozenset[str]:
        """The ports of one place that have a slot."""
        return frozenset(self._ports.get(place, ()))

    def holds(self, slot: Slot) -> bool:
        """Whether this very slot still has its place: otherwise answers meant for it prove nothing."""
        return self._slots.get(slot.key) is slot

    def put(self, slot: Slot) -> None:
        """Give ``slot`` its place, which has to be free."""
        self._slots[slot.key] = slot
        self._ports.setdefault(slot.key[0], set()).add(slot.key[1])

    def remove(self, slot: Slot) -> None:
        """Take ``slot`` out, and end its work."""
        del self._slots[slot.key]
        ports = self._ports[slot.key[0]]
        ports.discard(slot.key[1])
        if not ports:
            del self._ports[slot.key[0]]
        self._uncount(slot.standing)
        if slot.task is not None:
            slot.task.cancel()

    def stand(self, slot: Slot, standing: Standing) -> bool:
        """Count ``slot`` under ``standing``; whether that differs from before."""
        if slot.standing == standing:
            return False
        self._uncount(slot.standing)
        slot.standing = standing
        self.tally[standing] += 1
        return True

    def schedule(self, slot: Slot, at: float) -> None:
        """Let ``slot`` be looked at again at this time."""
        if at == slot.due:
            return
        slot.due = at
        if at < NEVER:
            self._sequence += 1
            heapq.heappush(self._heap, (at, self._sequence, slot))

    def pop_due(self, now: float) -> list[Slot]:
        """The slots whose time has come, each once."""
        popped = []
        while self._heap and self._heap[0][0] <= now:
            at, _, slot = heapq.heappop(self._heap)
            if slot.due == at and self.holds(slot):
                slot.due = NEVER
                popped.append(slot)
        return popped

    def next_due(self) -> float:
        """When the next slot is due; NEVER if none is."""
        while self._heap and (self._heap[0][2].due != self._heap[0][0] or not self.holds(self._heap[0][2])):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER

    def _uncount(self, standing: Standing | None) -> None:
        if standing is None:
            return
        self.tally[standing] -= 1
        if not self.tally[standing]:
            del self.tally[standing]
