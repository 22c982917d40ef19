"""From targets to status: the whole tables of conditions, the words, and the list of targets."""

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from llmservice.api import MAX_TARGET_STATES, Desired, LastPause, LLMServiceStatus, PauseMode, Reason
from llmservice.domain import deaths, report
from llmservice.domain.deaths import Deaths
from llmservice.domain.fleet import Failure, Obstacle, Sight, State, Traits
from llmservice.domain.report import Circumstances, Standing, decide
from llmservice.domain.status import Fleet
from llmservice_testing.domain import (
    ANSWERED_400,
    ANSWERED_401,
    ANSWERED_404,
    ANSWERED_500,
    CONNECTION_REFUSED,
    EPOCH,
    MODERN,
    TIMED_OUT,
    V0_16,
    Story,
    fleet_of,
    make_target,
    make_wanted,
    status_of,
)

PAUSED, RUNNING, SLEEPING, INCONSISTENT = Sight.PAUSED, Sight.RUNNING, Sight.SLEEPING, Sight.INCONSISTENT
_VERDICT = deaths.verdict(Deaths(2, 2), 2)
assert _VERDICT is not None
DIED: Failure = _VERDICT
LATER = "2026-12-01T11:00:00Z"


def stands(
    state: State,
    reason: Reason | None = None,
    *,
    confirmed: bool = True,
    answered: bool = True,
    inconsistent: bool = False,
    retrying: bool = False,
) -> Standing:
    return Standing(state, confirmed, answered, reason, inconsistent, retrying)


STARTING = stands(State.STARTING, confirmed=False)
ASLEEP = stands(State.SLEEPING)
SLEEPS_BUT_SHOULD_RUN = stands(State.SLEEPING, Reason.TARGETS_SLEEPING)
IS_PAUSED = stands(State.PAUSED)
WAS_PAUSED = stands(State.PAUSED, confirmed=False, answered=False)
IS_RUNNING = stands(State.RUNNING)
WAS_RUNNING = stands(State.RUNNING, confirmed=False, answered=False)
PAUSING = stands(State.PAUSING, confirmed=False)
PAUSING_AGAIN = stands(State.PAUSING, confirmed=False, retrying=True)
RESUMING = stands(State.RESUMING, confirmed=False)
UNREAD = stands(State.UNREAD, confirmed=False, answered=False)
UNREACHABLE = stands(State.UNREACHABLE, retrying=True)
NEVER_ANSWERED = stands(State.UNREACHABLE, confirmed=False)
DISAGREES = stands(State.FAILED, inconsistent=True)
DISAGREES_AND_IS_PAUSED_NOW = stands(State.PAUSING, inconsistent=True, confirmed=False)
FAILED_404 = stands(State.FAILED, Reason.ENDPOINT_MISSING, confirmed=False)
FAILED_401 = stands(State.FAILED, Reason.UNAUTHORIZED, confirmed=False)
NO_PORT = stands(State.FAILED, Reason.PORT_MISSING, confirmed=False)
DEAD = stands(State.FAILED, Reason.ENGINE_DIED)
REFUSES = stands(State.RUNNING, Reason.ENGINE_ERROR)
UNSUPPORTED = stands(State.RUNNING, Reason.UNSUPPORTED_MODE)


@dataclass(frozen=True)
class Case:
    """One fleet, and the conditions that it has."""

    name: str
    desired: str | None
    fleet: tuple[Standing, ...]
    ready: str
    paused: str
    reconciling: str | None = None
    stalled: str | None = None
    claimed: bool = False
    marks: tuple[pytest.MarkDecorator, ...] = field(default=())


