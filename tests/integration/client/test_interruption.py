"""The fleet is resumed however the block ends, and however the wait for it ends."""

import asyncio
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from llmservice.client import AsyncFleet as AsyncClient
from llmservice.client import Fleet as Client
from llmservice_testing.api_proxy import ApiProxy, Seen, Trouble
from llmservice_testing.cluster import wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet
from llmservice_testing.simulator import Fault

pytestmark = pytest.mark.usefixtures("operator")


class WeightsError(Exception):
    """What a failed weight load raises."""


def is_patch(seen: Seen) -> bool:
    """A change of the spec or of the annotation."""
    return seen.method == "PATCH"


def running(fleet: Fleet, count: int = 2) -> Fleet:
    fleet.grow(count)
    fleet.declare("running")
    fleet.wait("Paused", "False")
    return fleet


def test_after_an_exception_it_may_be_left_paused_and_the_exception_says_so(fleet: Fleet, client: Client) -> None:
    running(fleet)
    with pytest.raises(WeightsError) as caught, client.paused(resume_on_error=False):
        raise WeightsError
    assert fleet.get()["spec"]["generation"] == "paused"
    assert fleet.all_paused()
    (note,) = caught.value.__notes__
    assert "resume_on_error is False" in note
    assert f"kubectl patch llmservices.llmservice.io qwen -n {fleet.namespace}" in note
    client.resume()
    assert not any(engine.paused for engine in fleet.engines)


def test_resume_on_error_changes_nothing_without_an_error(fleet: Fleet, client: Client) -> None:
    running(fleet)
    with client.paused(resume_on_error=False):
        pass
    assert not any(engine.paused for engine in fleet.engines)


def test_an_exception_of_the_block_is_not_replaced_by_what_goes_wrong_on_the_way_out(
    fleet: Fleet, client: Client
) -> None:
    running(fleet)

    def train() -> None:
        with client.paused():
            fleet.want("running")
            raise WeightsError

    with pytest.raises(WeightsError) as caught:
        train()
    assert "spec.generation was changed" in caught.value.__notes__[0]


def test_an_exception_carries_how_to_resume_by_hand_where_the_resume_failed(
    fleet: Fleet, proxy: ApiProxy, make_client: Callable[..., Client]
) -> None:
    running(fleet)
    client = make_client(kubeconfig=str(proxy.kubeconfig))

    def train() -> None:
        with ExitStack() as trouble, client.paused(resume_timeout=1.0):
            trouble.enter_context(proxy.trouble(Trouble.cutting(), where=is_patch))
            raise WeightsError

    with pytest.raises(WeightsError) as caught:
        train()
    (note,) = caught.value.__notes__
    assert "On the way out of the block" in note
    assert "To resume it: kubectl patch llmservices.llmservice.io qwen" in note
    assert fleet.all_paused()


async def test_a_cancelled_block_is_resumed(fleet: Fleet, async_client: AsyncClient) -> None:
    running(fleet)
    within = asyncio.Event()

    async def train() -> None:
        async with async_client.paused():
            within.set()
            await asyncio.sleep(3600)

    task = asyncio.create_task(train())
    await asyncio.wait_for(within.wait(), PATIENCE_SECONDS)
    assert fleet.all_paused()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert fleet.get()["spec"]["generation"] == "running"
    fleet.wait("Paused", "False")


async def test_a_block_whose_time_is_over_is_resumed(fleet: Fleet, async_client: AsyncClient) -> None:
    running(fleet)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2), async_client.paused():
            await asyncio.sleep(3600)
    assert fleet.get()["spec"]["generation"] == "running"


async def test_a_pause_that_is_cancelled_while_it_is_waited_for_is_taken_back(
    fleet: Fleet, async_client: AsyncClient
) -> None:
    running(fleet)
    fleet.engines[0].faults.script("/pause", Fault.slow(before=3.0))

    async def train() -> None:
        async with async_client.paused():
            pytest.fail("the block ran")

    task = asyncio.create_task(train())
    await asyncio.to_thread(fleet.engines[0].asked, "/pause", within=PATIENCE_SECONDS)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert fleet.get()["spec"]["generation"] == "running"
    fleet.wait("Paused", "False")


