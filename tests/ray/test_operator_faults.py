"""The operator and simulated apps: what may be wrong, and what comes and goes."""

import json
from collections.abc import Callable, Iterator

import pytest

from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Addresses, condition
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.ray_simulator import RaySimulatorThread, Stage
from llmservice_testing.ray_simulator.fleet import RayFleet
from llmservice_testing.simulator import Fault, Says, SimulatorThread

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture(scope="module")
def simulator() -> Iterator[RaySimulatorThread]:
    with RaySimulatorThread() as running:
        yield running


@pytest.fixture(scope="module")
def addresses() -> Addresses:
    return Addresses()


@pytest.fixture
def make_fleet(
    cluster: Cluster, simulator: RaySimulatorThread, addresses: Addresses, namespace: str
) -> Iterator[Callable[..., RayFleet]]:
    """Makes a fleet around an app: `make_fleet(version="2.54.0")`."""
    made: list[RayFleet] = []

    def make(*, name: str = "qwen", **app: object) -> RayFleet:
        described = simulator.app(**app)  # type: ignore[arg-type]  # the test's own words
        made.append(RayFleet(cluster, simulator, addresses, namespace, name=name, app=described))
        return made[-1]

    yield make
    for fleet in made:
        if not fleet.is_gone():
            fleet.delete()
        fleet.close()


@pytest.fixture
def fleet(make_fleet: Callable[..., RayFleet]) -> RayFleet:
    """An app with two replicas, without proxies; the LLMService is not declared yet."""
    return make_fleet()


def paused(fleet: RayFleet, proxies: int = 1, **spec: object) -> RayFleet:
    """The fleet, with so many proxies, paused and settled."""
    for _ in range(proxies):
        fleet.add_proxy()
    fleet.declare("paused", **spec)
    fleet.wait("Ready", reason="InDesiredState")
    return fleet


def until_paused(fleet: RayFleet) -> None:
    wait_until(lambda: all(fleet.app.paused()), PATIENCE_SECONDS, what="every replica being paused", last=fleet.status)


# What is said, and sent


def test_three_proxies_are_one_target_and_one_pause(fleet: RayFleet) -> None:
    paused(fleet, proxies=3)

    assert fleet.app.paused() == [True, True]
    assert fleet.targets() == {"total": 1, "paused": 1}
    assert [call.path for call in fleet.posts()] == ["/pause"]
    fleet.wait("Paused", reason="AggregatePaused")


@pytest.mark.parametrize(
    ("mode", "sent"),
    [
        ("abort", {"mode": "abort", "wait_for_inflight_requests": False, "clear_cache": True}),
        ("wait", {"mode": "wait", "wait_for_inflight_requests": True, "clear_cache": True}),
        ("keep", {"mode": "keep", "wait_for_inflight_requests": False, "clear_cache": False}),
    ],
)
def test_r22_every_option_is_sent_in_the_words_of_all_versions(
    fleet: RayFleet, mode: str, sent: dict[str, object]
) -> None:
    paused(fleet, pause={"mode": mode})

    (call,) = fleet.posts()
    assert json.loads(call.body) == {"model": "tiny", "options": sent}


def test_r14_a_paused_app_is_left_alone(fleet: RayFleet) -> None:
    paused(fleet)
    fleet.let_pass(2)
    version = fleet.get()["metadata"]["resourceVersion"]

    fleet.let_pass(3)

    assert [call.path for call in fleet.posts()] == ["/pause"]
    assert fleet.get()["metadata"]["resourceVersion"] == version


def test_resuming_reaches_every_replica(fleet: RayFleet) -> None:
    paused(fleet)

    fleet.want("running")
    fleet.wait("Paused", "False", "AllRunning")

    assert fleet.app.paused() == [False, False]


# Replicas that differ, come and go


def test_r1_a_replica_that_another_has_resumed_is_found_when_the_replicas_change(fleet: RayFleet) -> None:
    paused(fleet)
    fleet.app.replicas()[0].resume()
    assert fleet.app.paused() == [False, True]

    fleet.app.add_replica()

    until_paused(fleet)


def test_r1_a_replica_that_takes_the_place_of_another_is_paused(fleet: RayFleet) -> None:
    paused(fleet)

    fleet.app.replace_replica(fleet.app.replicas()[0])
    assert fleet.app.paused() == [True, False]

    until_paused(fleet)
    fleet.wait("Ready", reason="InDesiredState")


