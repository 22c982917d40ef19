"""The routes of a proxy: its own, and those of the app behind it."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast, get_args
from urllib.parse import parse_qsl

from llmservice_testing.ray_simulator import answers
from llmservice_testing.ray_simulator.app import NoReplicaKnownError, SimulatedApp, Stage, UnknownModelError
from llmservice_testing.ray_simulator.replica import ReplicaError, SimulatedReplica
from llmservice_testing.simulator import answers as vllm_answers
from llmservice_testing.simulator.scheduler import Generation, Mode
from llmservice_testing.simulator.wire import Connection, Reply, Request

_Handler = Callable[[Request, Connection], Coroutine[Any, Any, Reply | None]]

_MODES: Final = get_args(Mode)


class InvalidRequestError(Exception):
    """A request that the ingress refuses before it asks any replica; `reply` says so."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.body.decode())
        self.reply = reply


class Routes:
    """Answers one request to a proxy."""

    def __init__(self, app: SimulatedApp, *, unready: str | None, has_routes: bool) -> None:
        self._app = app
        self._has_routes = has_routes and app.stage is not Stage.NOT_DEPLOYED
        self._unready = unready if self._has_routes else answers.NO_ROUTES
        control: dict[tuple[str, str], _Handler] = {
            ("POST", "/pause"): self._pause,
            ("POST", "/resume"): self._resume,
            ("GET", "/is_paused"): self._is_paused,
            ("POST", "/collective_rpc"): self._collective_rpc,
        }
        self._routes: Final = (control if app.dev else {}) | {
            ("GET", "/v1/models"): self._models,
            ("POST", "/v1/completions"): self._complete,
            ("GET", "/openapi.json"): self._openapi,
        }

    async def answer(self, request: Request, connection: Connection) -> Reply | None:
        """None where all that there is to say was written."""
        routed = self._has_routes and self._app.stage is Stage.DEPLOYED
        if request.path in ("/-/routes", "/-/healthz"):
            return self._of_proxy(request.path, routed=routed)
        prefix = self._app.route.rstrip("/")
        if not routed or not f"{request.path}/".startswith(f"{prefix}/"):
            return answers.no_route(request.path)
        below = request.path.removeprefix(prefix)
        await self._app.until_ingress_runs()
        handler = self._routes.get((request.method, below))
        if handler is None:
            allowed = [method for method, path in self._routes if path == below]
            return answers.method_not_allowed(allowed[0]) if allowed else answers.NOT_FOUND
        try:
            return await handler(request, connection)
        except InvalidRequestError as error:
            return error.reply
        except UnknownModelError as error:
            return answers.unknown_model(str(error))
        except NoReplicaKnownError:
            return answers.failed("Timed out waiting for deployment router/replicas to initialize.")
        except ReplicaError as error:
            return answers.failed(str(error))

    def _of_proxy(self, path: str, *, routed: bool) -> Reply:
        if self._unready is not None:
            return Reply(503, self._unready.encode(), "text/plain; charset=utf-8")
        if path == "/-/healthz":
            return Reply(200, b"success", "text/plain; charset=utf-8")
        return Reply.json({self._app.route: self._app.name} if routed else {})

    # Pausing

    async def _pause(self, request: Request, _: Connection) -> Reply:
        model, options = _model_and_options(request)
        mode, clear_cache = self._mode_of(options), _boolean(options, "clear_cache", default=True)

        async def pause(replica: SimulatedReplica) -> None:
            await replica.pause(mode, clear_cache=clear_cache)

        await self._app.broadcast(model, pause)
        return Reply(200)

    def _mode_of(self, options: dict[str, Any]) -> Mode:
        """The mode that the options ask for in this version's words; other words are ignored."""
        if not self._app.behaviour.takes_mode:
            return "wait" if _boolean(options, "wait_for_inflight_requests", default=False) else "abort"
        mode = options.get("mode", "abort")
        if mode not in _MODES:
            raise ReplicaError(answers.bad_option("mode", f"Input should be 'abort', 'wait' or 'keep', not {mode!r}"))
        return cast("Mode", mode)

    async def _resume(self, request: Request, _: Connection) -> Reply:
        model, _options = _model_and_options(request)
        await self._app.broadcast(model, SimulatedReplica.resume)
        return Reply(200)

    async def _is_paused(self, request: Request, _: Connection) -> Reply:
        named = dict(parse_qsl(request.query, keep_blank_values=True))
        if "model" not in named:
            raise InvalidRequestError(answers.missing(("query", "model"), None))
        return Reply.json({"is_paused": any(await self._app.broadcast(named["model"], SimulatedReplica.is_paused))})

    async def _collective_rpc(self, request: Request, _: Connection) -> Reply:
        """Of the methods of a worker those alone that have no effect and an answer that can be sent."""
        body = _object(request)
        model, method = _string(body, "model"), _string(body, "method")
        if method not in ("check_health", "__hash__"):
            raise ReplicaError(answers.no_such_method(method))

        async def call(replica: SimulatedReplica) -> int | None:
            number = await replica.worker_hash()
            return number if method == "__hash__" else None

        results = await self._app.broadcast(model, call)
        numbered = [{"replica": number, "worker_results": [result]} for number, result in enumerate(results)]
        return Reply.json({"results": numbered})

    # Looking

    async def _models(self, _request: Request, _: Connection) -> Reply:
        return answers.models(self._app.models)

    async def _openapi(self, _request: Request, _: Connection) -> Reply:
        return answers.openapi(self._app.behaviour, dev=self._app.dev)

    # Generating

    async def _complete(self, request: Request, connection: Connection) -> Reply | None:
        asked = _object(request)
        model, tokens = str(asked.get("model")), int(asked.get("max_tokens", 16))
        replica = await self._app.choose(model)
        if connection.lost:
            return None
        generation = replica.scheduler.submit(tokens)
        connection.on_lost(lambda: replica.scheduler.drop(generation))
        if asked.get("stream") is True:
            await _stream(model, generation, connection)
            return None
        reason = await generation.finished
        return vllm_answers.completion(model=model, tokens=int(generation.made), reason=reason)


