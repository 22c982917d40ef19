"""An operator that was not run for a while: it reads everything anew before it acts on what it knew."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.property.engines import ALONE, Engine, Pod
from tests.property.world import Api, Spec, World

from llmservice.domain.fleet import Gate
from llmservice.kube.client import UnavailableError
from llmservice.runtime import heart
from llmservice.runtime.heart import Heart

LATE = heart.STALL_SECONDS + heart.BEAT_SECONDS + 0.1


@pytest.mark.parametrize(
    ("clock", "wall", "is_stall"),
    [
        pytest.param(LATE, LATE, True, id="it was frozen"),
        pytest.param(0.5, LATE, True, id="its machine was suspended, and its clock with it"),
        pytest.param(LATE, 0.5, True, id="it was frozen while the clock on the wall was set back"),
        pytest.param(1.9, 1.9, False, id="it was busy"),
        pytest.param(0.5, -3600.0, False, id="the clock on the wall was set back"),
    ],
)
async def test_a_late_heartbeat_is_a_stall_by_either_clock(clock: float, wall: float, is_stall: bool) -> None:
    now, stalls = SimpleNamespace(clock=0.0, wall=0.0), 0

    def count() -> None:
        nonlocal stalls
        stalls += 1

    beating = Heart(cast(Any, SimpleNamespace(clock=lambda: now.clock, wall=lambda: now.wall)), count)
    beating.start()
    try:
        now.clock, now.wall = clock, wall
        beating._beat()
        assert stalls == int(is_stall)
        now.clock, now.wall = clock + heart.BEAT_SECONDS, wall + heart.BEAT_SECONDS
        beating._beat()
        assert stalls == int(is_stall)  # told once
    finally:
        beating.stop()


async def test_stalls_in_a_row_have_to_grow_to_count() -> None:
    """A starved process whose every turn is late must get to the end of reading everything again."""
    now, stalls = SimpleNamespace(time=0.0), list[float]()
    clock = cast(Any, SimpleNamespace(clock=lambda: now.time, wall=lambda: now.time))
    beating = Heart(clock, lambda: stalls.append(now.time))
    beating.start()
    try:
        for _ in range(9):
            now.time += 6.0
            beating._beat()
        assert stalls == [6.0, 12.0]
        while now.time < 120.0:  # it is calm
            now.time += heart.BEAT_SECONDS
            beating._beat()
        now.time += 6.0
        beating._beat()
        assert stalls == [6.0, 12.0, 126.0]
    finally:
        beating.stop()


def paused_pod(world: World, gate: Gate | None = None) -> Pod:
    pod = Pod("a", "a-1", Engine("containerd://a-1/1", ALONE), "10.0.0.1", gate)
    world.add(pod)
    world.advance(1.0)
    world.respec(Spec(desired="paused"))
    world.advance(5.0)
    assert world.stored.paused
    return pod


@pytest.mark.parametrize("is_suspended", [pytest.param(False, id="frozen"), pytest.param(True, id="suspended")])
def test_an_answer_from_before_the_stall_leads_to_no_call(is_suspended: bool) -> None:
    """A read was answered while the operator was frozen, after somebody had resumed the engine; then the spec changed."""
    with World() as world:
        pod = paused_pod(world)
        pod.engine.is_paused, pod.engine.latency = False, 0.2
        before = world.posts
        while not pod.engine.connections:  # a read of the resync is on its way
            world.advance(0.01)
        world.stand_still(4.0, is_suspended=is_suspended)  # less than a read may take
        world.respec(Spec(desired="running"))  # nobody has heard of it yet
        world.advance(60.0)
        assert world.posts == before
        assert not pod.engine.is_paused
        assert world.stored.paused is False


def test_while_the_api_server_is_away_after_a_stall_nothing_is_called() -> None:
    with World() as world:
        pod = paused_pod(world)
        world.api = Api.FAILS
        pod.engine.is_paused = False
        before = world.posts
        world.stand_still(60.0)
        world.advance(60.0)
        assert world.posts == before
        world.api = Api.SOUND
        world.advance(60.0)
        assert pod.engine.is_paused
        assert world.posts == before + 1


@pytest.mark.parametrize("is_suspended", [pytest.param(False, id="frozen"), pytest.param(True, id="suspended")])
def test_a_gate_is_left_as_it_is_until_everything_was_read_again(is_suspended: bool) -> None:
    """The pause was ended, and the gate opened by hand, while the operator was not run; then the API server is away."""
    with World() as world:
        pod = paused_pod(world, Gate(None))
        assert pod.gate == Gate(False, pod.gate.since) if pod.gate is not None else False
        before = world.gate_writes
        world.stand_still(60.0, is_suspended=is_suspended)
        pod.engine.is_paused, pod.gate = False, Gate(True, world.wall)
        world.api = Api.FAILS
        world.show(pod)
        world.advance(20.0)
        assert world.gate_writes == before
        world.respec(Spec(desired="running"))
        world.api = Api.SOUND
        world.advance(60.0)
        assert pod.gate.serving
        assert world.gate_writes == before


def test_an_actor_that_breaks_begins_anew_and_reads_the_object_again() -> None:
    with World() as world:
        pod = paused_pod(world)
        world._logger.removeHandler(world._defects)  # it is wanted here
        (life,) = [each for each in world.processes[0].lives.values() if each.uid == world.main.uid]
        broken = life.actor
        assert broken is not None
        broken._targets.step_due = _break  # type: ignore[method-assign, assignment]
        pod.engine.is_paused = False
        world.stand_still(4.0)
        woke_at, before = world.now, world.posts
        while world.posts == before:
            assert world.now < woke_at + 60.0
            world.advance(0.01)
        assert life.actor is not broken
        assert life.object_read_at >= woke_at
        assert pod.engine.is_paused


def _break(_: float) -> None:
    raise ValueError("a defect")


def test_an_answer_that_is_no_object_is_an_outage() -> None:
    with World() as world:
        pod = paused_pod(world)
        before = world.posts
        world.api = Api.TALKS_NONSENSE
        world.cut_watches()
        pod.engine.is_paused = False
        world.advance(30.0)
        assert world.posts == before
        world.api = Api.SOUND
        world.advance(30.0)
        assert world.posts == before + 1
        assert pod.engine.is_paused


def test_a_gap_before_the_first_list_counts_as_well() -> None:
    """An operator starts and may not list pods yet; the object is deleted, and its watch does not tell."""
    with World() as world:
        pod = paused_pod(world)
        world.view_is_complete = False
        world.crash()
        world.advance(10.0)
        pod.engine.is_paused = False
        before, gone = world.posts, world.main
        world.processes[0].lag = 1000.0
        world.delete()
        assert world.main is not gone
        world.respec(Spec(desired="running"))
        world.view_is_complete = True
        world.advance(30.0)
        assert world.posts == before
        assert not pod.engine.is_paused


def test_after_a_stall_everything_is_read_again_and_nothing_is_written() -> None:
    with World() as world:
        pod = paused_pod(world)
        before = world.posts, world.writes, world.events
        world.stand_still(4.0)
        (life,) = [each for each in world.processes[0].lives.values() if each.uid == world.main.uid]
        woke_at = world.now
        world.advance(0.2)  # sooner than the next read is due
        assert life.object_read_at >= woke_at
        assert life.knows(pod.engine.container_id, f"http://{pod.address}:8000").asked_at >= woke_at
        world.advance(60.0)
        assert (world.posts, world.writes, world.events) == before


def test_a_list_of_all_from_before_a_stall_is_not_believed() -> None:
    with World() as world:
        paused_pod(world)
        process, refused = world.processes[0], list[UnavailableError]()

        async def sweep() -> None:
            try:
                await process.operator._sweep()
            except UnavailableError as error:
                refused.append(error)

        process._as(process.life(""), process._spawn, sweep())
        world.advance(world.way + 0.005)  # the list was made
        world.stand_still(4.0)
        world.advance(1.0)
        assert [str(each) for each in refused] == ["the list may be from before a stall"]


def test_a_list_that_still_holds_what_is_gone_does_not_bring_it_back() -> None:
    """The deletion is told by the watch while the list of all, which was made before it, is on its way."""
    with World() as world:
        paused_pod(world)
        old, process = world.main.uid, world.processes[0]
        process._as(process.life(""), process._spawn, process.operator._sweep())
        world.advance(world.way + 0.005)  # the list was made
        world.delete()
        world.advance(1.0)
        assert old not in process.operator._actors
        assert world.main.uid in process.operator._actors
