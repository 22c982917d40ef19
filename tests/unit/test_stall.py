"""An operator that was not run for a while: it reads everything anew before it acts on what it knew."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.property.engines import ALONE, Engine, Pod
from tests.property.world import Api, Spec, World

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


def paused_pod(world: World) -> Pod:
    pod = Pod("a", "a-1", Engine("containerd://a-1/1", ALONE), "10.0.0.1")
    world.add(pod)
    world.advance(1.0)
    world.respec(Spec(desired="paused"))
    world.advance(5.0)
    assert world.stored.paused
    return pod


def test_an_answer_from_before_the_stall_leads_to_no_call() -> None:
    """A read was answered while the operator was frozen, after somebody had resumed the engine; then the spec changed."""
    with World() as world:
        pod = paused_pod(world)
        pod.engine.is_paused, pod.engine.latency = False, 0.2
        before = world.posts
        while not pod.engine.connections:  # a read of the resync is on its way
            world.advance(0.01)
        world.stand_still(4.0)  # less than a read may take
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
