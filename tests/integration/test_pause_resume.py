"""The main job: what `spec.generation` says is brought about in every engine, read back, and reported."""

from collections.abc import Callable

import pytest

from llmservice_testing.cluster import wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, Kubectl, condition, reads
from llmservice_testing.ports import free_ports
from llmservice_testing.simulator import Fault, Options

pytestmark = pytest.mark.usefixtures("operator")


def test_a_fleet_is_paused_and_resumed_with_the_documented_kubectl_commands(fleet: Fleet, kubectl: Kubectl) -> None:
    fleet.grow(5)
    fleet.declare()

    kubectl("patch", "llmservice", "qwen", "--type", "merge", "-p", '{"spec":{"generation":"paused"}}')
    kubectl("wait", "llmservice/qwen", "--for=condition=Paused", "--timeout=60s")
    assert fleet.all_paused()

    kubectl("patch", "llmservice", "qwen", "--type", "merge", "-p", '{"spec":{"generation":"running"}}')
    kubectl("wait", "llmservice/qwen", "--for=condition=Paused=False", "--timeout=60s")
    assert not any(engine.paused for engine in fleet.engines)
    assert [call.path for engine in fleet.engines for call in engine.posts()] == ["/pause", "/resume"] * 5


def test_the_status_says_what_was_read(fleet: Fleet) -> None:
    fleet.grow(3)
    fleet.declare("paused")
    paused = fleet.wait("Ready", reason="InDesiredState")["status"]
    assert paused["paused"] is True
    assert paused["targets"] == {"total": 3, "paused": 3} | dict.fromkeys(
        ("running", "pausing", "resuming", "starting", "sleeping", "unreachable", "failed"), 0
    )
    assert paused["lastPause"] == {"mode": "abort", "clearCache": True, "answered": True}
    assert {one["type"]: (one["status"], one["reason"]) for one in paused["conditions"]} == {
        "Ready": ("True", "InDesiredState"),
        "Paused": ("True", "AllPaused"),
    }
    assert [(one["pod"], one["state"], one["version"], one["url"]) for one in paused["targetStates"]] == [
        (member.name, "paused", "0.32.0", member.engine.url) for member in fleet.members
    ]

    fleet.want("running")
    running = fleet.wait("Ready", reason="InDesiredState")["status"]
    assert running["paused"] is False
    assert running["targets"]["running"] == 3
    assert "lastPause" not in running
    assert condition({"status": running}, "Paused") is not None
    fleet.wait("Paused", "False", "AllRunning")


def test_r1_an_engine_that_is_as_it_should_be_is_not_called(fleet: Fleet) -> None:
    paused, running = fleet.grow(2)
    paused.engine.pause("keep")
    fleet.declare("paused")
    fleet.wait("Paused")
    assert paused.engine.posts() == []
    assert [call.path for call in running.engine.posts()] == ["/pause"]


def test_r1_an_engine_is_read_before_and_after_it_is_called(fleet: Fleet) -> None:
    member = fleet.add()
    fleet.declare("paused")
    fleet.wait("Paused")
    asked = [call.path for call in member.engine.calls if call.path in ("/is_paused", "/pause")]
    before, _, after = asked.index("/is_paused"), asked.index("/pause"), asked[asked.index("/pause") + 1 :]
    assert before == 0
    assert after[0] == "/is_paused"


def test_r3_all_targets_are_called_at_once(fleet: Fleet) -> None:
    # Each answers only after a while: one after the other would take ten times as long as one.
    fleet.grow(10)
    for engine in fleet.engines:
        engine.faults.script("/pause", Fault.slow(before=2.0))
    fleet.declare("paused")
    fleet.wait("Paused")
    posts = fleet.posts()
    answered = [call.answered_at for call in posts if call.answered_at is not None]
    assert len(posts) == len(answered) == 10
    assert posts[-1].at < min(answered)


def test_r13_a_generation_that_is_flipped_many_times_ends_in_the_last(fleet: Fleet) -> None:
    fleet.grow(4)
    fleet.declare()
    for _ in range(12):
        fleet.want("paused")
        fleet.want("running")
    fleet.want("paused")
    fleet.wait("Ready", reason="InDesiredState")
    assert fleet.all_paused()
    fleet.let_pass(2)
    assert fleet.all_paused()


def test_r22_every_parameter_is_sent_in_the_query_every_time(fleet: Fleet) -> None:
    member = fleet.add()
    fleet.declare("paused")
    for mode, clear_cache, expected in (
        ("abort", None, {"mode": "abort", "clear_cache": "true"}),
        ("keep", None, {"mode": "keep", "clear_cache": "false"}),
        ("wait", None, {"mode": "wait", "clear_cache": "true"}),
        ("keep", True, {"mode": "keep", "clear_cache": "true"}),
        ("abort", False, {"mode": "abort", "clear_cache": "false"}),
    ):
        fleet.patch(generation="running", pause={"mode": mode, "clearCache": clear_cache})
        fleet.wait("Paused", "False")
        member.engine.reset_calls()
        fleet.want("paused")
        fleet.wait("Paused")
        (call,) = member.engine.posts()
        assert call.parameters == expected
        assert call.body == b""


