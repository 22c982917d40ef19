"""The real operator in a simulated world on virtual time: two processes at once, and what one learns from the other."""

import pytest
from tests.property.engines import ALONE, MODERN, Behaviour, Build, Engine, Pod
from tests.property.world import Spec, World

from llmservice.api import LastPause, LLMServiceStatus, PauseMode
from llmservice.domain import status
from llmservice.domain.status import Fleet
from llmservice.runtime import publisher


def add_pod(world: World, name: str = "a", build: Build = MODERN, *, drain: float = 0.0) -> Pod:
    number = len(world.pods) + 1
    engine = Engine(f"containerd://{name}-1/1", build, drain_seconds=drain)
    pod = Pod(name, f"{name}-1", engine, f"10.0.0.{number}")
    world.add(pod)
    return pod


def reason_of(world: World, kind: str) -> str | None:
    return next((each.reason for each in world.stored.conditions if each.type == kind), None)


def test_a_verdict_of_another_operator_is_adopted_with_the_spec_that_it_is_about() -> None:
    with World() as world:
        pod = add_pod(world)
        world.join(lag=1000.0)
        world.advance(1.0)
        world.processes[1].is_cut_off = True
        pod.engine.behaviour = Behaviour.DIES
        world.respec(Spec(desired="paused"))
        world.advance(30.0)
        assert [entry.reason for entry in world.stored.target_states] == ["EngineDied"]
        assert world.posts == 2
        world.processes[1].is_cut_off = False
        world.catch_up()  # the second operator hears of the spec and of the verdict at once
        world.advance(60.0)
        assert world.posts == 2
        assert [entry.reason for entry in world.stored.target_states] == ["EngineDied"]


def test_a_verdict_of_another_operator_counts_more_than_deaths_of_ones_own() -> None:
    with World() as world:
        pod = add_pod(world)
        world.join()
        world.advance(1.0)
        world.respec(Spec(desired="paused"))
        world.advance(20.0)
        assert world.stored.paused
        first = pod.engine.container_id
        pod.engine.behaviour, pod.engine.is_paused = Behaviour.DIES, False
        while pod.engine.container_id == first:  # both notice within a resync, and call
            world.advance(0.01)
        world.processes[1].cannot_reach.add(pod.address)  # one death is known to it
        world.advance(10.0)
        assert [entry.reason for entry in world.stored.target_states] == ["EngineDied"]
        before = world.posts
        world.processes[1].cannot_reach.clear()
        world.advance(60.0)
        assert world.posts == before
        assert [entry.reason for entry in world.stored.target_states] == ["EngineDied"]


def test_a_verdict_of_another_operator_is_adopted_where_none_of_ones_own_calls_killed() -> None:
    with World() as world:
        pod = add_pod(world)
        world.join()
        world.processes[1].cannot_reach.add(pod.address)
        world.advance(1.0)
        pod.engine.behaviour = Behaviour.DIES
        world.respec(Spec(desired="paused"))
        world.advance(60.0)
        assert reason_of(world, "Stalled") == "EngineError"
        before = world.posts
        world.processes[1].cannot_reach.clear()
        world.advance(60.0)
        assert world.posts == before
        assert [entry.reason for entry in world.stored.target_states] == ["EngineDied"]


def test_two_operators_that_see_different_things_write_seldom_and_fall_silent_once_they_agree() -> None:
    with World() as world:
        pod = add_pod(world)
        add_pod(world, "b")
        world.join()
        world.advance(1.0)
        world.respec(Spec(desired="paused"))
        world.advance(20.0)
        world.processes[1].cannot_reach.add(pod.address)
        world.advance(60.0)
        before = world.writes
        world.advance(100.0)
        assert 2 <= world.writes - before <= 22  # each undoes the other at most once in ten seconds
        world.processes[1].cannot_reach.clear()
        world.advance(30.0)
        assert world.stored.paused
        before = world.writes
        world.advance(100.0)
        assert world.writes == before


def test_an_abort_that_takes_over_an_open_wait_stays_unanswered_until_the_engine_has_answered_it() -> None:
    with World() as world:
        pod = add_pod(world, build=ALONE, drain=45.0)
        world.advance(1.0)
        world.respec(Spec(desired="paused", mode="wait"))
        world.advance(3.0)
        assert pod.engine.generates(world.now)
        pod.engine.latency = 1.0
        world.respec(Spec(desired="paused", mode="abort"))
        world.advance(1.8)
        assert not pod.engine.generates(world.now)
        assert world.stored.last_pause == LastPause(mode=PauseMode.ABORT, clear_cache=True, answered=False)
        assert reason_of(world, "Paused") == "Mixed"
        world.crash()  # the next process must not take the drain for a pause
        world.advance(20.0)
        assert world.stored.paused
        assert world.stored.last_pause == LastPause(mode=PauseMode.ABORT, clear_cache=True, answered=True)


def test_at_rest_no_status_is_even_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    with World() as world:
        add_pod(world)
        world.advance(1.0)
        world.respec(Spec(desired="paused"))
        world.advance(20.0)
        composed: list[Fleet] = []

        def compose(fleet: Fleet, before: LLMServiceStatus, timestamp: str) -> LLMServiceStatus:
            composed.append(fleet)
            return status.compose(fleet, before, timestamp)

        monkeypatch.setattr(publisher, "compose", compose)
        world.advance(100.0)
        assert not composed
        assert world.stored.paused
