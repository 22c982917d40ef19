"""The targets of one actor: their tally, and the order in which they are due."""

from collections import Counter
from itertools import islice

from llmservice.domain import observe
from llmservice.domain.fleet import NEVER, State
from llmservice.domain.report import Standing
from llmservice.runtime.slots import Slot, Slots
from llmservice_testing.domain import make_target

PAUSED = Standing(State.PAUSED, True, True, None, False, False)
RUNNING = Standing(State.RUNNING, True, True, None, False, False)


def slot(pod: str = "qwen-0", port: str = "8000") -> Slot:
    target = make_target(pod, port=port)
    return Slot((target.key.pod_uid, port), observe.discovered(target, 0.0))


def slots(*held: Slot) -> Slots:
    all_slots = Slots()
    for each in held:
        all_slots.put(each)
    return all_slots


def due(of: Slots, now: float) -> list[Slot]:
    return list(islice(of.pop_due(now), 100))


def test_the_tally_follows_every_change() -> None:
    first, second = slot("a"), slot("b")
    held = slots(first, second)
    assert held.tally == Counter()
    assert held.stand(first, RUNNING)
    assert held.stand(second, RUNNING)
    assert held.tally == {RUNNING: 2}
    assert held.stand(first, PAUSED)
    assert held.tally == {RUNNING: 1, PAUSED: 1}
    assert not held.stand(first, PAUSED), "nothing changed"
    held.remove(second)
    assert dict(held.tally) == {PAUSED: 1}, "an empty count would be taken for a target"
    held.remove(first)
    assert dict(held.tally) == {}


def test_a_slot_that_was_never_counted_is_not_subtracted() -> None:
    first, second = slot("a"), slot("b")
    held = slots(first, second)
    held.stand(first, PAUSED)
    held.remove(second)
    assert dict(held.tally) == {PAUSED: 1}


def test_slots_are_due_in_the_order_of_their_times() -> None:
    first, second, third = slot("a"), slot("b"), slot("c")
    held = slots(first, second, third)
    held.schedule(first, 30.0)
    held.schedule(second, 10.0)
    held.schedule(third, 20.0)
    assert held.next_due() == 10.0
    assert due(held, 20.0) == [second, third]
    assert held.next_due() == 30.0
    assert due(held, 29.9) == []


def test_the_last_time_that_was_said_counts() -> None:
    first = slot()
    held = slots(first)
    for at in (10.0, 5.0, 20.0):
        held.schedule(first, at)
    assert held.next_due() == 20.0
    assert due(held, 19.0) == []
    assert due(held, 20.0) == [first]
    assert due(held, 20.0) == []


def test_a_time_that_was_said_twice_is_due_once() -> None:
    first = slot()
    held = slots(first)
    for at in (10.0, 20.0, 10.0):
        held.schedule(first, at)
    assert due(held, 30.0) == [first]


def test_never_takes_a_time_back() -> None:
    first = slot()
    held = slots(first)
    held.schedule(first, 10.0)
    held.schedule(first, NEVER)
    assert held.next_due() == NEVER
    assert due(held, 100.0) == []


def test_a_slot_that_is_scheduled_again_while_it_is_handed_out_is_handed_out_once() -> None:
    first, second = slot("a"), slot("b")
    held = slots(first, second)
    held.schedule(first, 10.0)
    held.schedule(second, 11.0)
    seen = []
    for each in islice(held.pop_due(20.0), 100):
        seen.append(each)
        held.schedule(each, 15.0)
    assert seen == [first, second], "a time that is past must not hold up the pass"
    assert held.next_due() == 15.0


def test_a_removed_slot_is_never_due() -> None:
    first, second = slot("a"), slot("b")
    held = slots(first, second)
    held.schedule(first, 10.0)
    held.schedule(second, 20.0)
    held.remove(first)
    assert held.next_due() == 20.0
    assert due(held, 30.0) == [second]


def test_r8_a_later_container_in_the_same_place_is_another_slot() -> None:
    first, later = slot(), slot()
    held = slots(first)
    held.schedule(first, 10.0)
    held.remove(first)
    held.put(later)
    assert held.get(later.key) is later
    assert held.holds(later)
    assert not held.holds(first), "answers that were meant for it prove nothing about its successor"
    assert due(held, 10.0) == [], "nor does its time"


def test_the_ports_of_a_pod_are_known_while_they_have_a_slot() -> None:
    first, second, other = slot("a", "8000"), slot("a", "8001"), slot("b")
    held = slots(first, second, other)
    assert held.ports_of("uid-a") == {"8000", "8001"}
    held.remove(first)
    assert held.ports_of("uid-a") == {"8001"}
    held.remove(second)
    assert held.ports_of("uid-a") == frozenset()
    assert len(held) == 1


def test_slots_may_be_removed_while_they_are_looked_through() -> None:
    held = slots(slot("a"), slot("b"))
    for each in held:
        held.remove(each)
    assert list(held) == []
