"""The simulator's versions: what a real 0.32.0 cannot show, as it was read in the sources of the others.

What 0.32.0 does is held against real engines in tests/engines.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol, TypedDict, Unpack

import httpx
import pytest

from llmservice_testing.simulator import Behaviour, MoeGroup, Options, SimulatedEngine, Simulator
from llmservice_testing.simulator.versions import Frontend
from llmservice_testing.vllm.client import Completion, EngineClient, OpenCompletion

LONG = 1000
"""Tokens of a request that is in flight for a fifth of a second."""

PYTHON_VERSIONS = ["0.12.0", "0.14.1", "0.16.0", "0.17.0", "0.21.0", "0.24.0", "0.31.0", "0.32.0", "0.33.0"]
IN_ENGINE = ["0.17.0", "0.21.0", "0.24.0", "0.31.0", "0.32.0", "0.33.0"]


class Chosen(TypedDict, total=False):
    """The options that these tests choose; see `Options`."""

    dev_mode: bool
    sleep_mode: bool
    data_parallel_size: int


class Start(Protocol):
    """Starts an engine of a version; gives it and a client of it."""

    async def __call__(
        self,
        version: str,
        frontend: Frontend = "python",
        group: MoeGroup | None = None,
        **options: Unpack[Chosen],
    ) -> tuple[SimulatedEngine, EngineClient]: ...


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts an engine of a version; gives it and a client of it."""
    clients: list[EngineClient] = []
    async with Simulator() as simulator:

        async def start_one(
            version: str,
            frontend: Frontend = "python",
            group: MoeGroup | None = None,
            **options: Unpack[Chosen],
        ) -> tuple[SimulatedEngine, EngineClient]:
            chosen = Options(tokens_per_second=5 * LONG, **options)
            engine = await simulator.engine(
                "127.0.0.150", 0, version=version, frontend=frontend, options=chosen, group=group
            )
            clients.append(EngineClient(engine.url))
            return engine, clients[-1]

        yield start_one
        for client in clients:
            await client.__aexit__(None, None, None)


async def in_flight(client: EngineClient) -> OpenCompletion:
    """A request whose first token is there."""
    request = client.begin_completion(LONG)
    await request.begun()
    return request


async def open_pause(engine: SimulatedEngine, client: EngineClient, **query: str) -> asyncio.Task[httpx.Response]:
    """A `/pause` that the engine has received and not answered."""
    pause = client.begin("/pause", **query)
    await engine.asked("/pause")
    return pause


@pytest.mark.parametrize("version", ["0.11.2", "latest", ""])
def test_a_version_that_had_no_pause_cannot_be_simulated(version: str) -> None:
    with pytest.raises(ValueError):
        Behaviour.of(version)


@pytest.mark.parametrize("version", ["0.33.0rc1", "0.33.1.dev5+g1234", "v0.33.0"])
def test_a_version_is_known_by_its_first_two_numbers(version: str) -> None:
    assert Behaviour.of(version).rejects_while_paused


@pytest.mark.parametrize("version", PYTHON_VERSIONS)
async def test_every_version_pauses_and_resumes(start: Start, version: str) -> None:
    engine, client = await start(version)

    assert (await client.post("/pause")).json() == {"status": "paused"}
    assert await client.is_paused()
    assert engine.paused
    assert (await client.post("/resume")).json() == {"status": "resumed"}
    assert not await client.is_paused()


# Parameters


@pytest.mark.parametrize("version", ["0.12.0", "0.14.1"])
@pytest.mark.parametrize("mode", ["keep", "wait", "nonsense"])
async def test_before_0_16_mode_is_unknown_and_all_is_aborted(start: Start, version: str, mode: str) -> None:
    _, client = await start(version)
    request = await in_flight(client)

    assert (await client.post("/pause", mode=mode)).status_code == 200

    assert (await request).finish_reason == "abort"


