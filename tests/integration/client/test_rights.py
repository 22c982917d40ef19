"""What the client may do, and what it says where it may not."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from llmservice.client import ConfigurationError, ForbiddenError, NotFoundError
from llmservice.client import Fleet as Client
from llmservice_testing.api_proxy import ApiProxy, Seen, Trouble, is_pod_list
from llmservice_testing.builders import Json
from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, allow

SERVICES: Final = {"apiGroups": ["llmservice.io"], "resources": ["llmservices"]}
RIGHTS: Final[list[Json]] = [{**SERVICES, "resourceNames": ["qwen"], "verbs": ["get", "watch", "patch"]}]
"""What docs/sdk.md says is needed."""
PODS: Final = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}


@pytest.fixture
def limited(
    control_plane: ControlPlane, cluster: Cluster, namespace: str, make_client: Callable[..., Client]
) -> Callable[..., Client]:
    """Makes a client with these rights and no others."""

    def make(*rights: Json) -> Client:
        token = cluster.service_account_token(namespace, "trainer")
        path = control_plane.user_kubeconfig(f"trainer-{namespace}", token=token, namespace=namespace)
        allow(cluster, namespace, f"system:serviceaccount:{namespace}:trainer", rights)
        return make_client(manager="trainer", kubeconfig=str(path))

    return make


@pytest.mark.usefixtures("operator")
def test_the_rights_that_are_documented_are_enough(fleet: Fleet, limited: Callable[..., Client]) -> None:
    fleet.grow(2)
    fleet.declare("running")
    client = limited(*RIGHTS)
    with client.paused() as p:
        assert len(p.pods) == 2
    client.verify()
    client.wait_running()
    assert not any(engine.paused for engine in fleet.engines)


@pytest.mark.usefixtures("operator")
def test_without_the_right_to_watch_the_object_is_read_instead(fleet: Fleet, limited: Callable[..., Client]) -> None:
    fleet.grow(2)
    fleet.declare("running")
    with limited({**SERVICES, "verbs": ["get", "patch"]}).paused() as p:
        assert p.count == 2


def test_without_the_right_to_patch_nothing_is_changed_and_that_is_said(
    fleet: Fleet, limited: Callable[..., Client]
) -> None:
    fleet.declare("running")
    before = fleet.get()
    client = limited({**SERVICES, "verbs": ["get", "watch"]})
    with pytest.raises(ForbiddenError, match='cannot patch resource "llmservices"') as caught, client.paused():
        pytest.fail("the block ran")
    after = fleet.get()
    assert (after["spec"], after["metadata"].get("annotations")) == (
        before["spec"],
        before["metadata"].get("annotations"),
    )
    assert not hasattr(caught.value, "__notes__"), "there is nothing to be said about a pause that never was"


@pytest.mark.usefixtures("operator")
def test_of_more_than_64_engines_all_are_named_where_pods_may_be_listed(
    fleet: Fleet, limited: Callable[..., Client]
) -> None:
    fleet.grow(70)
    fleet.add(ready=False, start=False)
    fleet.declare("running")
    fleet.wait("Paused", "False")
    with limited(*RIGHTS, PODS).paused() as p:
        assert p.count == 70
        assert sorted(pod.urls for pod in p.pods) == sorted((engine.url,) for engine in fleet.engines[:70])
    assert not any(engine.paused for engine in fleet.engines[:70])


@pytest.mark.usefixtures("operator")
def test_where_pods_may_not_be_listed_they_can_be_done_without(fleet: Fleet, limited: Callable[..., Client]) -> None:
    fleet.grow(65)
    fleet.declare("running")
    fleet.wait("Paused", "False")
    client = limited(*RIGHTS)
    with pytest.raises(ForbiddenError, match='cannot list resource "pods"') as caught, client.paused():
        pytest.fail("the block ran")
    assert any("list_pods=False" in note for note in caught.value.__notes__)
    fleet.wait("Paused", "False")
    with client.paused(list_pods=False) as p:
        assert p.count == 65
        assert p.pods == ()
        assert fleet.all_paused()


@pytest.mark.usefixtures("operator")
def test_a_pod_that_goes_while_they_are_listed_is_not_named(
    fleet: Fleet, cluster: Cluster, proxy: ApiProxy, make_client: Callable[..., Client]
) -> None:
    victim, *others = fleet.grow(66)
    fleet.declare("running")
    fleet.wait("Paused", "False")
    client = make_client(kubeconfig=str(proxy.kubeconfig))

    def names() -> list[str]:
        with client.paused() as p:
            return [pod.name for pod in p.pods]

    def is_read_after_the_list(seen: Seen) -> bool:
        return seen.method == "GET" and seen.path.endswith("/llmservices/qwen") and bool(proxy.seen(is_pod_list))

    with ThreadPoolExecutor(1) as pool:
        with proxy.trouble(Trouble.hanging(), where=is_read_after_the_list):
            found = pool.submit(names)
            wait_until(lambda: proxy.seen(is_pod_list), PATIENCE_SECONDS, what="the list of pods")
            cluster.delete_pod(fleet.namespace, victim.name)
            fleet.wait_for_targets(total=65, paused=65)
        assert sorted(found.result(PATIENCE_SECONDS)) == sorted(member.name for member in others)


def test_a_fleet_that_there_is_not_is_told_as_such(client: Client) -> None:
    for action in (client.status, client.pause, client.resume, client.verify, client.wait_paused):
        with pytest.raises(NotFoundError, match='"qwen" not found'):
            action()


def test_without_a_way_to_an_api_server_that_is_said(make_client: Callable[..., Client], tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere.yaml")
    with pytest.raises(ConfigurationError, match=f"there is no file {nowhere}"):
        make_client(kubeconfig=nowhere).status()
    with pytest.raises(ConfigurationError, match="another"):
        make_client(context="another").status()


@pytest.mark.usefixtures("operator")
def test_the_namespace_is_that_of_the_context_unless_it_is_named(
    fleet: Fleet, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.add()
    fleet.declare("running")
    admin = control_plane.user_kubeconfig(
        f"admin-{fleet.namespace}", token=control_plane.token, namespace=fleet.namespace
    )
    assert Client("qwen", kubeconfig=str(admin)).status().fleet == f"{fleet.namespace}/qwen"
    monkeypatch.setenv("KUBECONFIG", str(admin))
    with Client("qwen").paused():
        assert fleet.all_paused()
