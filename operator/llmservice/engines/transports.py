"""One connection pool for each way of trusting engines: all plain HTTP shares one, each set of TLS terms has its own."""

import re
import ssl
from dataclasses import dataclass

import aiohttp
import httpx
import yarl
from httpx_aiohttp import AiohttpTransport

_KEEPALIVE_SECONDS = 15.0
"""Idle connections are kept this long, a little more than one resync; vLLM's Python frontend closes them after 5 s."""

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


@dataclass(frozen=True, slots=True)
class Trust:
    """Terms on which an engine's certificate is accepted."""

    ca: str | None = None
    """PEM certificates; None for the system's trust store."""
    insecure: bool = False

    def ssl_context(self) -> ssl.SSLContext:
        """Raises ssl.SSLError or ValueError where ``ca`` holds no usable PEM certificate."""
        certificates = None
        if self.ca is not None:
            certificates = "\n".join(_PEM.findall(self.ca))  # what stands around them may be in any language
            if not certificates:
                raise ValueError("there is no BEGIN CERTIFICATE in it")
        context = ssl.create_default_context(cadata=certificates)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True)
class NoTrust(httpx.AsyncBaseTransport):
    """Sends nothing, because what it should trust cannot be had; every exchange fails with ``why``."""

    why: str

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises httpx.ConnectError."""
        raise httpx.ConnectError(self.why, request=request)


class Transports:
    """Hands out transports, and closes them all at the end."""

    def __init__(self) -> None:
        self._by_trust: dict[Trust, httpx.AsyncBaseTransport] = {}

    def get(self, trust: Trust) -> httpx.AsyncBaseTransport:
        """The transport for these terms; one that refuses to send where they are broken."""
        if trust not in self._by_trust:
            try:
                self._by_trust[trust] = _transport(trust.ssl_context())
            except (ssl.SSLError, ValueError) as error:
                return NoTrust(f"ca.crt holds no usable PEM certificate: {error}")
        return self._by_trust[trust]

    async def aclose(self) -> None:
        """Close every connection."""
        for transport in self._by_trust.values():
            await transport.aclose()


# Each exchange turns its URL into a yarl.URL. The parsed host comes from a cache that is too small for a large fleet.
yarl.cache_configure(encode_host_size=16384)


def _transport(context: ssl.SSLContext) -> httpx.AsyncBaseTransport:
    def session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_SECONDS, ssl=context),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    return AiohttpTransport(client=session)