@pytest.mark.parametrize("times", [1, 3])
async def test_the_resume_is_sent_however_often_the_task_is_cancelled_meanwhile(
    fleet: Fleet, proxy: ApiProxy, make_async_client: Callable[..., AsyncClient], times: int
) -> None:
    running(fleet)
    client = make_async_client(kubeconfig=str(proxy.kubeconfig))
    leaving = asyncio.Event()

    async def train() -> None:
        async with client.paused():
            leaving.set()

    with proxy.trouble(Trouble.delaying(0.7), where=lambda seen: is_patch(seen) and b"running" in seen.body):
        task = asyncio.create_task(train())
        await asyncio.wait_for(leaving.wait(), PATIENCE_SECONDS)
        for _ in range(times):
            await asyncio.sleep(0.2)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert fleet.get()["spec"]["generation"] == "running"
    fleet.wait("Paused", "False")


async def test_a_pause_that_arrives_after_it_was_given_up_comes_too_late(
    fleet: Fleet, proxy: ApiProxy, make_async_client: Callable[..., AsyncClient]
) -> None:
    """A request that was cut off may still be on its way. Taking it back has to outrun it."""
    running(fleet)
    client = make_async_client(kubeconfig=str(proxy.kubeconfig))

    async def train() -> None:
        async with client.paused():
            pytest.fail("the block ran")

    with proxy.trouble(Trouble.delaying(1.5, times=1), where=is_patch):
        task = asyncio.create_task(train())
        await asyncio.to_thread(wait_until, lambda: proxy.seen(is_patch), PATIENCE_SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    late = proxy.seen(is_patch)[0]
    await asyncio.to_thread(wait_until, lambda: late.status, PATIENCE_SECONDS)
    assert late.status == 409
    assert fleet.get()["spec"]["generation"] == "running"


def interrupt_when(happens: Callable[[], object]) -> threading.Thread:
    """Ctrl-C, once this has returned."""

    def strike() -> None:
        happens()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=strike)
    thread.start()
    return thread


def test_ctrl_c_within_the_block_resumes_the_fleet(fleet: Fleet, client: Client) -> None:
    running(fleet)

    def train() -> None:
        with client.paused():
            assert fleet.all_paused()
            interrupt_when(lambda: None).join()
            threading.Event().wait(PATIENCE_SECONDS)

    with pytest.raises(KeyboardInterrupt):
        train()
    assert fleet.get()["spec"]["generation"] == "running"
    fleet.wait("Paused", "False")


def test_ctrl_c_while_the_pause_is_waited_for_takes_it_back(fleet: Fleet, client: Client) -> None:
    running(fleet)
    slow = fleet.engines[0]
    slow.faults.script("/pause", Fault.slow(before=8.0))
    interrupting = interrupt_when(lambda: slow.asked("/pause", within=PATIENCE_SECONDS))
    with pytest.raises(KeyboardInterrupt), client.paused():
        pytest.fail("the block ran")
    assert [post.status for post in slow.posts("/pause")] == [None], "nothing more was waited for"
    interrupting.join()
    assert fleet.get()["spec"]["generation"] == "running"
    fleet.wait("Paused", "False")


def test_ctrl_c_while_the_resume_is_waited_for_leaves_it_sent(fleet: Fleet, client: Client) -> None:
    running(fleet)
    fleet.engines[0].faults.script("/resume", Fault.slow(before=3.0))
    interrupting = interrupt_when(lambda: fleet.engines[0].asked("/resume", within=PATIENCE_SECONDS))
    with pytest.raises(KeyboardInterrupt), client.paused():
        pass
    interrupting.join()
    assert fleet.get()["spec"]["generation"] == "running"
    fleet.wait("Paused", "False")


def test_a_block_can_end_before_the_resume_is_confirmed(fleet: Fleet, client: Client) -> None:
    running(fleet)
    fleet.engines[0].faults.script("/resume", Fault.slow(before=2.0))
    with client.paused(wait_for_resume=False):
        pass
    assert fleet.get()["spec"]["generation"] == "running"
    assert fleet.engines[0].paused
    fleet.wait("Paused", "False")
