"""Which Kubernetes Events go with a change of status: one when something happened, none at rest."""

import pytest

from llmservice.api import Desired, LastPause, LLMServiceStatus, PauseMode
from llmservice.domain.fleet import Sight
from llmservice.domain.transitions import Event, EventReason, transitions
from llmservice_testing.domain import (
    ANSWERED_400,
    ANSWERED_404,
    ANSWERED_500,
    CONNECTION_REFUSED,
    V0_16,
    Story,
    fleet_of,
    make_target,
    make_wanted,
    status_of,
)

PAUSED, RUNNING = Sight.PAUSED, Sight.RUNNING
ABORT = LastPause(mode=PauseMode.ABORT, clear_cache=True, answered=True)
KEEP = LastPause(mode=PauseMode.KEEP, clear_cache=False, answered=True)
WAIT = LastPause(mode=PauseMode.WAIT, clear_cache=True, answered=False)
NEW = LLMServiceStatus()
SETTLED = {"paused": ABORT, "running": None}


def story(desired: str | None = "paused", pod: str = "qwen-0") -> Story:
    return Story(make_wanted(desired), make_target(pod))


def status(*stories: Story, pause: LastPause | None = None, before: LLMServiceStatus | None = None) -> LLMServiceStatus:
    return status_of(fleet_of(*stories, pause=pause), before)


def settled(desired: str) -> LLMServiceStatus:
    return status(story(desired).read(PAUSED if desired == "paused" else RUNNING), pause=SETTLED[desired])


def reasons(before: LLMServiceStatus, after: LLMServiceStatus, desired: str | None) -> list[str]:
    return [event.reason.value for event in transitions(before, after, Desired(desired) if desired else None)]


STARTING = Story(make_wanted("running"), make_target(ready=False)).fail(CONNECTION_REFUSED)
STALLED = status(story().fail(ANSWERED_404), pause=ABORT)
UNREACHABLE = status(story().fail(times=2), pause=ABORT)


@pytest.mark.parametrize(
    ("before", "after", "desired", "expected"),
    [
        pytest.param(NEW, status(story().read(RUNNING), pause=ABORT), "paused", ["PauseStarted"], id="a pause starts"),
        pytest.param(
            status(story().read(RUNNING), pause=ABORT), settled("paused"), "paused", ["Paused"], id="the pause is done"
        ),
        pytest.param(NEW, settled("paused"), "paused", ["PauseStarted", "Paused"], id="both in one write"),
        pytest.param(
            settled("paused"),
            status(story("running").read(PAUSED)),
            "running",
            ["ResumeStarted"],
            id="a resume starts",
        ),
        pytest.param(
            status(story("running").read(PAUSED)), settled("running"), "running", ["Resumed"], id="the resume is done"
        ),
        pytest.param(settled("paused"), settled("running"), "running", ["ResumeStarted", "Resumed"], id="both at once"),
        pytest.param(NEW, settled("running"), "running", [], id="a fleet that ran from the start was not resumed"),
        pytest.param(
            status(STARTING, pause=None), settled("running"), "running", [], id="a fleet that came up was not resumed"
        ),
        pytest.param(
            status(story("running").fail(times=2)),
            settled("running"),
            "running",
            [],
            id="nor was one that could not be reached for a while",
        ),
        pytest.param(settled("paused"), STALLED, "paused", ["Stalled"], id="stalled"),
        pytest.param(STALLED, settled("paused"), "paused", ["Paused"], id="no longer stalled"),
        pytest.param(
            STALLED,
            status(story().read(RUNNING).call().answered(ANSWERED_400).read(RUNNING), pause=ABORT),
            "paused",
            ["Stalled"],
            id="stalled for another reason",
        ),
        pytest.param(settled("paused"), UNREACHABLE, "paused", ["TargetsUnreachable"], id="unreachable"),
        pytest.param(
            UNREACHABLE,
            status(story().fail(times=2), story(pod="qwen-1").fail(times=2), pause=ABORT),
            "paused",
            [],
            id="one more unreachable is the same trouble",
        ),
        pytest.param(
            settled("paused"),
            status(story(None).read(PAUSED)),
            None,
            ["LeftPaused"],
            id="generation was removed: left paused",
        ),
        pytest.param(
            settled("running"),
            status(story(None).read(RUNNING)),
            None,
            [],
            id="generation was removed from a running one",
        ),
        pytest.param(
            status(story(None).read(PAUSED)),
            status(story(None).read(PAUSED), story(None, "qwen-1").read(PAUSED)),
            None,
            [],
            id="another one is paused by others while observing",
        ),
        pytest.param(NEW, status(story(None).read(PAUSED)), None, [], id="found paused while observing"),
        pytest.param(
            settled("paused"),
            status(story().read(PAUSED), story(pod="qwen-1").read(RUNNING), pause=ABORT),
            "paused",
            [],
            id="a new pod is no new pause",
        ),
    ],
)
def test_what_happened_is_told_once(
    before: LLMServiceStatus, after: LLMServiceStatus, desired: str | None, expected: list[str]
) -> None:
    assert reasons(before, after, desired) == expected


@pytest.mark.parametrize(
    ("at_rest", "desired"),
    [
        pytest.param(settled("paused"), "paused", id="paused"),
        pytest.param(settled("running"), "running", id="running"),
        pytest.param(STALLED, "paused", id="stalled"),
        pytest.param(UNREACHABLE, "paused", id="unreachable"),
        pytest.param(status(story(None).read(PAUSED)), None, id="observing what is paused"),
        pytest.param(NEW, "paused", id="never written"),
    ],
)
def test_r14_nothing_is_told_at_rest(at_rest: LLMServiceStatus, desired: str | None) -> None:
    assert reasons(at_rest, at_rest, desired) == []


