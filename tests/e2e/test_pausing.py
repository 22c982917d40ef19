"""The main job, in a real cluster: kubelets start the engines, Services lead to them, and kubectl is the user's."""

from llmservice_testing.cluster import wait_until
from llmservice_testing.fleet import Kubectl
from llmservice_testing.kind.client import Client
from llmservice_testing.kind.node import kill_container
from llmservice_testing.kind.pods import PATIENCE_SECONDS, Called, PodFleet, is_ready

PAUSE = Called("/pause", "mode=abort&clear_cache=true")
KEEP = Called("/pause", "mode=keep&clear_cache=false")


def test_a_fleet_is_paused_and_resumed_with_the_documented_kubectl_commands(fleet: PodFleet, kubectl: Kubectl) -> None:
    fleet.deploy(3)
    fleet.declare()

    kubectl("patch", "llmservice", "qwen", "--type", "merge", "-p", '{"spec":{"generation":"paused"}}')
    kubectl("wait", "llmservice/qwen", "--for=condition=Paused", "--timeout=60s")
    assert all(engine.is_paused() for engine in fleet.engines())

    kubectl("patch", "llmservice", "qwen", "--type", "merge", "-p", '{"spec":{"generation":"running"}}')
    kubectl("wait", "llmservice/qwen", "--for=condition=Paused=False", "--timeout=60s")
    assert not any(engine.is_paused() for engine in fleet.engines())
    assert all(posts == [PAUSE, Called("/resume", "")] for posts in fleet.posts().values())


def test_without_the_gate_a_request_waits_in_a_paused_engine_and_is_answered_after_the_resume(
    fleet: PodFleet, client: Client
) -> None:
    fleet.deploy(1)
    fleet.expose()
    wait_until(lambda: client.complete("qwen") == {"status": 200}, PATIENCE_SECONDS, what="the Service serving")
    fleet.declare("paused")
    fleet.wait("Paused")
    (engine,) = fleet.engines()

    with client.request("qwen") as request:
        wait_until(lambda: engine.state()["waiting_requests"], PATIENCE_SECONDS, what="the request in the engine")
        assert request.is_open
        fleet.want("running")
        assert request.answer() == {"status": 200}


def test_with_the_gate_a_paused_fleet_refuses_requests_at_once_and_serves_again_after_the_resume(
    fleet: PodFleet, client: Client
) -> None:
    fleet.deploy(2, gated=True)
    fleet.expose()
    fleet.declare("running")
    wait_until(lambda: all(map(is_ready, fleet.pods())), PATIENCE_SECONDS, what="the pods being ready")
    wait_until(lambda: client.complete("qwen") == {"status": 200}, PATIENCE_SECONDS, what="the Service serving")

    fleet.want("paused")
    fleet.wait("Paused")
    wait_until(lambda: "error" in client.complete("qwen"), PATIENCE_SECONDS, what="the Service being empty")
    assert client.complete("qwen") == {"error": "ConnectionRefusedError"}
    assert [engine.state()["waiting_requests"] for engine in fleet.engines()] == [0, 0]

    fleet.want("running")
    wait_until(lambda: client.complete("qwen") == {"status": 200}, PATIENCE_SECONDS, what="the Service serving again")


def test_a_trainers_control_service_finds_the_engines_while_they_are_paused_and_the_clients_service_does_not(
    fleet: PodFleet, client: Client
) -> None:
    fleet.deploy(3, gated=True)
    fleet.expose("qwen-clients", clusterIP="None")
    fleet.expose("qwen-control", clusterIP="None", publishNotReadyAddresses=True)
    fleet.declare("running")
    engines = sorted(pod["status"]["podIP"] for pod in fleet.pods())
    for name in ("qwen-clients", "qwen-control"):
        wait_until(
            lambda name=name: client.addresses(name) == engines,  # type: ignore[misc]
            PATIENCE_SECONDS,
            what=f"{name} finding all engines",
        )

    fleet.want("paused")
    fleet.wait("Paused")
    wait_until(lambda: client.addresses("qwen-clients") == [], PATIENCE_SECONDS, what="no engine for clients")
    assert client.addresses("qwen-control") == engines
    # And what it finds there can be used: the trainer asks an engine by its address, not through the empty Service.
    assert client.complete(engines[0], within=1) == {"error": "TimeoutError"}


def test_pods_that_are_added_while_paused_are_paused_and_the_status_keeps_saying_so(fleet: PodFleet) -> None:
    fleet.deploy(2)
    fleet.declare("paused", pause={"mode": "keep"})
    fleet.wait("Paused")
    old = {engine.name for engine in fleet.engines()}

    fleet.scale(5)
    fleet.wait_for_targets(total=5, paused=5)
    assert fleet.status()["paused"] is True
    assert all(engine.is_paused() for engine in fleet.wait_for_engines(5))
    assert set(fleet.posts()) > old
    assert all(posts == [KEEP] for posts in fleet.posts().values()), "each once, in the mode of this pause"


