"""The simulator from outside: a small JSON API, for benchmarks and demonstrations in another process.

| request | body | answer |
|---|---|---|
| `GET /engines` | | the state of each engine, by `host:port` |
| `GET /calls` | | totals: calls by `METHOD /path`, and the answers by status |
| `GET /calls?engine=host:port` | | every call of one engine |
| `DELETE /calls` | | forgets all records |
| `POST /faults` | `{"engines": [...], "route": "/pause", "faults": [{"says": "status", "status": 500}]}` | adds to scripts |
| `DELETE /faults` | | forgets all scripts |
| `POST /state` | `{"engines": [...], "do": "resume"}` | does it to the engines, off their records |

`engines` is a list of `host:port`; left out it means all. `do` is `pause` (with `mode`, `clear_cache`), `resume`,
`restart`, `stop` or `die`; the answer comes when it is done, for `pause` after the drain. The attributes of a fault are
those of `faults.Fault`; its `times` is 1 unless given, null is for ever. An error is `{"error": "..."}` with 400 or 404.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from urllib.parse import parse_qs

from llmservice_testing.simulator.calls import Call
from llmservice_testing.simulator.engine import SimulatedEngine
from llmservice_testing.simulator.faults import Fault
from llmservice_testing.simulator.simulator import Simulator
from llmservice_testing.simulator.wire import Connection, Listener, Reply, Request


class _RefusedError(Exception):
    """The request cannot be carried out; `status` is what it is answered with."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Admin:
    """Serves the admin API of a simulator at an address of its own, as an async context manager."""

    def __init__(self, simulator: Simulator, host: str, port: int) -> None:
        self._simulator = simulator
        self._listener = Listener(host, port, self._handle)

    @property
    def url(self) -> str:
        return f"http://{self._listener.host}:{self._listener.port}"

    async def __aenter__(self) -> Admin:
        await self._listener.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()

    def _handle(self, request: Request, _: Connection) -> Coroutine[Any, Any, Reply]:
        return self._answer(request)

    async def _answer(self, request: Request) -> Reply:
        try:
            return Reply.json(await self._carry_out(request))
        except _RefusedError as error:
            return Reply.json({"error": str(error)}, error.status)

    async def _carry_out(self, request: Request) -> object:
        match request.method, request.path:
            case "GET", "/engines":
                return {_name(engine): _state(engine) for engine in self._simulator}
            case "GET", "/calls":
                names = parse_qs(request.query).get("engine")
                if names is None:
                    return self._totals()
                return [_call(call) for call in self._engines(names)[0].calls]
            case "DELETE", "/calls":
                for engine in self._simulator:
                    engine.reset_calls()
            case "POST", "/faults":
                self._add_faults(_object(request.body))
            case "DELETE", "/faults":
                for engine in self._simulator:
                    engine.faults.clear()
            case "POST", "/state":
                await self._change_state(_object(request.body))
            case _:
                raise _RefusedError(404, f"there is no {request.method} {request.path}")
        return {}

    def _totals(self) -> dict[str, dict[str, int]]:
        calls: Counter[str] = Counter()
        answers: Counter[str] = Counter()
        for engine in self._simulator:
            for call in engine.calls:
                calls[f"{call.method} {call.path}"] += 1
                answers["none" if call.status is None else str(call.status)] += 1
        return {"calls": dict(calls), "answers": dict(answers)}

    def _add_faults(self, body: dict[str, object]) -> None:
        route = body.get("route")
        given = body.get("faults")
        if not isinstance(route, str) or not isinstance(given, list):
            raise _RefusedError(400, "route is a string and faults a list of objects")
        try:
            faults = [Fault.from_json(fault) for fault in given]
        except (TypeError, ValueError) as error:
            raise _RefusedError(400, f"not a fault: {error}") from error
        for engine in self._engines(body.get("engines")):
            engine.faults.script(route, *faults)

    async def _change_state(self, body: dict[str, object]) -> None:
        """All engines at once: the ranks of a group answer only when all were asked."""
        operation = _operation(body)
        await asyncio.gather(*(operation(engine) for engine in self._engines(body.get("engines"))))

    def _engines(self, names: object) -> list[SimulatedEngine]:
        """The engines of these names; all for None."""
        if names is None:
            return list(self._simulator)
        if not isinstance(names, list):
            raise _RefusedError(400, "engines is a list of host:port")
        by_name = {_name(engine): engine for engine in self._simulator}
        unknown = [name for name in names if name not in by_name]
        if unknown:
            raise _RefusedError(404, f"there are no engines {unknown}")
        return [by_name[name] for name in names]


def _operation(body: dict[str, object]) -> Callable[[SimulatedEngine], Awaitable[None]]:
    """What a `POST /state` wants done to an engine."""
    match body.get("do"):
        case "pause":
            mode, clear_cache = body.get("mode", "abort"), bool(body.get("clear_cache", True))
            if mode not in ("abort", "wait", "keep"):
                raise _RefusedError(400, f"there is no mode {mode!r}")
            return lambda engine: engine.pause(mode, clear_cache=clear_cache)
        case "resume":
            return SimulatedEngine.resume
        case "restart":
            return SimulatedEngine.restart
        case "stop":
            return SimulatedEngine.stop
        case "die":
            return _die
        case what:
            raise _RefusedError(400, f"do is pause, resume, restart, stop or die, not {what!r}")


async def _die(engine: SimulatedEngine) -> None:
    engine.die()


def _object(body: bytes) -> dict[str, object]:
    try:
        value = json.loads(body)
    except ValueError as error:
        raise _RefusedError(400, f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise _RefusedError(400, "the body is a JSON object")
    return value


def _name(engine: SimulatedEngine) -> str:
    return f"{engine.host}:{engine.port}"


def _state(engine: SimulatedEngine) -> dict[str, object]:
    return {
        "url": engine.url,
        "version": engine.behaviour.version,
        "frontend": engine.behaviour.frontend,
        "up": engine.is_up,
        "paused": engine.paused,
        "asleep": engine.asleep,
        "starts": engine.starts,
        "running_requests": engine.running_requests,
        "waiting_requests": engine.waiting_requests,
    }


def _call(call: Call) -> dict[str, object]:
    return {
        "method": call.method,
        "path": call.path,
        "query": call.query,
        "body": call.body.decode("utf-8", "replace"),
        "at": call.at,
        "status": call.status,
        "answered_at": call.answered_at,
    }
