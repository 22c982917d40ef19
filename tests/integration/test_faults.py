"""Bad answers, none, and engines that die: each is bounded, told apart, and no hindrance to the others."""

from collections.abc import Callable
from itertools import pairwise

import httpx
import pytest

from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, Member, condition, reads
from llmservice_testing.simulator import Call, Fault, Options, Says, ThreadedEngine

pytestmark = pytest.mark.usefixtures("operator")

API_SERVER_COUNT = (
    "Failed to pause generation: pause_generation is not supported with --api-server-count > 1 when mode is not 'keep'"
)


def message_of(service: dict[str, object], kind: str) -> str:
    found = condition(service, kind)
    assert found is not None
    return str(found["message"])


def assert_unhurried(posts: list[Call]) -> None:
    """Not more than about once a second (R4); what is measured is the arrival, so a little less is the same."""
    gaps = [later.at - earlier.at for earlier, later in pairwise(posts)]
    assert all(gap > 0.8 for gap in gaps), gaps


# Permanent refusals


def test_r4_an_engine_without_the_routes_is_stalled_and_the_pod_is_named_first(fleet: Fleet) -> None:
    fleet.add()
    closed = fleet.add(options=Options(dev_mode=False))
    fleet.declare("paused")
    service = fleet.wait("Stalled", reason="EndpointMissing")
    fleet.wait("Ready", "False", "EndpointMissing")
    message = message_of(service, "Stalled")
    assert message.startswith(closed.name)
    assert "VLLM_SERVER_DEV_MODE" in message
    assert condition(service, "Reconciling") is None
    assert "paused" not in service["status"]
    fleet.wait_for_targets(total=2, paused=1, failed=1)
    assert fleet.status()["targetStates"][0]["pod"] == closed.name
    assert closed.engine.posts() == []


@pytest.mark.parametrize("status", [401, 403])
def test_r4_a_refused_read_is_unauthorized(fleet: Fleet, status: int) -> None:
    member = fleet.add()
    member.engine.faults.script("/is_paused", Fault.answering(status, {"error": "who are you?"}, times=None))
    fleet.declare("paused")
    service = fleet.wait("Stalled", reason="Unauthorized")
    assert message_of(service, "Stalled").startswith(member.name)
    assert "who are you?" in message_of(service, "Stalled")
    assert member.engine.posts() == []

    member.engine.faults.clear()  # reads go on at every resync
    fleet.wait("Ready", reason="InDesiredState")


def test_r4_a_refused_post_is_not_repeated_while_nothing_changes(fleet: Fleet) -> None:
    member = fleet.add()
    member.engine.faults.script("/pause", Fault.answering(403, {"error": "not you"}, times=None))
    fleet.declare("paused")
    service = fleet.wait("Stalled", reason="Unauthorized")
    assert "not you" in message_of(service, "Stalled")
    fleet.let_pass(4)
    assert len(member.engine.posts()) == 1
    assert fleet.targets() == {"total": 1, "running": 1}  # a refusal changes the reason, not the state


def test_r4_a_refused_post_is_tried_at_once_when_the_spec_changes(fleet: Fleet) -> None:
    member = fleet.add()
    member.engine.faults.script("/pause", Fault.answering(400, {"error": {"message": "bad mode"}}))
    fleet.declare("paused")
    service = fleet.wait("Stalled", reason="EngineError")
    assert "bad mode" in message_of(service, "Stalled")
    fleet.patch(pause={"mode": "keep"})
    fleet.wait("Ready", reason="InDesiredState")
    assert len(member.engine.posts()) == 2


def test_a_named_port_that_no_container_has_is_port_missing(fleet: Fleet) -> None:
    member = fleet.add()
    fleet.declare("paused", engine={"ports": ["api"]})
    service = fleet.wait("Stalled", reason="PortMissing")
    assert message_of(service, "Stalled").startswith(member.name)
    assert "api" in message_of(service, "Stalled")
    fleet.wait_for_targets(total=1, failed=1)
    assert "url" not in fleet.target(member)
    assert member.engine.calls == ()


def test_a_named_port_is_looked_up_in_the_pod(fleet: Fleet, cluster: Cluster) -> None:
    member = fleet.add(create=False)
    member.pod.port(8000, name="api", container="sidecar").ip(member.engine.host).ready()
    cluster.create_pod(fleet.namespace, member.pod)
    fleet.declare("paused", engine={"ports": ["api"]})
    fleet.wait("Paused")
    assert member.engine.paused


# What may pass