def test_pods_that_are_added_while_paused_never_reach_clients(fleet: PodFleet, client: Client) -> None:
    fleet.deploy(1, gated=True)
    fleet.expose()
    fleet.declare("running")
    wait_until(lambda: client.complete("qwen") == {"status": 200}, PATIENCE_SECONDS, what="the Service serving")
    fleet.want("paused")
    fleet.wait("Paused")

    fleet.scale(3)
    fleet.wait_for_targets(total=3, paused=3)
    assert not any(map(is_ready, fleet.pods()))
    assert client.complete("qwen") == {"error": "ConnectionRefusedError"}


def test_a_rolling_update_while_paused_ends_with_new_pods_that_are_all_paused(fleet: PodFleet) -> None:
    fleet.deploy(3)
    fleet.declare("paused")
    fleet.wait("Paused")
    old = {engine.name for engine in fleet.engines()}

    fleet.begin(3, arguments=["--tokens-per-second", "500"])
    wait_until(
        lambda: len(fleet.pods()) == 3 and old.isdisjoint(pod["metadata"]["name"] for pod in fleet.pods()),
        PATIENCE_SECONDS,
        what="the old pods being replaced",
    )
    fleet.wait_for_targets(total=3, paused=3)
    assert all(engine.is_paused() for engine in fleet.wait_for_engines(3))
    assert all(posts == [PAUSE] for posts in fleet.posts().values())
    assert fleet.wait("Paused")["status"]["paused"] is True


def test_a_container_that_is_killed_while_paused_is_paused_when_it_is_back(fleet: PodFleet) -> None:
    fleet.deploy(2)
    fleet.declare("paused")
    fleet.wait("Paused")
    victim, other = fleet.engines()

    kill_container(victim.pod)
    wait_until(lambda: _restarts(fleet, victim.name) == 1, PATIENCE_SECONDS, what="the container's restart")
    fleet.wait_for_targets(total=2, paused=2)
    fleet.wait_for_engines(2)
    assert victim.is_paused()
    assert victim.posts() == [PAUSE], "the new container was called, once"
    assert other.posts() == [PAUSE], "the one beside it was left alone"


def _restarts(fleet: PodFleet, pod: str) -> int:
    (found,) = [each for each in fleet.pods() if each["metadata"]["name"] == pod]
    return int(found["status"]["containerStatuses"][0]["restartCount"])


def test_a_stateful_set_is_paused_and_its_pods_of_the_same_name_are_paused_again_after_they_are_replaced(
    fleet: PodFleet,
) -> None:
    fleet.deploy_stateful(3)
    fleet.declare("paused")
    fleet.wait("Paused")
    before = {engine.name: engine.pod["metadata"]["uid"] for engine in fleet.engines()}
    assert list(before) == ["qwen-0", "qwen-1", "qwen-2"]

    fleet.cluster.request("DELETE", f"/api/v1/namespaces/{fleet.namespace}/pods/qwen-1")
    wait_until(
        lambda: any(pod["metadata"]["uid"] not in before.values() for pod in fleet.pods()),
        PATIENCE_SECONDS,
        what="a new qwen-1",
    )
    fleet.wait_for_engines(3)
    fleet.wait_for_targets(total=3, paused=3)
    assert all(engine.is_paused() for engine in fleet.engines())
    assert fleet.posts() == {name: [PAUSE] for name in before}


def test_of_a_group_of_pods_that_is_one_engine_only_the_leader_is_called(fleet: PodFleet) -> None:
    # As LeaderWorkerSet labels them: the pods of a group share a name, and their index says which one leads.
    group = PodFleet(fleet.cluster, fleet.namespace)
    leader = {"leaderworkerset.sigs.k8s.io/name": "qwen", "leaderworkerset.sigs.k8s.io/worker-index": "0"}
    worker = leader | {"leaderworkerset.sigs.k8s.io/worker-index": "1"}
    group.deploy_pods({"qwen-0": leader, "qwen-0-1": worker, "qwen-1": leader, "qwen-1-1": worker})
    fleet.declare("paused", selector={"matchLabels": leader})
    fleet.wait("Paused")
    assert fleet.status()["targets"]["total"] == 2
    assert group.posts() == {"qwen-0": [PAUSE], "qwen-0-1": [], "qwen-1": [PAUSE], "qwen-1-1": []}
