"""R16, R20: an API server that answers errors, nothing, or rubbish. The operator recovers without help, and meanwhile leaves
engines as they are.

Between the operator and the API server stands a proxy (`llmservice_testing.api_proxy`); the tests look past it.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmservice.domain.clocks import to_seconds
from llmservice_testing import api_proxy
from llmservice_testing.api_proxy import ApiProxy, Trouble
from llmservice_testing.builders import make_llmservice
from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.reliability import long


@pytest.fixture
def proxy(control_plane: ControlPlane, cluster: Cluster, tmp_path: Path) -> Iterator[ApiProxy]:
    """What the operator takes for the API server."""
    with ApiProxy(control_plane, tmp_path) as running:
        yield running


@pytest.fixture
def operator(proxy: ApiProxy, make_operator: Callable[..., OperatorProcess]) -> OperatorProcess:
    """An operator behind the proxy."""
    process = make_operator(proxy.kubeconfig)
    process.start()
    return process


def said(operator: OperatorProcess, message: str) -> int:
    """How often the operator's log says so."""
    return sum(1 for line in operator.log_lines() if line["message"] == message)


def lose_sight(operator: OperatorProcess) -> None:
    """Waits until the operator has noticed that it does not see the pods any more."""
    wait_until(lambda: said(operator, "Lost sight of pods"), PATIENCE_SECONDS, what="the operator noticing")


def wait_since(start: float, seconds: float) -> None:
    """Waits until so many seconds have passed; only where the length of a fault is what is tested."""
    wait_until(lambda: time.monotonic() - start >= seconds, seconds + 1, what="the time of the fault")


def assert_serves(fleet: Fleet, operator: OperatorProcess) -> None:
    """It follows the spec again, both ways, with one call for each engine, and is then silent."""
    before = len(fleet.posts())
    paused = fleet.all_paused()
    for generation in ("running", "paused") if paused else ("paused", "running"):
        fleet.want(generation)
        fleet.wait("Ready", reason="InDesiredState")
        assert {engine.paused for engine in fleet.engines} == {generation == "paused"}
    assert len(fleet.posts()) == before + 2 * len(fleet.engines)
    fleet.let_pass(1)
    version, posts = fleet.get()["metadata"]["resourceVersion"], len(fleet.posts())
    fleet.let_pass(2)
    assert (fleet.get()["metadata"]["resourceVersion"], len(fleet.posts())) == (version, posts)
    assert operator.liveness() == 200


# Everything is refused


@pytest.mark.parametrize("status", [500, pytest.param(503, marks=long)])
@pytest.mark.promise("recovers", "calm", "silent", "bounded", fault="the API server answers 5xx")
def test_r16_an_api_server_that_answers_5xx_is_survived(
    fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess, status: int
) -> None:
    strayed, _ = fleet.paused(2).members
    with proxy.trouble(Trouble.answering(status), cut_open=True):
        start = time.monotonic()
        lose_sight(operator)
        strayed.engine.resume()
        fleet.let_pass(4)
        assert not strayed.engine.paused  # unseen pods may be others by now
        assert len(fleet.posts()) == 2
        assert len(proxy.seen(since=start)) < 10 * (time.monotonic() - start) + 20
    wait_until(lambda: strayed.engine.paused, PATIENCE_SECONDS, what="the drift being corrected afterwards")
    fleet.wait("Ready", reason="InDesiredState")
    assert len(fleet.posts()) == 3
    assert_serves(fleet, operator)


def is_refused_read(seen: api_proxy.Seen) -> bool:
    """A read of the object itself, with which each attempt to see the pods again begins."""
    return seen.method == "GET" and seen.path.endswith("/llmservices/qwen") and seen.status == 429


