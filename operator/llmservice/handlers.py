"""Kopf: notice that an LLMService changed, and say so. Its settings, and its life in a thread of its own, are here too.

Kopf does what it is best at, the connection, and the watch of LLMServices, and nothing else: with an
``on.event`` handler it writes nothing to objects, sets no finalizer and keeps no state in annotations.

It runs in its own thread and event loop (docs/adr/0001). When it ends it cancels every task of its loop that it did not
know at its start, which would be all the actors; and an error in its stream ends it, so that it has to be started again.
"""

import asyncio
import functools
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence

import aiohttp
import kopf

from llmservice import api
from llmservice.kube.client import JSON, load_configuration

_STOP_SECONDS = 5.0
"""How long kopf may take to end; in an outage of the API server it may take for ever."""
_RESTART_SECONDS = (1.0, 2.0, 5.0, 10.0)
_LONG_LIFE_SECONDS = 60.0
"""After a life of this length the next end is a new trouble, not more of the last."""
_ANSWER_SECONDS = 5.0
_REOPEN_SECONDS = 0.5

logger = logging.getLogger(__name__)


class Backoffs:
    """Delays (seconds) between attempts of one request: growing, capped, never ending. Can be iterated any number of
    times."""

    def __iter__(self) -> itertools.chain[float]:
        return itertools.chain((0.5, 1.0, 2.0), itertools.repeat(5.0))


class NothingStored(kopf.DiffBaseStorage):
    """Kopf's memory of what it saw last, kept nowhere: it would be an annotation on every object."""

    def fetch(self, *, body: kopf.Body) -> None:
        """Nothing was kept."""

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Nothing is kept."""


class Watcher:
    """Tells ``on_change(object)`` and ``on_delete(uid)`` about the LLMServices of ``namespaces`` (None: all).

    Both are called in the event loop that :meth:`start` was called in.
    """

    def __init__(
        self,
        namespaces: Sequence[str] | None,
        *,
        on_change: Callable[[JSON], None],
        on_delete: Callable[[str], None],
    ) -> None:
        self._namespaces = namespaces
        self._on_change = on_change
        self._on_delete = on_delete
        self._pace = Pace()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._kopf_loop: asyncio.AbstractEventLoop | None = None
        """None between two lives of kopf."""
        self._end_of_life: Callable[[], object] = bool
        """Ends the present life of kopf, from any thread."""

    def start(self) -> None:
        """Begin to watch; call it from the loop that is to be told."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """End the watch, or give it up after a few seconds."""
        self._stop.set()
        self._end_of_life()
        await asyncio.to_thread(self._thread.join, _STOP_SECONDS)
        if self._thread.is_alive():
            logger.warning("Kopf did not end in time and is given up", extra={"seconds": _STOP_SECONDS})

    async def lack(self) -> str:
        """Why this does not live, or an empty string. Before its start and between two lives of kopf it does."""
        if self._thread.ident is not None and not self._thread.is_alive():
            return "the thread that watches LLMServices has ended"
        loop, answer = self._kopf_loop, asyncio.get_running_loop().create_future()
        if loop is None:
            return ""
        reply = functools.partial(answer.get_loop().call_soon_threadsafe, _settle, answer)
        try:
            loop.call_soon_threadsafe(reply)
            async with asyncio.timeout(_ANSWER_SECONDS):
                await answer
        except RuntimeError:  # it was closed meanwhile
            return ""
        except TimeoutError:
            return f"the loop that watches LLMServices did not answer within {_ANSWER_SECONDS:g} s"
        return ""

    def _run(self) -> None:
        ends = 0
        while True:
            wait, began = _RESTART_SECONDS[min(ends, len(_RESTART_SECONDS) - 1)], time.monotonic()
            try:
                asyncio.run(self._live())
            except Exception:  # whatever ends kopf, its work has to go on
                logger.warning("Kopf ended and is started again", exc_info=True, extra={"seconds": wait})
            if self._stop.wait(wait):
                return
            ends = 0 if time.monotonic() - began > _LONG_LIFE_SECONDS else ends + 1

    async def _live(self) -> None:
        # Kopf waits for a threading.Event in a thread that it cannot cancel, and then never ends by itself.
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        self._end_of_life = lambda: loop.call_soon_threadsafe(stop.set)
        self._kopf_loop = loop
        if self._stop.is_set():
            return
        try:
            await kopf.operator(
                registry=self._registry(),
                settings=settings(),
                # Kopf would ask the operating system for a user's name, which the number of a container's user has not.
                identity="llmservice",  # type: ignore[arg-type]  # a NewType of str that kopf does not export
                clusterwide=self._namespaces is None,
                namespaces=self._namespaces or (),
                standalone=True,
                stop_flag=stop,
            )
        finally:
            self._end_of_life, self._kopf_loop = bool, None

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.event(api.GROUP, api.VERSION, api.PLURAL, registry=registry)
        async def tell(type: str | None, body: kopf.Body, **_: object) -> None:  # noqa: A002  # kopf's names
            if self._loop is None:
                return
            if type == "DELETED":
                self._loop.call_soon_threadsafe(self._on_delete, body.metadata["uid"])
            else:
                self._loop.call_soon_threadsafe(self._on_change, dict(body))

        @kopf.on.login(registry=registry)
        async def authenticate(**_: object) -> kopf.AiohttpSession:
            return await login(self._pace)

        return registry


def _settle(answer: asyncio.Future[None]) -> None:
    if not answer.done():
        answer.set_result(None)


async def login(pace: "Pace") -> kopf.AiohttpSession:
    """The same credentials as everything else uses, in a session that keeps to ``pace``, as all before it."""
    configuration = await load_configuration()
    header = await configuration.get_api_key_with_prefix("BearerToken") or ""
    found = kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        token=header.rpartition(" ")[2] or None,
    )
    paced = aiohttp.TraceConfig()
    paced.on_request_start.append(pace)
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=found.as_ssl_context()),
        headers=found.as_http_headers(),
        trace_configs=[paced],
    )
    return kopf.AiohttpSession(aiohttp_session=session, server=found.server)


class Pace:
    """Lets the same list or watch begin only some time after the last one, whatever became of that.

    Kopf reopens a watch that ended at once, and logs in again after each 401. Where a server or a proxy ends each watch at
    once, or a token has expired, that would be thousands of requests a second.
    """

    def __init__(self) -> None:
        self._began_at: dict[tuple[str, bool], float] = {}

    async def __call__(self, _: aiohttp.ClientSession, __: object, start: aiohttp.TraceRequestStartParams) -> None:
        """Called by aiohttp before each request."""
        request = (start.url.path, start.url.query.get("watch") == "true")
        now = time.monotonic()
        begins_at = max(now, self._began_at.get(request, -math.inf) + _REOPEN_SECONDS)
        self._began_at[request] = begins_at
        await asyncio.sleep(begins_at - now)


def settings() -> kopf.OperatorSettings:
    """Kopf's settings: it only watches, waits for nothing, and never gives up."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True
    chosen.networking.error_backoffs = Backoffs()
    chosen.networking.request_timeout = 30.0
    chosen.networking.connect_timeout = 5.0
    chosen.watching.server_timeout = 60
    chosen.watching.inactivity_timeout = 75.0
    chosen.watching.reconnect_backoff = _REOPEN_SECONDS
    chosen.watching.initial_streaming = False
    chosen.persistence.consistency_timeout = 0.0
    chosen.persistence.diffbase_storage = NothingStored()
    chosen.queueing.worker_limit = None
    return chosen