CASES = (
    # Ready is true
    Case("all paused as wanted", "paused", (IS_PAUSED, IS_PAUSED), "True InDesiredState", "True AllPaused"),
    Case("all running as wanted", "running", (IS_RUNNING, IS_RUNNING), "True InDesiredState", "False AllRunning"),
    Case("asleep is as good as paused", "paused", (IS_PAUSED, ASLEEP), "True InDesiredState", "True AllPaused"),
    Case("all asleep", "paused", (ASLEEP,), "True InDesiredState", "True AllPaused"),
    Case("a starting one is not waited for", "paused", (IS_PAUSED, STARTING), "True InDesiredState", "True AllPaused"),
    Case("nor when running", "running", (IS_RUNNING, STARTING), "True InDesiredState", "False AllRunning"),
    Case("no pods", "paused", (), "True NoPods", "Unknown NoPods"),
    Case("no pods, running", "running", (), "True NoPods", "Unknown NoPods"),
    # Observing
    Case("nothing wanted, all paused", None, (IS_PAUSED,), "True Observing", "True AllPaused"),
    Case("nothing wanted, all running", None, (IS_RUNNING,), "True Observing", "False AllRunning"),
    Case("nothing wanted, mixed", None, (IS_RUNNING, IS_PAUSED), "True Observing", "Unknown Mixed"),
    Case("nothing wanted, asleep", None, (ASLEEP,), "True Observing", "True AllPaused"),
    Case("nothing wanted, no pods: observing goes first", None, (), "True Observing", "Unknown NoPods"),
    Case("nothing wanted, unreachable", None, (UNREACHABLE,), "True Observing", "Unknown TargetsUnreachable"),
    Case("nothing wanted, ranks disagree", None, (DISAGREES,), "True Observing", "Unknown Inconsistent"),
    Case("nothing wanted, only starting", None, (STARTING,), "True Observing", "Unknown TargetsStarting"),
    Case(
        "nothing wanted, but a person is needed",
        None,
        (FAILED_404,),
        "False EndpointMissing",
        "Unknown TargetsUnreachable",
        stalled="EndpointMissing",
    ),
    # Progressing
    Case("a pause is open", "paused", (IS_PAUSED, PAUSING), "False Progressing", "Unknown Mixed", "Progressing"),
    Case("a resume is open", "running", (RESUMING,), "False Progressing", "Unknown Mixed", "Progressing"),
    Case("not read yet", "paused", (UNREAD,), "False Progressing", "Unknown Mixed", "Progressing"),
    Case("one of two not read yet", "paused", (IS_PAUSED, UNREAD), "False Progressing", "Unknown Mixed", "Progressing"),
    Case("paused before this spec", "paused", (WAS_PAUSED,), "False Progressing", "Unknown Mixed", "Progressing"),
    Case("running before this spec", "running", (WAS_RUNNING,), "False Progressing", "Unknown Mixed", "Progressing"),
    Case("running, to be paused", "paused", (IS_RUNNING,), "False Progressing", "False AllRunning", "Progressing"),
    Case("paused, to be resumed", "running", (IS_PAUSED,), "False Progressing", "True AllPaused", "Progressing"),
    Case("half and half", "paused", (IS_PAUSED, IS_RUNNING), "False Progressing", "Unknown Mixed", "Progressing"),
    Case("only starting", "paused", (STARTING,), "False Progressing", "Unknown TargetsStarting", "Progressing"),
    Case("ranks disagree", "paused", (DISAGREES,), "False Progressing", "Unknown Inconsistent", "Progressing"),
    Case(
        "ranks disagree and are being paused",
        "paused",
        (DISAGREES_AND_IS_PAUSED_NOW,),
        "False Progressing",
        "Unknown Inconsistent",
        "Progressing",
    ),
    Case(
        "the last call failed",
        "paused",
        (IS_PAUSED, PAUSING_AGAIN),
        "False Progressing",
        "Unknown Mixed",
        "ProgressingWithRetry",
    ),
    # TargetsUnreachable
    Case(
        "one unreachable",
        "paused",
        (IS_PAUSED, UNREACHABLE),
        "False TargetsUnreachable",
        "Unknown TargetsUnreachable",
        "ProgressingWithRetry",
    ),
    Case(
        "one that never answered in time",
        "paused",
        (IS_PAUSED, NEVER_ANSWERED),
        "False TargetsUnreachable",
        "Unknown TargetsUnreachable",
        "Progressing",
    ),
    Case(
        "unreachable comes before progressing",
        "paused",
        (PAUSING, UNREACHABLE),
        "False TargetsUnreachable",
        "Unknown TargetsUnreachable",
        "ProgressingWithRetry",
    ),
    Case(
        "inconsistent comes before unreachable in Paused",
        "paused",
        (DISAGREES, UNREACHABLE),
        "False TargetsUnreachable",
        "Unknown Inconsistent",
        "ProgressingWithRetry",
    ),
    # Stalled: each reason alone
    *(
        Case(f"stalled: {reason}", desired, (of, IS_PAUSED), f"False {reason}", paused, stalled=reason)
        for desired, of, reason, paused in (
            ("paused", FAILED_404, "EndpointMissing", "Unknown TargetsUnreachable"),
            ("paused", NO_PORT, "PortMissing", "Unknown TargetsUnreachable"),
            ("paused", FAILED_401, "Unauthorized", "Unknown TargetsUnreachable"),
            ("paused", UNSUPPORTED, "UnsupportedMode", "Unknown Mixed"),
            ("paused", REFUSES, "EngineError", "Unknown Mixed"),
            ("paused", DEAD, "EngineError", "Unknown TargetsUnreachable"),
        )
    ),
    Case(
        "asleep but running is wanted",
        "running",
        (SLEEPS_BUT_SHOULD_RUN, IS_RUNNING),
        "False TargetsSleeping",
        "Unknown Mixed",
        stalled="TargetsSleeping",
    ),
    Case(
        "another owns some of the pods",
        "paused",
        (IS_PAUSED,),
        "False PodsClaimed",
        "True AllPaused",
        stalled="PodsClaimed",
        claimed=True,
    ),
    Case(
        "another owns all of the pods",
        "paused",
        (),
        "False PodsClaimed",
        "Unknown NoPods",
        stalled="PodsClaimed",
        claimed=True,
    ),
    Case(
        "claimed while observing", None, (IS_PAUSED,), "False PodsClaimed", "True AllPaused", None, "PodsClaimed", True
    ),
    Case(
        "stalled wins over unreachable",
        "paused",
        (UNREACHABLE, REFUSES),
        "False EngineError",
        "Unknown TargetsUnreachable",
        stalled="EngineError",
    ),
    Case(
        "stalled wins over progressing",
        "paused",
        (PAUSING_AGAIN, REFUSES),
        "False EngineError",
        "Unknown Mixed",
        stalled="EngineError",
    ),
    Case(
        "what a starting target says stalls nothing",
        "paused",
        (stands(State.STARTING, Reason.ENDPOINT_MISSING), IS_PAUSED),
        "True InDesiredState",
        "True AllPaused",
    ),
)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_the_table_of_conditions(case: Case) -> None:
    effective = Desired(case.desired) if case.desired is not None else None
    decision = decide(effective, Counter(case.fleet), Circumstances(claimed=case.claimed))
    assert " ".join(decision.ready) == case.ready
    assert " ".join(decision.paused) == case.paused
    assert decision.reconciling == case.reconciling
    assert decision.stalled == case.stalled