@pytest.mark.promise("recovers", "calm", "bounded", fault="the API server answers 429 with Retry-After")
def test_r16_an_api_server_that_answers_429_is_survived_and_not_pressed(
    fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    fleet.paused(2)
    with proxy.trouble(Trouble.answering(429, retry_after=2), cut_open=True):
        start = time.monotonic()
        lose_sight(operator)
        fleet.want("running")
        wait_until(
            lambda: len(proxy.seen(is_refused_read, since=start)) >= 3,
            PATIENCE_SECONDS,
            what="three reads of the object",
        )
        assert fleet.all_paused()
        assert len(proxy.seen(since=start)) < 10 * (time.monotonic() - start) + 20
        times = [one.at for one in proxy.seen(is_refused_read, since=start)]
        assert all(later - earlier >= 2 for earlier, later in itertools.pairwise(times))
    fleet.wait("Ready", reason="InDesiredState")
    assert len(fleet.posts()) == 4
    assert_serves(fleet, operator)


@pytest.mark.promise("recovers", "calm", fault="the API server cuts every connection")
def test_r16_connections_that_are_cut_without_an_answer_are_survived(
    fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    fleet.paused(2)
    with proxy.trouble(Trouble.cutting(), cut_open=True):
        lose_sight(operator)
        fleet.want("running")
        fleet.let_pass(3)
        assert fleet.all_paused()
    fleet.wait("Ready", reason="InDesiredState")
    assert_serves(fleet, operator)


@pytest.mark.parametrize(
    "seconds",
    [
        10,
        pytest.param(60, marks=[long, pytest.mark.timeout(300)]),
        pytest.param(120, marks=[long, pytest.mark.timeout(400)]),
    ],
)
@pytest.mark.promise("recovers", "calm", fault="the API server answers nothing for 10, 60 or 120 s")
def test_r16_an_api_server_that_answers_nothing_is_survived(
    fleet: Fleet, cluster: Cluster, proxy: ApiProxy, operator: OperatorProcess, seconds: int
) -> None:
    """What was asked is answered when it is over, late writes too: they are made against an old version, and refused."""
    staying, strayed, gone = fleet.paused(3).members
    with proxy.trouble(Trouble.hanging()):
        start = time.monotonic()
        strayed.engine.resume()
        cluster.delete_pod(fleet.namespace, gone.name)
        newcomer = fleet.add()
        cluster.patch_llmservice(fleet.namespace, fleet.name, {"metadata": {"annotations": {"seen": "late"}}})
        wait_since(start, seconds)
        assert operator.liveness() == 200
    wait_until(
        lambda: strayed.engine.paused and newcomer.engine.paused,
        PATIENCE_SECONDS * 2,
        what="both that run being paused",
    )
    fleet.wait_for_targets(total=3, paused=3)
    fleet.wait("Ready", reason="InDesiredState")
    assert {post.path for post in fleet.posts()} == {"/pause"}
    assert len(staying.engine.posts()) == 1
    for engine in fleet.engines:
        engine.reset_calls()
    cluster.delete_pod(fleet.namespace, newcomer.name)
    fleet.wait_for_targets(total=2, paused=2)
    fleet.want("running")
    fleet.wait("Paused", "False")


@pytest.mark.parametrize("trouble", [Trouble.answering(500), Trouble.hanging()], ids=["500", "hangs"])
@pytest.mark.promise("recovers", fault="the API server is ill when the operator starts")
def test_r16_an_operator_that_starts_during_the_fault_begins_when_it_is_over(
    fleet: Fleet, proxy: ApiProxy, make_operator: Callable[..., OperatorProcess], trouble: Trouble
) -> None:
    fleet.grow(2)
    fleet.declare("paused")
    operator = make_operator(proxy.kubeconfig)
    with proxy.trouble(trouble):
        operator.start_soon()
        wait_until(lambda: len(proxy.seen()) >= 1, PATIENCE_SECONDS, what="a first request")
        if trouble == Trouble.answering(500):
            wait_until(lambda: said(operator, "Waiting for the resource"), PATIENCE_SECONDS, what="it says so")
        assert fleet.posts() == []
    fleet.wait("Ready", reason="InDesiredState")
    assert_serves(fleet, operator)


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(Trouble.answering(500), id="500"),
        pytest.param(Trouble.answering(429, retry_after=30), id="429"),
        pytest.param(Trouble.hanging(), id="hangs", marks=long),
        pytest.param(Trouble.cutting(), id="cut", marks=long),
    ],
)
@pytest.mark.promise("ends", "calm", fault="told to end while the API server is ill")
def test_it_ends_in_seconds_when_told_to_while_the_api_server_is_ill(
    fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess, trouble: Trouble
) -> None:
    fleet.paused(2)
    start = time.monotonic()
    with proxy.trouble(trouble, cut_open=True):
        wait_until(lambda: len(proxy.seen(since=start)) >= 2, PATIENCE_SECONDS, what="requests that fail")
        assert operator.stop(within=15) == 0
    assert fleet.all_paused()
    assert len(fleet.posts()) == 2