@pytest.mark.parametrize(
    ("version", "reason"),
    [("0.12.0", "length"), ("0.16.0", "length"), ("0.31.0", "length"), ("0.32.0", "abort"), ("0.33.0", "abort")],
)
async def test_the_old_parameter_for_wait_is_known_before_0_32(start: Start, version: str, reason: str) -> None:
    _, client = await start(version)
    request = await in_flight(client)

    assert (await client.post("/pause", wait_for_inflight_requests="true")).status_code == 200

    assert (await request).finish_reason == reason


@pytest.mark.parametrize("version", ["0.24.0", "0.31.0"])
async def test_the_rust_frontend_never_knew_the_old_parameter(start: Start, version: str) -> None:
    _, client = await start(version, "rust")
    request = await in_flight(client)

    await client.post("/pause", wait_for_inflight_requests="true")

    assert (await request).finish_reason == "abort"


@pytest.mark.parametrize("version", PYTHON_VERSIONS)
async def test_development_mode_hides_the_control_routes_from_0_16_on(start: Start, version: str) -> None:
    _, client = await start(version, dev_mode=False)

    expected = 200 if version in ("0.12.0", "0.14.1") else 404
    assert (await client.post("/pause")).status_code == expected
    assert (await client.get("/is_paused")).status_code == expected
    assert (await client.get("/server_info")).status_code == 404
    assert (await client.get("/version")).json() == {"version": version}


@pytest.mark.parametrize(("version", "status"), [("0.23.0", 404), ("0.24.0", 200)])
async def test_the_rust_frontend_can_pause_from_0_24_on(start: Start, version: str, status: int) -> None:
    _, client = await start(version, "rust")

    assert (await client.get("/is_paused")).status_code == status


# What is_paused says, and when


async def test_before_0_16_a_second_pause_answers_at_once_though_the_first_drains(start: Start) -> None:
    engine, client = await start("0.14.1")
    request = await in_flight(client)
    first = await open_pause(engine, client, wait_for_inflight_requests="true")

    assert (await client.post("/pause", wait_for_inflight_requests="true")).json() == {"status": "paused"}

    assert not first.done()
    assert not request.done()
    assert await request == Completion(LONG, "length")
    assert (await first).status_code == 200


async def test_at_0_16_is_paused_stays_false_with_keep(start: Start) -> None:
    engine, client = await start("0.16.0")
    request = await in_flight(client)

    await client.post("/pause", mode="keep")

    assert not await client.is_paused()
    assert engine.paused
    await client.post("/resume")
    assert await request == Completion(LONG, "length")


async def test_at_0_16_everything_waits_for_a_drain(start: Start) -> None:
    engine, client = await start("0.16.0")
    request = await in_flight(client)
    pause = await open_pause(engine, client, mode="wait")

    read = asyncio.create_task(client.get("/is_paused"))
    await engine.asked("/is_paused")
    resume = client.begin("/resume")
    await engine.asked("/resume")
    assert not read.done()
    assert not resume.done()

    assert await request == Completion(LONG, "length")
    assert (await pause).json() == {"status": "paused"}
    assert (await read).json() == {"is_paused": True}
    assert (await resume).json() == {"status": "resumed"}
    assert not engine.paused


@pytest.mark.parametrize("version", IN_ENGINE)
async def test_from_0_17_on_resume_overtakes_a_drain(start: Start, version: str) -> None:
    engine, client = await start(version)
    request = await in_flight(client)
    pause = await open_pause(engine, client, mode="wait")
    assert await client.is_paused()

    await client.post("/resume")

    assert not await client.is_paused()
    assert not pause.done()
    assert await request == Completion(LONG, "length")
    assert (await pause).json() == {"status": "paused"}


@pytest.mark.parametrize(
    ("version", "asleep"), [("0.12.0", False), ("0.16.0", False), ("0.17.0", True), ("0.33.0", True)]
)
async def test_from_0_17_on_a_paused_engine_says_that_it_sleeps(start: Start, version: str, asleep: bool) -> None:
    _, client = await start(version)
    await client.post("/pause")

    assert (await client.get("/is_sleeping")).json() == {"is_sleeping": asleep}


# Requests that come while paused