def test_the_reasons_of_stalled_come_in_the_order_of_the_design() -> None:
    order = [
        (None, "PodsClaimed"),
        (FAILED_404, "EndpointMissing"),
        (NO_PORT, "PortMissing"),
        (FAILED_401, "Unauthorized"),
        (UNSUPPORTED, "UnsupportedMode"),
        (DEAD, "EngineError"),
        (SLEEPS_BUT_SHOULD_RUN, "TargetsSleeping"),
    ]
    for first, (_, reason) in enumerate(order):
        present = [standing for standing, _ in reversed(order[first:]) if standing is not None]
        decision = decide(Desired.RUNNING, Counter(present), Circumstances(claimed=first == 0))
        assert decision.stalled == reason


# Standings: what of one target counts


def story(desired: str | None = "paused", pod: str = "qwen-0", traits: Traits = MODERN, **terms: object) -> Story:
    return Story(make_wanted(desired, **terms), make_target(pod), traits=traits)  # type: ignore[arg-type]


def starting(pod: str = "qwen-0", desired: str = "paused") -> Story:
    return Story(make_wanted(desired), make_target(pod, ready=False)).fail(CONNECTION_REFUSED)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        pytest.param(
            story().read(RUNNING).call().answered(ANSWERED_400).read(RUNNING), "EngineError", id="refused POST"
        ),
        pytest.param(
            story().read(RUNNING).call().answered(ANSWERED_401).read(RUNNING), "Unauthorized", id="401 to a POST"
        ),
        pytest.param(story().fail(ANSWERED_404), "EndpointMissing", id="404 to a read"),
        pytest.param(
            story().read(RUNNING).call().answered(ANSWERED_500).read(RUNNING), None, id="R4 500 is not permanent"
        ),
        pytest.param(story(traits=V0_16, mode="keep").read(RUNNING), "UnsupportedMode", id="an old engine cannot keep"),
        pytest.param(story(traits=V0_16, mode="keep").read(PAUSED), None, id="it need not, being paused"),
        pytest.param(story("running", traits=V0_16, mode="keep").read(PAUSED), None, id="nor to be resumed"),
        pytest.param(story(None, traits=V0_16, mode="keep").read(RUNNING), None, id="nor when only observed"),
        pytest.param(story("running").read(SLEEPING), "TargetsSleeping", id="asleep where running is wanted"),
        pytest.param(story().read(SLEEPING), None, id="asleep where paused is wanted"),
        pytest.param(story(None).read(SLEEPING), None, id="asleep where nothing is wanted"),
        pytest.param(Story(make_wanted(), make_target(port_missing=True)), "PortMissing", id="no such port"),
        pytest.param(
            Story(make_wanted(), make_target(port_missing=True, started=False)), None, id="no such port, but not up yet"
        ),
        pytest.param(story().read(RUNNING).condemned(DIED), "EngineDied", id="R21 it died of our calls"),
        pytest.param(
            story().read(RUNNING).call().answered(ANSWERED_400).read(PAUSED),
            None,
            id="a refusal that no longer matters",
        ),
        pytest.param(
            story().read(RUNNING).call().answered(ANSWERED_400).respec("paused").read(RUNNING),
            None,
            id="a refusal under an older spec",
        ),
    ],
)
def test_what_a_person_has_to_look_at(told: Story, reason: str | None) -> None:
    assert told.standing.reason == reason


