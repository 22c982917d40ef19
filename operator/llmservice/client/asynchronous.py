"""``AsyncFleet``: one fleet, for programs that use asyncio."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Literal, Self, TypeAlias

from llmservice.api import Desired, PauseMode
from llmservice.client import operations
from llmservice.client.errors import ConfigurationError
from llmservice.client.operations import Done, Planner
from llmservice.client.pausing import Pausing, Terms
from llmservice.client.remote import RemoteFleet
from llmservice.client.snapshot import Snapshot
from llmservice.client.verdict import Manner
from llmservice.kube.client import Kubernetes, KubernetesError, default_namespace

DEFAULT_MANAGER = "llmservice-client"
DEFAULT_TIMEOUT_SECONDS = 300.0

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")

Mode: TypeAlias = PauseMode | Literal["abort", "wait", "keep"]


class AsyncFleet:
    """The LLMService ``name``. Cheap to make: it connects when it is used.

    By itself every call, and every block, opens a connection of its own and closes it. As an async context manager it keeps
    one for all of them. It belongs to one event loop.
    """

    def __init__(
        self,
        name: str,
        *,
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: str | None = None,
        manager: str = DEFAULT_MANAGER,
    ) -> None:
        """
        Args:
            namespace: None for the one of the pod that this runs in, or of the kubeconfig's context.
            context: of the kubeconfig; None for the current one.
            kubeconfig: a file. None, and no context: the pod's service account if this runs in a pod and KUBECONFIG is not
                set; else KUBECONFIG or ``~/.kube/config``.
            manager: the field manager under which the fleet is paused and resumed. It says whose a pause is, so give each
                trainer its own, and keep it from start to start. At most 128 printable characters.
        """
        for what, value in (("name", name), ("namespace", namespace)):
            if value is not None and _NAME.fullmatch(value) is None:
                raise ValueError(f"{what} is letters a-z, digits, '-' and '.', as Kubernetes has it, got {value!r}")
        if not manager or len(manager) > 128 or not manager.isprintable():
            raise ValueError(f"manager is a name of 1 to 128 printable characters, got {manager!r}")
        self.name = name
        self.manager = manager
        self._namespace = namespace
        self._context = context
        self._kubeconfig = kubeconfig
        self._kept: Kubernetes | None = None

    async def __aenter__(self) -> Self:
        self._kept = await self._connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            await kept.close()

    def paused(
        self,
        mode: Mode | None = None,
        clear_cache: bool | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        resume_timeout: float = DEFAULT_TIMEOUT_SECONDS,
        resume_on_error: bool = True,
        wait_for_resume: bool = True,
        list_pods: bool = True,
    ) -> Pausing:
        """A block during which the fleet is paused: ``async with fleet.paused("keep", clear_cache=False) as p``.

        It begins when the operator has confirmed this very pause, and ends when it has confirmed the resume. See
        ``llmservice.client.pausing`` for what happens with errors and cancellation.

        Args:
            mode, clear_cache: written to ``spec.pause``, where they stay. None leaves what stands there.
            timeout: seconds for the pause to be confirmed; then the pause is taken back.
            resume_timeout: seconds for the resume to be sent and confirmed.
            resume_on_error: False leaves the fleet paused where the block raises, for weights that are half loaded.
            wait_for_resume: False ends the block once the resume is stored.
            list_pods: False spares the list of pods of a fleet of more than 64 engines; ``p.pods`` is empty then.

        Raises (on entering and on leaving): FleetError; see ``llmservice.client.errors``.
        """
        terms = Terms(manner(mode, clear_cache), timeout, resume_timeout, resume_on_error, wait_for_resume, list_pods)
        return Pausing(self._remote, terms)

    async def status(self, *, timeout: float = 30.0) -> Snapshot:
        """The object as it is, with the status that the operator wrote last. Raises FleetError."""
        async with self._remote() as remote:
            return await remote.get(_until(timeout))

    async def pause(
        self,
        mode: Mode | None = None,
        clear_cache: bool | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        wait: bool = True,
    ) -> Snapshot:
        """Pause, and return the version of the object that confirms it; with ``wait`` false, the one that asks for it. The
        fleet stays paused until somebody resumes it, also where an error is raised. Raises FleetError."""
        return await self._do(operations.pausing(manner(mode, clear_cache), self.manager), timeout, wait=wait)

    async def resume(self, *, timeout: float = DEFAULT_TIMEOUT_SECONDS, wait: bool = True) -> Snapshot:
        """Resume, whoever paused it, and return the version of the object that confirms it; with ``wait`` false, the one that
        asks for it. Raises FleetError."""
        return await self._do(operations.resuming(), timeout, wait=wait)

    async def verify(self, *, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> Snapshot:
        """Have every engine read afresh, and return the version of the object that carries what was found. It changes nothing
        but an annotation. Raises FleetError, StalledError too."""
        return await self._do(operations.verifying(), timeout)

    async def wait_paused(self, *, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> Snapshot:
        """Wait until the fleet is paused, whoever asks for it, as ``kubectl wait --for=condition=Paused`` does. Raises
        FleetError."""
        async with self._remote() as remote:
            return await operations.wait_for(remote, Desired.PAUSED, _until(timeout))

    async def wait_running(self, *, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> Snapshot:
        """Wait until the fleet runs, whoever asks for it. Raises FleetError."""
        async with self._remote() as remote:
            return await operations.wait_for(remote, Desired.RUNNING, _until(timeout))

    async def _do(self, planner: Planner, timeout: float, *, wait: bool = True) -> Snapshot:
        async with self._remote() as remote:
            if not wait:
                return (await operations.send(remote, planner, _until(timeout))).stored
            done: Done = await operations.carry_out(remote, planner, _until(timeout))
            return done.snapshot

    @asynccontextmanager
    async def _remote(self) -> AsyncIterator[RemoteFleet]:
        namespace = self._namespace or self._default_namespace()
        if self._kept is not None:
            yield RemoteFleet(self._kept, namespace, self.name, self.manager)
            return
        kubernetes = await self._connect()
        try:
            yield RemoteFleet(kubernetes, namespace, self.name, self.manager)
        finally:
            await kubernetes.close()

    async def _connect(self) -> Kubernetes:
        try:
            return await Kubernetes.connect(self._kubeconfig, self._context)
        except KubernetesError as error:
            raise ConfigurationError(str(error)) from error

    def _default_namespace(self) -> str:
        try:
            self._namespace = default_namespace(self._kubeconfig, self._context)
        except KubernetesError as error:
            raise ConfigurationError(str(error)) from error
        return self._namespace


def manner(mode: Mode | None, clear_cache: bool | None) -> Manner:
    """How a pause is asked for. Raises ValueError for a mode that there is not."""
    return Manner(None if mode is None else PauseMode(mode), clear_cache)


def _until(timeout: float) -> float:
    return asyncio.get_running_loop().time() + timeout