def test_r1_a_replica_that_was_hidden_from_the_pause_is_paused_when_it_is_found(fleet: RayFleet) -> None:
    hidden, _ = fleet.app.replicas()
    hidden.hide()
    paused(fleet)
    assert fleet.app.paused() == [False, True]

    hidden.hide(hidden=False)

    until_paused(fleet)


def test_r8_a_pause_is_asserted_again_as_it_was_asked_at_first(fleet: RayFleet) -> None:
    paused(fleet, pause={"mode": "keep"})
    fleet.patch(pause={"mode": "abort"})
    fleet.wait("Ready", reason="InDesiredState")

    fleet.app.replace_replica(fleet.app.replicas()[0])

    until_paused(fleet)
    assert {json.loads(call.body)["options"]["mode"] for call in fleet.posts()} == {"keep"}


def test_r8_another_proxy_is_a_difference_and_the_pause_is_asserted_again(fleet: RayFleet) -> None:
    paused(fleet)

    fleet.add_proxy()

    wait_until(lambda: len(fleet.posts()) == 2, PATIENCE_SECONDS, what="another pause", last=fleet.status)
    fleet.wait("Ready", reason="InDesiredState")
    assert [call.path for call in fleet.posts()] == ["/pause", "/pause"]
    assert fleet.targets() == {"total": 1, "paused": 1}


def test_r18_paused_is_not_said_while_a_replica_is_known_to_be_uncovered(fleet: RayFleet) -> None:
    (head,) = paused(fleet).proxies
    head.proxy.faults.script("/pause", Fault.answering(500, {"error": {"message": "no"}}, times=None))

    fleet.app.add_replica()

    fleet.wait_for(lambda status: "paused" not in status, "paused being withdrawn")
    fleet.wait("Ready", "False")
    assert "paused" not in fleet.status()
    head.proxy.faults.clear()
    fleet.wait("Paused", reason="AggregatePaused")
    assert fleet.app.paused() == [True, True, True]


def test_a_replica_that_fails_at_the_pause_is_heard_in_its_own_words(fleet: RayFleet) -> None:
    fleet.add_proxy()
    fleet.declare("running")
    fleet.wait("Ready", reason="InDesiredState")
    (head,) = fleet.proxies
    broken = fleet.app.replicas()[1]
    words = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."
    broken.fail(words)

    fleet.want("paused")

    fleet.wait_for(
        lambda status: any("EngineDeadError" in entry.get("message", "") for entry in status["targetStates"]),
        "the replica's words",
    )
    assert fleet.target_state()["message"].endswith("EngineCore encountered an issue.")
    assert "paused" not in fleet.status()
    broken.fail(None)
    until_paused(fleet)
    fleet.wait("Paused", reason="AggregatePaused")
    assert head.proxy.is_up


def test_without_any_replica_the_app_is_starting_and_nothing_is_said_of_it(fleet: RayFleet) -> None:
    for replica in fleet.app.replicas():
        fleet.app.remove_replica(replica)
    fleet.add_proxy()
    fleet.declare("paused")

    fleet.wait("Paused", "Unknown", "TargetsStarting")
    assert fleet.targets() == {"total": 1, "starting": 1}
    fleet.app.add_replica()

    until_paused(fleet)
    fleet.wait("Paused", reason="AggregatePaused")


# An operator that comes back


def test_r14_a_restarted_operator_believes_the_pause_that_the_status_tells_of(
    fleet: RayFleet, operator: OperatorProcess
) -> None:
    paused(fleet)

    operator.kill()
    operator.start()
    fleet.let_pass(3)

    assert [call.path for call in fleet.posts()] == ["/pause"]
    assert fleet.status()["paused"] is True


def test_r13_a_replica_that_came_while_there_was_no_operator_is_paused(
    fleet: RayFleet, operator: OperatorProcess
) -> None:
    paused(fleet)
    operator.kill()
    fleet.app.add_replica()

    operator.start()

    until_paused(fleet)
    fleet.wait("Ready", reason="InDesiredState")