def test_r18_what_was_read_before_the_present_spec_confirms_nothing() -> None:
    told = story("running").read(PAUSED).respec("paused")
    assert not told.standing.confirmed
    assert told.read(PAUSED).standing.confirmed


@pytest.mark.parametrize("failure", [None, ANSWERED_500], ids=["success", "lost"])
def test_r1_between_the_answer_to_a_call_and_the_read_after_it_nothing_is_confirmed(failure: Failure | None) -> None:
    told = story("running").read(PAUSED).call().answered(failure)
    decision = fleet_of(told).decision()
    assert decision.paused == ("Unknown", Reason.MIXED), "it was just resumed, and the last read is worth nothing"
    told = story("paused").read(RUNNING).call().answered(failure)
    assert fleet_of(told).decision().paused == ("Unknown", Reason.MIXED)


@pytest.mark.parametrize(
    ("told", "answered"),
    [
        pytest.param(story(), False, id="new"),
        pytest.param(story().ask(), False, id="asked"),
        pytest.param(story().read(PAUSED), True, id="read"),
        pytest.param(story().fail(), True, id="failed"),
        pytest.param(story().read(PAUSED).respec("running"), False, id="read before the present spec"),
        pytest.param(story().read(PAUSED).respec("running").ask(), False, id="asked under the present spec"),
        pytest.param(story().fail().respec("running"), False, id="failed before the present spec"),
        pytest.param(story().fail().respec("running").ask(), False, id="failed before, and asked again"),
        pytest.param(story().fail().respec("running").fail(), True, id="failed under the present spec"),
        pytest.param(Story(make_wanted(), make_target(started=False)), True, id="not to be asked: it does not run"),
        pytest.param(Story(make_wanted(), make_target(port_missing=True)), True, id="not to be asked: no port"),
        pytest.param(story().condemned(DIED), True, id="not to be asked: it died of our calls"),
    ],
)
def test_nothing_is_written_until_each_target_was_read_or_failed(told: Story, answered: bool) -> None:
    fleet = fleet_of(story().read(PAUSED), told, wanted=told.wanted)
    alone = fleet_of(told)
    assert report.is_everything_answered(alone.tally) is answered
    assert report.is_everything_answered(fleet.tally) is (answered and told.wanted.object_generation == 2)


# The status


def condition(status: LLMServiceStatus, kind: str) -> tuple[str, str, str] | None:
    found = next((each for each in status.conditions if each.type == kind), None)
    return (found.status, found.reason, found.message) if found is not None else None


def test_a_settled_fleet_has_two_conditions_and_says_how_many() -> None:
    status = status_of(fleet_of(story().read(PAUSED), story(pod="qwen-1").read(PAUSED)))
    assert [each.type for each in status.conditions] == ["Ready", "Paused"]
    assert condition(status, "Ready") == ("True", "InDesiredState", "Every one of 2 targets confirmed paused")
    assert condition(status, "Paused") == ("True", "AllPaused", "Of 2 targets: 2 paused")
    assert status.paused is True
    assert status.observed_generation == 2