@pytest.mark.parametrize("version", ["0.12.0", "0.14.1", "0.16.0", "0.17.0", "0.32.0"])
async def test_before_0_33_a_request_hangs_until_resume(start: Start, version: str) -> None:
    engine, client = await start(version)
    await client.post("/pause")

    request = client.begin_completion(5)
    await engine.asked("/v1/completions")
    assert not request.done()
    assert engine.running_requests == 0
    await client.post("/resume")

    assert await request == Completion(5, "length")


@pytest.mark.parametrize("frontend", ["python", "rust"])
@pytest.mark.parametrize("mode", ["abort", "wait"])
async def test_from_0_33_on_a_request_is_answered_503_while_paused(start: Start, mode: str, frontend: Frontend) -> None:
    _, client = await start("0.33.0", frontend)
    await client.post("/pause", mode=mode)

    answer = await client.post_json("/v1/completions", {"model": "tiny", "max_tokens": 5})

    assert answer.status_code == 503
    assert answer.json()["error"]["type"] == "ServiceUnavailableError"
    assert "retry-after" not in answer.headers


async def test_from_0_33_on_a_request_is_answered_503_during_the_drain_too(start: Start) -> None:
    engine, client = await start("0.33.0")
    await in_flight(client)
    pause = await open_pause(engine, client, mode="wait")

    assert (await client.post_json("/v1/completions", {"model": "tiny", "max_tokens": 5})).status_code == 503
    assert not pause.done()


async def test_at_0_33_a_request_hangs_while_paused_with_keep(start: Start) -> None:
    engine, client = await start("0.33.0")
    await client.post("/pause", mode="keep")

    request = client.begin_completion(5)
    await engine.asked("/v1/completions")
    await client.post("/resume")

    assert await request == Completion(5, "length")


# Several ranks


@pytest.mark.parametrize(
    ("version", "ranks", "paused"), [("0.17.0", (True, False), True), ("0.31.0", (False, True), False)]
)
async def test_before_0_32_the_first_rank_answers_for_all(
    start: Start, version: str, ranks: tuple[bool, bool], paused: bool
) -> None:
    engine, client = await start(version, data_parallel_size=2)
    engine.split_ranks(*ranks)

    assert await client.is_paused() is paused


@pytest.mark.parametrize("version", ["0.32.0", "0.33.0"])
async def test_from_0_32_on_ranks_that_differ_are_a_500_until_they_are_asked_the_same(
    start: Start, version: str
) -> None:
    engine, client = await start(version, data_parallel_size=2)
    engine.split_ranks(True, False)

    answer = await client.get("/is_paused")

    assert answer.status_code == 500
    assert answer.json() == {
        "error": "Failed to fetch pause status: Engines returned different is_scheduler_paused results: [True, False]"
    }
    await client.post("/pause")
    assert await client.is_paused()


@pytest.mark.parametrize(
    ("version", "kind", "code"),
    [
        ("0.24.0", "server_error", "server_error"),
        ("0.32.0", "server_error", "server_error"),
        ("0.33.0", "InternalServerError", 500),
    ],
)
async def test_the_rust_frontend_says_it_in_its_own_shape(
    start: Start, version: str, kind: str, code: str | int
) -> None:
    engine, client = await start(version, "rust", data_parallel_size=2)
    engine.split_ranks(True, False)

    error = (await client.get("/is_paused")).json()["error"]

    assert (error["type"], error["param"], error["code"]) == (kind, None, code)
    assert "inconsistent results across engines: [true, false]" in error["message"]


@pytest.mark.parametrize(
    ("version", "kind", "code"),
    [("0.32.0", "invalid_request_error", "invalid_request_error"), ("0.33.0", "BadRequestError", 400)],
)
async def test_the_rust_frontend_changed_how_it_says_that_a_mode_is_unknown(
    start: Start, version: str, kind: str, code: str | int
) -> None:
    _, client = await start(version, "rust")

    answer = await client.post("/pause", mode="nonsense")

    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["type"], error["param"], error["code"]) == (kind, "mode", code)


# The ranks of a mixture-of-experts model


