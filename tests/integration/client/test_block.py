"""`with fleet.paused() as p`: paused and confirmed at its beginning, resumed and confirmed at its end."""

import asyncio

import pytest

from llmservice.client import AsyncFleet as AsyncClient
from llmservice.client import Fleet as Client
from llmservice_testing.fleet import Fleet

pytestmark = pytest.mark.usefixtures("operator")


class WeightsError(Exception):
    """What a failed weight load raises."""


def test_every_engine_is_paused_within_the_block_and_runs_after_it(fleet: Fleet, client: Client) -> None:
    fleet.grow(3)
    fleet.declare("running")
    with client.paused(mode="keep", clear_cache=False) as p:
        assert fleet.all_paused()
        assert p.count == 3
        assert sorted((pod.name, pod.urls) for pod in p.pods) == [
            (member.name, (member.engine.url,)) for member in fleet.members
        ]
    assert not any(engine.paused for engine in fleet.engines)
    assert {(call.path, call.query) for call in fleet.posts()} == {
        ("/pause", "mode=keep&clear_cache=false"),
        ("/resume", ""),
    }
    assert fleet.get()["spec"]["generation"] == "running"


async def test_the_same_holds_with_asyncio(fleet: Fleet, async_client: AsyncClient) -> None:
    fleet.grow(2)
    fleet.declare("running")
    async with async_client.paused() as p:
        assert fleet.all_paused()
        assert len(p.pods) == 2
        await p.check()
    assert not any(engine.paused for engine in fleet.engines)


async def test_the_synchronous_client_works_where_an_event_loop_is_running(fleet: Fleet, client: Client) -> None:
    fleet.add()
    fleet.declare("running")
    assert asyncio.get_running_loop().is_running()
    with client.paused():
        assert fleet.all_paused()
    assert not fleet.all_paused()


def test_one_connection_serves_several_blocks(fleet: Fleet, client: Client) -> None:
    fleet.add()
    fleet.declare("running")
    with client:
        for _ in range(3):
            with client.paused():
                assert fleet.all_paused()
            assert not fleet.all_paused()
        assert client.status().service.spec.generation == "running"


def test_an_exception_within_the_block_goes_on_and_the_fleet_is_resumed(fleet: Fleet, client: Client) -> None:
    fleet.grow(2)
    fleet.declare("running")
    with pytest.raises(WeightsError), client.paused():
        raise WeightsError
    assert not any(engine.paused for engine in fleet.engines)
