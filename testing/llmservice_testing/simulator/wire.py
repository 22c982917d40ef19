"""A small HTTP/1.1 server, on asyncio's protocols.

Why not a web framework: a thousand engines live in one process, each behind its own socket, and a benchmark
must measure its client, not this server; and faults need the connection itself, to cut it in the middle of a body or
to say something that is not HTTP. What is served is the part of HTTP that clients of an engine use: keep-alive,
one request at a time for each connection, and bodies with a `Content-Length` (a chunked one is refused with 411).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final, Protocol
from urllib.parse import unquote

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_BODY_BYTES: Final = 32 * 1024 * 1024

JSON: Final = "application/json"
_REASONS: Final = {status.value: status.phrase for status in HTTPStatus}


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in. `path` is decoded and without the query; `headers` has lower-case names."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. `Content-Length` is added when it is encoded."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def json(cls, value: object, status: int = 200) -> Reply:
        return cls(status, json.dumps(value, separators=(",", ":")).encode())

    def with_header(self, name: str, value: str) -> Reply:
        return replace(self, headers=(*self.headers, (name, value)))

    def encode(self, *, keep_alive: bool) -> bytes:
        lines = [
            f"HTTP/1.1 {self.status} {_REASONS.get(self.status, 'Unknown')}",
            f"content-length: {len(self.body)}",
        ]
        if self.body:
            lines.append(f"content-type: {self.content_type}")
        lines += [f"{name}: {value}" for name, value in self.headers]
        if not keep_alive:
            lines.append("connection: close")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


class Connection(Protocol):
    """What a handler may do with the connection of a request, besides returning a reply."""

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when the client is gone before the reply."""

    async def write(self, data: bytes) -> None:
        """Send raw bytes; returns when the client has taken enough of them. Nothing is sent once the client is gone."""

    @property
    def lost(self) -> bool:
        """Whether the client is gone."""

    def cut(self) -> None:
        """Close at once, after what was written."""


Handler = Callable[[Request, Connection], Reply | Coroutine[Any, Any, Reply | None]]
"""Answers a request. At once with a reply, or with a coroutine whose None means "nothing more is to be sent"."""


class _MalformedRequestError(Exception):
    """The client sent something that is not a request that this server takes; `status` is what it is answered."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class _Head:
    method: str
    path: str
    query: str
    headers: dict[str, str]
    length: int


def _parse_head(raw: bytes) -> _Head:
    first, *rest = raw.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise _MalformedRequestError(400, f"not a request line: {first[:80]!r}")
    headers: dict[str, str] = {}
    for line in rest:
        name, colon, value = line.partition(":")
        if not colon:
            raise _MalformedRequestError(400, f"not a header: {line[:80]!r}")
        headers[name.lower()] = value.strip()
    if "transfer-encoding" in headers:
        raise _MalformedRequestError(411, "a body needs Content-Length here")
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
        raise _MalformedRequestError(413, f"no body of length {length[:20]!r} is taken")
    path, _, query = parts[1].partition("?")
    return _Head(parts[0], unquote(path) if "%" in path else path, query, headers, int(length))


class HttpProtocol(asyncio.Protocol):
    """One connection: parses requests, hands each to the handler, writes the replies in order."""

    def __init__(self, handler: Handler, connections: set[HttpProtocol]) -> None:
        self._handler = handler
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._head: _Head | None = None
        self._task: asyncio.Task[None] | None = None
        self._lost_callbacks: list[Callable[[], None]] = []
        self._writable: asyncio.Event | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._connections.discard(self)
        if self._writable is not None:
            self._writable.set()
        callbacks, self._lost_callbacks = self._lost_callbacks, []
        for callback in callbacks:
            callback()

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        if self._task is None:
            self._serve_buffered()

    def pause_writing(self) -> None:
        self._writable = asyncio.Event()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    # Connection

    def on_lost(self, callback: Callable[[], None]) -> None:
        self._lost_callbacks.append(callback)

    @property
    def lost(self) -> bool:
        return self._transport is None

    async def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
        if self._writable is not None:
            await self._writable.wait()

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Drop the connection and whatever was being answered on it."""
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.abort()

    # The loop over requests

    def _serve_buffered(self) -> None:
        try:
            while self._task is None and (request := self._take_request()) is not None:
                self._serve(request)
        except _MalformedRequestError as error:
            self._send(Reply(error.status, str(error).encode(), "text/plain"), keep_alive=False)

    def _take_request(self) -> Request | None:
        """The next request, None while it is incomplete."""
        if self._head is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > MAX_HEAD_BYTES:
                    raise _MalformedRequestError(431, "the head is too large")
                return None
            self._head = _parse_head(self._buffer[:end])
            self._buffer = self._buffer[end + 4 :]
            if self._head.headers.get("expect", "").lower() == "100-continue" and self._transport is not None:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        head = self._head
        if len(self._buffer) < head.length:
            return None
        body, self._buffer = self._buffer[: head.length], self._buffer[head.length :]
        self._head = None
        return Request(head.method, head.path, head.query, head.headers, body)

    def _serve(self, request: Request) -> None:
        keep_alive = request.headers.get("connection", "").lower() != "close"
        answer = self._handler(request, self)
        if isinstance(answer, Reply):
            self._send(answer, keep_alive=keep_alive)
        else:
            self._task = asyncio.get_running_loop().create_task(self._serve_later(answer, keep_alive=keep_alive))
            self._task.add_done_callback(self._drop_if_failed)

    def _drop_if_failed(self, task: asyncio.Task[None]) -> None:
        """A handler that raises is a defect of the simulator: say so loudly and leave no client waiting."""
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "A handler of the simulator failed", "exception": error, "protocol": self}
            )
            self.cut()

    async def _serve_later(self, answer: Coroutine[Any, Any, Reply | None], *, keep_alive: bool) -> None:
        reply = await answer
        self._task = None
        self._lost_callbacks.clear()
        if reply is not None:
            self._send(reply, keep_alive=keep_alive)
        self._serve_buffered()

    def _send(self, reply: Reply, *, keep_alive: bool) -> None:
        if self._transport is None:
            return
        self._transport.write(reply.encode(keep_alive=keep_alive))
        if not keep_alive:
            self._transport.close()


@dataclass
class Listener:
    """A listening socket that can be closed and opened again; closing drops its connections."""

    host: str
    port: int
    handler: Handler
    _server: asyncio.Server | None = None
    _connections: set[HttpProtocol] = field(default_factory=set)

    @property
    def is_open(self) -> bool:
        return self._server is not None

    async def open(self) -> None:
        """Listen. With port 0 the kernel chooses one, which `port` then tells.

        Raises:
            OSError: the address cannot be listened on.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: HttpProtocol(self.handler, self._connections), self.host, self.port, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Stop listening, so that new connections are refused, and drop the open ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._connections):
            connection.abort()