def test_case_4_a_500_is_shown_in_the_engines_words_and_retried_without_haste(fleet: Fleet) -> None:
    member = fleet.add(version="0.16.0")
    member.engine.faults.script("/pause", Fault.answering(500, {"error": API_SERVER_COUNT}, times=3))
    fleet.declare("paused")
    fleet.wait("Reconciling", reason="ProgressingWithRetry")
    fleet.wait_for(lambda status: "--api-server-count" in str(status["targetStates"]), "the engine's words")
    service = fleet.get()
    if (ready := condition(service, "Ready")) is not None and ready["reason"] == "Progressing":
        assert API_SERVER_COUNT in ready["message"]
    assert condition(service, "Stalled") is None  # a 500 is never permanent
    wait_until(lambda: len(member.engine.posts()) == 3, PATIENCE_SECONDS, what="three attempts")
    assert_unhurried(member.engine.posts())
    fleet.wait("Ready", reason="InDesiredState")


@pytest.mark.promise("recovers", "bounded", fault="engines answer 408 to 504")
def test_r4_what_may_pass_is_retried_until_it_has(fleet: Fleet) -> None:
    for status in (408, 409, 421, 425, 429, 500, 502, 503, 504):
        faults = fleet.add(name=f"answers-{status}").engine.faults
        faults.script("/pause", Fault.answering(status, {"error": "later"}))
        faults.script("/is_paused", Fault.answering(status, {"error": "later"}))
    fleet.declare("paused")
    fleet.wait("Ready", reason="InDesiredState")
    assert {
        member.name: len(member.engine.posts()) for member in fleet.members if len(member.engine.posts()) != 2
    } == {}
    assert fleet.events("Stalled") == []


@pytest.mark.promise("apart", "bounded", fault="engines hang, cut, or answer rubbish")
def test_r17_every_kind_of_bad_answer_is_bounded_and_told_apart_and_delays_nobody(
    make_fleet: Callable[..., Fleet],
) -> None:
    fleet, other = make_fleet(), make_fleet(name="other")
    trap = fleet.add(name="trap", labels={"app": "nobody"})
    kinds: dict[str, tuple[Fault, str]] = {
        "hung": (Fault.hang(times=None), "was not answered within 2 s"),
        "not-json": (Fault.garbage(Says.NOT_JSON, times=None), "was not answered with {'is_paused': true|false}"),
        "not-http": (Fault.garbage(Says.NOT_HTTP, times=None), "is not HTTP"),
        "huge": (Fault.garbage(Says.HUGE, times=None), "answered with more than"),
        "endless": (Fault.garbage(Says.ENDLESS, times=None), "answered with more than"),
        "redirecting": (Fault.redirect(f"{trap.engine.url}/is_paused", times=None), "redirecting to"),
        "cut": (Fault.cut(times=None), "ended without an answer"),
        "cut-in-body": (Fault.cut_in_body(times=None), "ended within the answer"),
        "failing": (Fault.answering(500, {"error": "CUDA is on fire"}, times=None), "answered 500: CUDA is on fire"),
        "wrong-shape": (Fault.garbage(Says.WRONG_SHAPE, times=None), "was not answered with {'is_paused': true|false}"),
    }
    bad = {name: fleet.add(name=name) for name in kinds}
    for name, (fault, _) in kinds.items():
        bad[name].engine.faults.script("/is_paused", fault)
    good = fleet.add(name="good")
    bystander = other.add()
    other.declare("paused")
    fleet.declare("paused", requestTimeoutSeconds=2)

    fleet.wait_for_targets(total=11, paused=1, unreachable=10)
    fleet.wait_for(lambda status: "no answer yet" not in str(status["targetStates"]), "every call having ended")
    fleet.wait("Ready", "False", "TargetsUnreachable")
    messages = {name: fleet.target(member)["message"] for name, member in bad.items()}
    assert {name: words for name, (_, words) in kinds.items() if words not in messages[name]} == {}, messages
    assert all(len(message) < 600 for message in messages.values())
    assert trap.engine.calls == ()
    assert [member.name for member in bad.values() if member.engine.posts()] == []

    # The good ones were paused while the hung one was still being waited for.
    first_read_of_hung = next(call for call in bad["hung"].engine.calls if call.path == "/is_paused")
    for engine in (good.engine, bystander.engine):
        (pause,) = engine.posts()
        assert pause.at < first_read_of_hung.at + 2
    fleet.wait_for_event("TargetsUnreachable")

    for member in bad.values():
        member.engine.faults.clear()
    fleet.wait("Ready", reason="InDesiredState")  # R20


