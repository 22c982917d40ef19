"""A small world for the real operator: engines with faults, pods with gates, and an API server with its LLMServices.

Time stands still unless :meth:`World.advance` moves it, on the loop of :mod:`.virtual_time`. One or two processes of the
operator (:mod:`.process`) act on this world. Each promise that can be checked at one instant is checked where it could be
broken (:mod:`.judge`): when a call is sent, when a status is sent, and when a write is stored.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from types import TracebackType
from typing import Any, Self

import aiohttp
import httpx
from aiohttp.client_reqrep import ConnectionKey

from llmservice.api import (
    API_VERSION,
    FINALIZER,
    KIND,
    READINESS_GATE,
    VERIFY_ANNOTATION,
    LLMService,
    LLMServiceStatus,
)
from llmservice.domain import clocks
from llmservice.domain.fleet import NEVER, ControlCall, Gate
from llmservice.kube.client import JSON, ApiError, UnavailableError
from llmservice_testing.builders import make_llmservice
from llmservice_testing.domain import EPOCH

from . import judge
from .engines import Behaviour, Engine, Pod
from .process import LIFE, Life, Process
from .promises import BrokenPromiseError, broken, promise
from .virtual_time import VirtualLoop

REQUEST_TIMEOUT, PAUSE_TIMEOUT = 5.0, 30.0
WATCH_SECONDS = 0.05
"""How long the watch takes to show a gate that was written."""
HEAR_SECONDS = 0.01
"""How long the watch takes to show an object that changed."""
STORM, STORM_SECONDS = 100, 5.0
"""So many writes within so short a time are a fight between operators."""
STARTS_AT = 1000.0
_EPOCH_SECONDS = clocks.to_seconds(EPOCH)
_OBJECTS = f"/apis/{API_VERSION}"
_PODS = "/api/v1/namespaces/default/pods"


class Api(Enum):
    """What the API server does with everything but lists and watches of pods."""

    SOUND = "stores and answers"
    FAILS = "answers 500"
    THROTTLES = "answers 429"
    HANGS = "never answers"
    LOSES_ANSWERS = "stores, and the answer is lost"
    TALKS_NONSENSE = "answers 200 and something that is no object, as a proxy in between may"


@dataclass(frozen=True)
class Spec:
    """What can be changed of the object's spec."""

    desired: str | None = None
    mode: str = "abort"
    max_paused: int | None = None
    on_max_paused: str = "warn"
    deletion_policy: str = "leave"
    drain_delay: int = 0
    resync: int = 10
    deadline: int = 600

    def json(self, selector: Mapping[str, str]) -> JSON:
        """As it stands in the object."""
        builder = make_llmservice("qwen").selector(dict(selector)).deletion_policy(self.deletion_policy)
        builder.pause(mode=self.mode, timeoutSeconds=int(PAUSE_TIMEOUT), drainDelaySeconds=self.drain_delay)
        builder.spec(requestTimeoutSeconds=int(REQUEST_TIMEOUT), resyncSeconds=self.resync)
        builder.spec(progressDeadlineSeconds=self.deadline, onMaxPaused=self.on_max_paused)
        if self.max_paused is not None:
            builder.spec(maxPausedSeconds=self.max_paused)
        if self.desired is not None:
            builder.generation(self.desired)
        return builder.obj()["spec"]


@dataclass(eq=False)
class Object:
    """One LLMService as the API server has it."""

    name: str
    uid: str
    created: str
    spec: JSON
    version: int
    object_generation: int = 1
    status: JSON = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    deleted: str | None = None
    annotations: dict[str, str] = field(default_factory=dict)

    def raw(self) -> JSON:
        """As the API server gives it."""
        metadata: JSON = {
            "name": self.name,
            "namespace": "default",
            "uid": self.uid,
            "resourceVersion": str(self.version),
            "creationTimestamp": self.created,
            "generation": self.object_generation,
            "annotations": dict(self.annotations),
        }
        if self.finalizers:
            metadata["finalizers"] = list(self.finalizers)
        if self.deleted is not None:
            metadata["deletionTimestamp"] = self.deleted
        raw = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": self.spec}
        return raw | ({"status": self.status} if self.status else {})

    @property
    def service(self) -> LLMService:
        """The same, read."""
        return LLMService.model_validate(self.raw())