def test_r5_a_drain_whose_answer_nobody_awaited_is_asked_for_again(fleet: RayFleet, operator: OperatorProcess) -> None:
    fleet.add_proxy()
    fleet.declare("running")
    fleet.wait("Ready", reason="InDesiredState")
    with fleet.open_request() as request:
        fleet.patch(generation="paused", pause={"mode": "wait"})
        fleet.wait_for_state("pausing")
        wait_until(fleet.posts, PATIENCE_SECONDS, what="the pause")
        operator.kill()

        operator.start()

        wait_until(lambda: len(fleet.posts()) == 2, PATIENCE_SECONDS, what="the second pause")
        assert "paused" not in fleet.status()
        assert request.is_open()
    fleet.wait("Paused", reason="AggregatePaused")
    assert [json.loads(call.body)["options"]["mode"] for call in fleet.posts()] == ["wait", "wait"]


# Versions


@pytest.mark.parametrize("version", ["2.54.0", "2.55.0"])
def test_r6_before_2_56_keep_is_unsupported_and_nothing_is_sent(
    make_fleet: Callable[..., RayFleet], version: str
) -> None:
    fleet = make_fleet(version=version)
    fleet.add_proxy()
    fleet.declare("paused", pause={"mode": "keep"})

    fleet.wait("Stalled", reason="UnsupportedMode")
    fleet.let_pass(2)

    assert fleet.posts() == []
    fleet.patch(pause={"mode": "abort"})
    fleet.wait("Paused", reason="AggregatePaused")


@pytest.mark.parametrize("version", ["2.54.0", "2.55.0", "2.56.1"])
def test_r6_wait_waits_with_every_version(make_fleet: Callable[..., RayFleet], version: str) -> None:
    fleet = make_fleet(version=version)
    fleet.add_proxy()
    fleet.declare("running")
    fleet.wait("Ready", reason="InDesiredState")
    with fleet.open_request() as request:
        fleet.patch(generation="paused", pause={"mode": "wait"})
        fleet.wait_for_state("pausing")
        assert request.is_open()
        assert "paused" not in fleet.status()
        request.end()
    fleet.wait("Paused", reason="AggregatePaused")


# What is missing


def test_an_unknown_model_is_stalled_and_the_known_ones_are_named(make_fleet: Callable[..., RayFleet]) -> None:
    fleet = make_fleet(models=("qwen-7b", "qwen-32b"))
    fleet.add_proxy()
    fleet.declare("paused")

    fleet.wait("Stalled", reason="ModelNotFound")

    message = fleet.target_state()["message"]
    assert "'tiny'" in message
    assert "qwen-7b, qwen-32b" in message
    assert fleet.posts() == []


def test_an_app_without_control_routes_is_stalled_and_told_how_to_build_it(make_fleet: Callable[..., RayFleet]) -> None:
    fleet = make_fleet(dev=False)
    fleet.add_proxy()
    fleet.declare("paused")

    fleet.wait("Stalled", reason="EndpointMissing")

    assert "build_dev_openai_app" in fleet.target_state()["message"]


@pytest.mark.parametrize(("route", "root_path"), [("/", "/nowhere"), ("/llm", ""), ("/llm", "/llms")])
def test_a_wrong_route_prefix_is_stalled_and_the_right_one_is_named(
    make_fleet: Callable[..., RayFleet], route: str, root_path: str
) -> None:
    fleet = make_fleet(route=route)
    fleet.add_proxy()
    fleet.declare("paused", engine={"rootPath": root_path})

    fleet.wait("Stalled", reason="EndpointMissing")

    message = fleet.target_state()["message"]
    assert "spec.engine.rootPath" in message
    assert message.endswith(f": {route}")


def test_an_app_below_a_route_prefix_is_paused_there(make_fleet: Callable[..., RayFleet]) -> None:
    fleet = make_fleet(route="/llm")
    fleet.add_proxy()
    fleet.declare("paused", engine={"rootPath": "/llm"})

    fleet.wait("Paused", reason="AggregatePaused")
    assert fleet.app.paused() == [True, True]
    assert [call.path for call in fleet.posts()] == ["/pause"]


# Not there yet