async def _stream(model: str, generation: Generation, connection: Connection) -> None:
    """Two events: one when it begins, one with all the rest when it ends."""
    await connection.write(vllm_answers.STREAM_HEAD)
    await generation.begun
    await connection.write(vllm_answers.streamed_completion(model=model, text="x", reason=None, tokens=None))
    reason = await generation.finished
    made = int(generation.made)
    last = vllm_answers.streamed_completion(model=model, text="x" * (made - 1), reason=reason, tokens=made)
    await connection.write(last + vllm_answers.STREAM_END)


def _object(request: Request) -> dict[str, Any]:
    """The JSON object in the body. Raises InvalidRequestError."""
    if not request.body:
        raise InvalidRequestError(answers.missing(("body",), None))
    try:
        value = json.loads(request.body)
    except json.JSONDecodeError as error:
        raise InvalidRequestError(answers.not_json(error.pos)) from None
    if not isinstance(value, dict):
        raise InvalidRequestError(answers.not_an_object(value))
    return value


def _string(body: dict[str, Any], name: str) -> str:
    """Raises InvalidRequestError."""
    if name not in body:
        raise InvalidRequestError(answers.missing(("body", name), body))
    value = body[name]
    if not isinstance(value, str):
        raise InvalidRequestError(answers.not_a_string(("body", name), value))
    return value


def _boolean(options: dict[str, Any], name: str, *, default: bool) -> bool:
    """Raises ReplicaError: it is none; this is found out by the replicas."""
    value = options.get(name, default)
    if isinstance(value, bool):
        return value
    raise ReplicaError(answers.bad_option(name, f"Input should be a valid boolean, not {value!r}"))


def _model_and_options(request: Request) -> tuple[str, dict[str, Any]]:
    """Raises InvalidRequestError."""
    body = _object(request)
    model, options = _string(body, "model"), body.get("options", {})
    if not isinstance(options, dict):
        raise InvalidRequestError(answers.not_a_dictionary(("body", "options"), options))
    return model, options
