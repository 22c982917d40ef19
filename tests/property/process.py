"""One process of the operator: the real one of `llmservice.runtime`, whose connections end in the simulated world."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from llmservice.api import VERIFY_ANNOTATION, LLMService
from llmservice.domain.fleet import NEVER
from llmservice.engines.transports import Transports, Trust
from llmservice.kube.client import JSON, ApiError, Kubernetes, UnavailableError
from llmservice.kube.events import EventRecorder
from llmservice.metrics import Metrics
from llmservice.runtime.actor import Actor
from llmservice.runtime.environment import Environment
from llmservice.runtime.operator import Operator

from . import judge
from .promises import Known

if TYPE_CHECKING:
    from .world import World


@dataclass(frozen=True)
class Shown:
    """A pod as the watch showed it to one actor."""

    item: JSON
    changed_at: float
    at: float
    """Since when it is this container, at this address, and runs."""

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.item["metadata"]["name"])

    @property
    def uid(self) -> str:
        """The pod's UID."""
        return str(self.item["metadata"]["uid"])

    @property
    def ready(self) -> bool:
        """What its readiness probe says."""
        return bool(self.container["ready"])

    @property
    def container(self) -> JSON:
        """The status of its container."""
        return self.item["status"]["containerStatuses"][0]

    @property
    def started(self) -> bool:
        """Whether its container runs."""
        return "running" in self.container["state"]

    @property
    def url(self) -> str:
        """Where its engine answers."""
        return f"http://{self.item['status']['podIP']}:8000"

    @property
    def place(self) -> tuple[str, str]:
        """Which engine, at which address."""
        return self.container["containerID"], self.url


@dataclass(eq=False)
class Life:
    """What one actor for one LLMService was told: by the API server, by the watch of pods, and by engines."""

    process: Process
    uid: str
    heard: list[tuple[float, LLMService]] = field(default_factory=list)
    generation_heard_at: dict[int, float] = field(default_factory=dict)
    verify_heard_at: dict[str | None, float] = field(default_factory=dict)
    shown: dict[str, Shown] = field(default_factory=dict)
    gone: list[float] = field(default_factory=list)
    """When pods went that were shown."""
    sees_all: bool = False
    """Its view of the pods is complete."""
    blind_since: float = -NEVER
    known: dict[tuple[str, str], Known] = field(default_factory=dict)
    """By container and URL."""
    deaths: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    """By pod UID: when the watch has shown that its calls killed a container, and under which generation."""
    gate_refused_at: dict[str, float] = field(default_factory=dict)
    """By pod UID: when the first of the refused writes in a row began."""
    object_read_at: float = -NEVER
    """When its last read or write of the object that was answered began; at first when the actor began."""
    retired_at: float = NEVER
    kept_apart: Actor | None = None

    def __post_init__(self) -> None:
        self.object_read_at = self.began_at = self.now

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.process.world.now

    @property
    def actor(self) -> Actor | None:
        """The real one, while it lives."""
        return self.process.operator._actors.get(self.uid)

    def hear(self, service: LLMService) -> None:
        """It is told the object."""
        version = int(service.metadata.resource_version)
        if self.heard and version < int(self.heard[-1][1].metadata.resource_version):
            return
        before = [each for each in self.heard if each[0] < self.now][-1:]
        self.heard = [*before, *(each for each in self.heard if each[0] == self.now), (self.now, service)]
        self.generation_heard_at.setdefault(service.metadata.object_generation, self.now)
        self.verify_heard_at.setdefault(service.metadata.annotations.get(VERIFY_ANNOTATION), self.now)

    def services(self) -> list[LLMService]:
        """The objects that a decision of this instant may rest on."""
        before = [service for at, service in self.heard if at < self.now][-1:]
        return before + [service for at, service in self.heard if at == self.now]

    def see(self, item: JSON | None, uid: str) -> None:
        """The watch shows it a pod."""
        before = self.shown.get(uid)
        if item is None:
            if self.shown.pop(uid, None) is not None:
                self.gone.append(self.now)
            self.deaths.pop(uid, None)
            return
        shown = Shown(item, self.now, self.now)
        if before is None or before.place != shown.place:
            self.known.pop(shown.place, None)  # an actor knows nothing of a target that is new to it
        elif before.item == item:
            return
        elif before.started == shown.started:
            shown = Shown(item, self.now, before.at)
        self.shown[uid] = shown

    def lose_sight(self) -> None:
        """Its view of the pods is no longer complete."""
        if self.sees_all:
            self.sees_all, self.blind_since = False, self.now

    def knows(self, container_id: str, url: str) -> Known:
        """What it knows of this engine."""
        return self.known.setdefault((container_id, url), Known())


LIFE: contextvars.ContextVar[Life] = contextvars.ContextVar("LIFE")
"""Whose task is running."""