@pytest.mark.promise("apart", fault="engines hang, cut, or answer rubbish")
def test_r17_other_fleets_go_on_while_one_is_hung(make_fleet: Callable[..., Fleet]) -> None:
    hung, other = make_fleet(name="hung"), make_fleet(name="other")
    for member in hung.grow(3):
        member.engine.faults.script("*", Fault.hang(times=None))
    other.grow(2)
    other.declare("running")
    hung.declare("paused", requestTimeoutSeconds=60)
    hung.engines[0].asked("/version")
    other.want("paused")
    other.wait("Paused")
    assert reads(hung.engines[0]) == 0
    assert hung.status()["observedGeneration"] == -1  # nothing is known of it, and nothing is said


LOST: dict[str, tuple[Fault, int]] = {
    "cut-after-the-effect": (Fault.cut(effect=True), 1),
    "cut-within-the-answer": (Fault.cut_in_body(effect=True), 1),
    "hung-after-the-effect": (Fault.hang(effect=True), 1),
    "garbage-after-the-effect": (Fault.garbage(Says.NOT_HTTP, effect=True), 1),
    "huge-after-the-effect": (Fault.garbage(Says.HUGE, effect=True), 1),
    "a-500-that-did-it": (Fault.answering(500, {"error": "oops"}, effect=True), 1),
    "cut-before-the-effect": (Fault.cut(), 2),
    "hung-before-the-effect": (Fault.hang(), 2),
    "a-200-that-did-nothing": (Fault.lie(), 2),
    "a-redirect": (Fault.redirect("http://127.0.0.1:1/"), 2),
}
"""By pod: what happens to the first pause, and how many pauses it takes then."""


@pytest.mark.promise("recovers", "calm", fault="the answer of an engine is lost")
def test_case_23_r4_a_lost_answer_is_unknown_so_the_engine_is_read_and_then_decided(fleet: Fleet) -> None:
    for name, (fault, _) in LOST.items():
        fleet.add(name=name).engine.faults.script("/pause", fault)
    fleet.declare("paused", pause={"timeoutSeconds": 1})
    fleet.wait("Ready", reason="InDesiredState")
    assert fleet.all_paused()
    assert {member.name: len(member.engine.posts()) for member in fleet.members} == {
        name: posts for name, (_, posts) in LOST.items()
    }
    for engine in fleet.engines:
        assert_unhurried(engine.posts())


@pytest.mark.promise("truth", fault="an engine says 200 and does nothing")
def test_r5_an_engine_that_says_200_and_does_nothing_is_never_reported_paused(fleet: Fleet) -> None:
    member = fleet.add()
    member.engine.faults.script("/pause", Fault.lie(times=None))
    fleet.declare("paused")
    wait_until(lambda: len(member.engine.posts()) >= 3, PATIENCE_SECONDS, what="three attempts")
    assert_unhurried(member.engine.posts())
    assert fleet.status().get("paused") is not True
    fleet.wait("Reconciling")


def test_case_22_a_lost_pause_and_a_resume_that_fails_twice_end_as_the_spec_says(fleet: Fleet) -> None:
    member = fleet.add()
    member.engine.faults.script("/pause", Fault.cut(effect=True))
    member.engine.faults.script("/resume", Fault.answering(500, {"error": "no"}, times=2))
    fleet.declare("paused")
    fleet.wait("Paused")
    fleet.want("running")
    fleet.wait("Paused", "False")
    assert not member.engine.paused
    assert [call.path for call in member.engine.posts()] == ["/pause", "/resume", "/resume", "/resume"]
    assert_unhurried(member.engine.posts("/resume"))


@pytest.mark.promise("truth", "recovers", fault="the answer of an engine is late")
def test_r2_a_late_answer_settles_nothing_after_the_spec_changed(fleet: Fleet) -> None:
    member = fleet.add()
    member.engine.faults.script("/pause", Fault.slow(after=1.5))
    fleet.declare("paused")
    member.engine.asked("/pause")
    fleet.want("running")
    fleet.wait("Paused", "False")
    pause, resume = member.engine.posts()
    assert (pause.path, resume.path) == ("/pause", "/resume")
    assert pause.answered_at is not None
    assert resume.at >= pause.answered_at  # one control call at a time
    assert not member.engine.paused


# Sleep


def asleep(engine: ThreadedEngine) -> None:
    httpx.post(f"{engine.url}/sleep?level=1").raise_for_status()


