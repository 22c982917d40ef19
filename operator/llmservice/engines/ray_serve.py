"""A Ray Serve LLM application built with the DevIngress, from Ray 2.54 on.

The target is the application. The selected pods run Ray's proxies; any of them speaks for all, so one is asked, and the
others only when it does not answer. A control call is broadcast by the application to the replicas it knows.

What differs by version, read in the sources of 2.54 to 2.60 (docs/engines.md):

========= =============================================== ================================
version   how a pause is asked                            what it cannot do
========= =============================================== ================================
2.54-2.55 ``wait_for_inflight_requests``, ``clear_cache`` keep (``mode`` is ignored, so
                                                          everything would be aborted)
2.56 on   ``mode``, ``clear_cache``                       -
========= =============================================== ================================

No route of the application tells the version. The description of the options in its ``/openapi.json`` tells which of the
two it knows. Both are sent every time: unknown ones are ignored.

Each control route waits for the replicas without a limit, in one of the few threads of the application's ingress, and a
client that hangs up does not free the thread. So a question that was given up is not asked again while it is still open.
"""

import asyncio
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from urllib.parse import quote, urlsplit

import httpx

from llmservice import api
from llmservice.api import PauseMode, Reason
from llmservice.domain.fleet import (
    ControlCall,
    Failure,
    Obstacle,
    Pod,
    Reading,
    Sight,
    Target,
    TargetKey,
    Traits,
)
from llmservice.engines.exchange import Answer, exchange, parsed, refusal, request
from llmservice.engines.listeners import listener

_ANSWER_LIMIT = 64 * 1024
_DOCUMENT_LIMIT = 4 * 1024 * 1024
_PLACE = "application"
_PRODUCT = "Ray Serve LLM"
_OLD_OPTION = "wait_for_inflight_requests"

_REPLICA_METHOD = "__hash__"
"""Answered by every worker of every replica with a number that differs between processes, and without any effect."""

