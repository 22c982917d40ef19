"""vLLM, with its Python and its Rust frontend, from 0.12 on.

What differs by version, read in the sources of 0.12 to 0.33 (docs/engines.md):

========= ================================================ =======================================================
version   how a pause is asked                             what it cannot do
========= ================================================ =======================================================
0.12-0.15 ``wait_for_inflight_requests``, ``clear_cache``  keep (``mode`` is ignored, so everything would be aborted);
                                                           a second ``wait`` answers at once, drained or not
0.16      ``mode``, ``clear_cache``                        keep (``/is_paused`` stays false); a ``wait`` blocks reads
0.17 on   ``mode``, ``clear_cache``                        -
========= ================================================ =======================================================

Parameters go in the query: a JSON body is ignored and the default, abort, is done. They are all sent every time.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

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

NEWEST_KNOWN = (0, 33)
OLDEST_KNOWN = (0, 12)
_FIRST_WITH_MODE = (0, 16)
_FIRST_WITH_KEEP = (0, 17)

_ANSWER_LIMIT = 64 * 1024
_SERVER_INFO_LIMIT = 1024 * 1024
_METRICS_LIMIT = 8 * 1024 * 1024

_RELEASE = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\D|$)")
_ASLEEP = re.compile(
    rb'^vllm:engine_sleep_state\{[^}\n]*sleep_state="(?:weights_offloaded|discard_all)"[^}\n]*\} 1(?:\.0)?$',
    re.MULTILINE,
)
_SLEEP_MODE = re.compile(rb'"enable_sleep_mode"\s*:\s*(true|false)', re.IGNORECASE)
_DATA_PARALLEL_SIZE = re.compile(rb'"data_parallel_size"\s*:\s*(\d+)')
_RANKS_DISAGREE = ("different is_scheduler_paused results", "inconsistent results across engines")

_DEV_MODE_HINT = "vLLM shows its control routes only when started with VLLM_SERVER_DEV_MODE=1"


class VLLM:
    """The engine type ``vllm``: each port of a pod is a target of its own."""

    def __init__(self, engine: api.Engine, transport: httpx.AsyncBaseTransport) -> None:
        """``transport`` carries the TLS settings of ``engine.tls``."""
        self._engine = engine
        self._transport = transport
        self._server_name = engine.tls.server_name if engine.tls is not None else None

    def place_of(self, pod_uid: str) -> str:
        """Each pod is a place of its own."""
        return pod_uid

    def targets_of(self, pods: Sequence[Pod]) -> tuple[Target, ...]:
        """The targets of one pod: one for each of ``spec.engine.ports``."""
        return tuple(self._target(pod, port) for pod in pods for port in self._engine.ports)

    async def read(
        self, target: Target, traits: Traits | None, *, identify: bool, with_replicas: bool = False, timeout: float
    ) -> Reading | Failure:
        """Ask for the engine's state; first for its traits if ``identify``. Each request may take ``timeout`` seconds."""
        if identify or traits is None:
            learned = await self._identify(target, timeout)
            if isinstance(learned, Failure):
                return learned
            traits = learned
        answer = await self._get(target, "/is_paused", timeout, _ANSWER_LIMIT)
        if isinstance(answer, Failure):
            if not any(phrase in answer.message for phrase in _RANKS_DISAGREE):
                return answer
            sight, said = Sight.INCONSISTENT, answer.message
        else:
            value = parsed(answer.body)
            paused = value.get("is_paused") if isinstance(value, dict) else None
            if not isinstance(paused, bool):
                return Failure(
                    Obstacle.LOST, "not understood", "GET /is_paused was not answered with {'is_paused': true|false}"
                )
            sight, said = (Sight.PAUSED if paused else Sight.RUNNING), ""
        if traits.sleep_mode is not False:
            asleep = await self._is_asleep(target, timeout)
            if isinstance(asleep, Failure) and traits.sleep_mode:
                return asleep
            if asleep is True:
                return Reading(Sight.SLEEPING, traits)
        return Reading(sight, traits, said)

    async def call(self, target: Target, call: ControlCall, traits: Traits, *, timeout: float) -> Failure | None:
        """Send a control call; None if it was answered with success, which proves little: read again."""
        path = "/resume" if call.pause is None else f"/pause?{_query(call.pause.mode, call.pause.clear_cache, traits)}"
        answer = await self._exchange("POST", target, path, timeout, _ANSWER_LIMIT)
        return answer if isinstance(answer, Failure) else None

    async def _identify(self, target: Target, timeout: float) -> Traits | Failure:
        answer = await self._get(target, "/version", timeout, _ANSWER_LIMIT)
        if isinstance(answer, Failure) and answer.kind != "answered 404":
            return answer
        value = parsed(answer.body) if isinstance(answer, Answer) else None
        version = value.get("version") if isinstance(value, dict) else None
        known = _traits(version[:64] if isinstance(version, str) else "")
        return await self._with_server_info(target, known, timeout)

    async def _with_server_info(self, target: Target, traits: Traits, timeout: float) -> Traits:
        """What only the configuration tells: sleep mode (None if it could not be asked this time), and whether the engine is
        alone. The two frontends have different shapes and the same words, and the Rust one does not tell sleep mode."""
        answer = await self._get(target, "/server_info?config_format=json", timeout, _SERVER_INFO_LIMIT)
        if isinstance(answer, Failure):
            return replace(traits, sleep_mode=False if answer.obstacle is Obstacle.REFUSED else None)
        sleep_mode = _SLEEP_MODE.search(answer.body)
        sizes = _DATA_PARALLEL_SIZE.findall(answer.body)
        return replace(
            traits,
            sleep_mode=sleep_mode is not None and sleep_mode[1].lower() == b"true",
            can_overtake=traits.confirms_wait and bool(sizes) and all(size == b"1" for size in sizes),
        )

    async def _is_asleep(self, target: Target, timeout: float) -> bool | Failure:
        # /is_sleeping is true for an engine that is merely paused (0.17 on). The gauge's "awake" falls to 0 for level 0, too,
        # which is a pause under another name, and stays there after a resume; only the other two states mean asleep.
        answer = await self._get(target, "/metrics", timeout, _METRICS_LIMIT)
        if isinstance(answer, Failure):
            return False if answer.obstacle is Obstacle.REFUSED else answer
        return _ASLEEP.search(answer.body) is not None

    async def _get(self, target: Target, path: str, timeout: float, limit: int) -> Answer | Failure:
        return await self._exchange("GET", target, path, timeout, limit)

    async def _exchange(self, method: str, target: Target, path: str, timeout: float, limit: int) -> Answer | Failure:
        sent = request(method, f"{target.key.url}{path}", self._server_name)
        answer = await exchange(self._transport, sent, timeout=timeout, limit=limit)
        if isinstance(answer, Failure):
            return answer
        if 200 <= answer.status < 300:
            return answer
        failure = refusal(sent, answer)
        if failure.reason is Reason.ENDPOINT_MISSING:
            return replace(failure, message=f"{failure.message}. {_DEV_MODE_HINT}")
        return failure

    def _target(self, pod: Pod, port: int | str) -> Target:
        found = listener(pod, port, self._engine.scheme)
        url = None if found.url is None else f"{found.url}{self._engine.root_path}"
        key = TargetKey(pod.uid, found.container_id, str(port), url)
        return Target(key, pod.name, started=found.started, ready=found.ready, port_missing=found.port_missing)


@lru_cache(maxsize=256)
def _release(version: str) -> tuple[int, int] | None:
    found = _RELEASE.match(version)
    return (int(found[1]), int(found[2])) if found else None


@lru_cache(maxsize=256)
def _traits(version: str) -> Traits:
    release = _release(version)
    if release is None or not OLDEST_KNOWN <= release <= NEWEST_KNOWN:
        return Traits(version, frozenset(PauseMode), confirms_wait=True, assumed=True)
    keeps = release >= _FIRST_WITH_KEEP
    modes = frozenset(PauseMode) if keeps else frozenset({PauseMode.ABORT, PauseMode.WAIT})
    return Traits(version, modes, confirms_wait=keeps)


def _query(mode: PauseMode, clear_cache: bool, traits: Traits) -> str:
    clear = f"clear_cache={str(clear_cache).lower()}"
    release = _release(traits.version)
    if not traits.assumed and release is not None and release < _FIRST_WITH_MODE:
        return f"wait_for_inflight_requests={str(mode is PauseMode.WAIT).lower()}&{clear}"
    return f"mode={mode.value}&{clear}"
