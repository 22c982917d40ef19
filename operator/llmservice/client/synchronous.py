"""``Fleet``: one fleet, for programs without asyncio.

It is :class:`~llmservice.client.asynchronous.AsyncFleet` in an event loop of its own, which runs in a thread of its own. So it
works in any thread, and also in one whose event loop is running; that loop then stands still during each call, which is what
``AsyncFleet`` is for. The thread lives as long as a call or a block, or as long as the ``with`` of the fleet itself.
"""

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from llmservice.client.asynchronous import DEFAULT_MANAGER, DEFAULT_TIMEOUT_SECONDS, AsyncFleet, Mode
from llmservice.client.loop_thread import LoopThread
from llmservice.client.pausing import Pause as AsyncPause
from llmservice.client.pausing import Pausing
from llmservice.client.pods import Pod
from llmservice.client.snapshot import Snapshot

T = TypeVar("T")


class Pause:
    """What the block gets; see :class:`llmservice.client.pausing.Pause`."""

    def __init__(self, pause: AsyncPause, thread: LoopThread) -> None:
        self._pause = pause
        self._thread = thread

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All pods with an engine that is confirmed as paused; those that appear later are paused as they come."""
        return self._pause.pods

    @property
    def count(self) -> int:
        """How many engines are confirmed as paused."""
        return self._pause.count

    @property
    def is_ours(self) -> bool:
        """False where another field manager had paused the fleet before: it stays paused then, also after the block."""
        return self._pause.is_ours

    def check(self, timeout: float = 30.0) -> Snapshot:
        """Return the object as it is now. Raises ChangedByOthersError where somebody touched the pause since it was confirmed,
        StalledError where a person is needed, and FleetError where neither can be known within ``timeout`` seconds."""
        return self._thread.run(self._pause.check(timeout))


class Block:
    """One block; a context manager, to be used once."""

    def __init__(self, fleet: "Fleet", pausing: Pausing) -> None:
        self._pausing = pausing
        self._running = fleet._running()
        self._thread: LoopThread | None = None

    def __enter__(self) -> Pause:
        self._thread = thread = self._running.__enter__()
        try:
            return Pause(thread.run(self._pausing.__aenter__()), thread)
        except BaseException as error:
            try:
                # An interruption may strike just after the pause was confirmed, and before anybody holds it.
                if self._pausing.is_entered:
                    thread.run(self._pausing.__aexit__(type(error), error, error.__traceback__))
            finally:
                self._running.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._thread is None:
            raise RuntimeError("the block was not entered")
        try:
            self._thread.run(self._pausing.__aexit__(kind, error, traceback))
        finally:
            self._running.__exit__(None, None, None)


class Fleet:
    """The LLMService ``name``. Cheap to make: it connects when it is used.

    By itself every call, and every block, opens a connection of its own and closes it. As a context manager it keeps one for
    all of them. Safe in any number of threads.
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
        """The arguments are those of :class:`~llmservice.client.asynchronous.AsyncFleet`."""
        self._fleet = AsyncFleet(name, namespace=namespace, context=context, kubeconfig=kubeconfig, manager=manager)
        self._kept: LoopThread | None = None

    def __enter__(self) -> Self:
        thread = _started()
        try:
            thread.run(self._fleet.__aenter__())
        except BaseException:
            thread.close()
            raise
        self._kept = thread
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            try:
                kept.run(self._fleet.__aexit__(kind, error, traceback))
            finally:
                kept.close()

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
    ) -> Block:
        """A block during which the fleet is paused: ``with fleet.paused("keep", clear_cache=False) as p``. It is
        :meth:`AsyncFleet.paused <llmservice.client.asynchronous.AsyncFleet.paused>`, and takes the same arguments."""
        return Block(
            self,
            self._fleet.paused(
                mode,
                clear_cache,
                timeout=timeout,
                resume_timeout=resume_timeout,
                resume_on_error=resume_on_error,
                wait_for_resume=wait_for_resume,
                list_pods=list_pods,
            ),
        )

    def status(self, *, timeout: float = 30.0) -> Snapshot:
        """The object as it is, with the status that the operator wrote last. Raises FleetError."""
        return self._run(self._fleet.status(timeout=timeout))

    def pause(
        self,
        mode: Mode | None = None,
        clear_cache: bool | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        wait: bool = True,
    ) -> Snapshot:
        """Pause, and return the version of the object that confirms it; with ``wait`` false, the one that asks for it. The
        fleet stays paused until somebody resumes it, also where an error is raised. Raises FleetError."""
        return self._run(self._fleet.pause(mode, clear_cache, timeout=timeout, wait=wait))

    def resume(self, *, timeout: float = DEFAULT_TIMEOUT_SECONDS, wait: bool = True) -> Snapshot:
        """Resume, whoever paused it, and return the version of the object that confirms it; with ``wait`` false, the one that
        asks for it. Raises FleetError."""
        return self._run(self._fleet.resume(timeout=timeout, wait=wait))

    def verify(self, *, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> Snapshot:
        """Have every engine read afresh, and return the version of the object that carries what was found. It changes nothing
        but an annotation. Raises FleetError, StalledError too."""
        return self._run(self._fleet.verify(timeout=timeout))

    def wait_paused(self, *, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> Snapshot:
        """Wait until the fleet is paused, whoever asks for it, as ``kubectl wait --for=condition=Paused`` does. Raises
        FleetError."""
        return self._run(self._fleet.wait_paused(timeout=timeout))

    def wait_running(self, *, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> Snapshot:
        """Wait until the fleet runs, whoever asks for it. Raises FleetError."""
        return self._run(self._fleet.wait_running(timeout=timeout))

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        with self._running() as thread:
            return thread.run(coroutine)

    @contextmanager
    def _running(self) -> Iterator[LoopThread]:
        """The thread to run in: the one that is kept, or one for this use."""
        if self._kept is not None:
            yield self._kept
            return
        thread = _started()
        try:
            yield thread
        finally:
            thread.close()


def _started() -> LoopThread:
    thread = LoopThread("llmservice-client")
    thread.start()
    return thread