@pytest.mark.parametrize(
    ("sights", "paused"),
    [((PAUSED, PAUSED), True), ((RUNNING, RUNNING), False), ((PAUSED, RUNNING), None), ((PAUSED, INCONSISTENT), None)],
)
def test_r18_paused_is_absent_rather_than_a_guess(sights: tuple[Sight, Sight], paused: bool | None) -> None:
    first, second = sights
    status = status_of(fleet_of(story(None).read(first), story(None, "qwen-1").read(second)))
    assert status.paused is paused


def test_r19_every_condition_carries_the_object_generation() -> None:
    status = status_of(fleet_of(story(object_generation=7).read(RUNNING)))
    assert status.observed_generation == 7
    assert {each.observed_generation for each in status.conditions} == {7}
    assert len(status.conditions) == 3


def test_the_transition_time_moves_only_with_the_status_of_a_condition() -> None:
    told = story().read(RUNNING)
    first = status_of(fleet_of(told), timestamp=EPOCH)
    told.call().answered(ANSWERED_500).read(RUNNING)
    second = status_of(fleet_of(told), first, LATER)
    reconciling = {each.type: each for each in second.conditions}["Reconciling"]
    assert reconciling.reason == "ProgressingWithRetry"
    assert {each.type: each.last_transition_time for each in second.conditions} == dict.fromkeys(
        ("Ready", "Paused", "Reconciling"), EPOCH
    )
    third = status_of(fleet_of(told.read(PAUSED)), second, LATER)
    assert {each.type: each.last_transition_time for each in third.conditions} == {"Ready": LATER, "Paused": LATER}


def test_counts_tell_every_state_once_and_starting_ones_in_the_total() -> None:
    fleet = fleet_of(
        story(pod="a").read(PAUSED),
        story(pod="b").read(RUNNING),
        story(pod="c").read(RUNNING).call(),
        starting("d"),
        story(pod="e").read(SLEEPING),
        story(pod="f").fail(times=2),
        story(pod="g").fail(ANSWERED_404),
        story(pod="h"),
    )
    counts = status_of(fleet).targets
    assert counts is not None
    assert counts.model_dump() == {
        "total": 8,
        "paused": 1,
        "running": 1,
        "pausing": 1,
        "resuming": 0,
        "starting": 1,
        "sleeping": 1,
        "unreachable": 1,
        "failed": 1,
    }
    assert condition(status_of(fleet), "Paused") is not None


def test_target_states_list_the_failed_first_then_others_that_are_not_as_they_should_be() -> None:
    fleet = fleet_of(
        story(pod="a-paused").read(PAUSED),
        story(pod="b-running").read(RUNNING),
        story(pod="z-failed").fail(ANSWERED_404),
        story(pod="c-unreachable").fail(times=2),
        starting("d-starting"),
        story(pod="e-asleep").read(SLEEPING),
        story(pod="y-disagrees").read(INCONSISTENT),
    )
    assert [each.pod for each in status_of(fleet).target_states] == [
        "y-disagrees",
        "z-failed",
        "b-running",
        "c-unreachable",
        "d-starting",
        "a-paused",
        "e-asleep",
    ]


def test_ports_of_one_pod_are_listed_in_order() -> None:
    ports = [Story(make_wanted(), make_target(port=port)).read(PAUSED) for port in ("8001", "8000")]
    assert [each.url for each in status_of(fleet_of(*ports)).target_states] == [
        "http://qwen-0:8000",
        "http://qwen-0:8001",
    ]


def test_target_states_are_at_most_64_and_never_leave_out_a_failed_one_for_a_healthy_one() -> None:
    healthy = [story(pod=f"a-{number:03}").read(PAUSED) for number in range(200)]
    failed = [story(pod=f"z-{number:03}").fail(ANSWERED_404) for number in range(3)]
    status = status_of(fleet_of(*healthy, *failed))
    assert len(status.target_states) == MAX_TARGET_STATES == 64
    assert [each.pod for each in status.target_states[:4]] == ["z-000", "z-001", "z-002", "a-000"]
    assert status.targets is not None
    assert (status.targets.total, status.targets.failed) == (203, 3)