@pytest.mark.parametrize("stage", [Stage.NOT_DEPLOYED, Stage.DELETED])
def test_r9_a_proxy_without_routes_is_starting_until_it_has_them(fleet: RayFleet, stage: Stage) -> None:
    fleet.app.set_stage(stage)
    fleet.add_proxy()
    fleet.declare("paused")
    fleet.wait("Paused", "Unknown", "TargetsStarting")
    assert fleet.targets() == {"total": 1, "starting": 1}

    fleet.app.set_stage(Stage.DEPLOYED)

    until_paused(fleet)
    fleet.wait("Paused", reason="AggregatePaused")


def test_an_app_that_is_being_deployed_is_unreachable_and_said_to_be_so(fleet: RayFleet) -> None:
    fleet.app.stop_ingress()
    fleet.add_proxy()
    fleet.declare("paused", requestTimeoutSeconds=1)

    fleet.wait("Ready", "False", "TargetsUnreachable")
    wait_until(
        lambda: "being deployed" in fleet.target_state()["message"],
        PATIENCE_SECONDS,
        what="the message saying so",
        last=fleet.status,
    )

    fleet.app.stop_ingress(stopped=False)
    until_paused(fleet)
    fleet.wait("Paused", reason="AggregatePaused")


def test_a_question_that_is_still_open_is_not_asked_again(fleet: RayFleet) -> None:
    """Each one takes a thread of the ingress until the replicas have answered it."""
    paused(fleet, requestTimeoutSeconds=1)
    (head,) = fleet.proxies
    for replica in fleet.app.replicas():
        replica.delay(3600)
    fleet.wait("Ready", "False", "TargetsUnreachable")
    asked = len([call for call in head.proxy.calls if call.path == "/is_paused"])
    routes = len([call for call in head.proxy.calls if call.path == "/-/routes"])

    head.proxy.asked("/-/routes", times=routes + 3, within=PATIENCE_SECONDS)

    assert len([call for call in head.proxy.calls if call.path == "/is_paused"]) == asked


# Proxies


def test_one_proxy_down_of_three_leaves_the_others_to_speak(fleet: RayFleet) -> None:
    for _ in range(3):
        fleet.add_proxy()
    fleet.declare("running")
    fleet.wait("Ready", reason="InDesiredState")
    fleet.proxies[0].proxy.stop()

    fleet.want("paused")

    until_paused(fleet)
    fleet.wait("Paused", reason="AggregatePaused")
    assert fleet.targets() == {"total": 1, "paused": 1}


@pytest.mark.parametrize(
    "fault",
    [
        Fault.hang(times=None),
        Fault.cut(times=None),
        Fault.answering(503, b"This node is being drained.", times=None),
        Fault.garbage(Says.NOT_HTTP, times=None),
    ],
    ids=["hang", "cut", "drained", "not http"],
)
def test_one_faulty_proxy_of_two_leaves_the_other_to_speak(fleet: RayFleet, fault: Fault) -> None:
    for _ in range(2):
        fleet.add_proxy()
    fleet.proxies[0].proxy.faults.script("*", fault)
    fleet.declare("paused", requestTimeoutSeconds=1)

    until_paused(fleet)
    fleet.wait("Paused", reason="AggregatePaused")


def test_a_proxy_of_which_the_container_is_not_ready_and_refuses_is_starting(fleet: RayFleet) -> None:
    late = fleet.add_proxy(ready=False, start=False)
    fleet.declare("paused")
    fleet.wait("Paused", "Unknown", "TargetsStarting")

    late.proxy.start()

    until_paused(fleet)


def test_a_ready_proxy_that_refuses_is_unreachable(fleet: RayFleet) -> None:
    fleet.add_proxy(start=False)
    fleet.declare("paused")

    fleet.wait("Ready", "False", "TargetsUnreachable")
    assert "refused" in fleet.target_state()["message"]


def test_where_something_else_answers_the_message_asks_for_the_port(
    fleet: RayFleet, addresses: Addresses, cluster: Cluster
) -> None:
    """A vLLM server, for instance, which has routes of the same names."""
    with SimulatorThread() as engines:
        other = fleet.add_proxy(start=False)
        engines.engine(other.proxy.host, 8000)
        fleet.declare("paused")

        service = fleet.wait("Stalled", reason="EndpointMissing")

        ready = condition(service, "Ready")
        assert ready is not None
        assert ready["status"] == "False"
        assert "openapi.json" in fleet.target_state()["message"]