@pytest.mark.promise("recovers", "truth", "calm", fault="one request in three fails, each in another way")
def test_r20_an_api_server_that_fails_now_and_then_is_no_hindrance(
    fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    fleet.grow(4)
    fleet.declare("running")
    troubles = (
        Trouble.answering(500),
        Trouble.answering(429, retry_after=1),
        Trouble.cutting(),
        Trouble.losing_the_answer(),
        Trouble.delaying(0.5),
    )
    for number, trouble in enumerate(troubles):

        def hit(seen: api_proxy.Seen, number: int = number) -> bool:
            return int(seen.at * 1000) % 3 == number % 3

        with proxy.trouble(trouble, hit):
            for generation in ("paused", "running"):
                fleet.want(generation)
                fleet.wait("Ready", reason="InDesiredState")
                assert {engine.paused for engine in fleet.engines} == {generation == "paused"}
    assert len(fleet.posts()) == 2 * 4 * len(troubles)
    assert_serves(fleet, operator)


# Credentials


@pytest.mark.promise("recovers", "calm", fault="the token expires and is replaced in its file")
def test_r16_an_expired_token_is_read_again_when_it_was_replaced(
    fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    fleet.paused(2)
    proxy.expire_token()
    proxy.cut()
    lose_sight(operator)
    start = time.monotonic()
    fleet.want("running")
    fleet.let_pass(4)
    assert fleet.all_paused()
    assert len(proxy.seen(since=start)) < 10 * (time.monotonic() - start) + 20
    proxy.renew_token()
    fleet.wait("Ready", reason="InDesiredState")
    assert_serves(fleet, operator)


@pytest.mark.promise("recovers", "calm", fault="the token is replaced before it expires")
def test_a_token_that_is_replaced_in_time_costs_nothing(
    fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    fleet.paused(2)
    proxy.expire_token()
    proxy.renew_token()
    fleet.want("running")
    fleet.wait("Ready", reason="InDesiredState")
    proxy.cut(api_proxy.is_watch)
    assert_serves(fleet, operator)
    assert said(operator, "Kopf ended and is started again") == 0


# Watches


@pytest.mark.promise("recovers", "calm", "silent", fault="watches are cut")
def test_r16_watches_that_are_cut_again_and_again_lose_nothing(
    fleet: Fleet, cluster: Cluster, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    fleet.paused(1)
    for _ in range(3):
        wait_until(lambda: proxy.open_requests(api_proxy.is_pod_watch), PATIENCE_SECONDS, what="a watch of pods")
        wait_until(lambda: proxy.open_requests(api_proxy.is_service_watch), PATIENCE_SECONDS, what="a watch of ours")
        proxy.cut(api_proxy.is_watch)
        member = fleet.add()
        wait_until(lambda made=member: made.engine.paused, PATIENCE_SECONDS, what="it being paused")  # type: ignore[misc]
        cluster.delete_pod(fleet.namespace, member.name)
        fleet.wait_for_targets(total=1, paused=1)
    assert len(fleet.posts()) == 4
    cluster.create_pod(fleet.namespace, fleet.members[-1].pod)
    fleet.wait_for_targets(total=2, paused=2)


@pytest.mark.parametrize(
    "trouble", [Trouble.answering(410), Trouble.error_event(410)], ids=["as an answer", "in the stream"]
)
@pytest.mark.promise("recovers", "calm", "bounded", fault="watches answer 410")
def test_r16_a_watch_that_is_too_old_is_begun_anew_from_a_list(
    fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess, trouble: Trouble
) -> None:
    fleet.paused(2)
    with proxy.trouble(trouble, api_proxy.is_watch, cut_open=True):
        start = time.monotonic()
        newcomer = fleet.add()  # lists go on, and are conclusive
        wait_until(lambda: newcomer.engine.paused, PATIENCE_SECONDS, what="the newcomer being paused")
        fleet.let_pass(4)
        assert len(proxy.seen(since=start)) < 10 * (time.monotonic() - start) + 20
    fleet.wait_for_targets(total=3, paused=3)
    assert len(fleet.posts()) == 3
    assert_serves(fleet, operator)


@pytest.mark.parametrize("status", [403, pytest.param(500, marks=long), pytest.param(429, marks=long)])
@pytest.mark.promise("recovers", "calm", fault="watches of pods are refused")
def test_r16_watches_of_pods_that_are_refused_are_survived(
    fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess, status: int
) -> None:
    fleet.paused(2)
    with proxy.trouble(Trouble.answering(status), api_proxy.is_pod_watch, cut_open=True):
        lose_sight(operator)
        fleet.want("running")
        fleet.let_pass(3)
    fleet.wait("Ready", reason="InDesiredState")
    assert not any(engine.paused for engine in fleet.engines)
    assert len(fleet.posts()) == 4
    assert_serves(fleet, operator)


@pytest.mark.promise("recovers", "calm", "truth", fault="lists of pods fail")
def test_r11_a_list_that_fails_concludes_nothing(fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess) -> None:
    fleet.paused(2)
    with (
        proxy.trouble(Trouble.answering(500), api_proxy.is_pod_list),
        proxy.trouble(Trouble.error_event(410), api_proxy.is_pod_watch, cut_open=True),
    ):
        lose_sight(operator)
        fleet.want("running")
        fleet.let_pass(4)
        assert fleet.all_paused()
        assert fleet.targets() in ({"total": 2, "paused": 2}, {"total": 2, "running": 2})  # never: no pods
    fleet.wait("Ready", reason="InDesiredState")
    assert_serves(fleet, operator)


# Status


@pytest.mark.parametrize("status", [403, pytest.param(500, marks=long)])
@pytest.mark.promise("recovers", "truth", "bounded", fault="status writes are refused")
def test_engines_are_driven_while_status_writes_are_refused(
    fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess, status: int
) -> None:
    fleet.paused(2)
    with proxy.trouble(Trouble.answering(status), api_proxy.is_status_write):
        for paused, generation in ((False, "running"), (True, "paused"), (False, "running")):
            start = time.monotonic()
            fleet.want(generation)
            wait_until(
                lambda wanted=paused: all(engine.paused == wanted for engine in fleet.engines),  # type: ignore[misc]
                PATIENCE_SECONDS,
                what=f"all being {generation}",
            )
        fleet.let_pass(3)
        assert len(fleet.posts()) == 8
        service = fleet.get()
        assert service["status"]["observedGeneration"] < service["metadata"]["generation"]  # old, and says so
        assert len(proxy.seen(api_proxy.is_status_write, since=start)) < 3 * (time.monotonic() - start) + 5
    fleet.wait("Paused", "False")
    assert_serves(fleet, operator)


@pytest.mark.promise("recovers", "calm", fault="status writes are in conflict")
def test_status_writes_in_conflict_are_computed_again(fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess) -> None:
    fleet.paused(2)
    with proxy.trouble(Trouble.answering(409, times=4), api_proxy.is_status_write):
        fleet.want("running")
        wait_until(lambda: not any(engine.paused for engine in fleet.engines), PATIENCE_SECONDS, what="all running")
        fleet.wait("Paused", "False")
    assert len(fleet.posts()) == 4
    assert_serves(fleet, operator)


@pytest.mark.promise("recovers", "calm", fault="a status write is done and its answer lost")
def test_a_status_write_whose_answer_was_lost_is_read_back(
    fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    fleet.paused(2)
    with proxy.trouble(Trouble.losing_the_answer(times=2), api_proxy.is_status_write):
        fleet.want("running")
        fleet.wait("Paused", "False")
    assert_serves(fleet, operator)


@pytest.mark.promise("truth", "recovers", fault="a status write is held past a newer one")
def test_case_47_a_status_write_that_comes_late_does_not_overwrite_a_newer_one(
    fleet: Fleet,
    cluster: Cluster,
    proxy: ApiProxy,
    operator: OperatorProcess,
    make_operator: Callable[..., OperatorProcess],
) -> None:
    fleet.paused(2)
    wait_until(
        lambda: not proxy.open_requests(api_proxy.is_status_write), PATIENCE_SECONDS, what="the answer to a write"
    )
    start = time.monotonic()
    with proxy.trouble(Trouble.hanging(), api_proxy.is_status_write):
        fleet.want("running")
        wait_until(lambda: proxy.open_requests(api_proxy.is_status_write), PATIENCE_SECONDS, what="a write that hangs")
        make_operator().start()  # not behind the proxy: its writes pass
        fleet.wait("Paused", "False")
        fleet.want("paused")
        fleet.wait("Paused", "True")
    wait_until(
        lambda: proxy.seen(lambda one: api_proxy.is_status_write(one) and one.status == 409, since=start),
        PATIENCE_SECONDS,
        what="the late write being refused",
    )
    fleet.let_pass(2)
    assert fleet.wait("Ready", reason="InDesiredState")["status"]["paused"] is True
    assert fleet.all_paused()


@pytest.mark.promise("recovers", "apart", fault="events cannot be written")
def test_events_that_are_refused_or_hang_hold_nothing_up(
    fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    def is_event(seen: api_proxy.Seen) -> bool:
        return seen.method == "POST" and seen.path.endswith("/events")

    fleet.paused(2)
    for trouble in (Trouble.answering(403), Trouble.hanging()):
        with proxy.trouble(trouble, is_event):
            assert_serves(fleet, operator)
    fleet.wait_for_event("Resumed")


# Deletion


@pytest.mark.promise("recovers", "calm", fault="an object is deleted or made while its watch is cut")
def test_an_object_that_was_replaced_while_the_watch_was_cut_is_taken_up(
    fleet: Fleet, cluster: Cluster, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    """A watch goes on from where it was."""
    fleet.paused(2)
    with proxy.trouble(Trouble.cutting(), api_proxy.is_service_watch, cut_open=True):
        cluster.delete_llmservice(fleet.namespace, fleet.name)
        fleet.declare("running")
    fleet.wait("Ready", reason="InDesiredState")
    assert [post.path for post in fleet.posts()] == ["/pause"] * 2 + ["/resume"] * 2
    assert said(operator, "Forgot an LLMService") == 1


@long
@pytest.mark.timeout(240)
@pytest.mark.promise("recovers", "calm", fault="an object is deleted in a gap of its watch")
def test_an_object_that_was_deleted_in_a_gap_of_the_watch_is_swept(
    fleet: Fleet, cluster: Cluster, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    """Nothing ever tells of it. The next list of all, a minute later at most, notices; the engines are left as they are."""
    member = fleet.paused(1).members[0]
    with proxy.gap(api_proxy.is_service_watch):
        cluster.delete_llmservice(fleet.namespace, fleet.name)
    wait_until(lambda: said(operator, "Forgot an LLMService"), 100, what="the sweep")
    member.engine.resume()
    other = fleet.add(labels={"app": "other"})
    service = make_llmservice("other").selector(app="other").generation("paused")
    cluster.create_llmservice(fleet.namespace, service)
    wait_until(lambda: other.engine.paused, PATIENCE_SECONDS, what="another object being served")
    assert not member.engine.paused


@long
@pytest.mark.timeout(240)
@pytest.mark.promise("recovers", "calm", fault="an object is deleted in a gap of its watch")
def test_an_object_that_was_replaced_in_a_gap_of_the_watch_gets_its_pods_after_the_sweep(
    fleet: Fleet, cluster: Cluster, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    """Until then the old one is known, and owns the pods, as it is the older: by whole seconds, as the API has them."""
    fleet.paused(2)
    created_at = to_seconds(fleet.get()["metadata"]["creationTimestamp"])
    with proxy.gap(api_proxy.is_service_watch):
        cluster.delete_llmservice(fleet.namespace, fleet.name)
        wait_until(lambda: time.time() >= created_at + 1, PATIENCE_SECONDS, what="the next second")
        fleet.declare("running")
    wait_until(lambda: not any(engine.paused for engine in fleet.engines), 100, what="what the new one says")
    fleet.wait("Ready", reason="InDesiredState")
    assert [post.path for post in fleet.posts()] == ["/pause"] * 2 + ["/resume"] * 2
    assert said(operator, "Forgot an LLMService") == 1


@pytest.mark.promise("recovers", "calm", fault="pods come and go in a gap of their watch")
def test_pods_that_came_and_went_in_a_gap_of_the_watch_are_known_from_the_list(
    fleet: Fleet, cluster: Cluster, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    _, gone = fleet.paused(2).members
    with proxy.gap(api_proxy.is_pod_watch):
        cluster.delete_pod(fleet.namespace, gone.name)
        newcomer = fleet.add()
    wait_until(lambda: newcomer.engine.paused, PATIENCE_SECONDS, what="the newcomer being paused")
    fleet.wait_for_targets(total=2, paused=2)
    assert len(fleet.posts()) == 3
    fleet.want("running")
    fleet.wait("Paused", "False")
    assert gone.engine.paused