@pytest.mark.parametrize(
    ("told", "reason", "message"),
    [
        pytest.param(story().read(PAUSED), None, None, id="nothing to say"),
        pytest.param(story().fail(ANSWERED_404), "EndpointMissing", ANSWERED_404.message, id="refused"),
        pytest.param(
            story().fail(times=2), "TargetsUnreachable", "GET /is_paused was not answered within 5 s", id="lost"
        ),
        pytest.param(story().wait(5), "TargetsUnreachable", "no answer yet", id="silent"),
        pytest.param(
            story().read(RUNNING).call().answered(ANSWERED_500).read(RUNNING),
            "ProgressingWithRetry",
            ANSWERED_500.message,
            id="a call that failed, in the engine's own words",
        ),
        pytest.param(story().read(INCONSISTENT, "[True, False]"), "Inconsistent", "[True, False]", id="disagrees"),
    ],
)
def test_a_target_says_why_it_is_not_as_it_should_be(told: Story, reason: str | None, message: str | None) -> None:
    entry = status_of(fleet_of(told)).target_states[0]
    assert (entry.reason, entry.message) == (reason, message)
    assert (entry.pod, entry.pod_uid, entry.url) == ("qwen-0", "uid-qwen-0", "http://qwen-0:8000")


# The words


@pytest.mark.parametrize(
    ("fleet", "reason", "message"),
    [
        pytest.param(
            fleet_of(story(pod="b").fail(ANSWERED_404), story(pod="a").fail(ANSWERED_404)),
            "EndpointMissing",
            f"a (and 1 more): {ANSWERED_404.message}",
            id="stalled: the first pod and how many more",
        ),
        pytest.param(
            fleet_of(story(pod="a").fail(ANSWERED_404), story(pod="b").fail(ANSWERED_401)),
            "EndpointMissing",
            f"a: {ANSWERED_404.message}",
            id="stalled: only those of this reason",
        ),
        pytest.param(
            fleet_of(story(pod="a").fail(times=2), story(pod="b").read(PAUSED)),
            "TargetsUnreachable",
            "a: GET /is_paused was not answered within 5 s",
            id="unreachable: the first pod",
        ),
        pytest.param(
            fleet_of(story(pod="a").read(PAUSED), story(pod="b").read(RUNNING)),
            "Progressing",
            "1 of 2 targets confirmed paused",
            id="progressing: how far",
        ),
        pytest.param(
            fleet_of(
                story(pod="a").read(PAUSED), story(pod="b").read(RUNNING).call().answered(ANSWERED_500).read(RUNNING)
            ),
            "Progressing",
            f"1 of 2 targets confirmed paused. Trying again: b: {ANSWERED_500.message}",
            id="progressing with retry: the first pod and the engine's words",
        ),
        pytest.param(
            fleet_of(story().read(PAUSED), starting("b")),
            "InDesiredState",
            "1 target confirmed paused; 1 starting",
            id="as desired: starting ones are told",
        ),
        pytest.param(
            fleet_of(story().read(PAUSED), story(pod="b").read(SLEEPING)),
            "InDesiredState",
            "Every one of 2 targets confirmed paused, 1 of them asleep",
            id="as desired: sleeping ones are told",
        ),
        pytest.param(
            fleet_of(story().read(PAUSED), spec_pause_differs=True),
            "InDesiredState",
            "1 target confirmed paused. spec.pause was changed during this pause and applies to the next one",
            id="as desired: a changed spec.pause is told",
        ),
        pytest.param(
            fleet_of(story(None).read(PAUSED), story(None, "b").read(PAUSED)),
            "Observing",
            "spec.generation is absent: 2 targets paused, and nobody will resume them",
            id="observing: what is paused stays so",
        ),
        pytest.param(
            fleet_of(story(None).read(RUNNING)),
            "Observing",
            "spec.generation is absent: states are reported, and no engine is called",
            id="observing",
        ),
        pytest.param(fleet_of(wanted=make_wanted()), "NoPods", "No pod matches spec.selector", id="no pods"),
        pytest.param(
            fleet_of(wanted=make_wanted(), claimed_by={"a": "older", "b": "other"}),
            "PodsClaimed",
            "a (and 1 more): selected by the older LLMService older too, which owns it. Make the selectors disjoint",
            id="claimed: the first pod and its owner",
        ),
    ],
)
def test_ready_says_in_a_sentence_what_is_the_matter(fleet: Fleet, reason: str, message: str) -> None:
    ready = condition(status_of(fleet), "Ready")
    assert ready is not None
    assert ready[1:] == (reason, message)


