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
"""

import asyncio
import hashlib
import json
from collections.abc import Sequence
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
from llmservice.engines.listeners import Listener, listener

_ANSWER_LIMIT = 64 * 1024
_DOCUMENT_LIMIT = 4 * 1024 * 1024
_PLACE = "application"
_PRODUCT = "Ray Serve LLM"
_OLD_OPTION = "wait_for_inflight_requests"

_REPLICA_METHOD = "__hash__"
"""Answered by every worker of every replica with a number that differs between processes, and without any effect."""

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

    def place_of(self, pod_uid: str) -> str:
        """All pods are one place."""
        return _PLACE

    def targets_of(self, pods: Sequence[Pod]) -> tuple[Target, ...]:
        """The application, named after the first pod that has an address. Its identity is the set of its proxies."""
        found = [
            (pod, port, listener(pod, port, self._engine.scheme))
            for pod in sorted(pods, key=lambda pod: pod.name)
            for port in self._engine.ports
        ]
        first, port, spokesman = next((each for each in found if each[2].url is not None), found[0])
        identity = " ".join(f"{pod.uid}/{each.container_id}" for pod, _, each in found)
        proxies = tuple(f"{each.url}{self._engine.root_path}" for _, _, each in found if _can_speak(each))
        url = None if spokesman.url is None else f"{spokesman.url}{self._engine.root_path}"
        target = Target(
            key=TargetKey(first.uid, identity, str(port), url),
            pod=first.name,
            started=bool(proxies),
            ready=any(each.ready for _, _, each in found if _can_speak(each)),
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
            return replace(reading, replicas=_digest(target.key.container_id, replicas))

        first = self._speaker if self._speaker in target.proxies else target.proxies[0]
        result = await read_from(first)
        if _is_answer(result):
            self._speaker = first
            return result
        others = {asyncio.create_task(read_from(url)): url for url in target.proxies if url != first}
        try:
            pending = set(others)
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if _is_answer(task.result()):
                        self._speaker = others[task]
                        return task.result()
        finally:
            for task in others:
                task.cancel()
        return result

    async def call(self, target: Target, call: ControlCall, traits: Traits, *, timeout: float) -> Failure | None:
        """Send a control call through the proxy that answered last; None if it was answered with success."""
        url = self._speaker if self._speaker in target.proxies else target.proxies[0]
        path = "/resume" if call.pause is None else "/pause"
        options: dict[str, object] = {}
        if call.pause is not None:
            is_wait = call.pause.mode is PauseMode.WAIT
            options = {"mode": call.pause.mode.value, _OLD_OPTION: is_wait, "clear_cache": call.pause.clear_cache}
        answer = await self._exchange("POST", url, path, timeout, {"model": self._model, "options": options})
        return answer if isinstance(answer, Failure) else None

    async def _read_from(self, url: str, traits: Traits | None, timeout: float) -> Reading | Failure:
        if traits is None:
            learned = await self._identify(url, timeout)
            if isinstance(learned, Failure):
                return learned
            traits = learned
        answer = await self._exchange("GET", url, f"/is_paused?model={quote(self._model, safe='')}", timeout)
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

    async def _replicas(self, url: str, timeout: float) -> object | Failure:
        """What distinguishes the replicas that a broadcast reaches at present."""
        body = {"model": self._model, "method": _REPLICA_METHOD}
        answer = await self._exchange("POST", url, "/collective_rpc", timeout, body, limit=_DOCUMENT_LIMIT)
        if isinstance(answer, Failure):
            return answer
        value = parsed(answer.body)
        results = value.get("results") if isinstance(value, dict) else None
        if not isinstance(results, list):
            return Failure(
                Obstacle.LOST, "not understood", "POST /collective_rpc was not answered with {'results': [...]}"
            )
        return sorted(json.dumps(each.get("worker_results") if isinstance(each, dict) else each) for each in results)

    async def _explained(self, url: str, failure: Failure, timeout: float) -> Failure:
        """What a 404 or 503 means: no application yet, no such model, no such route."""
        if failure.kind not in ("answered 404", "answered 503"):
            return failure
        parts = urlsplit(url)
        routes = await self._exchange("GET", f"{parts.scheme}://{parts.netloc}", "/-/routes", timeout)
        if isinstance(routes, Failure):
            if routes.kind != "answered 503":
                return failure
            return Failure(Obstacle.STARTING, "no routes", f"the proxy has no routes yet: {routes.message}")
        if parsed(routes.body) == {}:
            return Failure(
                Obstacle.STARTING, "no routes", "the proxy has no routes; is the Ray Serve application deployed?"
            )
        if failure.kind == "answered 503":
            return failure
        models = await self._models(url, timeout)
        if models is None:
            return Failure(
                Obstacle.REFUSED, failure.kind, f"{failure.message}. {_DEV_INGRESS_HINT}", Reason.ENDPOINT_MISSING
            )
        if self._model in models:
            return failure
        listed = ", ".join(models) or "none"
        return Failure(
            Obstacle.REFUSED,
            "no such model",
            f"spec.engine.model {self._model!r} is not served; /v1/models lists: {listed}",
            Reason.MODEL_NOT_FOUND,
        )

    async def _models(self, url: str, timeout: float) -> list[str] | None:
        """The ids that the application lists, at most 10; None where it lists nothing that can be understood."""
        answer = await self._exchange("GET", url, "/v1/models", timeout, limit=_DOCUMENT_LIMIT)
        value = parsed(answer.body) if isinstance(answer, Answer) else None
        listed = value.get("data") if isinstance(value, dict) else None
        if not isinstance(listed, list):
            return None
        return [str(each["id"])[:128] for each in listed if isinstance(each, dict) and "id" in each]

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
        return refusal(sent, answer)


def _can_speak(each: Listener) -> bool:
    return each.url is not None and each.started


def _is_answer(result: Reading | Failure) -> bool:
    """Whether the application has spoken, and not only a proxy failed."""
    return isinstance(result, Reading) or result.obstacle is Obstacle.REFUSED


def _digest(proxies: str, replicas: object) -> str:
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
