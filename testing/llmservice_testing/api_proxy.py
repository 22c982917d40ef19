"""An API server that misbehaves: a proxy with TLS between an operator and the real one, which does as a test tells it.

    with ApiProxy(control_plane, tmp_path) as proxy:
        operator = make_operator(proxy.kubeconfig)
        with proxy.trouble(Trouble.answering(500)):
            ...
        with proxy.trouble(Trouble.answering(403), where=is_status_write):
            ...

It sits in front of one operator only: the test itself, and everybody else, talks to the API server directly, so that what
the test looks at is the truth. Every request is recorded when it is received.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
import secrets
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

import aiohttp
from aiohttp import web

from llmservice_testing.cluster import wait_until
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.ports import free_ports
from llmservice_testing.simulator.thread import LoopThread

_HOP_BY_HOP: Final = frozenset(
    {"connection", "transfer-encoding", "content-length", "content-encoding", "host", "authorization"}
)
_FAREWELL_SECONDS: Final = 0.1
"""For connections to the API server to be closed: TLS says goodbye over the network, and nothing tells when it has."""

_REOPEN_SECONDS: Final = 60.0


@dataclass(eq=False, slots=True)
class Seen:
    """One request as the proxy received it.

    Attributes:
        at: when, in seconds of `time.monotonic()`.
        status: what it was answered; None while it is open, and for ever if nothing was answered.
    """

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes
    at: float
    status: int | None = None

    @property
    def is_write(self) -> bool:
        """Whether it asked for a change."""
        return self.method != "GET"

    def __repr__(self) -> str:
        return f"{self.method} {self.path} {dict(self.query)} -> {self.status}"


Where = Callable[[Seen], bool]


def everything(_: Seen) -> bool:
    """Any request."""
    return True


def is_watch(seen: Seen) -> bool:
    """Any watch."""
    return seen.query.get("watch") == "true"


def is_service_watch(seen: Seen) -> bool:
    """Kopf's watch of LLMServices."""
    return is_watch(seen) and seen.path.endswith("/llmservices")


def is_pod_watch(seen: Seen) -> bool:
    """A watch of pods."""
    return is_watch(seen) and seen.path.endswith("/pods")


def is_service_list(seen: Seen) -> bool:
    """A list of LLMServices, kopf's or the sweep's."""
    return seen.method == "GET" and seen.path.endswith("/llmservices") and not is_watch(seen)


def is_pod_list(seen: Seen) -> bool:
    """A list of pods."""
    return seen.method == "GET" and seen.path.endswith("/pods") and not is_watch(seen)


def is_status_write(seen: Seen) -> bool:
    """A write of an LLMService's status."""
    return seen.method == "PUT" and seen.path.endswith("/status")


class _Does(enum.Enum):
    ANSWER = "answer"
    HANG = "hang"
    CUT = "cut"
    LOSE_ANSWER = "lose_answer"
    PASS = "pass"


@dataclass(frozen=True, slots=True)
class Trouble:
    """What happens to a request instead of, or before, its being passed on; use the constructors."""

    does: _Does = _Does.PASS
    status: int = 500
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    delay: float = 0.0
    times: int | None = None
    """To how many requests it applies; None is for ever."""

    @classmethod
    def answering(cls, status: int, *, retry_after: int | None = None, times: int | None = None) -> Trouble:
        """An error in the words of an API server, not passed on."""
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        return cls(_Does.ANSWER, status, headers, _status_object(status), times=times)

    @classmethod
    def saying(cls, status: int, body: bytes, *, times: int | None = None) -> Trouble:
        """Anything, not passed on."""
        return cls(_Does.ANSWER, status, body=body, times=times)

    @classmethod
    def error_event(cls, code: int, *, times: int | None = None) -> Trouble:
        """For a watch: it opens, says ERROR with this code, and ends."""
        event = json.dumps({"type": "ERROR", "object": json.loads(_status_object(code))}).encode() + b"\n"
        return cls(_Does.ANSWER, 200, body=event, times=times)

    @classmethod
    def closing_at_once(cls, *, times: int | None = None) -> Trouble:
        """For a watch: it opens, and ends without a word."""
        return cls(_Does.ANSWER, 200, times=times)

    @classmethod
    def hanging(cls) -> Trouble:
        """No answer, and nothing more in what is open, until the trouble is over. Then it goes on where it stood, as a
        frozen API server does: a write may thus come late."""
        return cls(_Does.HANG)

    @classmethod
    def cutting(cls, *, times: int | None = None) -> Trouble:
        """The connection ends without an answer; nothing is passed on."""
        return cls(_Does.CUT, times=times)

    @classmethod
    def losing_the_answer(cls, *, times: int | None = None) -> Trouble:
        """It is passed on and done, and the connection ends without the answer."""
        return cls(_Does.LOSE_ANSWER, times=times)

    @classmethod
    def delaying(cls, seconds: float, *, times: int | None = None) -> Trouble:
        """Passed on late."""
        return cls(delay=seconds, times=times)


