"""R17 and its bounds: many LLMServices, many targets, and broken ones among them, in one process."""

import concurrent.futures
import contextlib
import os
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from llmservice_testing.builders import Json, make_llmservice, make_pod
from llmservice_testing.cluster import ApiError, Cluster, InvalidError, wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Addresses, Fleet, reads
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.simulator import Fault, SimulatorThread, ThreadedEngine

SERVICES = 200
PORTS = (8000, 8001, 8002, 8003, 8004)
HUNG_PORT = PORTS[-1]
TARGETS = SERVICES * len(PORTS)


def process_of(operator: OperatorProcess) -> psutil.Process:
    """The operator's process, found by an address that only it was given."""
    address = operator.metrics_url.removeprefix("http://").removesuffix("/metrics")
    (found,) = [
        child
        for child in psutil.Process(os.getpid()).children(recursive=True)
        if f"--metrics-address={address}" in child.cmdline()
    ]
    return found


def in_parallel(function: Callable[[int], object], count: int) -> None:
    """Calls it with every number below `count`."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(function, range(count)))


class Crowd:
    """Many LLMServices with a pod each; of the engines of each pod the last one hangs."""

    def __init__(self, cluster: Cluster, simulator: SimulatorThread, addresses: Addresses, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self._simulator = simulator
        self.hosts = [addresses.take() for _ in range(SERVICES)]
        self.healthy: list[ThreadedEngine] = []
        self.hung: list[ThreadedEngine] = []
        for host in self.hosts:
            engines = [simulator.engine(host, port) for port in PORTS]
            self.healthy += engines[:-1]
            self.hung.append(engines[-1])

    def create(self) -> None:
        """The pods, then the LLMServices, which ask for nothing yet."""
        in_parallel(self._create_pod, SERVICES)
        in_parallel(self._create_service, SERVICES)

    def _create_pod(self, number: int) -> None:
        pod = make_pod(f"pod-{number}").labels({"app": f"crowd-{number}"})
        for port in PORTS:
            pod.port(port)
        self.cluster.create_pod(self.namespace, pod.ip(self.hosts[number]).ready())

    def _create_service(self, number: int) -> None:
        name = f"crowd-{number}"
        service = (
            make_llmservice(name).selector(app=name).ports(*PORTS).spec(requestTimeoutSeconds=60, resyncSeconds=60)
        )
        self.cluster.create_llmservice(self.namespace, service)

    def want(self, generation: str) -> None:
        """Sets it for all."""
        in_parallel(
            lambda number: self.cluster.patch_llmservice(
                self.namespace, f"crowd-{number}", {"spec": {"generation": generation}}
            ),
            SERVICES,
        )

    def delete(self) -> None:
        """All LLMServices."""
        in_parallel(lambda number: self.cluster.delete_llmservice(self.namespace, f"crowd-{number}"), SERVICES)

    def close(self) -> None:
        """The engines are gone."""
        for engine in (*self.healthy, *self.hung):
            self._simulator.remove(engine)


@pytest.fixture
def crowd(cluster: Cluster, simulator: SimulatorThread, addresses: Addresses, namespace: str) -> Iterator[Crowd]:
    """Many LLMServices; they and their pods are not created yet."""
    made = Crowd(cluster, simulator, addresses, namespace)
    yield made
    with contextlib.suppress(ApiError):  # deleted already
        made.delete()
    made.close()


@pytest.mark.timeout(240)
@pytest.mark.promise("apart", "bounded", "calm", fault="a hung target in each of 200 LLMServices (1000 targets)")
def test_r17_200_llmservices_with_a_hung_target_each_are_apart_and_within_bounds(
    crowd: Crowd, own_operator: OperatorProcess, record_property: Callable[[str, object], None]
) -> None:
    """A target that hangs holds up its own LLMService's status for its request timeout, here a minute, and nothing else:
    before that has passed all others were called, and read back."""
    for engine in crowd.hung:
        engine.faults.script("/is_paused", Fault.hang(times=None))
    crowd.create()
    wait_until(lambda: all(map(reads, crowd.hung)), PATIENCE_SECONDS * 3, what="all being read once")
    for generation, paused in (("paused", True), ("running", False)):
        crowd.want(generation)
        wait_until(
            lambda wanted=paused: all(engine.paused == wanted for engine in crowd.healthy),  # type: ignore[misc]
            PATIENCE_SECONDS * 2,
            what=f"{len(crowd.healthy)} engines being {generation}",
        )
    assert {len(engine.posts()) for engine in crowd.healthy} == {2}
    assert {len(engine.posts()) for engine in crowd.hung} == {0}

    process = process_of(own_operator)
    files, memory = process.num_fds(), process.memory_info().rss / 2**20
    # For each target a connection that is kept and one that hangs, at most; for each LLMService a watch; and some.
    assert files < 3 * TARGETS + 2 * SERVICES + 100, files
    assert memory < 400, f"{memory:.0f} MiB"
    record_property("memory and files", f"{memory:.0f} MiB, {files} open files")
    assert own_operator.liveness() == 200

    crowd.delete()
    wait_until(lambda: process.num_fds() < 150, PATIENCE_SECONDS * 2, what="files being closed", last=process.num_fds)


@pytest.mark.promise("bounded", fault="a fleet is paused and resumed many times")
def test_files_and_memory_do_not_grow_with_what_was_done(fleet: Fleet, own_operator: OperatorProcess) -> None:
    fleet.paused(10)
    process = process_of(own_operator)

    def flip(times: int) -> tuple[int, float]:
        for _ in range(times):
            for generation in ("running", "paused"):
                fleet.want(generation)
                wait_until(
                    lambda wanted=generation == "paused": all(e.paused == wanted for e in fleet.engines),  # type: ignore[misc]
                    PATIENCE_SECONDS,
                    what=f"all being {generation}",
                )
        fleet.wait("Ready", reason="InDesiredState")
        return process.num_fds(), process.memory_info().rss / 2**20

    files, memory = flip(3)
    files_after, memory_after = flip(12)
    assert files_after <= files + 12
    assert memory_after < memory + 40


# Broken ones


def hostile_pods(cluster: Cluster, namespace: str, app: str) -> int:
    """Pods that an API server admits and no kubelet would make; returns how many."""
    pods: list[Json] = []
    for number in range(6):
        pod = make_pod(f"hostile-{app}-{number}").labels({"app": app}).obj()
        pod.pop("status", None)
        pods.append(pod)
    statuses: list[Json] = [
        {},
        {"phase": "Running", "podIP": "127.0.0.250", "podIPs": [{"ip": "127.0.0.250"}]},
        {"phase": "Running", "podIP": "::1", "podIPs": [{"ip": "::1"}], "containerStatuses": []},
        {"phase": "Unknown", "containerStatuses": None, "conditions": None},
        {
            "phase": "Running",
            "podIP": "127.0.0.251",
            "podIPs": [{"ip": "127.0.0.251"}],
            "containerStatuses": [
                {"name": "engine", "ready": True, "restartCount": 0, "image": "", "imageID": "", "state": {}}
            ],
        },
        {
            "phase": "Running",
            "podIP": "127.0.0.252",
            "podIPs": [{"ip": "127.0.0.252"}],
            "containerStatuses": [
                {"name": "somebody-else", "ready": True, "restartCount": 2**31 - 1, "image": "", "imageID": ""}
            ],
        },
    ]
    for pod, status in zip(pods, statuses, strict=True):
        cluster.create_pod(namespace, pod)
        cluster.set_pod_status(namespace, {"metadata": pod["metadata"], "status": status})
    return len(pods)


@pytest.mark.usefixtures("own_operator")
@pytest.mark.promise("apart", "calm", fault="another LLMService is broken")
def test_r17_broken_llmservices_and_pods_do_not_touch_another(fleet: Fleet, cluster: Cluster) -> None:
    broken: dict[str, Json] = {
        "hostile": {},
        "no-ca": {"engine": {"scheme": "https", "tls": {"caConfigMap": "there-is-none"}}},
        "no-port": {"engine": {"ports": ["nobodys"]}},
        "nowhere": {"engine": {"rootPath": "/nowhere"}},
    }
    for name, spec in broken.items():
        service = make_llmservice(name).selector(app="hostile").spec(resyncSeconds=1, **spec).generation("paused")
        cluster.create_llmservice(fleet.namespace, service)
    pods = hostile_pods(cluster, fleet.namespace, "hostile")
    fleet.paused(2)
    for generation in ("running", "paused"):
        fleet.want(generation)
        fleet.wait("Ready", reason="InDesiredState")
    assert len(fleet.posts()) == 6

    def statuses() -> list[Json]:
        return [cluster.get_llmservice(fleet.namespace, name)["status"] for name in broken]

    # One of them owns the pods: the oldest, or of those made in the same second the one with the lowest UID.
    wait_until(
        lambda: sorted(status.get("targets", {}).get("total", -1) for status in statuses()) == [0, 0, 0, pods],
        PATIENCE_SECONDS,
        what="the owner of the pods telling of them",
        last=statuses,
    )
    assert all("paused" not in status for status in statuses())


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"app": "not a value!"}},
        {"matchLabels": {"app": "x" * 64}},
        {"matchLabels": {"not/a/key": "a"}},
        {"matchLabels": {"app": "nobody,app!=nobody"}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": ["nobody) , app notin (nobody"]}]},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": []}]},
        {"matchExpressions": [{"key": "app", "operator": "Gt", "values": ["1"]}]},
    ],
    ids=["value", "long value", "key", "injected label", "injected expression", "no values", "operator"],
)
@pytest.mark.promise("apart", fault="a selector that is none, or hides another one")
def test_r17_a_broken_selector_is_refused_when_it_is_written(cluster: Cluster, namespace: str, selector: Json) -> None:
    """The operator gives it to the API server as one string, in which a comma begins another requirement."""
    body = make_llmservice("broken").selector(app="x").generation("paused").obj()
    body["spec"]["selector"] = selector
    with pytest.raises(InvalidError):
        cluster.create_llmservice(namespace, body)


@pytest.mark.usefixtures("own_operator")
@pytest.mark.promise("apart", "calm", fault="hung engines in another fleet")
def test_r17_a_fleet_in_which_every_engine_hangs_does_not_slow_another(
    fleet: Fleet, make_fleet: Callable[..., Fleet]
) -> None:
    """The other one goes on while not one of sixty reads is answered, of which each may take a minute."""
    hung = make_fleet(name="hung")
    for member in hung.grow(60, create=False):
        member.engine.faults.script("*", Fault.hang(times=None))
    in_parallel(lambda number: hung.cluster.create_pod(hung.namespace, hung.members[number].pod), 60)
    hung.declare("paused", requestTimeoutSeconds=60)
    wait_until(lambda: all(engine.calls for engine in hung.engines), PATIENCE_SECONDS, what="all being asked")
    start = time.monotonic()
    fleet.paused(3)
    fleet.want("running")
    fleet.wait("Ready", reason="InDesiredState")
    assert time.monotonic() - start < 60
    assert {len(engine.calls) for engine in hung.engines} <= {1, 2}  # still the first ones