def test_several_ports_of_a_pod_are_several_targets(make_fleet: Callable[..., Fleet]) -> None:
    ranks = make_fleet(name="ranks", ports=(8000, 8001, 8002))
    ranks.grow(2)
    ranks.declare("paused")
    assert ranks.wait("Paused")["status"]["targets"]["total"] == 6
    assert all(engine.paused for engine in ranks.engines)


def test_case_50_an_ipv6_address_is_bracketed(make_fleet: Callable[..., Fleet]) -> None:
    (port,) = free_ports(1)
    fleet = make_fleet(ports=(port,))
    member = fleet.add(address="::1")
    fleet.declare("paused")
    fleet.wait("Paused")
    assert member.engine.paused
    assert fleet.target(member)["url"] == f"http://[::1]:{port}"


def test_a_root_path_goes_before_every_route(fleet: Fleet) -> None:
    member = fleet.add(options=Options(root_path="/llm/a"))
    fleet.declare("paused", engine={"rootPath": "/llm/a"})
    fleet.wait("Paused")
    assert member.engine.paused
    assert fleet.target(member)["url"] == f"http://{member.engine.host}:8000/llm/a"


def test_a_change_of_pause_while_paused_applies_to_the_next_pause(fleet: Fleet) -> None:
    """Case 41: another mode would thaw the frozen requests of an engine that is paused with `keep`."""
    fleet.paused(2, pause={"mode": "keep"})
    fleet.patch(pause={"mode": "wait"})
    ready = condition(fleet.wait("Ready", reason="InDesiredState"), "Ready")
    fleet.let_pass(3)
    assert [call.parameters["mode"] for call in fleet.posts()] == ["keep", "keep"]
    assert ready is not None
    assert "applies to the next" in ready["message"]
    assert fleet.status()["lastPause"]["mode"] == "keep"

    newcomer = fleet.add()
    wait_until(lambda: newcomer.engine.paused, PATIENCE_SECONDS, what="the newcomer being paused")
    assert [call.parameters for call in newcomer.engine.posts()] == [{"mode": "keep", "clear_cache": "false"}]

    fleet.want("running")
    fleet.wait("Paused", "False")
    fleet.want("paused")
    fleet.wait("Paused")
    assert {call.parameters["mode"] for call in fleet.posts()[-3:]} == {"wait"}


def test_no_status_is_written_before_the_engines_were_read(fleet: Fleet) -> None:
    """The first status that carries the new generation is already a result, not a guess."""
    member = fleet.paused().members[0]
    fleet.want("running")
    fleet.wait("Ready", reason="InDesiredState")
    assert reads(member.engine) > 0
    assert fleet.status()["observedGeneration"] == fleet.get()["metadata"]["generation"]


@pytest.mark.parametrize("mode", ["abort", "keep", "wait"])
def test_r5_while_its_pause_is_open_a_target_is_pausing_in_every_mode(fleet: Fleet, mode: str) -> None:
    """The engine says already that it is paused; the status does not."""
    member = fleet.add()
    member.engine.faults.script("/pause", Fault.slow(after=3.0))
    fleet.declare("paused", pause={"mode": mode})
    fleet.wait_for_targets(total=1, pausing=1)
    assert member.engine.paused
    assert "paused" not in fleet.status()
    fleet.wait("Paused")
    assert len(member.engine.posts()) == 1


def test_r13_a_resume_that_is_asked_while_the_pause_is_open_follows_it(fleet: Fleet) -> None:
    fleet.grow(3)
    for engine in fleet.engines:
        engine.faults.script("/pause", Fault.slow(before=0.5))
    fleet.declare("paused")
    fleet.engines[0].asked("/pause")
    fleet.want("running")
    fleet.wait("Paused", "False")
    assert not any(engine.paused for engine in fleet.engines)
    for engine in fleet.engines:
        assert [call.path for call in engine.posts()] in (["/pause", "/resume"], [])


def test_a_selector_with_expressions_selects_what_kubernetes_would(fleet: Fleet) -> None:
    chosen = fleet.add(labels={"app": "qwen", "tier": "rollout"})
    others = [fleet.add(labels={"app": "qwen", "tier": "eval"}), fleet.add(labels={"app": "llama", "tier": "rollout"})]
    expressions = [
        {"key": "app", "operator": "In", "values": ["qwen", "mistral"]},
        {"key": "tier", "operator": "NotIn", "values": ["eval"]},
        {"key": "draining", "operator": "DoesNotExist"},
    ]
    fleet.declare("paused", selector={"matchExpressions": expressions})
    fleet.wait("Paused")
    assert fleet.targets() == {"total": 1, "paused": 1}
    assert chosen.engine.paused
    assert [member.engine.calls for member in others] == [(), ()]