def test_ranks_that_disagree_and_refuse_are_named_as_what_is_tried_again() -> None:
    told = story().read(INCONSISTENT, "[True, False]").call().answered(ANSWERED_500).read(INCONSISTENT, "[True, False]")
    ready = condition(status_of(fleet_of(told)), "Ready")
    assert ready is not None
    assert "qwen-0" in ready[2]


def test_the_first_pod_is_named_even_where_the_list_of_targets_has_no_room_for_it() -> None:
    others = [story(pod=f"a-{number:03}").read(RUNNING) for number in range(100)]
    refused = story(pod="z").read(RUNNING).call().answered(ANSWERED_400).read(RUNNING)
    stalled = condition(status_of(fleet_of(*others, refused)), "Stalled")
    assert stalled == ("True", "EngineError", f"z: {ANSWERED_400.message}")


def test_stalled_and_reconciling_say_the_same_as_ready() -> None:
    for told in (story().fail(ANSWERED_404), story().read(RUNNING)):
        status = status_of(fleet_of(told))
        ready, other = status.conditions[0], status.conditions[2]
        assert other.message == ready.message


def test_the_present_pause_is_part_of_the_status() -> None:
    pause = LastPause(mode=PauseMode.WAIT, clear_cache=True, answered=False)
    assert status_of(fleet_of(story().read(PAUSED), pause=pause)).last_pause == pause
    assert status_of(fleet_of(story("running").read(RUNNING))).last_pause is None


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(story().read(PAUSED), id="as desired"),
        pytest.param(story().fail(ANSWERED_404), id="stalled"),
        pytest.param(story(None).read(PAUSED), id="observing"),
        pytest.param(story("running").read(SLEEPING), id="asleep"),
        pytest.param(story(traits=V0_16, mode="keep").read(RUNNING), id="unsupported"),
    ],
)
def test_r14_nothing_in_the_status_changes_at_rest(told: Story) -> None:
    before = status_of(fleet_of(told))
    for _ in range(20):
        told.wait(10)
        if told.state.failure is not None:
            told.fail(Failure(Obstacle.REFUSED, "answered 404", "other words", Reason.ENDPOINT_MISSING))
        elif told.state.sight is not None:
            told.read(told.state.sight)
        assert status_of(fleet_of(told), before, LATER) == before


# Time, and deletion


@pytest.mark.parametrize("effective", [Desired.PAUSED, Desired.RUNNING])
@pytest.mark.parametrize(
    ("reason", "pressing"),
    [
        (Reason.ENDPOINT_MISSING, True),
        (Reason.PORT_MISSING, True),
        (Reason.UNAUTHORIZED, True),
        (Reason.UNSUPPORTED_MODE, True),
        (Reason.ENGINE_ERROR, True),
        (Reason.TARGETS_SLEEPING, True),
        (None, False),
    ],
)
def test_the_deadline_is_said_only_where_nothing_is_more_pressing(
    effective: Desired, reason: Reason | None, pressing: bool
) -> None:
    tally = {stands(State.UNREACHABLE, reason, confirmed=False): 1, replace(PAUSING, due=True): 1}
    decision = decide(effective, tally, Circumstances(overdue=True))
    assert decision.stalled is (reason if pressing else Reason.PROGRESS_DEADLINE_EXCEEDED)
    assert decision.ready == ("False", decision.stalled)
    assert decision.reconciling is None


def test_an_expired_pause_is_more_pressing_than_the_deadline_and_less_than_trouble() -> None:
    resuming = {replace(RESUMING, due=True): 1}
    both = Circumstances(expired=True, overdue=True)
    assert decide(Desired.RUNNING, resuming, both).stalled is Reason.PAUSE_EXPIRED
    assert decide(Desired.RUNNING, {FAILED_404: 1}, both).stalled is Reason.ENDPOINT_MISSING