async def test_a_rank_of_a_group_is_paused_once_all_were_asked(start: Start) -> None:
    group = MoeGroup()
    (first, one), (second, other) = [await start("0.32.0", group=group) for _ in range(2)]
    pause = await open_pause(first, one, mode="abort")
    assert await one.is_paused()
    assert not pause.done()

    assert (await other.post("/pause", mode="abort")).json() == {"status": "paused"}

    assert (await pause).json() == {"status": "paused"}
    assert first.paused
    assert second.paused


async def test_a_dead_rank_blocks_its_group_until_it_is_back_and_asked(start: Start) -> None:
    group = MoeGroup()
    (first, one), (second, other) = [await start("0.32.0", group=group) for _ in range(2)]
    second.die()
    pause = await open_pause(first, one)

    await second.restart()
    assert not pause.done()

    assert (await other.post("/pause")).status_code == 200
    assert (await pause).status_code == 200


async def test_a_group_is_paused_with_wait_once_no_rank_has_work(start: Start) -> None:
    group = MoeGroup()
    (first, one), (_, other) = [await start("0.32.0", group=group) for _ in range(2)]
    request = await in_flight(other)
    idle = await open_pause(first, one, mode="wait")

    busy = other.begin("/pause", mode="wait")

    assert await request == Completion(LONG, "length")
    assert (await idle).status_code == 200
    assert (await busy).status_code == 200


async def test_a_lone_resume_blocks_its_rank_until_all_were_asked(start: Start) -> None:
    group = MoeGroup()
    (first, one), (second, other) = [await start("0.32.0", group=group) for _ in range(2)]
    await asyncio.gather(one.post("/pause"), other.post("/pause"))
    resume = one.begin("/resume")
    await first.asked("/resume")
    read = asyncio.create_task(one.get("/is_paused"))
    await first.asked("/is_paused")
    assert not resume.done()
    assert not read.done()

    assert (await other.post("/resume")).status_code == 200

    assert (await resume).status_code == 200
    assert (await read).json() == {"is_paused": False}
    assert not second.paused


@pytest.mark.parametrize(("version", "status"), [("0.20.2", None), ("0.21.0", 500)])
async def test_resume_during_the_pause_of_a_group_is_refused_from_0_21_on(
    start: Start, version: str, status: int | None
) -> None:
    group = MoeGroup()
    (first, one), _ = [await start(version, group=group) for _ in range(2)]
    await open_pause(first, one)

    resume = one.begin("/resume")
    await first.asked("/resume")

    if status is None:
        assert not resume.done()
    else:
        answer = await resume
        assert answer.status_code == status
        assert "while pause is still in flight" in answer.json()["error"]


@pytest.mark.parametrize("version", ["0.14.1", "0.16.0"])
async def test_versions_that_pause_in_the_api_server_have_no_group(start: Start, version: str) -> None:
    with pytest.raises(ValueError, match="MoE group"):
        await start(version, group=MoeGroup())


# Asleep


@pytest.mark.parametrize("version", ["0.17.0", "0.31.0"])
async def test_before_0_32_sleep_answers_nothing_and_a_bad_level_is_a_500(start: Start, version: str) -> None:
    engine, client = await start(version)

    assert (await client.post("/sleep", level="7")).status_code == 500
    answer = await client.post("/sleep", level="1")

    assert (answer.status_code, answer.content) == (200, b"")
    assert engine.asleep


@pytest.mark.parametrize(("version", "paused"), [("0.23.0", False), ("0.24.0", True)])
async def test_waking_a_part_resumes_before_0_24(start: Start, version: str, paused: bool) -> None:
    engine, client = await start(version)
    await client.post("/sleep", level="1")

    await client.post("/wake_up", tags="weights")

    assert engine.asleep
    assert engine.paused is paused


@pytest.mark.parametrize("version", IN_ENGINE)
async def test_an_engine_whose_memory_is_gone_crashes_of_a_pause(start: Start, version: str) -> None:
    engine, client = await start(version, sleep_mode=True)
    deaths: list[SimulatedEngine] = []
    engine.on_death = deaths.append
    await client.post("/sleep", level="1")

    with pytest.raises(httpx.TransportError):
        await client.post("/pause")

    assert deaths == [engine]
    assert not engine.is_up
    await engine.restart()
    assert not engine.paused
    assert not engine.asleep
