"""One engine: what the operator adds to the calls that have to be made in any case."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import aiohttp

from bench import engines
from bench.by_hand import act, engine_session, is_paused
from bench.declared import Declared, api_session, patch, path_of, read
from bench.engines import PORT, REAL_ADDRESS
from bench.figures import ACTIONS, Action, Sample, Spread, Timings
from bench.progress import say
from bench.stage import Stage
from bench.subject import NAME, Subject, operating
from llmservice_testing.builders import make_llmservice

RAW_CALLS: Final = ("PATCH spec", "GET /is_paused", "POST", "GET /is_paused again", "PUT status")
_NAMESPACE: Final = "bench-one"
_UNWATCHED: Final = "bench-raw"
"""A namespace that the operator does not serve, for the object that is written by hand."""

T = TypeVar("T")


@dataclass(frozen=True)
class Single:
    """What it took on one engine."""

    engine: str
    """What kind of engine it was."""
    operator: Timings
    raw: Timings
    parts: dict[str, list[float]]
    """Seconds of each raw call, of both actions."""

    def part(self, call: str) -> Spread:
        return Spread.of(self.parts[call])


def measure(stage: Stage, rounds: int, *, real: bool) -> Single:
    """A round is a pause and a resume by the operator, and the same by raw calls. Raises InstallationError."""
    with _one_engine(stage, real=real) as (kind, address):
        say(f"One engine ({kind})")
        with operating(stage, _NAMESPACE, [address]) as subject:
            operator, raw = Declared(subject), RawCalls(subject, f"http://{address}:{PORT}")
            timings = {each.name: Timings(each.name, each.note) for each in (operator, raw)}
            for number in range(1, rounds + 1):
                say(f"One engine, round {number} of {rounds}")
                for action, undo in zip(ACTIONS, reversed(ACTIONS), strict=True):
                    timings[operator.name].add(action, operator.measure(action))
                    timings[raw.name].add(undo, raw.measure(undo))
                    timings[raw.name].add(action, raw.measure(action))
    return Single(kind, timings[operator.name], timings[raw.name], raw.parts)


@contextlib.contextmanager
def _one_engine(stage: Stage, *, real: bool) -> Iterator[tuple[str, str]]:
    """Its kind and its address."""
    if real:
        say("Starting a real vLLM on the CPU, which takes up to a minute")
        with engines.real(stage):
            yield "real vLLM, Python frontend, CPU", REAL_ADDRESS
    else:
        with engines.simulated(stage, 1) as simulated:
            yield "simulated", simulated.addresses[0]


class RawCalls:
    """The five calls made one after the other, each timed: the least that any reporter of the truth can do."""

    name: Final = "raw calls: PATCH, GET, POST, GET, PUT"
    note: Final = "the sum; nothing watches, nothing decides"

    def __init__(self, subject: Subject, url: str) -> None:
        self._subject = subject
        self._url = url
        self.parts: dict[str, list[float]] = {call: [] for call in RAW_CALLS}
        cluster = subject.stage.cluster
        cluster.create_namespace(_UNWATCHED)
        cluster.create_llmservice(_UNWATCHED, make_llmservice(NAME).selector(app=NAME))

    def measure(self, action: Action) -> Sample:
        """Raises aiohttp.ClientError, TimeoutError, or RuntimeError where the engine does not confirm."""
        return asyncio.run(self._measure(action))

    async def _measure(self, action: Action) -> Sample:
        path = f"{path_of(_UNWATCHED)}/{NAME}"
        async with api_session(self._subject.stage.plane) as api, engine_session() as engine:
            # The status that the operator wrote: one of the same size.
            status = (await read(api, f"{path_of(self._subject.namespace)}/{NAME}"))["status"]
            watch = _Stopwatch()
            stored = await watch.time("PATCH spec", lambda: patch(api, path, action))
            await watch.time("GET /is_paused", lambda: is_paused(engine, self._url))
            await watch.time("POST", lambda: act(engine, self._url, action))
            confirmed = await watch.time("GET /is_paused again", lambda: is_paused(engine, self._url))
            status["observedGeneration"] = stored["metadata"]["generation"]
            status["paused"] = confirmed
            await watch.time("PUT status", lambda: _put_status(api, path, {**stored, "status": status}))
        if confirmed is not (action == "pause"):
            raise RuntimeError(f"{action} by raw calls was not confirmed by the engine")
        for call, seconds in watch.laps.items():
            self.parts[call].append(seconds)
        return Sample(sum(watch.laps.values()))


@dataclass
class _Stopwatch:
    laps: dict[str, float] = field(default_factory=dict)

    async def time(self, call: str, make: Callable[[], Awaitable[T]]) -> T:
        began = time.perf_counter()
        result = await make()
        self.laps[call] = time.perf_counter() - began
        return result


async def _put_status(session: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> None:
    headers = {"Content-Type": "application/json"}
    async with session.put(f"{path}/status", data=json.dumps(body), headers=headers) as answer:
        await answer.read()
