"""One bounded HTTP exchange with an engine that may be slow, hung, broken or hostile.

Bounded in time (one budget for connecting, sending and reading to the end) and in size; redirects are not followed, no
proxy is used, no compression is accepted. Whatever happens ends in an :class:`Answer` or a
:class:`~llmservice.domain.fleet.Failure`; nothing is raised for what the other side did.

The transport is called directly, without httpx's client: that one adds cookies, redirects and authentication, which are not
wanted here, and costs more than the exchange itself when a thousand engines are called at once.
"""

import asyncio
import json
import ssl
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import aiohttp
import httpx

from llmservice.api import Reason
from llmservice.domain.fleet import Failure, Obstacle

WORDS_LIMIT = 300
"""Characters of an engine's own words that are shown."""
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "llmservice"}
_TEMPORARY_4XX = frozenset({408, 409, 421, 425, 429})


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete HTTP answer."""

    status: int
    body: bytes
    location: str = ""
    """The ``Location`` header, if there is one."""


@lru_cache(maxsize=8192)
def request(method: str, url: str, server_name: str | None = None, json_body: str | None = None) -> httpx.Request:
    """A request, with a body of JSON if one is given. Building one costs as much as sending it, so they are kept."""
    extensions = {"sni_hostname": server_name} if server_name is not None else {}
    if json_body is None:
        return httpx.Request(method, url, headers=_HEADERS, extensions=extensions)
    headers = {**_HEADERS, "Content-Type": "application/json"}
    return httpx.Request(method, url, headers=headers, content=json_body.encode(), extensions=extensions)


async def exchange(
    transport: httpx.AsyncBaseTransport, request: httpx.Request, *, timeout: float, limit: int
) -> Answer | Failure:
    """Send ``request`` and read its answer to the end, within ``timeout`` seconds and ``limit`` bytes of body."""
    try:
        async with asyncio.timeout(timeout):
            response = await transport.handle_async_request(request)
            body = bytearray()
            try:
                async for chunk in response.stream:  # type: ignore[union-attr]  # an async transport gives an async stream
                    body += chunk
                    if len(body) > limit:
                        return Failure(
                            Obstacle.LOST, "answer too large", f"{_name(request)} answered with more than {limit} bytes"
                        )
            finally:
                await response.aclose()
    except TimeoutError:
        return Failure(Obstacle.LOST, "timed out", f"{_name(request)} was not answered within {timeout:g} s")
    except (aiohttp.ClientError, httpx.TransportError, OSError) as error:
        return _not_answered(request, error)
    is_redirect = 300 <= response.status_code < 400
    return Answer(response.status_code, bytes(body), response.headers.get("location", "") if is_redirect else "")


def refusal(request: httpx.Request, answer: Answer) -> Failure:
    """What an answer other than 2xx means."""
    status, said = answer.status, words(answer.body)
    kind = f"answered {status}"
    message = f"{_name(request)} answered {status}" + (f": {said}" if said else "")
    if 300 <= status < 400:
        return Failure(Obstacle.LOST, kind, f"{message}, redirecting to {answer.location[:WORDS_LIMIT]}; not followed")
    if status in (502, 503):
        return Failure(Obstacle.NOT_LISTENING, kind, message)
    if not 400 <= status < 500 or status in _TEMPORARY_4XX:
        return Failure(Obstacle.LOST, kind, message)
    if status in (401, 403):
        return Failure(Obstacle.REFUSED, kind, message, Reason.UNAUTHORIZED)
    if status == 404:
        return Failure(Obstacle.REFUSED, kind, message, Reason.ENDPOINT_MISSING)
    return Failure(Obstacle.REFUSED, kind, message, Reason.ENGINE_ERROR)


def parsed(body: bytes) -> Any:
    """The JSON value in ``body``; None where there is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def words(body: bytes) -> str:
    """An engine's own words in an error body, which may be ``{"error": text}``, ``{"error": {"message": text}}``,
    ``{"detail": ...}``, anything else, or nothing. One line, at most WORDS_LIMIT characters."""
    value = parsed(body[: 64 * 1024])
    if isinstance(value, dict):
        value = value.get("error", value.get("detail", value))
    if isinstance(value, dict):
        value = value.get("message", value)
    text = body.decode(errors="replace") if value is None else value if isinstance(value, str) else json.dumps(value)
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: 4 * WORDS_LIMIT]).split())
    return line if len(line) <= WORDS_LIMIT else line[: WORDS_LIMIT - 1] + "…"


def _name(request: httpx.Request) -> str:
    return f"{request.method} {request.url.path}"


def _not_answered(request: httpx.Request, error: Exception) -> Failure:
    # The httpx transport over aiohttp names several errors alike, e.g. a cut connection as a connect timeout; its cause
    # is what happened.
    cause = error.__cause__ if isinstance(error, httpx.TransportError) and error.__cause__ is not None else error
    name, address = _name(request), _address(request)
    if isinstance(cause, aiohttp.ClientConnectorError) and isinstance(cause.os_error, ConnectionRefusedError):
        return Failure(Obstacle.NOT_LISTENING, "refused", f"the connection to {address} was refused")
    if isinstance(cause, httpx.TransportError):
        message = f"{name} was not sent: {_line(cause)}"
    elif isinstance(cause, aiohttp.ClientSSLError | ssl.SSLError | aiohttp.ServerFingerprintMismatch):
        message = f"TLS with {address} failed: {_line(cause)}"
    elif isinstance(cause, aiohttp.ClientConnectorError):
        message = f"no connection to {address}: {_line(cause.os_error)}"
    elif isinstance(cause, aiohttp.ClientPayloadError):
        message = f"the connection ended within the answer to {name}"
    elif isinstance(cause, aiohttp.ServerDisconnectedError | OSError):
        asks = (
            "is it a service mesh that demands mTLS, or https?" if request.url.scheme == "http" else "is it plain http?"
        )
        message = f"the connection ended without an answer to {name} ({asks})"
    else:  # the engine's own words, which may be others each time
        return Failure(Obstacle.LOST, "not HTTP", f"the answer to {name} is not HTTP: {_line(cause)}")
    return Failure(Obstacle.LOST, message, message)


def _address(request: httpx.Request) -> str:
    return f"{request.url.host}:{request.url.port}"


def _line(error: object) -> str:
    return words(str(error).encode())