class Connection(Kubernetes):
    """The API server of the world, as one process reaches it."""

    def __init__(self, process: Process) -> None:
        self._process = process

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
        """One request; it arrives, and is carried out, even if its sender dies meanwhile."""
        world, life, loop = self._process.world, LIFE.get(), asyncio.get_running_loop()
        answer: asyncio.Future[JSON] = loop.create_future()
        sent_at = world.now
        if path.endswith("/status") and method == "PUT":
            judge.status_is_true(world, life, body)

        def end(result: JSON | Exception | None) -> None:
            if answer.done() or result is None:
                return
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        def arrive() -> None:
            if self._process.is_cut_off:
                end(UnavailableError("no way to the API server"))
                return
            loop.call_later(world.way, end, world.serve(life, method, path, query or {}, body))

        loop.call_later(world.way, arrive)
        try:
            async with asyncio.timeout(timeout):
                result = await answer
        except TimeoutError as error:
            world.was_refused(life, method, path, body, sent_at)
            raise UnavailableError(f"{method} {path} was not answered within {timeout:g} s") from error
        except ApiError:
            world.was_refused(life, method, path, body, sent_at)
            raise
        world.was_answered(life, method, path, body, result, sent_at)
        return json.loads(json.dumps(result))

    async def watch(
        self, path: str, query: Mapping[str, str], *, server_seconds: int, deadline: float
    ) -> AsyncGenerator[tuple[str, JSON], None]:
        """Events of pods since a version, until the server ends the watch or the world cuts it."""
        world, life, loop = self._process.world, LIFE.get(), asyncio.get_running_loop()
        until = loop.time() + server_seconds
        queue: asyncio.Queue[tuple[str, JSON] | Exception] = asyncio.Queue()
        world.open_watch(queue, query)
        try:
            while True:
                try:
                    async with asyncio.timeout_at(until):
                        event = await queue.get()
                except TimeoutError:
                    return
                if isinstance(event, Exception):
                    life.lose_sight()
                    raise event
                kind, item = event
                uid = item["metadata"]["uid"]
                judge.notice_death(world, life, uid, item)
                life.see(None if kind == "DELETED" else item, uid)
                yield kind, item
        finally:
            world.watches.pop(queue, None)


class Wire(httpx.AsyncBaseTransport):
    """The way from one process to all engines."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """One exchange. Raises what the real transport raises."""
        status, body = await self._process.world.exchange(LIFE.get(), request)
        return httpx.Response(status, content=body.encode())


class Wires(Transports):
    """Plain HTTP only."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._wire = Wire(process)

    def get(self, trust: Trust) -> httpx.AsyncBaseTransport:
        """The one transport there is."""
        return self._wire


@dataclass(eq=False)
class Process:
    """One life of the operator, with an actor for each LLMService. ``lag``: how late it hears of objects, in seconds."""

    world: World
    name: str
    lag: float = 0.0
    is_alive: bool = True

    def __post_init__(self) -> None:
        world = self.world
        self.lives: dict[str, Life] = {}
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.elder_heard_at, self.elder_gone_at = NEVER, -NEVER
        self.cannot_reach: set[str] = set()
        """Addresses of engines that answer everybody but this process."""
        self.is_cut_off = False
        """The API server answers everybody but this process; its watches go on."""
        connection = Connection(self)
        self._events = EventRecorder(connection, self.name)
        self.operator = Operator(
            Environment(
                kubernetes=connection,
                events=self._events,
                transports=Wires(self),
                metrics=Metrics(),
                clock=world.loop.time,
                wall=lambda: world.wall,
            ),
            None,
        )
        self._record, self.operator.record = self.operator.record, self._list  # type: ignore[method-assign]
        world.loop.call_soon(self._start)

    def life(self, uid: str) -> Life:
        """Of the actor for the object with this UID."""
        return self.lives.setdefault(uid, Life(self, uid))

    def record(self, raw: JSON) -> None:
        """The watch of LLMServices tells of one."""
        if not self.is_alive:
            return
        uid = raw["metadata"]["uid"]
        if self.life(uid).retired_at == NEVER:  # otherwise it is a late word of an object that is gone
            self._list(raw)

    def _list(self, raw: JSON) -> None:
        """An object as the watch, or a list of all, gives it to the operator."""
        uid = raw["metadata"]["uid"]
        life = self.life(uid)
        life.hear(LLMService.model_validate(raw))
        if uid.startswith("uid-elder") and self.elder_heard_at == NEVER:
            self.elder_heard_at = self.world.now
        self._as(life, self._record, json.loads(json.dumps(raw)))
        self._keep_apart(life)

    def _keep_apart(self, life: Life) -> None:
        """What another object, or a list of all, makes this actor do is still done by this actor."""
        actor = life.actor
        if actor is None or actor is life.kept_apart:
            return
        life.kept_apart, know_services = actor, actor.know_services
        actor.know_services = lambda older: self._as(life, know_services, older)  # type: ignore[method-assign]

    def forget(self, uid: str) -> None:
        """The watch of LLMServices tells that one is gone."""
        if not self.is_alive:
            return
        life = self.life(uid)
        life.retired_at = min(life.retired_at, self.world.now)
        if uid.startswith("uid-elder"):
            self.elder_heard_at, self.elder_gone_at = NEVER, self.world.now
        self._as(life, self.operator.forget, uid)

    def die(self) -> None:
        """At this instant: nothing that it does from now on reaches anybody; what it has sent is on its way."""
        self.is_alive = False
        for task in tuple(self.tasks):
            task.cancel()

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """It began a task."""
        self.tasks[task] = None
        task.add_done_callback(lambda ended: self.tasks.pop(ended, None))
        if not self.is_alive:
            task.cancel()

    def _start(self) -> None:
        for each in self.world.objects:
            self.record(each.raw())
        self._as(self.life(""), self._spawn, self.operator.run())
        self._as(self.life(""), self._spawn, self._events.run())

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        if self.is_alive:
            self.world.loop.create_task(coroutine)
        else:
            coroutine.close()

    def _as(self, life: Life, what: Callable[[Any], object], argument: object) -> None:
        context = contextvars.copy_context()
        context.run(LIFE.set, life)
        context.run(what, argument)
