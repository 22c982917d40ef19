"""The API server as JSON over :mod:`kubernetes.aio`, which brings configuration, credentials and TLS.

Its typed models are not used: they cost 0.7 ms a pod and reject some that a cluster accepts.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config

JSON = Any
_LIST_CHUNK = 500
"""Objects per request of a list; keeps a single answer small."""
_ERROR_LIMIT = 64 * 1024
_RETRY_AFTER_LIMIT = 30.0
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class KubernetesError(Exception):
    """The API server did not do what was asked; see the subclasses for what that means."""

    retry_after: float = 0.0
    """Seconds that it asks to be left alone, at most half a minute."""


class ApiError(KubernetesError):
    """The API server refused. ``status`` is the HTTP status, 410 also where a watch reports it in its stream."""

    def __init__(self, status: int, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.retry_after = retry_after


class UnavailableError(KubernetesError):
    """No usable answer: refused, cut, timed out, or not JSON."""


class Kubernetes:
    """One connection pool to one API server. Safe for any number of concurrent calls in one event loop."""

    def __init__(
        self, configuration: kubernetes_client.Configuration, kubeconfig: str | None = None, context: str | None = None
    ) -> None:
        """``kubeconfig`` and ``context`` are where the configuration came from: it is loaded from there again after a 401."""
        self._origin = (kubeconfig, context)
        # Every watch holds a connection. With the pool's default limit of 100 the 101st LLMService would hang.
        configuration.connection_pool_maxsize = 0
        configuration.retries = False
        self._api = kubernetes_client.ApiClient(configuration)
        # Also the field manager of what is written, in managedFields.
        self._api.user_agent = f"llmservice/{version('llmservice')}"

    @classmethod
    async def connect(cls, kubeconfig: str | None = None, context: str | None = None) -> "Kubernetes":
        """In-cluster, or by KUBECONFIG or ``~/.kube/config``, unless a file or a context is named. Raises KubernetesError if
        there is none."""
        return cls(await load_configuration(kubeconfig, context), kubeconfig, context)

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()  # type: ignore[no-untyped-call]

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: JSON = None,
        content_type: str = "application/json",
        timeout: float = 10.0,
    ) -> JSON:
        """One request and its JSON answer, within ``timeout`` seconds. Raises ApiError or UnavailableError."""
        try:
            async with asyncio.timeout(timeout):
                async with self._response(method, path, query, body, content_type, timeout=timeout) as response:
                    data = await response.read()
            return json.loads(data)
        except TimeoutError as error:
            raise UnavailableError(f"{method} {path} was not answered within {timeout:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise UnavailableError(f"{method} {path}: {type(error).__name__} {error}".strip()) from error

    async def list(self, path: str, query: Mapping[str, str] | None = None) -> tuple[list[JSON], str]:
        """All objects of a collection and the resourceVersion to watch from. Incomplete is an error, never a short list."""
        items: list[JSON] = []
        chunk = {"limit": str(_LIST_CHUNK)}
        while True:
            page = await self.request("GET", path, query={**(query or {}), **chunk}, timeout=30.0)
            try:
                items.extend(page.get("items") or ())
                token, version = page["metadata"].get("continue"), page["metadata"]["resourceVersion"]
            except (AttributeError, KeyError, TypeError) as error:
                raise UnavailableError(f"GET {path}: the answer is no list: {str(page)[:200]}") from error
            if not token:
                return items, version
            chunk = {"limit": str(_LIST_CHUNK), "continue": token}

    async def watch(
        self, path: str, query: Mapping[str, str], *, server_seconds: int, deadline: float
    ) -> AsyncGenerator[tuple[str, JSON], None]:
        """Watch events (type, object) until the server ends the watch after ``server_seconds``. Raises UnavailableError if it
        did not by ``deadline`` seconds, or is cut, and ApiError for an error, also one within the stream."""
        full = {**query, "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(server_seconds)}
        until = asyncio.get_running_loop().time() + deadline
        try:
            async with self._response("GET", path, full, None, timeout=deadline) as response, _cut_off(response):
                while line := await _line(response, until):
                    event = json.loads(line)
                    kind, item = event["type"], event["object"]
                    if kind == "ERROR":
                        raise ApiError(int(item.get("code", 500)), str(item.get("message", item)))
                    yield kind, item
        except TimeoutError as error:
            raise UnavailableError(f"the watch of {path} went on beyond {deadline:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError, KeyError) as error:
            raise UnavailableError(f"the watch of {path} broke: {type(error).__name__} {error}".strip()) from error

    @asynccontextmanager
    async def _response(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: JSON,
        content_type: str = "application/json",
        *,
        timeout: float,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        response = await self._send(method, path, query, body, content_type, timeout)
        if response.status == 401:  # the token may have been replaced in its file
            response.close()
            await self._reload()
            response = await self._send(method, path, query, body, content_type, timeout)
        async with response:
            if response.status >= 400:
                message = _message(await response.content.read(_ERROR_LIMIT))
                raise ApiError(response.status, message, _retry_after(response.headers))
            yield response

    async def _send(
        self, method: str, path: str, query: Mapping[str, str] | None, body: JSON, content_type: str, timeout: float
    ) -> aiohttp.ClientResponse:
        _, url, headers, *_ = await self._api.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            auth_settings=["BearerToken"],
        )
        answer = await self._api.call_api(method, url, headers, body, _request_timeout=aiohttp.ClientTimeout(timeout))
        response: aiohttp.ClientResponse = answer.response
        return response

    async def _reload(self) -> None:
        self._api.configuration.api_key = (await load_configuration(*self._origin)).api_key


async def load_configuration(
    kubeconfig: str | None = None, context: str | None = None
) -> kubernetes_client.Configuration:
    """Server and credentials: of the pod's service account, unless KUBECONFIG is set or ``kubeconfig`` or ``context`` is
    given; else by ``kubeconfig``, KUBECONFIG or ``~/.kube/config``. Raises KubernetesError if there are none."""
    configuration = kubernetes_client.Configuration()
    try:
        if _is_in_cluster(kubeconfig, context):
            kubernetes_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            await kubernetes_config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=_kubeconfig_files(kubeconfig), context=context, client_configuration=configuration
            )
    except (kubernetes_config.ConfigException, OSError) as error:
        raise KubernetesError(
            f"no way to the API server: {error}. Run in a pod with a service account, or set KUBECONFIG"
        ) from error
    return configuration


def default_namespace(kubeconfig: str | None = None, context: str | None = None) -> str:
    """The namespace of that same service account or context; ``default`` where a context names none. Raises
    KubernetesError."""
    try:
        if _is_in_cluster(kubeconfig, context):
            return _NAMESPACE_FILE.read_text().strip()
        contexts, current = kubernetes_config.list_kube_config_contexts(  # type: ignore[no-untyped-call]
            _kubeconfig_files(kubeconfig)
        )
    except (kubernetes_config.ConfigException, OSError) as error:
        raise KubernetesError(f"no namespace is known: {error}. Name one") from error
    chosen = current if context is None else next((each for each in contexts if each["name"] == context), {})
    return str(chosen.get("context", {}).get("namespace") or "default")


def _is_in_cluster(kubeconfig: str | None, context: str | None) -> bool:
    named = kubeconfig is not None or context is not None or "KUBECONFIG" in os.environ
    return not named and "KUBERNETES_SERVICE_HOST" in os.environ


def _kubeconfig_files(named: str | None) -> str:
    files = named or os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    if not any(Path(each).is_file() for each in files.split(os.pathsep)):
        raise kubernetes_config.ConfigException(f"there is no file {files}")
    return files


async def _line(response: aiohttp.ClientResponse, until: float) -> bytes:
    """The next line; empty at the end. A timeout around all lines would also strike while the consumer is at work on one, and
    ``asyncio.wait_for`` of Python 3.11 forgets a cancellation that comes together with the line."""
    async with asyncio.timeout_at(until):
        return await response.content.readline()


@asynccontextmanager
async def _cut_off(response: aiohttp.ClientResponse) -> AsyncIterator[None]:
    """Ends the connection of a response that nobody reads to its end. Merely closed, it would be open until the server has
    said goodbye, which nothing waits for."""
    try:
        yield
    finally:
        connection = response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()


def _retry_after(headers: Mapping[str, str]) -> float:
    """The header's seconds; Kubernetes never sends it as a date."""
    value = headers.get("Retry-After", "")
    return min(float(value), _RETRY_AFTER_LIMIT) if value.isascii() and value.isdecimal() else 0.0


def _message(body: bytes) -> str:
    try:
        status = json.loads(body)
    except ValueError:
        return body[:300].decode(errors="replace")
    return str(status.get("message", status)) if isinstance(status, dict) else str(status)
