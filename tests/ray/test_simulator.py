"""What the simulator does beyond the contract that a real app can be asked for at will: older versions, faults."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from llmservice_testing.ray.client import AppClient
from llmservice_testing.ray_simulator import RaySimulator, SimulatedApp, Stage
from llmservice_testing.simulator import Fault
from llmservice_testing.vllm.client import Completion

from .conftest import SIMULATED_HOST

LONG = 1000


@pytest.fixture
async def simulator() -> AsyncIterator[RaySimulator]:
    async with RaySimulator() as running:
        yield running


async def client_of(simulator: RaySimulator, app: SimulatedApp) -> AppClient:
    return AppClient((await simulator.proxy(SIMULATED_HOST, 0, app)).url)


@pytest.mark.parametrize("version", ["2.54.0", "2.55.0"])
@pytest.mark.parametrize("mode", ["wait", "keep"])
async def test_before_2_56_a_mode_is_ignored_so_that_all_is_aborted(
    simulator: RaySimulator, version: str, mode: str
) -> None:
    app = simulator.app(version=version, tokens_per_second=250)
    async with await client_of(simulator, app) as client:
        request = client.begin_completion(LONG)
        await request.begun()

        assert (await client.pause(mode=mode)).status_code == 200

        assert (await request).finish_reason == "abort"


@pytest.mark.parametrize("version", ["2.54.0", "2.55.0", "2.56.1", "2.60.0"])
async def test_the_keys_of_both_dialects_wait_with_every_version(simulator: RaySimulator, version: str) -> None:
    app = simulator.app(version=version, tokens_per_second=5000)
    async with await client_of(simulator, app) as client:
        request = client.begin_completion(LONG)
        await request.begun()

        await client.pause(mode="wait", wait_for_inflight_requests=True)

        assert await request == Completion(LONG, "length")


async def test_the_description_tells_the_dialect(simulator: RaySimulator) -> None:
    async def options(version: str) -> str:
        async with await client_of(simulator, simulator.app(version=version)) as client:
            document = (await client.get("/openapi.json")).json()
            words = document["components"]["schemas"]["PauseRequest"]["properties"]["options"]["description"]
            assert isinstance(words, str)
            return words

    old = "Engine-specific pause options (e.g., wait_for_inflight_requests, clear_cache)"
    assert [await options("2.54.0"), await options("2.55.0")] == [old, old]
    new = "Engine-specific pause options (e.g., mode, clear_cache)"
    assert [await options("2.56.1"), await options("2.60.0")] == [new, new]


async def test_a_broadcast_skips_a_replica_that_it_does_not_find(simulator: RaySimulator) -> None:
    app = simulator.app(replicas=3)
    app.replicas()[1].is_found = False
    async with await client_of(simulator, app) as client:
        assert (await client.pause(mode="abort")).status_code == 200

        assert [replica.paused for replica in app.replicas()] == [True, False, True]
        assert await client.is_paused()
        assert len(await client.worker_numbers()) == 2


async def test_one_failing_replica_fails_the_call_and_the_others_have_done_it(simulator: RaySimulator) -> None:
    app = simulator.app(replicas=3)
    app.replicas()[1].failure = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."
    async with await client_of(simulator, app) as client:
        answer = await client.pause(mode="abort")

        assert answer.status_code == 500
        assert answer.json()["error"]["message"].endswith("EngineDeadError: EngineCore encountered an issue.")
        assert [replica.paused for replica in app.replicas()] == [True, False, True]


async def test_without_any_replica_a_pause_succeeds_and_nothing_is_paused(simulator: RaySimulator) -> None:
    app = simulator.app(replicas=1)
    app.remove_replica(app.replicas()[0])
    async with await client_of(simulator, app) as client:
        assert (await client.pause(mode="abort")).status_code == 200
        assert not await client.is_paused()


async def test_before_the_first_replica_is_known_a_call_fails_after_its_time(simulator: RaySimulator) -> None:
    app = simulator.app(replicas=0)
    app.replicas_known_within = 0.1
    async with await client_of(simulator, app) as client:
        answer = await client.get("/is_paused", model="tiny")

        assert answer.status_code == 500
        assert "Timed out waiting for deployment router/replicas" in answer.json()["error"]["message"]


async def test_a_call_waits_for_the_first_replica(simulator: RaySimulator) -> None:
    app = simulator.app(replicas=0)
    async with await client_of(simulator, app) as client:
        pause = client.begin_pause(mode="abort")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(pause), 0.2)

        replica = app.add_replica()

        assert (await pause).status_code == 200
        assert replica.paused


async def test_the_first_call_alone_is_slow(simulator: RaySimulator) -> None:
    app = simulator.app()
    app.first_call_delay = 0.3
    loop = asyncio.get_running_loop()
    async with await client_of(simulator, app) as client:
        begun = loop.time()
        await client.is_paused()
        assert loop.time() - begun >= 0.3

        app.first_call_delay = 60.0
        await client.is_paused()


async def test_calls_that_were_given_up_keep_others_waiting_until_the_replicas_answer(simulator: RaySimulator) -> None:
    app = simulator.app()
    app.threads = 2
    async with await client_of(simulator, app) as client:
        app.replicas()[0].delay = 0.5
        for _ in range(2):
            given_up = client.begin_pause(mode="keep")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(given_up, 0.1)

        late = client.begin_pause(mode="keep")
        done, _ = await asyncio.wait({late}, timeout=0.1)
        assert not done
        assert (await client.get("/v1/models")).status_code == 200, "this one asks no replica"

        assert (await late).status_code == 200


async def test_a_request_waits_for_a_replica_when_the_last_one_is_gone(simulator: RaySimulator) -> None:
    app = simulator.app(replicas=1)
    app.remove_replica(app.replicas()[0])
    async with await client_of(simulator, app) as client:
        request = client.begin_completion(10)
        assert await request.stays_open(0.1)

        app.add_replica()

        assert await request == Completion(10, "length")


async def test_after_the_app_is_deleted_the_proxy_has_no_routes_and_says_so_with_200(simulator: RaySimulator) -> None:
    app = simulator.app()
    app.stage = Stage.DELETED
    async with await client_of(simulator, app) as client:
        routes = await client.get("/-/routes")
        assert (routes.status_code, routes.json()) == (200, {})
        assert (await client.get("/is_paused", model="tiny")).status_code == 404


async def test_proxies_lead_to_one_app_and_fail_alone(simulator: RaySimulator) -> None:
    app = simulator.app()
    first = await simulator.proxy(SIMULATED_HOST, 0, app)
    second = await simulator.proxy(SIMULATED_HOST, 0, app)
    second.unready, third = "This node is being drained.", await simulator.proxy(SIMULATED_HOST, 0, app)
    third.has_routes = False
    first.faults.script("/is_paused", Fault.answering(502, b"no"))
    async with AppClient(first.url) as one, AppClient(second.url) as two, AppClient(third.url) as three:
        assert (await two.pause(mode="abort")).status_code == 200
        assert (await one.get("/is_paused", model="tiny")).status_code == 502
        assert await one.is_paused()
        assert (await two.get("/-/routes")).text == "This node is being drained."
        assert (await three.get("/-/routes")).text == "Route table is not populated yet."
        assert (await three.get("/is_paused", model="tiny")).status_code == 404

        await first.stop()
        assert await two.is_paused()
    assert [call.path for call in second.posts()] == ["/pause"]
