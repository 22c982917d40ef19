"""The routes of an engine: from a request to what the engine does and says."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final
from urllib.parse import parse_qsl

from llmservice_testing.simulator import answers
from llmservice_testing.simulator.group import PauseInFlightError
from llmservice_testing.simulator.life import MEMORY, EngineLife
from llmservice_testing.simulator.parameters import BadParameterError, Parameters
from llmservice_testing.simulator.scheduler import Generation, Mode, PauseState
from llmservice_testing.simulator.versions import PauseKept
from llmservice_testing.simulator.wire import Connection, Reply, Request

Answer = Reply | Coroutine[Any, Any, Reply | None]


class Routes:
    """Answers the requests to one engine."""

    def __init__(self, state: EngineLife) -> None:
        self._state = state
        self._behaviour = state.behaviour
        dev = state.options.dev_mode
        routes: dict[str, tuple[str, Callable[[Request, Connection], Answer]]] = {
            "/health": ("GET", self._health),
            "/version": ("GET", self._version),
            "/metrics": ("GET", self._metrics),
            "/v1/completions": ("POST", self._complete),
        }
        if self._behaviour.has_pause and (dev or not self._behaviour.pause_needs_dev_mode):
            routes |= {
                "/pause": ("POST", self._pause),
                "/resume": ("POST", self._resume),
                "/is_paused": ("GET", self._is_paused),
            }
        if dev:
            routes |= {
                "/server_info": ("GET", self._server_info),
                "/sleep": ("POST", self._sleep),
                "/wake_up": ("POST", self._wake_up),
                "/is_sleeping": ("GET", self._is_sleeping),
            }
        self._routes: Final = routes

    def answer(self, request: Request, path: str, connection: Connection) -> Answer:
        """What the engine answers to a request whose path, without the root path, is `path`."""
        if path.startswith("/v1") and not self._is_authorized(request):
            return answers.UNAUTHORIZED
        route = self._routes.get(path)
        if route is None:
            return answers.not_found(self._behaviour)
        method, handler = route
        if request.method != method:
            return answers.method_not_allowed(self._behaviour, method)
        try:
            return handler(request, connection)
        except BadParameterError as error:
            return error.reply

    def _is_authorized(self, request: Request) -> bool:
        key = self._state.options.api_key
        return key is None or request.headers.get("authorization") == f"Bearer {key}"

    def success(self, path: str) -> Reply:
        """What is said where a call succeeds, for an engine that lies."""
        return {"/pause": answers.PAUSED, "/resume": answers.RESUMED}.get(path, answers.EMPTY)

    # Parameters

    def _parameters(self, request: Request, *, once: tuple[str, ...] = (), rust_names: str | None = None) -> Parameters:
        """The query. Of a repeated name Python takes the last, and Rust refuses those it knows (`once`)."""
        pairs = parse_qsl(request.query, keep_blank_values=True)
        parameters = Parameters(self._behaviour, dict(pairs), rust_names)
        if self._behaviour.frontend == "rust":
            for name in once:
                if sum(1 for given, _ in pairs if given == name) > 1:
                    raise parameters.unreadable(name, "", f"duplicate field `{name}`")
        return parameters

    # Pausing

    def _pause(self, request: Request, _: Connection) -> Answer:
        parameters = self._parameters(request, once=("mode", "clear_cache"), rust_names="mode")
        mode: Mode = parameters.mode() if self._behaviour.takes_mode else "abort"
        clear_cache = parameters.boolean("clear_cache", default=True)
        if self._behaviour.takes_wait_for_inflight and parameters.boolean("wait_for_inflight_requests", default=False):
            mode = "wait"
        if self._state.lost_memory:
            return self._crash()
        self._state.forced_ranks = None
        return self._after(self._state.control.pause(mode, clear_cache=clear_cache), answers.PAUSED)

    def _resume(self, _request: Request, _: Connection) -> Answer:
        self._state.forced_ranks = None
        try:
            pending = self._state.control.resume()
        except PauseInFlightError as error:
            text = f"Call to resume_scheduler method failed: {error}"
            return answers.engine_failed(
                self._behaviour, f"Failed to resume generation: {text}", f"failed to call resume: {text}"
            )
        if self._state.lost_memory and (self._state.scheduler.running or self._state.scheduler.waiting):
            return self._crash()
        return self._after(pending, answers.RESUMED)

    def _is_paused(self, _request: Request, _: Connection) -> Answer:
        ranks = self._state.forced_ranks
        if ranks is not None and self._behaviour.kept is PauseKept.ENGINE:
            if self._behaviour.compares_ranks and len(set(ranks)) > 1:
                return answers.ranks_differ(self._behaviour, ranks)
            return answers.IS_PAUSED[ranks[0]]
        paused = self._state.control.is_paused()
        return answers.IS_PAUSED[paused] if isinstance(paused, bool) else self._read(paused)

    @staticmethod
    async def _read(paused: Awaitable[bool]) -> Reply:
        return answers.IS_PAUSED[await paused]

    @staticmethod
    def _after(pending: Awaitable[None] | None, reply: Reply) -> Answer:
        """The reply, once the engine is done."""
        if pending is None:
            return reply

        async def wait() -> Reply:
            await pending
            return reply

        return wait()

    def _crash(self) -> Answer:
        """The engine dies of a call, which is then not answered."""

        async def crash() -> None:
            self._state.crash()

        return crash()

    # Sleeping

    def _sleep(self, request: Request, _: Connection) -> Answer:
        parameters = self._parameters(request, once=("level", "mode"))
        try:
            level, mode = parameters.integer("level", default=1), parameters.mode()
        except BadParameterError:
            if self._behaviour.sleep_answers_json:
                raise
            return answers.INTERNAL_SERVER_ERROR
        if level not in (0, 1, 2):
            if self._behaviour.sleep_answers_json:
                return answers.level_out_of_range(self._behaviour, level)
            return answers.INTERNAL_SERVER_ERROR
        if self._state.lost_memory:
            return self._crash()
        drained = self._state.scheduler.pause(mode, clear_cache=level > 0)
        if drained is None:
            self._fall_asleep(level)
        else:
            drained.add_done_callback(lambda done: None if done.cancelled() else self._fall_asleep(level))
        asleep = Reply.json({"status": "sleeping", "level": level})
        return self._after(drained, asleep if self._behaviour.sleep_answers_json else answers.EMPTY)

    def _fall_asleep(self, level: int) -> None:
        self._state.sleep_level = level
        if level > 0:
            self._state.asleep = MEMORY

    def _wake_up(self, request: Request, _: Connection) -> Answer:
        tags = [value for name, value in parse_qsl(request.query) if name == "tags"]
        self._state.asleep = self._state.asleep.difference(tags) if tags else frozenset()
        awake = not self._state.is_asleep
        if awake:
            self._state.sleep_level = None
        if awake or not self._behaviour.partial_wake_keeps_paused:
            self._state.scheduler.resume()
        if not self._behaviour.sleep_answers_json:
            return answers.EMPTY
        return Reply.json({"status": "awake" if awake else "sleeping", "tags": tags or None})

    def _is_sleeping(self, _request: Request, _: Connection) -> Answer:
        paused = self._behaviour.sleeping_when_paused and self._state.scheduler.is_paused
        return answers.IS_SLEEPING[self._state.is_asleep or paused]

    # Looking

    def _health(self, _request: Request, _: Connection) -> Answer:
        return answers.EMPTY

    def _version(self, _request: Request, _: Connection) -> Answer:
        return answers.version(self._behaviour)

    def _server_info(self, request: Request, _: Connection) -> Answer:
        options = self._state.options
        return answers.server_info(
            self._behaviour,
            as_json=self._parameters(request).named.get("config_format") == "json",
            model=options.model,
            sleep_mode=options.sleep_mode,
            data_parallel_size=options.data_parallel_size,
        )

    def _metrics(self, _request: Request, _: Connection) -> Answer:
        scheduler = self._state.scheduler
        return answers.metrics(
            self._behaviour,
            model=self._state.options.model,
            sleep_level=self._state.sleep_level,
            running=scheduler.running,
            waiting=scheduler.waiting,
        )

    # Generating

    def _complete(self, request: Request, connection: Connection) -> Answer:
        try:
            asked = json.loads(request.body)
        except ValueError:
            return Reply.json({"error": {"message": "Invalid JSON", "type": "Bad Request", "code": 400}}, 400)
        model, tokens = asked.get("model"), int(asked.get("max_tokens", 16))
        if model != self._state.options.model:
            return answers.unknown_model(self._behaviour, str(model), self._state.options.model)
        state = self._state.scheduler.state
        if self._behaviour.rejects_while_paused and state is PauseState.NOTHING_NEW:
            return answers.paused_for_requests(self._behaviour)
        if self._state.lost_memory and not self._state.scheduler.is_paused:
            return self._crash()
        return self._generate(tokens, connection, streamed=asked.get("stream") is True)

    async def _generate(self, tokens: int, connection: Connection, *, streamed: bool) -> Reply | None:
        if (admission := self._state.control.admission()) is not None:
            await admission
        if connection.lost:
            return None
        generation = self._state.scheduler.submit(tokens)
        connection.on_lost(lambda: self._state.scheduler.drop(generation))
        if streamed:
            await self._stream(generation, connection)
            return None
        reason = await generation.finished
        return answers.completion(model=self._state.options.model, tokens=int(generation.made), reason=reason)

    async def _stream(self, generation: Generation, connection: Connection) -> None:
        """Two events: one when it begins, one with all the rest when it ends."""
        model = self._state.options.model
        await connection.write(answers.STREAM_HEAD)
        await generation.begun
        await connection.write(answers.streamed_completion(model=model, text="x", reason=None, tokens=None))
        reason = await generation.finished
        made = int(generation.made)
        last = answers.streamed_completion(model=model, text="x" * (made - 1), reason=reason, tokens=made)
        await connection.write(last + answers.STREAM_END)
