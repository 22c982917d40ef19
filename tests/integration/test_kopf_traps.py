"""What kopf does by itself, or to us, where one is not careful (DESIGN section 6): each trap is one test."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

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


def follows(fleet: Fleet) -> None:
    """A change of the spec, which kopf alone tells of at once, is followed."""
    generation = "running" if fleet.all_paused() else "paused"
    fleet.want(generation)
    fleet.wait("Ready", reason="InDesiredState")
    assert {engine.paused for engine in fleet.engines} == {generation == "paused"}


def restarts_of_kopf(operator: OperatorProcess) -> int:
    """How often kopf ended."""
    return sum(1 for line in operator.log_lines() if line["message"] == "Kopf ended and is started again")


@pytest.mark.promise("clean", fault="kopf keeps state in objects")
def test_kopf_writes_no_finalizer_no_annotation_and_nothing_else(
    fleet: Fleet, cluster: Cluster, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    fleet.paused(2)
    before = fleet.get()
    follows(fleet)
    cluster.patch_llmservice(fleet.namespace, fleet.name, {"metadata": {"labels": {"team": "a"}}})
    follows(fleet)
    after = fleet.get()["metadata"]
    assert "finalizers" not in after
    assert "annotations" not in after
    assert before["metadata"]["uid"] == after["uid"]
    writes = {(one.method, one.path.split(fleet.namespace)[-1]) for one in proxy.seen(lambda one: one.is_write)}
    assert writes == {("PUT", f"/llmservices/{fleet.name}/status"), ("POST", "/events")}
    writers = {entry["manager"] for entry in after["managedFields"] if entry.get("subresource") != "status"}
    assert not any("kopf" in writer for writer in writers)


@pytest.mark.promise("clean", fault="kopf keeps state in objects")
def test_a_deletion_is_not_held_up_by_kopf_nor_by_an_operator_that_is_away(
    fleet: Fleet, cluster: Cluster, operator: OperatorProcess
) -> None:
    fleet.paused(1)
    operator.kill()
    cluster.delete_llmservice(fleet.namespace, fleet.name)
    assert cluster.list_llmservices(fleet.namespace) == []


@pytest.mark.promise("bounded", "recovers", fault="kopf's watch is closed at once")
def test_a_watch_that_is_closed_at_once_is_not_reopened_thousands_of_times(
    fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    fleet.paused(1)
    with proxy.trouble(Trouble.closing_at_once(), api_proxy.is_watch, cut_open=True):
        start = time.monotonic()
        fleet.let_pass(5)
        passed = time.monotonic() - start
        # Twice a second for each of the two watches, and some at the start.
        assert len(proxy.seen(api_proxy.is_service_watch, since=start)) <= 3 * passed + 5
        assert len(proxy.seen(api_proxy.is_pod_watch, since=start)) <= 3 * passed + 5
        assert len(proxy.seen(since=start)) <= 8 * passed + 10
    follows(fleet)
    assert restarts_of_kopf(operator) == 0


@pytest.mark.parametrize("code", [500, *(pytest.param(code, marks=long) for code in (400, 403, 504))])
@pytest.mark.promise("recovers", "bounded", fault="an ERROR event other than 410 in kopf's watch")
def test_an_error_event_in_kopfs_watch_does_not_end_the_operator(
    fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess, code: int
) -> None:
    fleet.paused(1)
    with proxy.trouble(Trouble.error_event(code), api_proxy.is_service_watch, cut_open=True):
        start = time.monotonic()
        wait_until(
            lambda: len(proxy.seen(api_proxy.is_service_watch, since=start)) >= 2,
            PATIENCE_SECONDS,
            what="kopf trying again",
        )
        fleet.let_pass(2)
        assert len(proxy.seen(since=start)) < 10 * (time.monotonic() - start) + 20
    assert operator.is_running
    follows(fleet)
    wait_until(lambda: operator.liveness() == 200, PATIENCE_SECONDS, what="liveness")


@pytest.mark.parametrize("status", [403, *(pytest.param(status, marks=long) for status in (404, 500, 503))])
@pytest.mark.promise("recovers", "bounded", fault="kopf's watch and list are refused for a while")
def test_a_refused_watch_does_not_end_the_operator(
    fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess, status: int
) -> None:
    """Long enough for what kopf ends after by default."""

    def is_of_services(seen: api_proxy.Seen) -> bool:
        return api_proxy.is_service_watch(seen) or api_proxy.is_service_list(seen)

    fleet.paused(1)
    with proxy.trouble(Trouble.answering(status), is_of_services, cut_open=True):
        start = time.monotonic()
        wait_until(
            lambda: len(proxy.seen(is_of_services, since=start)) >= 4, PATIENCE_SECONDS * 2, what="kopf trying again"
        )
        fleet.let_pass(2)
        assert len(proxy.seen(since=start)) < 10 * (time.monotonic() - start) + 20
    assert operator.is_running
    follows(fleet)
    wait_until(lambda: operator.liveness() == 200, PATIENCE_SECONDS, what="liveness")


@pytest.mark.promise("recovers", fault="kopf's watch sends what is no JSON")
def test_rubbish_in_kopfs_watch_does_not_end_the_operator(
    fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    fleet.paused(1)
    rubbish = Trouble.saying(200, b"<html>502 Bad Gateway</html>\n")
    with proxy.trouble(rubbish, api_proxy.is_watch, cut_open=True):
        start = time.monotonic()
        wait_until(
            lambda: len(proxy.seen(api_proxy.is_service_watch, since=start)) >= 2,
            PATIENCE_SECONDS,
            what="kopf trying again",
        )
        fleet.let_pass(2)
    assert operator.is_running
    follows(fleet)


@pytest.mark.promise("recovers", "calm", fault="kopf repeats all objects when its watch begins anew")
def test_objects_that_are_told_of_again_change_nothing(
    fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    fleet.paused(2)
    fleet.wait_for_event("Paused")
    fleet.let_pass(1)
    before = fleet.get()["metadata"]["resourceVersion"], len(fleet.events())
    for _ in range(3):
        lists = len(proxy.seen(api_proxy.is_service_list))
        with proxy.trouble(Trouble.error_event(410, times=1), api_proxy.is_service_watch, cut_open=True):
            wait_until(
                lambda seen=lists: len(proxy.seen(api_proxy.is_service_list)) > seen,  # type: ignore[misc]
                PATIENCE_SECONDS,
                what="a list",
            )
    fleet.let_pass(2)
    assert (fleet.get()["metadata"]["resourceVersion"], len(fleet.events())) == before
    assert len(fleet.posts()) == 2


@pytest.mark.timeout(240)
@pytest.mark.promise("recovers", "calm", fault="kopf misses a deletion in a gap of its watch")
@long
def test_a_deletion_that_kopf_missed_is_swept(
    fleet: Fleet, cluster: Cluster, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    """Kopf keeps what was deleted in a gap; what it keeps would own its pods for ever."""
    fleet.paused(1)
    created = datetime.fromisoformat(fleet.get()["metadata"]["creationTimestamp"])
    wait_until(lambda: datetime.now(UTC) - created > timedelta(seconds=2), 5, what="another second")
    cluster.create_llmservice(
        fleet.namespace, make_llmservice("younger").selector(app=fleet.name).spec(resyncSeconds=1).generation("running")
    )
    wait_until(
        lambda: any(
            one["type"] == "Stalled" and one["reason"] == "PodsClaimed"
            for one in cluster.get_llmservice(fleet.namespace, "younger")["status"].get("conditions", [])
        ),
        PATIENCE_SECONDS,
        what="the younger being stalled",
    )
    with proxy.gap(api_proxy.is_service_watch):
        cluster.delete_llmservice(fleet.namespace, fleet.name)
    assert fleet.all_paused()
    wait_until(lambda: not fleet.engines[0].paused, 120, what="the younger taking over")
    assert [post.path for post in fleet.posts()] == ["/pause", "/resume"]


@pytest.mark.promise("ends", fault="told to end during an outage")
def test_sigterm_ends_it_in_seconds_while_kopf_waits_to_try_again(
    fleet: Fleet, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    """Kopf sleeps through its backoffs; 5 s each when it has failed for a while."""
    fleet.paused(1)
    with proxy.trouble(Trouble.answering(500), cut_open=True):
        start = time.monotonic()
        wait_until(
            lambda: (
                len(proxy.seen(api_proxy.is_service_watch, since=start))
                + len(proxy.seen(api_proxy.is_service_list, since=start))
                >= 4
            ),
            PATIENCE_SECONDS,
            what="kopf trying again",
        )
        told = time.monotonic()
        assert operator.stop(within=20) == 0
        assert time.monotonic() - told < 15


@pytest.mark.promise("recovers", fault="the definition is not there when kopf starts")
def test_r23_kopf_begins_when_the_definition_is_served(
    fleet: Fleet, proxy: ApiProxy, make_operator: Callable[..., OperatorProcess]
) -> None:
    """Kopf looks for the resource once, and with scanning off never again: it must not start before it is there."""
    fleet.grow(1)
    fleet.declare("paused")
    operator = make_operator(proxy.kubeconfig)

    def is_discovery(seen: api_proxy.Seen) -> bool:
        return seen.path.startswith("/openapi/v3") or seen.path.startswith("/apis/llmservice.io/v1alpha1") is False

    with proxy.trouble(Trouble.answering(404), is_discovery):
        operator.start_soon()
        wait_until(
            lambda: any(line["message"] == "Waiting for the resource" for line in operator.log_lines()),
            PATIENCE_SECONDS,
            what="it saying that it waits",
        )
        assert fleet.posts() == []
    fleet.wait("Ready", reason="InDesiredState")
    follows(fleet)


@pytest.mark.promise("recovers", "bounded", fault="discovery fails when kopf starts")
def test_kopf_that_cannot_discover_is_started_again(
    fleet: Fleet, proxy: ApiProxy, make_operator: Callable[..., OperatorProcess]
) -> None:
    """What kopf asks of the API before it watches: the groups, and whether we may list namespaces."""
    fleet.grow(1)
    fleet.declare("paused")
    operator = make_operator(proxy.kubeconfig)

    def is_kopfs(seen: api_proxy.Seen) -> bool:
        return seen.path in ("/api", "/apis", "/api/v1", "/apis/llmservice.io/v1alpha1")

    with proxy.trouble(Trouble.answering(403), is_kopfs):
        operator.start_soon()
        start = time.monotonic()
        wait_until(lambda: proxy.seen(is_kopfs), PATIENCE_SECONDS, what="discovery")
        fleet.wait("Ready", reason="InDesiredState")  # by the list of all, without kopf
        assert len(proxy.seen(is_kopfs)) < 10 * (time.monotonic() - start) + 20
    wait_until(
        lambda: proxy.open_requests(api_proxy.is_service_watch), PATIENCE_SECONDS * 2, what="kopf watching at last"
    )
    follows(fleet)