def test_r7_a_sleeping_engine_satisfies_paused_and_is_not_called(fleet: Fleet) -> None:
    sleeper = fleet.add(options=Options(sleep_mode=True))
    fleet.add()
    asleep(sleeper.engine)
    fleet.declare("paused")
    assert fleet.wait("Ready", reason="InDesiredState")["status"]["paused"] is True
    assert fleet.targets() == {"total": 2, "paused": 1, "sleeping": 1}
    assert sleeper.engine.posts("/pause") == []

    httpx.post(f"{sleeper.engine.url}/wake_up").raise_for_status()
    wait_until(lambda: sleeper.engine.paused, PATIENCE_SECONDS, what="the woken one being paused")
    fleet.wait_for_targets(total=2, paused=2)


def test_r7_running_is_stalled_by_a_sleeping_engine_which_is_not_resumed(fleet: Fleet) -> None:
    sleeper = fleet.add(options=Options(sleep_mode=True))
    asleep(sleeper.engine)
    fleet.declare("running")
    service = fleet.wait("Stalled", reason="TargetsSleeping")
    assert message_of(service, "Stalled").startswith(sleeper.name)
    assert sleeper.engine.posts("/resume") == []
    httpx.post(f"{sleeper.engine.url}/wake_up").raise_for_status()
    fleet.wait("Ready", reason="InDesiredState")
    assert sleeper.engine.is_up


def test_r7_an_engine_that_falls_asleep_while_paused_is_left_alone(fleet: Fleet) -> None:
    member = fleet.add(options=Options(sleep_mode=True))
    fleet.declare("paused")
    fleet.wait("Paused")
    asleep(member.engine)
    fleet.wait_for_targets(total=1, sleeping=1)
    fleet.wait("Ready", reason="InDesiredState")
    assert len(member.engine.posts("/pause")) == 1
    assert member.engine.is_up


# Death


def bring_back(fleet: Fleet, member: Member) -> None:
    """What a kubelet does: it notices that the container ended, and starts another one in the same pod."""
    wait_until(lambda: not member.engine.is_up, PATIENCE_SECONDS, what="the engine dying")
    member.pod.terminated(139, reason="Error")
    fleet.update(member)
    member.engine.start()
    member.pod.restarted().ready()
    fleet.update(member)


@pytest.mark.promise("calm", "recovers", fault="an engine dies of our calls")
def test_case_42_r21_an_engine_that_dies_twice_of_our_calls_is_left_alone(fleet: Fleet) -> None:
    fleet.add()
    fragile = fleet.add()
    fragile.engine.faults.script("/pause", Fault.death(times=None))
    fleet.declare("paused")
    bring_back(fleet, fragile)
    bring_back(fleet, fragile)
    service = fleet.wait("Stalled", reason="EngineError")
    assert message_of(service, "Stalled").startswith(fragile.name)
    assert "died" in message_of(service, "Stalled")
    fleet.members[0].engine.asked("/is_paused", times=reads(fleet.members[0].engine) + 3)
    assert len(fragile.engine.posts()) == 2
    assert fragile.engine.is_up


def test_r21_a_changed_spec_gives_a_condemned_engine_another_chance(fleet: Fleet) -> None:
    fragile = fleet.add()
    fragile.engine.faults.script("/pause", Fault.death(times=2))
    fleet.declare("paused")
    bring_back(fleet, fragile)
    bring_back(fleet, fragile)
    fleet.wait("Stalled", reason="EngineError")
    fleet.patch(pause={"mode": "keep"})
    fleet.wait("Ready", reason="InDesiredState")
    assert len(fragile.engine.posts()) == 3


def test_r21_one_death_is_no_verdict(fleet: Fleet) -> None:
    fragile = fleet.add()
    fragile.engine.faults.script("/pause", Fault.death())
    fleet.declare("paused")
    bring_back(fleet, fragile)
    fleet.wait("Ready", reason="InDesiredState")
    assert len(fragile.engine.posts()) == 2


@pytest.mark.promise("recovers", fault="many faults of engines at once")
def test_r20_a_fleet_whose_faults_stop_ends_settled(fleet: Fleet) -> None:
    members = fleet.grow(5)
    for member, fault in zip(
        members,
        (
            Fault.cut(times=2),
            Fault.answering(500, {"error": "x"}, times=2),
            Fault.garbage(Says.NOT_HTTP, times=2),
            Fault.garbage(Says.HUGE, times=2),
            Fault.hang(times=2),
        ),
        strict=True,
    ):
        member.engine.faults.script("*", fault)
    fleet.declare("paused", requestTimeoutSeconds=1, pause={"timeoutSeconds": 1})
    fleet.wait("Ready", reason="InDesiredState")
    assert fleet.all_paused()