def test_r14_a_restarted_operator_that_writes_the_same_again_tells_nothing() -> None:
    again = status(story().read(PAUSED), pause=ABORT, before=settled("paused"))
    assert reasons(settled("paused"), again, "paused") == []


@pytest.mark.parametrize("pause", [ABORT, KEEP, WAIT], ids=["abort", "keep", "wait"])
def test_the_start_of_a_pause_says_how_it_is_asked(pause: LastPause) -> None:
    (event,) = transitions(NEW, NEW.model_copy(update={"last_pause": pause}), Desired.PAUSED)
    assert event == Event(
        EventReason.PAUSE_STARTED, f"Pausing with mode {pause.mode}, clearCache {str(pause.clear_cache).lower()}"
    )


def test_an_answered_wait_is_no_new_pause() -> None:
    before = status(story().read(RUNNING), pause=WAIT)
    after = status(story().read(RUNNING), pause=WAIT.model_copy(update={"answered": True}))
    assert reasons(before, after, "paused") == []


def test_trouble_is_a_warning_and_progress_is_not() -> None:
    def warnings(before: LLMServiceStatus, after: LLMServiceStatus, desired: Desired | None) -> list[bool]:
        return [event.warning for event in transitions(before, after, desired)]

    assert warnings(NEW, settled("paused"), Desired.PAUSED) == [False, False]
    assert warnings(settled("paused"), settled("running"), Desired.RUNNING) == [False, False]
    assert warnings(settled("paused"), STALLED, Desired.PAUSED) == [True]
    assert warnings(settled("paused"), UNREACHABLE, Desired.PAUSED) == [True]
    assert warnings(settled("paused"), status(story(None).read(PAUSED)), None) == [True]


def test_trouble_is_told_with_the_pod_and_the_engines_words() -> None:
    (stalled,) = transitions(settled("paused"), STALLED, Desired.PAUSED)
    assert stalled.message == f"EndpointMissing: qwen-0: {ANSWERED_404.message}"
    (lost,) = transitions(settled("paused"), UNREACHABLE, Desired.PAUSED)
    assert lost.message == "1 unreachable: qwen-0 (GET /is_paused was not answered within 5 s)"


def test_many_unreachable_pods_are_counted_and_three_are_named() -> None:
    after = status(*(story(pod=f"qwen-{number}").fail(times=2) for number in range(5)), pause=ABORT)
    (event,) = transitions(settled("paused"), after, Desired.PAUSED)
    assert event.message.startswith("5 unreachable: qwen-0 ")
    assert "qwen-2" in event.message
    assert "qwen-3" not in event.message


def test_an_engine_that_cannot_do_the_mode_is_told_as_stalled_before_anything_was_sent() -> None:
    told = Story(make_wanted(mode="keep"), traits=V0_16).read(RUNNING)
    assert reasons(NEW, status(told, pause=KEEP), "paused") == ["PauseStarted", "Stalled"]


def test_a_call_that_is_tried_again_is_no_event() -> None:
    told = story().read(RUNNING)
    before = status(told, pause=ABORT)
    after = status(told.call().answered(ANSWERED_500).read(RUNNING), pause=ABORT)
    assert before != after
    assert reasons(before, after, "paused") == []


# Limits in time


def too_long(before: LLMServiceStatus | None = None) -> LLMServiceStatus:
    return status_of(fleet_of(story().read(PAUSED), pause=ABORT, max_paused=60), before)


def test_a_pause_that_lasts_too_long_is_warned_of_once() -> None:
    (event,) = transitions(settled("paused"), too_long(), Desired.PAUSED)
    assert (event.reason, event.warning) == (EventReason.PAUSED_TOO_LONG, True)
    assert "spec.maxPausedSeconds (60 s)" in event.message
    assert reasons(too_long(), too_long(), "paused") == []


def test_the_next_pause_that_lasts_too_long_is_warned_of_again() -> None:
    told = Story(make_wanted("paused", object_generation=3)).read(PAUSED)
    later = status_of(fleet_of(told, pause=ABORT, max_paused=60), too_long())
    assert reasons(too_long(), later, "paused") == ["PausedTooLong"]


def test_a_pause_that_lasts_too_long_is_not_warned_of_again_after_a_disturbance() -> None:
    disturbed = status_of(
        fleet_of(story().read(PAUSED), story(pod="qwen-1").fail(times=2), pause=ABORT, max_paused=60), too_long()
    )
    assert "PausedTooLong" not in reasons(too_long(), disturbed, "paused")
    assert "PausedTooLong" not in reasons(disturbed, too_long(disturbed), "paused")


def test_a_pause_that_expires_is_told_with_what_to_do() -> None:
    resumed = story().terms(effective=Desired.RUNNING).read(RUNNING)
    after = status_of(fleet_of(resumed, expired=True), settled("paused"))
    events = transitions(settled("paused"), after, Desired.RUNNING)
    assert [event.reason.value for event in events] == ["ResumeStarted", "Stalled", "Resumed"]
    assert events[1].message.startswith("PauseExpired: ")


def test_the_deadline_is_told_once() -> None:
    overdue = status_of(fleet_of(story().fail(times=2), pause=ABORT, overdue=True), UNREACHABLE)
    assert reasons(UNREACHABLE, overdue, "paused") == ["Stalled"]
    assert reasons(overdue, overdue, "paused") == []