class World:
    """Everything outside the operators, and the operators. To be closed, or used in a with statement."""

    def __init__(self) -> None:
        broken.clear()
        self.loop = VirtualLoop(STARTS_AT, self._is_idle)
        self.loop.set_task_factory(_begin)
        self.way = 0.02
        """Seconds that a request takes to the API server, and its answer back."""
        self.pods: dict[str, Pod] = {}
        """By name."""
        self.engines: dict[str, Engine] = {}
        """By container."""
        self.spec = Spec()
        self.version = 1
        self.made = 0
        self.objects: list[Object] = []
        self.main = self._create("qwen", self.spec.json({"app": "qwen"}))
        self.elder: Object | None = None
        """An older LLMService that only observes, and owns the pod ``a``."""
        self.verify_asked = 0
        self.api = Api.SOUND
        self.gates_are_refused = False
        self.view_is_complete = True
        self.view_broke_at = -NEVER
        self.stood_still_until = -NEVER
        """Until then no process ran for longer than one need not notice."""
        self.posts = self.writes = self.gate_writes = self.events = 0
        self.history: list[tuple[float, LLMServiceStatus]] = []
        """Every status of ours that was stored, and when."""
        self.watches: dict[asyncio.Queue[tuple[str, JSON] | Exception], Mapping[str, str]] = {}
        self._log: list[tuple[int, str, JSON]] = []
        self._oldest = 0
        self._idles = 0
        self._suspended_for = 0.0
        self._stored_at: list[float] = []
        self._defects = Defects()
        self._logger = logging.getLogger("llmservice")
        self._level = self._logger.level
        self._logger.setLevel(logging.ERROR)
        self._logger.addHandler(self._defects)
        self._logger.propagate = False
        self.processes = [Process(self, "operator-1")]
        self._started = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all tasks."""
        self._logger.removeHandler(self._defects)
        self._logger.setLevel(self._level)
        self._logger.propagate = True
        try:
            for process in self.processes:
                process.die()
            self.loop.call_soon(self.loop.stop)
            for _ in range(100):
                if not asyncio.all_tasks(self.loop):
                    break
                self.loop.call_soon(self.loop.stop)
                self.loop.run_forever()
        finally:
            self.loop.close()

    # Time

    @property
    def now(self) -> float:
        """Virtual seconds, of the clock that only runs."""
        return self.loop.time()

    @property
    def wall(self) -> float:
        """Seconds since the epoch."""
        return _EPOCH_SECONDS + self.now - STARTS_AT + self._suspended_for

    @property
    def timestamp(self) -> str:
        """The present time as the API writes it."""
        return datetime.fromtimestamp(self.wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def advance(self, seconds: float) -> None:
        """Let time pass. Raises BrokenPromiseError."""
        self.loop.advance(seconds)
        self._raise_what_is_broken()

    def stand_still(self, seconds: float, *, is_suspended: bool = False) -> None:
        """No process runs, and time passes: they were frozen, or their machine was suspended, which only the wall tells."""
        if is_suspended:
            self._suspended_for += seconds
        else:
            self.loop.jump(seconds)
        self.stood_still_until = self.now

    def _raise_what_is_broken(self) -> None:
        if broken:
            raise broken[0]
        if self._defects.found:
            promise(False, "defect", self._defects.found[0])

    def _is_idle(self) -> None:
        if broken or self._defects.found:
            self._raise_what_is_broken()
        self._idles += 1
        if self._idles % 20:
            return  # to count anew costs more than all the rest; most times are mere heartbeats
        for process in self.processes:
            for life in process.lives.values():
                judge.tally_is_right(self, life)

    # Objects

    def _create(self, name: str, spec: JSON, created: str = EPOCH) -> Object:
        self.version += 1
        self.made += 1
        made = Object(name, f"uid-{name}-{self.made}", created, spec, self.version)
        self.objects.append(made)
        return made

    @property
    def stored(self) -> LLMServiceStatus:
        """What the object's status says."""
        return LLMServiceStatus.model_validate(self.main.status)

    def respec(self, spec: Spec) -> None:
        """The spec changes; where it does not, nothing happens."""
        if spec != self.spec:
            self.spec = spec
            self.main.spec = spec.json({"app": "qwen"})
            self.main.object_generation += 1
            self.changed(self.main)

    def ask_to_verify(self) -> None:
        """Somebody sets the annotation."""
        self.verify_asked += 1
        self.main.annotations[VERIFY_ANNOTATION] = str(self.verify_asked)
        self.changed(self.main)

    def delete(self) -> None:
        """The object is deleted: it goes at once, or when its finalizers are gone."""
        if self.main.deleted is None and self.main.finalizers:
            self.main.deleted = self.timestamp
            self.main.object_generation += 1
            self.changed(self.main)
        elif not self.main.finalizers:
            self._gone()

    def _gone(self) -> None:
        """The object is gone, and another of the same name is made at once."""
        gone, annotations = self.main, self.main.annotations
        self.objects.remove(gone)
        self.main = self._create("qwen", gone.spec)
        self.main.annotations = annotations
        for pod in self.pods.values():
            pod.engine.is_in_the_object = False
        self._forgotten(gone)
        self.changed(self.main)

    def elder_comes(self) -> None:
        """An older LLMService selects a pod of ours, too."""
        if self.elder is None:
            self.elder = self._create("elder", Spec().json({"shard": "a"}), "2026-01-01T00:00:00Z")
            self.changed(self.elder)

    def elder_goes(self) -> None:
        """It is deleted."""
        if self.elder is not None:
            self.objects.remove(self.elder)
            self._forgotten(self.elder)
            self.elder = None

    def _forgotten(self, gone: Object) -> None:
        for process in self.processes:
            self.loop.call_later(process.lag + HEAR_SECONDS, process.forget, gone.uid)

    def changed(self, what: Object) -> None:
        """The watch tells every process."""
        self.version += 1
        what.version = self.version
        raw = what.raw()
        for process in self.processes:
            self.loop.call_later(process.lag + HEAR_SECONDS, process.record, raw)

    # Processes

    def crash(self, place: int = 0) -> None:
        """One process dies at this instant, and another one starts."""
        self._dies(self.processes[place])
        self.processes[place] = self._starts(self.processes[place].lag)

    def join(self, lag: float = 0.0) -> None:
        """A second process starts, as in a rolling update. Documented: before 0.17 the second of two waits is answered at
        once, so that two operators deceive each other; the world spares such engines that."""
        if len(self.processes) == 1 and all(pod.engine.build.confirms_wait for pod in self.pods.values()):
            self.processes.append(self._starts(lag))

    def leave(self, place: int) -> None:
        """One of two processes dies, and none replaces it."""
        if len(self.processes) == 2:
            self._dies(self.processes.pop(place))
            self.catch_up()

    def catch_up(self) -> None:
        """From now on nobody lags."""
        for process in self.processes:
            process.lag = 0.0
            for each in self.objects:
                self.loop.call_soon(process.record, each.raw())

    def _starts(self, lag: float) -> Process:
        self._started += 1
        return Process(self, f"operator-{self._started}", lag)

    def _dies(self, process: Process) -> None:
        process.die()
        for engine in self.engines.values():
            for life in process.lives.values():
                engine.open_calls.pop(life, None)
                engine.asked_by.discard(life)

    # Pods

    def add(self, pod: Pod) -> None:
        """A pod appears."""
        self.pods[pod.name] = pod
        self.engines[pod.engine.container_id] = pod.engine
        pod.engine.touched_at = self.now
        self.show(pod, "ADDED")

    def remove(self, name: str) -> None:
        """A pod goes, and its engine with it."""
        pod = self.pods.pop(name)
        self._cut(pod.engine)
        self.version += 1
        pod.version = self.version
        item = pod.item()
        item["metadata"]["deletionTimestamp"] = self.timestamp
        self._emit("DELETED", item)

    def show(self, pod: Pod, kind: str = "MODIFIED") -> None:
        """A pod changed; the watch shows it to everybody."""
        self.version += 1
        pod.version = self.version
        self._emit(kind, pod.item())

    def _emit(self, kind: str, item: JSON) -> None:
        self._log.append((self.version, kind, item))
        for queue, query in self.watches.items():
            if _selects(query, item):
                queue.put_nowait((kind, item))

    def open_watch(self, queue: "asyncio.Queue[tuple[str, JSON] | Exception]", query: Mapping[str, str]) -> None:
        """Somebody watches the pods since a version."""
        since = int(query["resourceVersion"])
        if not self.view_is_complete:
            queue.put_nowait(ApiError(500, "no watch at present"))
        elif since < self._oldest:
            queue.put_nowait(ApiError(410, "too old resource version"))
        else:
            for version, kind, item in self._log:
                if version > since and _selects(query, item):
                    queue.put_nowait((kind, item))
        self.watches[queue] = query

    def cut_watches(self, *, compact: bool = False) -> None:
        """All watches break; with ``compact`` what they missed cannot be had again."""
        if compact:
            self.version += 1
            self._oldest = self.version
        for queue in self.watches:
            queue.put_nowait(
                ApiError(410, "too old resource version") if compact else UnavailableError("the watch broke")
            )

    def restart(self, pod: Pod) -> None:
        """The container ends, and another one runs a second later."""
        old = pod.engine
        self._cut(old)
        number = int(old.container_id.rpartition("/")[2]) + 1
        pod.former_container_id = old.container_id if pod.started else pod.former_container_id
        pod.engine = Engine(f"containerd://{pod.uid}/{number}", old.build, behaviour=old.behaviour, latency=old.latency)
        self.engines[pod.engine.container_id] = pod.engine
        pod.engine.drain_seconds, pod.engine.touched_at = old.drain_seconds, self.now
        pod.started = pod.ready = pod.listens = False
        engine = pod.engine

        def up() -> None:
            if self.pods.get(pod.name) is pod and pod.engine is engine:
                pod.started = pod.ready = pod.listens = True
                engine.touched_at = self.now
                self.show(pod)

        self.show(pod)
        self.loop.call_later(1.0, up)

    def _cut(self, engine: Engine) -> None:
        for connection in engine.connections:
            if not connection.done():
                connection.set_exception(aiohttp.ServerDisconnectedError())

    def swap_addresses(self, one: str, other: str) -> None:
        """Two pods change their addresses, as after a restart of both sandboxes."""
        first, second = self.pods[one], self.pods[other]
        first.address, second.address = second.address, first.address
        first.engine.touched_at = second.engine.touched_at = self.now
        self.show(first)
        self.show(second)

    def mend(self) -> None:
        """Everything that was wrong is right from now on; old versions stay old and who sleeps goes on sleeping."""
        self.api, self.gates_are_refused, self.view_is_complete = Api.SOUND, False, True
        self.catch_up()
        for pod in self.pods.values():
            self.engines[pod.engine.container_id].touched_at = self.now
            pod.started = pod.ready = pod.listens = True
            pod.engine.behaviour, pod.engine.latency, pod.engine.disagrees = Behaviour.SOUND, 0.01, False
            self.show(pod)

    # What an operator asks of engines

    async def exchange(self, life: Life, request: httpx.Request) -> tuple[int, str]:
        """One request to an engine and its answer."""
        path, host = request.url.path, request.url.host
        url = f"http://{host}:{request.url.port}"
        if host in life.process.cannot_reach:
            await self.loop.create_future()
        pod = next((each for each in self.pods.values() if each.address == host), None)
        if pod is None or not pod.listens or not pod.started:
            if request.method == "GET":
                for place in {shown.place for shown in life.shown.values() if shown.url == url}:
                    judge.read_begins(self, life.knows(*place), "/is_paused")
                    judge.read_failed(self, life.knows(*place), "refused", "/is_paused")
            key = ConnectionKey(host, 8000, False, True, None, None, None)
            raise httpx.ConnectError("refused") from aiohttp.ClientConnectorError(key, ConnectionRefusedError(111))
        engine, known = pod.engine, life.knows(pod.engine.container_id, url)
        if request.method == "GET":
            judge.read_begins(self, known, path)
            answer = self._answer(engine)
            if engine.behaviour not in (Behaviour.HANGS, Behaviour.LOSES_ANSWERS):
                self.loop.call_later(engine.latency, lambda: _settle(answer, engine.tell(path)))
            try:
                status, body = await answer
            except (asyncio.CancelledError, aiohttp.ClientError) as error:
                judge.read_failed(self, known, repr(error), path)
                raise
            judge.read_answered(self, known, path, status, body)
            return status, body
        call = engine.build.understands(path, dict(request.url.params))
        return await self._call(life, pod, url, call)

    def _answer(self, engine: Engine) -> "asyncio.Future[tuple[int, str]]":
        answer: asyncio.Future[tuple[int, str]] = self.loop.create_future()
        engine.connections[answer] = None
        answer.add_done_callback(lambda ended: engine.connections.pop(ended, None))
        return answer

    async def _call(self, life: Life, pod: Pod, url: str, call: ControlCall) -> tuple[int, str]:
        engine, known, sent_at = pod.engine, life.knows(pod.engine.container_id, url), self.now
        self.posts += 1
        was_meant = judge.is_meant(life, engine, url)
        judge.call_is_right(self, life, pod, url, call)
        generation = life.services()[-1].metadata.object_generation
        known.last_call, known.called_at, known.was_effective = (call, generation), sent_at, False
        known.is_undrained |= call.is_wait
        known.learn(self.now, replace(known.fact, is_called_since=True))
        engine.open_calls[life] = call
        answer = self._answer(engine)
        was_draining = engine.is_paused and engine.generates(self.now)
        ends, status = self._effect(life, pod, engine, call)
        if call.is_wait and engine.generates(self.now):
            pause = self.stored.last_pause
            if engine.build.confirms_wait or not was_draining:  # otherwise it is answered at once, drained or not
                engine.asked_by.add(life)
            is_in_the_object = pause is not None and not pause.answered
            engine.is_in_the_object = is_in_the_object and (engine.is_in_the_object or not was_draining)
        elif not engine.generates(self.now) or not engine.is_paused:
            engine.asked_by.clear()
        if ends < NEVER:
            self.loop.call_at(ends + engine.latency, _settle, answer, (status, ""))
        try:
            result = await answer
        except asyncio.CancelledError:
            if engine.open_calls.get(life) is call:
                timeout = REQUEST_TIMEOUT if call.pause is None else PAUSE_TIMEOUT
                judge.call_is_given_up(self, life, pod, url, engine, call, sent_at, timeout, was_meant)
            raise
        finally:
            if engine.open_calls.get(life) is call:
                del engine.open_calls[life]
        if result[0] == 200 and call.pause is not None:
            known.is_undrained = False
        return result

    def _effect(self, life: Life, pod: Pod, engine: Engine, call: ControlCall) -> tuple[float, int]:
        """What a control call does; when it is done, and what is answered then."""
        match engine.behaviour:
            case Behaviour.HANGS:
                return NEVER, 0
            case Behaviour.LOSES_ANSWERS:
                engine.obey(call, self.now)
                return NEVER, 0
            case Behaviour.FAILS_CALLS:
                return self.now, 500
            case Behaviour.REFUSES_CALLS:
                return self.now, 400
            case Behaviour.HAS_NO_ROUTES:
                return self.now, 404
            case Behaviour.LIES:
                return self.now, 200
            case Behaviour.DIES:
                engine.killed_by = (life, life.services()[-1].metadata.object_generation)
                self.loop.call_soon(lambda: self.restart(pod) if pod.engine is engine else None)
                return NEVER, 0
        return engine.obey(call, self.now), 200

    # What an operator asks of the API server

    def serve(
        self, life: Life, method: str, path: str, query: Mapping[str, str], body: JSON
    ) -> JSON | Exception | None:
        """Carry out one request; the answer to it, an error, or None where there is none."""
        if path.startswith(_PODS):
            return self._serve_pods(life, method, path, query, body)
        match self.api:
            case Api.FAILS:
                return ApiError(500, "boom")
            case Api.THROTTLES:
                return ApiError(429, "too many requests")
            case Api.HANGS:
                return None
            case Api.TALKS_NONSENSE:
                return {}
        try:
            result = self._serve(life, method, path, body)
        except (ApiError, BrokenPromiseError) as error:
            return error
        return UnavailableError("the answer is lost") if self.api is Api.LOSES_ANSWERS else result

    def _serve(self, life: Life, method: str, path: str, body: JSON) -> JSON:
        if path == "/api/v1/namespaces/default/events":
            promise(method == "POST", "R15", f"{method} {path}")
            self.events += 1
            return body
        if path == "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers":
            return {"items": [], "metadata": {"resourceVersion": str(self.version)}}
        if path == "/api/v1/namespaces/default":
            return {"metadata": {"name": "default"}}
        if path == f"{_OBJECTS}/llmservices":
            return {"items": [each.raw() for each in self.objects], "metadata": {"resourceVersion": str(self.version)}}
        name, _, sub = path.removeprefix(f"{_OBJECTS}/namespaces/default/llmservices/").partition("/")
        found = next((each for each in self.objects if each.name == name), None)
        if found is None:
            raise ApiError(404, f"no llmservice {name}")
        if method == "GET":
            return found.raw()
        metadata = body["metadata"]
        if metadata["uid"] != found.uid or metadata["resourceVersion"] != str(found.version):
            raise ApiError(409, "the object has been modified")
        self.writes += 1
        self._stored_at.append(self.now)
        is_storm = len(self._stored_at) > STORM and self.now - self._stored_at[-STORM] < STORM_SECONDS
        promise(not is_storm, "R14", "operators write back and forth")
        if (method, sub) == ("PUT", "status"):
            named = {"name", "namespace", "uid", "resourceVersion"}
            as_they_are = {
                "labels": {},
                "annotations": found.annotations,
                "finalizers": list(found.finalizers),
                "ownerReferences": [],
            }
            others = {key: value for key, value in metadata.items() if key not in named}
            promise(others == as_they_are, "R15", f"a status is sent with {others}, and {as_they_are} stands")
            promise("spec" not in body, "R15", "a status is sent with a spec")
            self._store_status(life, found, body["status"])
        else:
            promise((method, sub) == ("PATCH", ""), "R15", f"{method} {path}")
            named = {"finalizers", "resourceVersion", "uid"}
            promise(body.keys() == {"metadata"} and metadata.keys() <= named, "R15", f"{body} is written")
            self._store_finalizers(life, found, tuple(metadata["finalizers"]))
        return found.raw()

    def _store_status(self, life: Life, found: Object, status: JSON) -> None:
        judge.write_is_right(self, found, LLMServiceStatus.model_validate(status))
        found.status = status
        if found is self.main:
            self.history.append((self.now, self.stored))
            pause = self.stored.last_pause
            if pause is None or pause.answered:
                for pod in self.pods.values():
                    pod.engine.is_in_the_object = False
        self.changed(found)

    def _store_finalizers(self, life: Life, found: Object, finalizers: tuple[str, ...]) -> None:
        promise(finalizers != found.finalizers, "R14", "the same finalizers are written again")
        foreign = tuple(each for each in found.finalizers if each != FINALIZER)
        promise(tuple(each for each in finalizers if each != FINALIZER) == foreign, "R15", f"{finalizers} are written")
        if found.deleted is not None and FINALIZER not in finalizers:
            judge.release_is_right(self, found)
        found.finalizers = finalizers
        if found.deleted is not None and not finalizers and found is self.main:
            self._gone()
        else:
            self.changed(found)

    def _serve_pods(self, life: Life, method: str, path: str, query: Mapping[str, str], body: JSON) -> JSON | Exception:
        name, _, sub = path.removeprefix(_PODS).strip("/").partition("/")
        if not name:
            if not self.view_is_complete:
                return ApiError(500, "no list at present")
            items = [item for pod in self.pods.values() if _selects(query, item := pod.item())]
            return {"items": items, "metadata": {"resourceVersion": str(self.version)}}
        pod = self.pods.get(name)
        if pod is None:
            return ApiError(404, f"no pod {name}")
        if method == "GET":
            return pod.item()
        if self.gates_are_refused:
            return ApiError(403, "forbidden")
        if body["metadata"]["uid"] != pod.uid:
            return ApiError(409, "another pod")
        (condition,) = body["status"]["conditions"]
        is_gate = (method, sub, condition["type"]) == ("PATCH", "status", READINESS_GATE)
        only = body.keys() == {"metadata", "status"} and body["metadata"].keys() == {"uid"}
        try:
            promise(is_gate and only and body["status"].keys() == {"conditions"}, "R15", f"{method} {path} {body}")
            promise(pod.gate is not None, "R15", f"a gate is written to {name}, which declares none")
        except BrokenPromiseError as error:
            return error
        self.gate_writes += 1
        serving = condition["status"] == "True"
        pod.gate = Gate(serving, clocks.to_seconds(condition["lastTransitionTime"]))
        if serving:
            pod.opened_by = life
        self.version += 1
        pod.version = self.version
        self.loop.call_later(WATCH_SECONDS, lambda: self.show(pod) if self.pods.get(pod.name) is pod else None)
        return pod.item()

    # What becomes of requests, as their senders see it

    def was_answered(self, life: Life, method: str, path: str, body: JSON, result: JSON, sent_at: float) -> None:
        """An answer came."""
        if not result:
            return  # it is no object
        if path == _PODS:
            life.sees_all = True
            for uid in life.shown.keys() - {item["metadata"]["uid"] for item in result["items"]}:
                life.see(None, uid)
            for item in result["items"]:
                judge.notice_death(self, life, item["metadata"]["uid"], item)
                life.see(item, item["metadata"]["uid"])
        elif path.startswith(_PODS) and method == "PATCH":
            life.gate_refused_at.pop(body["metadata"]["uid"], None)
        elif path == f"{_OBJECTS}/llmservices":
            for each in life.process.lives.values():
                each.object_read_at = max(each.object_read_at, sent_at)
        elif "/llmservices/" in path:
            service = LLMService.model_validate(result)
            if service.metadata.uid == life.uid:
                life.hear(service)
                life.object_read_at = max(life.object_read_at, sent_at)

    def was_refused(self, life: Life, method: str, path: str, body: JSON, sent_at: float) -> None:
        """An error came, or nothing."""
        if path == _PODS:
            life.lose_sight()
        elif path.startswith(_PODS) and method == "PATCH":
            life.gate_refused_at.setdefault(body["metadata"]["uid"], self.wall - (self.now - sent_at))


class Defects(logging.Handler):
    """What a living process logs as an error is a defect."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Remember it."""
        life = LIFE.get(None)
        if life is None or life.process.is_alive:
            self.found.append(self.format(record))


def _begin(loop: asyncio.AbstractEventLoop, coroutine: Any, **how: Any) -> "asyncio.Task[Any]":
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **how)
    life = LIFE.get(None)
    if life is not None:
        life.process.adopt(task)
    return task


def _settle(answer: "asyncio.Future[tuple[int, str]]", result: tuple[int, str]) -> None:
    if not answer.done():
        answer.set_result(result)


def _selects(query: Mapping[str, str], item: JSON) -> bool:
    key, _, value = query["labelSelector"].partition("=")
    return bool(item["metadata"]["labels"].get(key) == value)
