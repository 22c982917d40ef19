"""The API server is away, or does half of what is asked, while the client needs it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from llmservice.client import Fleet as Client
from llmservice.client import ForbiddenError, RefusedError, UnavailableError
from llmservice_testing.api_proxy import ApiProxy, Seen, Trouble, is_watch
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet
from llmservice_testing.simulator import Fault

pytestmark = pytest.mark.usefixtures("operator")


def is_patch(seen: Seen) -> bool:
    """A change of the spec or of the annotation."""
    return seen.method == "PATCH"


@pytest.fixture
def client(proxy: ApiProxy, make_client: Callable[..., Client]) -> Client:
    """A client that reaches the API server through the proxy, which nobody else uses."""
    return make_client(manager="trainer", kubeconfig=str(proxy.kubeconfig))


def running(fleet: Fleet, count: int = 2) -> Fleet:
    fleet.grow(count)
    fleet.declare("running")
    fleet.wait("Paused", "False")
    return fleet


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(Trouble.cutting(), id="it is away"),
        pytest.param(Trouble.answering(503), id="it answers 503"),
        pytest.param(Trouble.answering(429, retry_after=1), id="it answers 429"),
        pytest.param(Trouble.answering(403), id="it does not know rights yet"),
        pytest.param(Trouble.saying(404, b"404 page not found"), id="it does not know the resource yet"),
    ],
)
def test_an_outage_during_the_wait_is_survived(fleet: Fleet, client: Client, proxy: ApiProxy, trouble: Trouble) -> None:
    running(fleet)
    fleet.engines[0].faults.script("/pause", Fault.slow(before=1.0))
    with ThreadPoolExecutor(1) as pool:
        pause = pool.submit(client.pause)
        fleet.engines[0].asked("/pause", within=PATIENCE_SECONDS)
        with proxy.trouble(trouble, cut_open=True):
            fleet.wait("Paused")
            assert not pause.done()
        snapshot = pause.result(PATIENCE_SECONDS)
    assert snapshot.service.status.paused is True
    assert fleet.all_paused()


def test_an_outage_that_outlasts_the_wait_is_told_as_such(fleet: Fleet, client: Client, proxy: ApiProxy) -> None:
    running(fleet)
    fleet.engines[0].faults.script("/pause", Fault.slow(before=1.0))
    with ThreadPoolExecutor(1) as pool:
        pause = pool.submit(client.pause, timeout=3.0)
        fleet.engines[0].asked("/pause", within=PATIENCE_SECONDS)
        with proxy.trouble(Trouble.cutting(), cut_open=True), pytest.raises(UnavailableError):
            pause.result(PATIENCE_SECONDS)


def test_an_outage_from_the_beginning_is_told_as_such(fleet: Fleet, client: Client, proxy: ApiProxy) -> None:
    running(fleet)
    with proxy.trouble(Trouble.cutting()), pytest.raises(UnavailableError):
        client.pause(timeout=1.0)
    assert fleet.get()["spec"]["generation"] == "running"


def test_a_pause_whose_answer_was_lost_is_confirmed_and_is_ours(fleet: Fleet, client: Client, proxy: ApiProxy) -> None:
    running(fleet)
    with proxy.trouble(Trouble.losing_the_answer(times=1), where=is_patch), client.paused() as p:
        assert fleet.all_paused()
        assert p.is_ours
    assert not any(engine.paused for engine in fleet.engines)


def test_a_resume_whose_answer_was_lost_is_not_taken_for_somebody_elses(
    fleet: Fleet, client: Client, proxy: ApiProxy
) -> None:
    running(fleet)
    with ExitStack() as trouble, client.paused():
        trouble.enter_context(proxy.trouble(Trouble.losing_the_answer(times=1), where=is_patch))
    assert not any(engine.paused for engine in fleet.engines)


def test_a_resume_outlasts_an_outage(fleet: Fleet, client: Client, proxy: ApiProxy) -> None:
    running(fleet)
    with ExitStack() as trouble, client.paused():
        trouble.enter_context(proxy.trouble(Trouble.cutting(times=4), where=is_patch))
    assert not any(engine.paused for engine in fleet.engines)


def test_a_fleet_that_could_not_be_resumed_is_said_to_be_paused(fleet: Fleet, client: Client, proxy: ApiProxy) -> None:
    running(fleet)

    def train() -> None:
        with ExitStack() as trouble, client.paused(resume_timeout=1.0):
            trouble.enter_context(proxy.trouble(Trouble.cutting(), where=is_patch))

    with pytest.raises(UnavailableError) as caught:
        train()
    assert fleet.all_paused()
    (note,) = caught.value.__notes__
    assert "To resume it: kubectl patch llmservices.llmservice.io qwen" in note


def test_a_conflict_is_settled_by_reading_again(fleet: Fleet, client: Client, proxy: ApiProxy) -> None:
    running(fleet)
    with proxy.trouble(Trouble.answering(409, times=2), where=is_patch):
        client.pause()
    assert fleet.all_paused()


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(Trouble.answering(403), id="forbidden"),
        pytest.param(Trouble.closing_at_once(), id="closed at once"),
        pytest.param(Trouble.error_event(410), id="too old"),
        pytest.param(Trouble.saying(200, b"{not json\n"), id="nonsense"),
        pytest.param(Trouble.hanging(), id="silent"),
    ],
)
def test_without_a_watch_the_object_is_read_instead(
    fleet: Fleet, client: Client, proxy: ApiProxy, trouble: Trouble
) -> None:
    running(fleet)
    with proxy.trouble(trouble, where=is_watch):
        with client.paused() as p:
            assert fleet.all_paused()
            assert p.count == 2
        assert len(proxy.seen()) < 60
    assert not any(engine.paused for engine in fleet.engines)


def test_a_token_that_was_replaced_is_read_again(fleet: Fleet, client: Client, proxy: ApiProxy) -> None:
    running(fleet)
    with client:
        client.pause()
        proxy.expire_token()
        proxy.renew_token()
        client.resume()
    assert not any(engine.paused for engine in fleet.engines)


def test_a_token_that_is_refused_is_told_as_such(fleet: Fleet, client: Client, proxy: ApiProxy) -> None:
    running(fleet)
    with client:
        client.status()
        proxy.expire_token()
        with pytest.raises(ForbiddenError, match="401"):
            client.pause(timeout=2.0)


def test_what_is_refused_for_good_is_told_at_once_in_the_words_of_the_api_server(
    fleet: Fleet, client: Client, proxy: ApiProxy
) -> None:
    running(fleet)
    expected = pytest.raises(RefusedError, match="the API server refused it: 422: the proxy says 422")
    with proxy.trouble(Trouble.answering(422), where=is_patch), expected as caught:
        client.pause()
    assert caught.value.status == 422
    assert len(proxy.seen(is_patch)) == 1
