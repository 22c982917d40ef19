"""All LLMServices of this process: which exist, which is older than which, and the actor of each."""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Iterable, Sequence

from pydantic import ValidationError

from llmservice.api import LLMService
from llmservice.domain import ownership
from llmservice.kube import services
from llmservice.kube.client import JSON, KubernetesError, UnavailableError
from llmservice.runtime.actor import Actor
from llmservice.runtime.environment import Environment
from llmservice.runtime.heart import Heart

SWEEP_SECONDS = 60.0
"""How often the known LLMServices are compared with a list of all: a watch that broke may have missed a deletion."""
_RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0)
_RESTART_SECONDS = (1.0, 5.0, 30.0, 60.0)

logger = logging.getLogger(__name__)


class Operator:
    """Lives in one event loop; :meth:`record` and :meth:`forget` are called from there."""

    def __init__(self, environment: Environment, namespaces: Sequence[str] | None) -> None:
        """``namespaces`` None: all of them."""
        self._environment = environment
        self._namespaces = namespaces
        self._services: dict[str, LLMService] = {}
        self._recorded_at: dict[str, float] = {}
        self._actors: dict[str, Actor] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.knows_all = False
        """A complete list was read at least once."""
        self._heart = Heart(environment, self._doubt)
        self._stalls = 0
        self._sweep_now = asyncio.Event()
        self._forgotten: set[str] = set()
        """The UIDs that went since the present sweep began: its list may still hold them."""
        self._unsettled: set[str] = set()
        """Namespaces in which an LLMService came or went, so that ownership has to be worked out anew."""

    def services(self) -> Iterable[LLMService]:
        """Every LLMService as it was last stored."""
        return [actor.service for actor in self._actors.values()]

    def record(self, raw: JSON) -> None:
        """An LLMService as the API server gave it: new, changed, or as before."""
        metadata = raw["metadata"]
        known = self._actors.get(metadata["uid"])
        if known is not None and known.service.metadata.resource_version == metadata["resourceVersion"]:
            self._recorded_at[metadata["uid"]] = self._environment.clock()
            return  # mostly what was just written
        try:
            service = LLMService.model_validate(raw)
        except ValidationError as error:
            # The schema of the API server admits no such object, unless it is older or newer than this operator.
            key = f"{metadata.get('namespace')}/{metadata.get('name')}"
            logger.error("Cannot read an LLMService; left as it is", extra={"service": key, "error": str(error)})
            return
        uid = service.metadata.uid
        self._recorded_at[uid] = self._environment.clock()
        if uid in self._actors:
            self._actors[uid].record(service)
            return
        self._services[uid] = service
        self._start(service)
        self._unsettle(service.metadata.namespace)

    def forget(self, uid: str) -> None:
        """An LLMService is gone; its engines stay as they are."""
        self._forgotten.add(uid)
        service = self._services.pop(uid, None)
        self._recorded_at.pop(uid, None)
        if service is None:
            return
        actor, task = self._actors.pop(uid), self._tasks.pop(uid)
        asyncio.get_running_loop().call_later(actor.retire(), task.cancel)
        logger.info("Forgot an LLMService", extra={"service": service.key})
        self._unsettle(service.metadata.namespace)

    async def run(self) -> None:
        """Compare with a list of all, at once and then regularly, until cancelled. No control call is made before the
        first complete one: ownership of pods is not known earlier."""
        attempt = 0
        self._heart.start()
        try:
            while True:
                try:
                    await self._sweep()
                    attempt, wait = 0, SWEEP_SECONDS
                except KubernetesError as error:
                    wait = max(_RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)], error.retry_after)
                    attempt += 1
                    logger.warning("Did not list the LLMServices", extra={"error": str(error)})
                self._sweep_now.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._sweep_now.wait()
        finally:
            self._heart.stop()
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _sweep(self) -> None:
        began, stalls = self._environment.clock(), self._stalls
        self._forgotten.clear()
        listed = await services.list_all(self._environment.kubernetes, self._namespaces)
        if stalls != self._stalls:
            raise UnavailableError("the list may be from before a stall")
        for raw in listed:
            if raw["metadata"]["uid"] not in self._forgotten:
                self.record(raw)
        alive = {raw["metadata"]["uid"] for raw in listed}
        for uid in [uid for uid in self._services if uid not in alive and self._recorded_at[uid] < began]:
            self.forget(uid)
        if not self.knows_all:
            self.knows_all = True
            self._settle(service.metadata.namespace for service in tuple(self._services.values()))

    def _doubt(self) -> None:
        self._stalls += 1
        self._sweep_now.set()
        for actor in tuple(self._actors.values()):
            actor.doubt()

    def _start(self, service: LLMService) -> None:
        uid = service.metadata.uid
        actor = Actor(service, self._environment, self._heart.notice_stall)
        self._actors[uid] = actor
        self._tasks[uid] = asyncio.create_task(self._supervise(uid, actor), name=service.key)
        logger.info("Took up an LLMService", extra={"service": service.key})

    async def _supervise(self, uid: str, actor: Actor) -> None:
        """A defect in one actor must not end the others: it is logged whole, and the actor begins anew."""
        for wait in itertools.chain(_RESTART_SECONDS, itertools.repeat(_RESTART_SECONDS[-1])):
            try:
                # In a task of its own: a TaskGroup of Python 3.11 whose part has failed leaves the task that waits for it
                # marked as being cancelled, for good.
                await asyncio.create_task(actor.run(), name=actor.service.key)
            except ExceptionGroup:
                task = asyncio.current_task()
                if task is not None and task.cancelling():  # a defect on its way out must not bring it back
                    logger.exception("An actor broke as it ended", extra={"service": actor.service.key})
                    return
                logger.exception("An actor broke and begins anew", extra={"service": actor.service.key})
            actor = Actor(actor.service, self._environment, self._heart.notice_stall)
            actor.doubt()
            self._actors[uid] = actor
            self._settle([actor.service.metadata.namespace])
            await asyncio.sleep(wait)

    def _unsettle(self, namespace: str) -> None:
        if not self._unsettled:
            asyncio.get_running_loop().call_soon(self._settle_all)
        self._unsettled.add(namespace)

    def _settle_all(self) -> None:
        namespaces, self._unsettled = self._unsettled, set()
        self._settle(namespaces)

    def _settle(self, namespaces: Iterable[str]) -> None:
        """Tell the actors of these namespaces who goes before them."""
        if not self.knows_all:
            return
        for namespace in set(namespaces):
            here = [service for service in self._services.values() if service.metadata.namespace == namespace]
            for service in here:
                self._actors[service.metadata.uid].know_services(ownership.older_claims(service, here))