def _status_object(code: int) -> bytes:
    reasons = {401: "Unauthorized", 403: "Forbidden", 409: "Conflict", 410: "Expired", 429: "TooManyRequests"}
    reason = reasons.get(code, "InternalError")
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {}}
    return json.dumps(status | {"code": code, "reason": reason, "message": f"the proxy says {code}"}).encode()


@dataclass(eq=False, slots=True)
class _Rule:
    trouble: Trouble
    where: Where


class ApiProxy:
    """One proxy, in a thread of its own; use it as a context manager. Its methods are for any thread."""

    def __init__(self, control_plane: ControlPlane, directory: Path) -> None:
        """`directory` gets the kubeconfig."""
        self.kubeconfig = directory / "proxied.yaml"
        self._control_plane = control_plane
        (self._port,) = free_ports(1)
        self._loop = LoopThread("api-proxy")
        self._token = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._seen: list[Seen] = []
        self._rules: list[_Rule] = []
        self._open: dict[Seen, web.Request] = {}
        self._turn = asyncio.Event()
        """Set, and replaced, whenever the rules change."""
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None

    def __enter__(self) -> Self:
        self._loop.start()
        self._loop.run(self._start())
        self._write_kubeconfig()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._loop.run(self._stop())
        finally:
            self._loop.close()

    # What a test tells it

    @contextlib.contextmanager
    def trouble(self, trouble: Trouble, where: Where = everything, *, cut_open: bool = False) -> Iterator[None]:
        """While the block runs, this happens to these requests; of several troubles the newest. `cut_open` also cuts those
        that are open at the beginning."""
        rule = _Rule(trouble, where)
        self._loop.call(lambda: self._change(lambda: self._rules.insert(0, rule)))
        try:
            if cut_open:
                self.cut(where)
            yield
        finally:
            self._loop.call(lambda: self._change(lambda: self._rules.remove(rule)))

    @contextlib.contextmanager
    def gap(self, where: Where) -> Iterator[None]:
        """What happens while the block runs is never told by these watches: they are cut, and the first that is opened
        afterwards is told that it is too old, so that it begins anew from a list. (A watch that is merely cut goes on from
        where it was, and misses nothing.)"""
        with self.trouble(Trouble.error_event(410, times=1), where):
            with self.trouble(Trouble.cutting(), where, cut_open=True):
                yield
            wait_until(lambda: self.open_requests(where), _REOPEN_SECONDS, what="the watch being open again")

    def cut(self, where: Where = everything) -> int:
        """Cuts the requests that are open, such as watches; returns how many."""
        return self._loop.call(lambda: self._cut(where))

    def expire_token(self) -> None:
        """From now on the token that the kubeconfig holds is refused with 401."""
        self._token = secrets.token_hex(8)

    def renew_token(self) -> None:
        """The kubeconfig gets the token that is valid."""
        self._write_kubeconfig()

    # What it saw

    def seen(self, where: Where = everything, *, since: float = 0.0) -> list[Seen]:
        """The requests so far, oldest first; `since` is a time of `time.monotonic()`."""
        with self._lock:
            return [one for one in self._seen if one.at >= since and where(one)]

    def open_requests(self, where: Where = everything) -> int:
        """How many are open now."""
        return self._loop.call(lambda: sum(1 for one in self._open if where(one)))

    # How it is done

    async def _start(self) -> None:
        plane = self._control_plane
        trusted = ssl.create_default_context(cafile=str(plane.ca_file))
        self._session = aiohttp.ClientSession(
            plane.url,
            connector=aiohttp.TCPConnector(limit=0, ssl=trusted),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            auto_decompress=False,
        )
        # The API server's own certificate carries 127.0.0.1, and whoever may read its folder may use it.
        serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        serving.load_cert_chain(plane.ca_file, plane.ca_file.with_suffix(".key"))
        application = web.Application(client_max_size=0)
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=serving).start()

    async def _stop(self) -> None:
        self._change(self._rules.clear)
        self._cut(everything)
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(_FAREWELL_SECONDS)

    def _change(self, change: Callable[[], object]) -> None:
        change()
        self._turn.set()
        self._turn = asyncio.Event()

    def _cut(self, where: Where) -> int:
        chosen = [(one, request) for one, request in self._open.items() if where(one)]
        for _, request in chosen:
            if request.transport is not None:
                request.transport.abort()
        return len(chosen)

    def _rule_for(self, seen: Seen) -> _Rule | None:
        return next((rule for rule in self._rules if rule.where(seen) and rule.trouble.times != 0), None)

    def _take(self, seen: Seen) -> Trouble:
        rule = self._rule_for(seen)
        if rule is None:
            return Trouble()
        taken = rule.trouble
        if taken.times is not None:
            rule.trouble = replace(taken, times=taken.times - 1)
        return taken

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        seen = Seen(request.method, request.path, dict(request.query), await request.read(), time.monotonic())
        with self._lock:
            self._seen.append(seen)
        self._open[seen] = request
        answering = asyncio.create_task(self._answer_in_full(request, seen))
        if is_watch(seen):
            return await answering  # which ends when the client hangs up
        return await asyncio.shield(answering)  # what was asked for is done, also when nobody waits for it any more

    async def _answer_in_full(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        try:
            return await self._answer(request, seen)
        except (aiohttp.ClientError, ConnectionError, TimeoutError):
            return self._end(request)  # the API server is away, or the client is: the other side shall see the same
        finally:
            del self._open[seen]

    async def _answer(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        trouble = self._take(seen)
        if trouble.delay:
            await asyncio.sleep(trouble.delay)
        if trouble.does is _Does.HANG:
            await self._held(seen)
            trouble = self._take(seen)
        if trouble.does is _Does.CUT:
            return self._end(request)
        if request.headers.get("Authorization") != f"Bearer {self._token}":
            trouble = Trouble.answering(401)
        if trouble.does is _Does.ANSWER:
            seen.status = trouble.status
            headers = {"Content-Type": "application/json", **trouble.headers}
            return web.Response(status=trouble.status, body=trouble.body, headers=headers)
        return await self._pass_on(request, seen, answer=trouble.does is not _Does.LOSE_ANSWER)

    async def _pass_on(self, request: web.Request, seen: Seen, *, answer: bool) -> web.StreamResponse:
        if self._session is None:
            raise ConnectionError("the proxy has ended")
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        headers["Authorization"] = f"Bearer {self._control_plane.token}"
        headers["Accept-Encoding"] = "identity"
        # None: else aiohttp would answer a GET with a body of its own making.
        async with self._session.request(
            request.method, request.rel_url, headers=headers, data=seen.body or None, allow_redirects=False
        ) as upstream:
            if not answer:
                await upstream.read()
                return self._end(request)
            response = web.StreamResponse(status=upstream.status)
            for name, value in upstream.headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    response.headers.add(name, value)
            if is_watch(seen):
                seen.status = upstream.status
                await response.prepare(request)
                await self._pump(upstream, response, seen)
            else:
                body = await upstream.read()
                await self._held(seen)
                seen.status = upstream.status
                await response.prepare(request)
                await response.write(body)
            await response.write_eof()
            return response

    async def _pump(self, upstream: aiohttp.ClientResponse, response: web.StreamResponse, seen: Seen) -> None:
        while chunk := await upstream.content.readany():
            await self._held(seen)
            await response.write(chunk)

    async def _held(self, seen: Seen) -> None:
        """While everything that this request is one of hangs."""
        while (rule := self._rule_for(seen)) is not None and rule.trouble.does is _Does.HANG:
            await self._turn.wait()

    @staticmethod
    def _end(request: web.Request) -> web.Response:
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=502)  # which nobody hears

    def _write_kubeconfig(self) -> None:
        authority = b64encode(self._control_plane.ca_file.read_bytes()).decode()
        cluster = {"server": f"https://127.0.0.1:{self._port}", "certificate-authority-data": authority}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxied", "cluster": cluster}],
            "users": [{"name": "proxied", "user": {"token": self._token}}],
            "contexts": [{"name": "proxied", "context": {"cluster": "proxied", "user": "proxied"}}],
            "current-context": "proxied",
        }
        new = self.kubeconfig.with_suffix(".new")
        new.write_text(json.dumps(config))
        new.replace(self.kubeconfig)  # in one step: whoever reads it meanwhile finds a whole one