@pytest.mark.parametrize("tally", [{IS_PAUSED: 2}, {IS_PAUSED: 1, STARTING: 1}, {}])
def test_a_settled_fleet_is_never_overdue(tally: dict[Standing, int]) -> None:
    assert decide(Desired.PAUSED, tally, Circumstances(overdue=True)).ready[0] == "True"


@pytest.mark.parametrize(
    ("tally", "settled"),
    [
        pytest.param({IS_PAUSED: 1}, True, id="ready"),
        pytest.param({FAILED_404: 1}, True, id="stalled, nothing due"),
        pytest.param({FAILED_404: 1, replace(PAUSING, due=True): 1}, False, id="stalled, a call is due elsewhere"),
        pytest.param({PAUSING: 1}, False, id="progressing"),
        pytest.param({UNREACHABLE: 1}, False, id="unreachable"),
    ],
)
def test_when_a_fleet_is_settled(tally: dict[Standing, int], settled: bool) -> None:
    assert report.is_settled(decide(Desired.PAUSED, tally, Circumstances()), tally) is settled


@pytest.mark.parametrize("tally", [{PAUSING: 1}, {UNREACHABLE: 1}])
def test_a_fleet_that_is_late_is_not_settled(tally: dict[Standing, int]) -> None:
    assert not report.is_settled(decide(Desired.PAUSED, tally, Circumstances(overdue=True)), tally)


@pytest.mark.parametrize(
    ("told", "is_released"),
    [
        pytest.param(Story(make_wanted("running")).read(RUNNING), True, id="it runs"),
        pytest.param(Story(make_wanted("running")).read(PAUSED), False, id="it is to be resumed"),
        pytest.param(Story(make_wanted("running")).read(PAUSED).call(), False, id="the resume is open"),
        pytest.param(Story(make_wanted("running")).read(PAUSED).call().answered(), False, id="and not read back"),
        pytest.param(
            Story(make_wanted("running")).read(PAUSED).call().answered(ANSWERED_400).read(PAUSED),
            False,
            id="the resume is refused: that may change within the minute",
        ),
        pytest.param(Story(make_wanted("running")), False, id="it was not read yet"),
        pytest.param(Story(make_wanted("running")).fail(times=2), True, id="it cannot be read"),
        pytest.param(Story(make_wanted("running")).fail(ANSWERED_401), True, id="its reads are refused"),
        pytest.param(Story(make_wanted("running")).read(SLEEPING), True, id="it is asleep, and is not called"),
        pytest.param(Story(make_wanted("running"), make_target(started=False)), True, id="its container does not run"),
        pytest.param(
            Story(make_wanted("running"), make_target(port_missing=True)), True, id="its port is missing: never called"
        ),
    ],
)
def test_a_deleted_fleet_is_let_go_when_every_target_that_can_be_read_runs(told: Story, is_released: bool) -> None:
    runs = Story(make_wanted("running"), make_target("qwen-1")).read(RUNNING)
    assert report.is_released({told.standing: 1, runs.standing: 3}) is is_released


def test_a_deleted_fleet_without_targets_is_let_go() -> None:
    assert report.is_released({})


@pytest.mark.parametrize("failure", [TIMED_OUT, ANSWERED_401], ids=["unreachable", "refused"])
def test_deletion_waits_for_a_target_that_was_not_tried_since(failure: Failure) -> None:
    told = Story(make_wanted("paused")).fail(failure, times=2).respec("running")
    assert not report.is_released({told.standing: 1})
    assert report.is_released({told.fail(failure).standing: 1})


def test_deletion_waits_for_ranks_that_disagree() -> None:
    told = Story(make_wanted("running")).read(INCONSISTENT)
    assert not report.is_released({told.standing: 1}), "they were read, and a resume mends them"


def test_a_verify_withdraws_what_is_not_read_afresh() -> None:
    told = Story(make_wanted("paused")).read(PAUSED).verify()
    tally = {told.standing: 1}
    assert not report.is_everything_answered(tally)
    assert decide(Desired.PAUSED, tally, Circumstances()).paused[0] == "Unknown"
    assert report.is_everything_answered({told.read(PAUSED).standing: 1})


def test_a_verify_needs_every_target_fresh() -> None:
    first = Story(make_wanted("paused")).read(PAUSED).verify().read(PAUSED)
    second = Story(make_wanted("paused"), make_target("qwen-1")).read(PAUSED).verify()
    assert not report.is_everything_answered({first.standing: 9, second.standing: 1})
