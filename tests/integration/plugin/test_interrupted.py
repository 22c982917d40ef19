"""Ctrl-C at the worst moments: while the request is on its way. Between the command and the API server stands a proxy."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmservice_testing.api_proxy import ApiProxy, Seen, Trouble
from llmservice_testing.builders import Json
from llmservice_testing.cluster import wait_until
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet

from .conftest import KubectlPlugin

INTERRUPTED = 130

pytestmark = pytest.mark.usefixtures("without_operator")


@pytest.fixture
def proxy(control_plane: ControlPlane, tmp_path: Path) -> Iterator[ApiProxy]:
    """In front of the command alone."""
    with ApiProxy(control_plane, tmp_path) as running:
        yield running


@pytest.fixture
def behind_proxy(kubectl_llm: KubectlPlugin, proxy: ApiProxy) -> KubectlPlugin:
    """The plugin, which reaches the API server through the proxy."""
    kubectl_llm.environment["KUBECONFIG"] = str(proxy.kubeconfig)
    return kubectl_llm


def is_patch(seen: Seen) -> bool:
    """The request itself; asking for a fresh read is another one."""
    return seen.method == "PATCH" and b'"spec"' in seen.body


def anything(_: Seen) -> bool:
    """Every request."""
    return True


def patch(fleet: Fleet, spec: Json, *, by: str) -> None:
    """As another client does it."""
    fleet.cluster.request(
        "PATCH",
        f"/apis/llmservice.io/v1alpha1/namespaces/{fleet.namespace}/llmservices/{fleet.name}",
        body={"spec": spec},
        content_type="application/merge-patch+json",
        fieldManager=by,
    )


def interrupted_while_sending(plugin: KubectlPlugin, proxy: ApiProxy, meanwhile: Callable[[], object]) -> str:
    """What is said when it is interrupted after its request was received and before it was answered. The proxy keeps the
    request to itself; `meanwhile` is what happens to the object in its place."""
    with proxy.trouble(Trouble.hanging(), is_patch):
        running = plugin.start("pause", "qwen", "--mode=wait")
        wait_until(lambda: proxy.seen(is_patch), PATIENCE_SECONDS, what="the request")
        meanwhile()
        done = running.interrupt()
    assert done.status == INTERRUPTED
    assert "Traceback" not in done.errors
    return done.errors


def test_a_request_that_did_not_arrive_is_said_to_be_none(
    fleet: Fleet, behind_proxy: KubectlPlugin, proxy: ApiProxy
) -> None:
    fleet.declare("running")
    said = interrupted_while_sending(behind_proxy, proxy, lambda: None)
    assert "has not arrived (spec.generation is running, set by python-httpx)" in said
    assert "undo" not in said
    (late,) = proxy.seen(is_patch)  # it does arrive, now that the proxy lets it go
    wait_until(lambda: late.status == 409, PATIENCE_SECONDS, what="the late request being refused", last=lambda: late)
    assert fleet.get()["spec"]["generation"] == "running"


def test_a_request_whose_answer_was_not_awaited_is_said_to_stand_with_its_undo(
    fleet: Fleet, behind_proxy: KubectlPlugin, proxy: ApiProxy
) -> None:
    fleet.declare("running")
    spec = {"generation": "paused", "pause": {"mode": "wait"}}
    said = interrupted_while_sending(behind_proxy, proxy, lambda: patch(fleet, spec, by="kubectl-llm"))
    assert "spec.generation was set to paused, it was running before" in said
    assert '"pause":{"mode":"abort"}' in said


def test_what_somebody_else_sent_meanwhile_is_not_taken_for_ours(
    fleet: Fleet, behind_proxy: KubectlPlugin, proxy: ApiProxy
) -> None:
    fleet.declare("running")
    said = interrupted_while_sending(behind_proxy, proxy, lambda: patch(fleet, {"generation": "paused"}, by="another"))
    assert "has not arrived (spec.generation is paused, set by another)" in said
    assert "undo" not in said


def test_what_cannot_be_looked_up_is_said_to_be_unknown(
    fleet: Fleet, behind_proxy: KubectlPlugin, proxy: ApiProxy
) -> None:
    fleet.declare("running")
    with proxy.trouble(Trouble.hanging(), is_patch):
        running = behind_proxy.start("pause", "qwen")
        wait_until(lambda: proxy.seen(is_patch), PATIENCE_SECONDS, what="the request")
        with proxy.trouble(Trouble.hanging(), anything):
            said = running.interrupt().errors
    assert "whether it arrives is not known; spec.generation was running before" in said
    assert f"kubectl llm status qwen -n {fleet.namespace}" in said


def test_an_answer_that_is_lost_is_asked_for_again_and_the_undo_is_that_of_the_first_request(
    fleet: Fleet, behind_proxy: KubectlPlugin, proxy: ApiProxy
) -> None:
    fleet.declare("running")
    with proxy.trouble(Trouble.losing_the_answer(times=1), is_patch):
        done = behind_proxy("pause", "qwen", "--timeout=3s")
    assert done.status == 3
    assert "spec.generation was set to paused, it was running before" in done.errors
    assert f"kubectl llm resume qwen -n {fleet.namespace}" in done.errors


def test_sigterm_is_explained_as_ctrl_c_is(fleet: Fleet, kubectl_llm: KubectlPlugin) -> None:
    fleet.declare("running")
    running = kubectl_llm.start("pause", "qwen")
    wait_until(lambda: fleet.get()["spec"]["generation"] == "paused", PATIENCE_SECONDS, what="the request")
    done = running.interrupt(signal.SIGTERM)
    assert done.status == 143
    assert "spec.generation was set to paused, it was running before" in done.errors


def test_nothing_sent_is_nothing_changed(fleet: Fleet, behind_proxy: KubectlPlugin, proxy: ApiProxy) -> None:
    fleet.declare("running")
    with proxy.trouble(Trouble.hanging(), anything):
        running = behind_proxy.start("pause", "qwen")
        wait_until(lambda: proxy.seen(anything), PATIENCE_SECONDS, what="a request")
        done = running.interrupt()
    assert done.status == INTERRUPTED
    assert f"{fleet.namespace}/qwen: nothing was sent, and nothing was changed" in done.errors
    assert fleet.get()["spec"]["generation"] == "running"
