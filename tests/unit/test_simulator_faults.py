"""The simulator's faults, its record, and its three ways in: a loop, a thread, a process."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from time import monotonic

import httpx
import pytest

from llmservice_testing.simulator import (
    EVERY_ROUTE,
    Dies,
    Fault,
    Says,
    SimulatedEngine,
    Simulator,
    SimulatorThread,
    ThreadedEngine,
)

DEADLINE_SECONDS = 10.0


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    async with Simulator() as running:
        yield running


@pytest.fixture
async def engine(simulator: Simulator) -> SimulatedEngine:
    return await simulator.engine("127.0.0.151", 0)


@pytest.fixture
async def client(engine: SimulatedEngine) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=engine.url, timeout=DEADLINE_SECONDS) as running:
        yield running


def is_paused(engine: SimulatedEngine | ThreadedEngine) -> bool:
    """Whether it is now: by the property alone a type checker takes it for unchanged since it was last asserted."""
    return engine.paused


# What the client hears, and what the engine does


async def test_a_scripted_answer_leaves_the_engine_as_it_was(
    engine: SimulatedEngine, client: httpx.AsyncClient
) -> None:
    engine.faults.script("/pause", Fault.answering(500, {"error": "no"}))

    answer = await client.post("/pause")

    assert (answer.status_code, answer.json()) == (500, {"error": "no"})
    assert not engine.paused


async def test_a_scripted_answer_with_effect_hides_it(engine: SimulatedEngine, client: httpx.AsyncClient) -> None:
    engine.faults.script("/pause", Fault.answering(500, b"", effect=True))

    assert (await client.post("/pause")).status_code == 500
    assert engine.paused


async def test_a_lie_says_paused_and_does_nothing(engine: SimulatedEngine, client: httpx.AsyncClient) -> None:
    engine.faults.script("/pause", Fault.lie())

    assert (await client.post("/pause")).json() == {"status": "paused"}
    assert not engine.paused


async def test_a_redirect_is_answered_as_one(engine: SimulatedEngine, client: httpx.AsyncClient) -> None:
    engine.faults.script("/is_paused", Fault.redirect("http://127.0.0.1:1/"))

    answer = await client.get("/is_paused")

    assert (answer.status_code, answer.headers["location"]) == (307, "http://127.0.0.1:1/")


@pytest.mark.parametrize("effect", [False, True])
async def test_a_cut_loses_the_answer_and_the_effect_if_so_scripted(
    engine: SimulatedEngine, client: httpx.AsyncClient, effect: bool
) -> None:
    engine.faults.script("/pause", Fault.cut(effect=effect))

    with pytest.raises(httpx.RemoteProtocolError):
        await client.post("/pause")

    assert engine.paused is effect
    assert engine.posts()[0].status is None


async def test_a_cut_in_the_body_comes_after_the_head(engine: SimulatedEngine, client: httpx.AsyncClient) -> None:
    engine.faults.script("/is_paused", Fault.cut_in_body())

    async with client.stream("GET", "/is_paused") as answer:
        assert answer.status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            await answer.aread()


@pytest.mark.parametrize("effect", [False, True])
async def test_a_hang_is_never_answered(engine: SimulatedEngine, client: httpx.AsyncClient, effect: bool) -> None:
    engine.faults.script("/pause", Fault.hang(effect=effect))

    request = asyncio.create_task(client.post("/pause"))
    await engine.asked("/pause")
    # The connection of the hung call is its own: others are answered.
    assert (await client.get("/is_paused")).json() == {"is_paused": effect}
    assert not request.done()
    request.cancel()


async def test_slow_before_delays_the_effect_and_slow_after_the_answer(
    engine: SimulatedEngine, client: httpx.AsyncClient
) -> None:
    engine.faults.script("/pause", Fault.slow(before=0.1, after=0.2))
    began = monotonic()

    request = asyncio.create_task(client.post("/pause"))
    await engine.asked("/pause")
    assert not is_paused(engine)
    while not is_paused(engine):
        await client.get("/is_paused")
    assert monotonic() - began >= 0.1
    assert not request.done()

    assert (await request).status_code == 200
    assert monotonic() - began >= 0.3


@pytest.mark.parametrize(
    ("says", "body"),
    [(Says.NOT_JSON, b'{"is_paused": tru'), (Says.WRONG_SHAPE, b'["paused",{"is_paused":"perhaps"}]')],
)
async def test_garbage_that_is_http(
    engine: SimulatedEngine, client: httpx.AsyncClient, says: Says, body: bytes
) -> None:
    engine.faults.script("/is_paused", Fault.garbage(says))

    answer = await client.get("/is_paused")

    assert (answer.status_code, answer.content) == (200, body)


async def test_garbage_that_is_no_http(engine: SimulatedEngine, client: httpx.AsyncClient) -> None:
    engine.faults.script("/is_paused", Fault.garbage(Says.NOT_HTTP))

    with pytest.raises(httpx.RemoteProtocolError):
        await client.get("/is_paused")


async def test_a_huge_body_is_20_megabytes_of_json(engine: SimulatedEngine, client: httpx.AsyncClient) -> None:
    engine.faults.script("/is_paused", Fault.garbage(Says.HUGE))

    answer = await client.get("/is_paused")

    assert len(answer.content) > 20_000_000
    assert answer.json().keys() == {"padding"}


async def test_an_endless_body_goes_on_until_the_client_leaves(
    engine: SimulatedEngine, client: httpx.AsyncClient
) -> None:
    engine.faults.script("/is_paused", Fault.garbage(Says.ENDLESS))

    read = 0
    async with client.stream("GET", "/is_paused") as answer:
        async for chunk in answer.aiter_bytes():
            read += len(chunk)
            if read > 10_000_000:
                break

    assert (await client.get("/is_paused")).json() == {"is_paused": False}


# Scripts


async def test_a_script_is_played_in_order_and_ends(engine: SimulatedEngine, client: httpx.AsyncClient) -> None:
    engine.faults.script("/is_paused", Fault.answering(503, times=2), Fault.answering(502))

    statuses = [(await client.get("/is_paused")).status_code for _ in range(4)]

    assert statuses == [503, 503, 502, 200]


async def test_a_fault_may_last_until_it_is_cleared(engine: SimulatedEngine, client: httpx.AsyncClient) -> None:
    engine.faults.script("/is_paused", Fault.answering(503, times=None))

    assert [(await client.get("/is_paused")).status_code for _ in range(3)] == [503, 503, 503]
    engine.faults.clear("/is_paused")
    assert (await client.get("/is_paused")).status_code == 200


async def test_a_route_has_a_script_of_its_own_before_that_of_every_route(
    engine: SimulatedEngine, client: httpx.AsyncClient
) -> None:
    engine.faults.script(EVERY_ROUTE, Fault.answering(503))
    engine.faults.script("/pause", Fault.answering(500))

    assert (await client.post("/pause")).status_code == 500
    assert (await client.get("/version")).status_code == 503
    assert (await client.get("/version")).status_code == 200


def test_a_fault_can_be_given_as_json() -> None:
    given = {"says": "status", "status": 500, "body": {"error": "no"}, "times": None, "dies": "after_answer"}

    assert Fault.from_json(given) == Fault(
        Says.STATUS, status=500, body=b'{"error": "no"}', times=None, dies=Dies.AFTER_ANSWER
    )


@pytest.mark.parametrize("given", [{"says": "perhaps"}, {"color": "red"}, {"dies": "never"}])
def test_a_fault_in_json_that_there_is_not_is_refused(given: dict[str, str]) -> None:
    with pytest.raises((TypeError, ValueError)):
        Fault.from_json(given)


# Death


async def test_death_cuts_every_connection_and_refuses_new_ones(
    engine: SimulatedEngine, client: httpx.AsyncClient
) -> None:
    deaths: list[SimulatedEngine] = []
    engine.on_death = deaths.append
    hung = asyncio.create_task(client.post("/v1/completions", json={"model": "tiny", "max_tokens": 10**6}))
    await engine.asked("/v1/completions")
    engine.faults.script("/pause", Fault.death())

    with pytest.raises(httpx.RemoteProtocolError):
        await client.post("/pause")

    with pytest.raises(httpx.RemoteProtocolError):
        await hung
    with pytest.raises(httpx.ConnectError):
        await client.get("/is_paused")
    assert deaths == [engine]


async def test_death_after_the_answer_is_answered(engine: SimulatedEngine, client: httpx.AsyncClient) -> None:
    engine.faults.script("/pause", Fault.death(after_answer=True))

    assert (await client.post("/pause")).json() == {"status": "paused"}

    with pytest.raises(httpx.ConnectError):
        await client.get("/is_paused")


async def test_a_restarted_engine_runs_and_its_record_goes_on(
    engine: SimulatedEngine, client: httpx.AsyncClient
) -> None:
    await client.post("/pause")

    await engine.restart()

    assert (await client.get("/is_paused")).json() == {"is_paused": False}
    assert engine.starts == 2
    assert [call.path for call in engine.calls] == ["/pause", "/is_paused"]


async def test_a_stopped_engine_refuses_connections_and_the_others_go_on(
    simulator: Simulator, engine: SimulatedEngine, client: httpx.AsyncClient
) -> None:
    other = await simulator.engine("127.0.0.152", 0)

    await engine.stop()

    with pytest.raises(httpx.ConnectError):
        await client.get("/is_paused")
    async with httpx.AsyncClient() as plain:
        assert (await plain.get(f"{other.url}/is_paused")).status_code == 200


# The record


async def test_the_record_has_what_was_asked_and_answered(engine: SimulatedEngine, client: httpx.AsyncClient) -> None:
    began = monotonic()
    await client.post("/pause?mode=keep&clear_cache=false", content=b"body")

    (call,) = engine.calls
    assert (call.method, call.path, call.query, call.body) == ("POST", "/pause", "mode=keep&clear_cache=false", b"body")
    assert call.parameters == {"mode": "keep", "clear_cache": "false"}
    assert call.status == 200
    assert call.answered_at is not None
    assert began <= call.at <= call.answered_at <= monotonic()


async def test_posts_are_control_calls_alone(engine: SimulatedEngine, client: httpx.AsyncClient) -> None:
    await client.get("/is_paused")
    await client.post("/v1/completions", json={"model": "tiny", "max_tokens": 1})
    await client.post("/pause")
    await client.post("/resume")

    assert [call.path for call in engine.posts()] == ["/pause", "/resume"]
    assert [call.path for call in engine.posts("/resume")] == ["/resume"]
    engine.reset_calls()
    assert engine.calls == ()


async def test_what_others_do_is_off_the_record(engine: SimulatedEngine, client: httpx.AsyncClient) -> None:
    await engine.pause("keep")
    assert (await client.get("/is_paused")).json() == {"is_paused": True}
    await engine.resume()
    assert not engine.paused
    assert engine.posts() == []


async def test_waiting_for_a_call_that_does_not_come_says_what_came(
    engine: SimulatedEngine, client: httpx.AsyncClient
) -> None:
    await client.get("/version")

    with pytest.raises(TimeoutError, match="GET /version"):
        await engine.asked("/pause", within=0.01)


# HTTP


async def test_requests_on_one_connection_are_answered_in_turn(engine: SimulatedEngine) -> None:
    reader, writer = await asyncio.open_connection(engine.host, engine.port)
    request = "GET {} HTTP/1.1\r\nhost: x\r\n\r\n"
    pause = "POST /pause?mode=keep HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"

    writer.write((request.format("/is_paused") + pause + request.format("/is_paused")).encode())
    bodies = []
    for _ in range(3):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        bodies.append(json.loads(await reader.readexactly(length)))
    writer.close()
    await writer.wait_closed()

    assert bodies == [{"is_paused": False}, {"status": "paused"}, {"is_paused": True}]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST /pause HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", 411),
        (b"POST /pause HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", 413),
        (b"GET /" + b"x" * 70_000, 431),
    ],
)
async def test_what_is_no_request_is_refused_and_ends_the_connection(
    engine: SimulatedEngine, sent: bytes, status: int
) -> None:
    reader, writer = await asyncio.open_connection(engine.host, engine.port)

    writer.write(sent)

    assert (await reader.readuntil(b"\r\n")).startswith(f"HTTP/1.1 {status} ".encode())
    await reader.read()
    writer.close()
    await writer.wait_closed()


async def test_a_request_may_arrive_in_pieces(engine: SimulatedEngine) -> None:
    reader, writer = await asyncio.open_connection(engine.host, engine.port)
    for byte in b"POST /pause HTTP/1.1\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}":
        writer.write(bytes([byte]))
        await writer.drain()

    answer = await reader.read()
    writer.close()
    await writer.wait_closed()

    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert engine.paused
    assert engine.calls[0].body == b"{}"


async def test_an_engine_may_listen_on_ipv6(simulator: Simulator) -> None:
    engine = await simulator.engine("::1", 0)

    assert engine.url.startswith("http://[::1]:")
    async with httpx.AsyncClient() as plain:
        assert (await plain.get(f"{engine.url}/is_paused")).status_code == 200


# The other ways in


def test_a_thread_gives_synchronous_code_the_same_operations() -> None:
    deaths: list[ThreadedEngine] = []
    with SimulatorThread() as simulator, httpx.Client(timeout=DEADLINE_SECONDS) as plain:
        engine = simulator.engine("127.0.0.151", 0, version="0.33.0", on_death=deaths.append)
        plain.post(f"{engine.url}/pause?mode=keep")
        engine.asked("/pause")
        assert is_paused(engine)
        engine.resume()
        assert not is_paused(engine)
        engine.faults.script("/pause", Fault.answering(500), Fault.death())
        assert plain.post(f"{engine.url}/pause").status_code == 500
        with pytest.raises(httpx.RemoteProtocolError):
            plain.post(f"{engine.url}/pause")
        assert not engine.is_up
        assert deaths == [engine]
        engine.restart()
        assert plain.get(f"{engine.url}/is_paused").json() == {"is_paused": False}
        assert [call.status for call in engine.posts()] == [200, 500, None]


def test_a_process_says_when_it_is_ready_and_is_driven_through_its_admin_api() -> None:
    command = [sys.executable, "-m", "llmservice_testing.simulator", "--engines", "20", "--first", "127.1.9.250"]
    options = ["--port", "8123", "--version", "0.32.0", "--admin", "127.0.0.1:0"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert ready.startswith("Ready; engines=20 first=127.1.9.250 last=127.1.10.13")
            admin = ready.rpartition("admin=")[2].strip()
            with httpx.Client(base_url=admin, timeout=DEADLINE_SECONDS) as client:
                drive(client)
        finally:
            process.send_signal(signal.SIGTERM)
            status = process.wait(DEADLINE_SECONDS)
    assert status == 0


def drive(client: httpx.Client) -> None:
    first, second = "127.1.9.250:8123", "127.1.9.251:8123"
    assert client.post("/state", json={"do": "pause", "mode": "keep"}).json() == {}
    assert client.post("/state", json={"engines": [first], "do": "resume"}).json() == {}
    states = client.get("/engines").json()
    assert (len(states), states[first]["paused"], states[second]["paused"]) == (20, False, True)

    fault = {"says": "status", "status": 500, "body": {"error": "no"}}
    assert client.post("/faults", json={"engines": [first], "route": "/pause", "faults": [fault]}).json() == {}
    assert client.post(f"http://{first}/pause?mode=keep").status_code == 500
    assert client.post(f"http://{first}/pause?mode=keep").status_code == 200
    assert client.get("/calls").json() == {"calls": {"POST /pause": 2}, "answers": {"500": 1, "200": 1}}
    recorded = client.get("/calls", params={"engine": first}).json()
    assert [(call["query"], call["status"]) for call in recorded] == [("mode=keep", 500), ("mode=keep", 200)]
    assert client.delete("/calls").json() == {}
    assert client.get("/calls").json() == {"calls": {}, "answers": {}}

    assert client.post("/state", json={"engines": [second], "do": "die"}).json() == {}
    with pytest.raises(httpx.ConnectError):
        client.get(f"http://{second}/is_paused")
    assert client.post("/state", json={"engines": [second], "do": "restart"}).json() == {}
    assert client.get(f"http://{second}/is_paused").json() == {"is_paused": False}

    assert client.post("/state", json={"do": "fly"}).status_code == 400
    assert client.post("/state", json={"engines": ["127.0.0.1:1"], "do": "resume"}).status_code == 404
    assert client.post("/faults", json={"route": "/pause", "faults": [{"color": "red"}]}).status_code == 400
    assert client.get("/nothing").status_code == 404