_OPEN_SECONDS = 120.0
"""How long a question may stay open after it was given up. Serve replaces a replica that hangs in about that time."""
_SILENT = "no answer from the application"
_DRAINED = "being drained"
_NO_SUCH_MODEL = "Got request for model"
_LISTED = 10
"""Names that a message lists at most."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_DEV_INGRESS_HINT = "the application has control routes only when it is built with build_dev_openai_app"


class RayServe:
    """The engine type ``ray-serve``: all selected pods are proxies of one application."""

    def __init__(self, engine: api.Engine, transport: httpx.AsyncBaseTransport) -> None:
        """``transport`` carries the TLS settings of ``engine.tls``."""
        self._engine = engine
        self._transport = transport
        self._server_name = engine.tls.server_name if engine.tls is not None else None
        self._model = engine.model or ""
        self._speaker = ""
        """Base URL of the proxy that answered last."""
        self._open: dict[str, asyncio.Task[Answer | Failure]] = {}
        """Questions that were given up and are not answered yet, by URL and path."""

    def place_of(self, pod_uid: str) -> str:
        """All pods are one place."""
        return _PLACE

    def targets_of(self, pods: Sequence[Pod]) -> tuple[Target, ...]:
        """The application, named after the first pod whose proxy runs. Its identity is the set of the proxies that do."""
        found = [
            (pod, port, listener(pod, port, self._engine.scheme))
            for pod in sorted(pods, key=lambda pod: pod.name)
            for port in self._engine.ports
        ]
        speaking = [each for each in found if each[2].url is not None and each[2].started]
        first, port, spokesman = (speaking or found)[0]
        identity = " ".join(f"{pod.uid}/{each.container_id}" for pod, _, each in speaking or found)
        proxies = tuple(f"{each.url}{self._engine.root_path}" for _, _, each in speaking)
        url = None if spokesman.url is None else f"{spokesman.url}{self._engine.root_path}"
        target = Target(
            key=TargetKey(first.uid, identity, str(port), url),
            pod=first.name,
            started=bool(proxies),
            ready=any(each.ready for _, _, each in speaking),
            port_missing=all(each.port_missing for _, _, each in found),
            proxies=proxies,
        )
        return (target,)

    async def read(
        self, target: Target, traits: Traits | None, *, identify: bool, with_replicas: bool = False, timeout: float
    ) -> Reading | Failure:
        """Ask the proxy that answered last; all the others at once where it does not answer."""

        async def read_from(url: str) -> Reading | Failure:
            known = None if identify else traits
            reading = await self._read_from(url, known, timeout)
            if isinstance(reading, Failure) or not with_replicas:
                return reading
            replicas = await self._replicas(url, timeout)
            if isinstance(replicas, Failure):
                return replicas
            if not replicas:
                return Failure(Obstacle.STARTING, "no replicas", "the application has no replica at present")
            return replace(reading, replicas=_digest(target.key.container_id, replicas))

        first = self._spokesman(target)
        result = await read_from(first)
        if not _is_proxy_at_fault(result):
            self._speaker = first
            return result
        others = {asyncio.create_task(read_from(url)): url for url in target.proxies if url != first}
        try:
            pending = set(others)
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if not _is_proxy_at_fault(task.result()):
                        self._speaker = others[task]
                        return task.result()
        finally:
            for task in others:
                task.cancel()
        return result

    async def call(self, target: Target, call: ControlCall, traits: Traits, *, timeout: float) -> Failure | None:
        """Send a control call through the proxy that answered last; None if it was answered with success."""
        path = "/resume" if call.pause is None else "/pause"
        options: dict[str, object] = {}
        if call.pause is not None:
            is_wait = call.pause.mode is PauseMode.WAIT
            options = {"mode": call.pause.mode.value, _OLD_OPTION: is_wait, "clear_cache": call.pause.clear_cache}
        answer = await self._exchange(
            "POST", self._spokesman(target), path, timeout, {"model": self._model, "options": options}
        )
        return answer if isinstance(answer, Failure) else None

    def _spokesman(self, target: Target) -> str:
        return self._speaker if self._speaker in target.proxies else target.proxies[0]

    async def _read_from(self, url: str, traits: Traits | None, timeout: float) -> Reading | Failure:
        if traits is None:
            learned = await self._identify(url, timeout)
            if isinstance(learned, Failure):
                return learned
            traits = learned
        answer = await self._ask("GET", url, f"/is_paused?model={quote(self._model, safe='')}", timeout)
        if isinstance(answer, Failure):
            return await self._explained(url, answer, timeout)
        value = parsed(answer.body)
        paused = value.get("is_paused") if isinstance(value, dict) else None
        if not isinstance(paused, bool):
            return Failure(
                Obstacle.LOST, "not understood", "GET /is_paused was not answered with {'is_paused': true|false}"
            )
        return Reading(Sight.PAUSED if paused else Sight.RUNNING, traits)

    async def _identify(self, url: str, timeout: float) -> Traits | Failure:
        answer = await self._exchange("GET", url, "/openapi.json", timeout, limit=_DOCUMENT_LIMIT)
        if isinstance(answer, Failure):
            return await self._explained(url, answer, timeout)
        document = parsed(answer.body)
        paths = document.get("paths") if isinstance(document, dict) else None
        if not isinstance(paths, dict):
            return Failure(
                Obstacle.REFUSED,
                "not Ray Serve",
                f"{url}/openapi.json describes no routes; is this port Ray Serve's HTTP proxy?",
                Reason.ENDPOINT_MISSING,
            )
        if "/pause" not in paths:
            return Failure(
                Obstacle.REFUSED, "no DevIngress", f"no route /pause; {_DEV_INGRESS_HINT}", Reason.ENDPOINT_MISSING
            )
        return _traits(json.dumps([paths["/pause"], _pause_options(document)]))

    async def _replicas(self, url: str, timeout: float) -> list[str] | Failure:
        """What distinguishes the replicas that a broadcast reaches at present (docs/adr/0007)."""
        body = {"model": self._model, "method": _REPLICA_METHOD}
        answer = await self._ask("POST", url, "/collective_rpc", timeout, body)
        if isinstance(answer, Failure):
            return await self._explained(url, answer, timeout)
        value = parsed(answer.body)
        results = value.get("results") if isinstance(value, dict) else None
        if not isinstance(results, list):
            return Failure(
                Obstacle.LOST, "not understood", "POST /collective_rpc was not answered with {'results': [...]}"
            )
        return sorted(json.dumps(each.get("worker_results") if isinstance(each, dict) else each) for each in results)

    async def _explained(self, url: str, failure: Failure, timeout: float) -> Failure:
        """What a failure means: no application yet, one that does not answer, no such model, no such route; or that the
        proxy is at fault."""
        if failure.kind not in ("timed out", "answered 404", "answered 503"):
            return failure
        parts = urlsplit(url)
        routes = await self._exchange("GET", f"{parts.scheme}://{parts.netloc}", "/-/routes", timeout)
        if isinstance(routes, Failure):
            if routes.kind != "answered 503" or _DRAINED in routes.message:
                return failure
            return Failure(Obstacle.STARTING, "no routes", f"the proxy has no routes yet: {routes.message}")
        prefixes = parsed(routes.body)
        if prefixes == {}:
            words = "the proxy has no routes; is the Ray Serve application deployed?"
            return Failure(Obstacle.STARTING, "no routes", words)
        if failure.kind == "timed out":
            words = (
                "the proxy has routes, but the application does not answer: it is being deployed, or a replica hangs"
            )
            return Failure(Obstacle.LOST, _SILENT, f"{failure.message}; {words}")
        if failure.kind == "answered 503":
            return failure
        if _NO_SUCH_MODEL in failure.message:
            return await self._model_not_found(url, timeout)
        hint = _DEV_INGRESS_HINT
        if isinstance(prefixes, dict) and (self._engine.root_path or "/") not in prefixes:
            hint = f"spec.engine.rootPath must be one of the applications' route prefixes: {_listed(prefixes)}"
        return Failure(Obstacle.REFUSED, failure.kind, f"{failure.message}. {hint}", Reason.ENDPOINT_MISSING)

    async def _model_not_found(self, url: str, timeout: float) -> Failure:
        answer = await self._exchange("GET", url, "/v1/models", timeout, limit=_DOCUMENT_LIMIT)
        value = parsed(answer.body) if isinstance(answer, Answer) else None
        models = value.get("data") if isinstance(value, dict) else None
        ids = [each.get("id") for each in models if isinstance(each, dict)] if isinstance(models, list) else []
        words = f"spec.engine.model {self._model!r} is not served; /v1/models lists {_listed(ids)}"
        return Failure(Obstacle.REFUSED, "no such model", words, Reason.MODEL_NOT_FOUND)

    async def _ask(self, method: str, url: str, path: str, timeout: float, body: object = None) -> Answer | Failure:
        """A question that may be given up after ``timeout`` seconds; before that the one that is still open has to end."""
        question, loop = f"{url}{path}", asyncio.get_running_loop()
        until = loop.time() + timeout
        earlier = self._open.get(question)
        if earlier is not None:
            await asyncio.wait({earlier}, timeout=timeout)
        if earlier is None or earlier.done():
            asked = self._exchange(method, url, path, _OPEN_SECONDS, body, limit=_DOCUMENT_LIMIT)
            self._open[question] = task = asyncio.create_task(asked)
            await asyncio.wait({task}, timeout=max(0.0, until - loop.time()))
            if task.done():
                del self._open[question]
                return task.result()
        return Failure(
            Obstacle.LOST, "timed out", f"{method} {path.partition('?')[0]} was not answered within {timeout:g} s"
        )

    async def _exchange(
        self,
        method: str,
        url: str,
        path: str,
        timeout: float,
        body: object = None,
        *,
        limit: int = _ANSWER_LIMIT,
    ) -> Answer | Failure:
        text = json.dumps(body) if body is not None else None
        sent = request(method, f"{url}{path}", self._server_name, text)
        answer = await exchange(self._transport, sent, timeout=timeout, limit=limit)
        if isinstance(answer, Failure) or 200 <= answer.status < 300:
            return answer
        return refusal(sent, replace(answer, body=_replicas_words(answer.body)))


def _is_proxy_at_fault(result: Reading | Failure) -> bool:
    """Whether another proxy may know better, because this one did not get as far as the application."""
    if isinstance(result, Reading) or result.obstacle in (Obstacle.REFUSED, Obstacle.STARTING):
        return False
    return result.kind in ("timed out", "answered 503") or not result.kind.startswith(("answered", _SILENT))


def _replicas_words(body: bytes) -> bytes:
    """An error of a replica is its whole traceback in colours; what it says stands after the last indented line."""
    value = parsed(body)
    error = value.get("error") if isinstance(value, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    if not isinstance(message, str) or "original exception" not in message:
        return body
    said: list[str] = []
    for line in _COLOUR.sub("", message).splitlines():
        said = [] if line.startswith("  File ") else [*said, line]
    return " ".join(line.strip() for line in said[1:] or said).encode()


def _listed(names: Iterable[object]) -> str:
    return ", ".join(str(name)[:128] for name in itertools.islice(names, _LISTED)) or "none"


def _digest(proxies: str, replicas: list[str]) -> str:
    return hashlib.sha256(json.dumps([proxies, replicas]).encode()).hexdigest()[:16]


def _pause_options(document: dict[str, object]) -> object:
    found: object = document
    for name in ("components", "schemas", "PauseRequest"):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _traits(description: str) -> Traits:
    """By how the options of a pause are described."""
    if _OLD_OPTION in description:
        modes = frozenset({PauseMode.ABORT, PauseMode.WAIT})
        return Traits("2.54 or 2.55", modes, confirms_wait=False, product=_PRODUCT)
    return Traits("", frozenset(PauseMode), confirms_wait=True, assumed="mode" not in description, product=_PRODUCT)
