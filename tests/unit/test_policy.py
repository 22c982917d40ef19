"""What one LLMService wants: from spec and stored status alone."""

import pytest

from llmservice.api import FINALIZER, Desired, LastPause, LLMService, LLMServiceStatus, PauseMode
from llmservice.domain import clocks, policy
from llmservice.domain.fleet import NEVER, PauseParameters
from llmservice_testing.builders import LLMServiceBuilder, make_llmservice
from llmservice_testing.domain import EPOCH, make_service

ABORT = LastPause(mode=PauseMode.ABORT, clear_cache=True, answered=True)
KEEP = LastPause(mode=PauseMode.KEEP, clear_cache=False, answered=True)
WAIT = LastPause(mode=PauseMode.WAIT, clear_cache=True, answered=True)
OPEN_WAIT = LastPause(mode=PauseMode.WAIT, clear_cache=True, answered=False)


def qwen() -> LLMServiceBuilder:
    return make_llmservice("qwen").selector(app="qwen")


def paused(**pause: object) -> LLMServiceBuilder:
    return qwen().generation("paused").pause(**pause)


@pytest.mark.parametrize(
    ("pause", "expected"),
    [
        pytest.param({}, ABORT, id="the default is abort, which drops the caches"),
        pytest.param({"mode": "wait"}, WAIT, id="wait drops the caches"),
        pytest.param({"mode": "keep"}, KEEP, id="keep spares the cache of the frozen requests"),
        pytest.param(
            {"mode": "keep", "clearCache": True},
            LastPause(mode=PauseMode.KEEP, clear_cache=True, answered=True),
            id="an explicit clearCache is obeyed even with keep",
        ),
        pytest.param(
            {"mode": "abort", "clearCache": False},
            LastPause(mode=PauseMode.ABORT, clear_cache=False, answered=True),
            id="an explicit false is obeyed with abort",
        ),
    ],
)
def test_a_pause_begins_as_the_spec_says(pause: dict[str, object], expected: LastPause) -> None:
    assert policy.present_pause(make_service(paused(**pause)).spec, Desired.PAUSED, None) == expected


@pytest.mark.parametrize("desired", ["running", None])
def test_there_is_no_present_pause_unless_paused_is_wanted(desired: str | None) -> None:
    builder = qwen().generation(desired) if desired else qwen()
    assert policy.present_pause(make_service(builder).spec, make_service(builder).spec.generation, KEEP) is None


def test_r5_a_pause_goes_on_as_it_began_when_spec_pause_changes() -> None:
    spec = make_service(paused(mode="wait")).spec
    assert policy.present_pause(spec, Desired.PAUSED, KEEP) == KEEP
    assert policy.spec_pause_differs(spec, KEEP)
    assert not policy.spec_pause_differs(spec, WAIT)
    assert not policy.spec_pause_differs(spec, OPEN_WAIT), "whether it was answered is no difference to the spec"
    assert not policy.spec_pause_differs(make_service(qwen()).spec, None)


def test_the_terms_carry_the_numbers_of_the_spec() -> None:
    builder = paused(timeoutSeconds=77).spec(requestTimeoutSeconds=3, resyncSeconds=44)
    wanted = policy.wanted(make_service(builder, object_generation=9), Desired.PAUSED, ABORT, may_call=True)
    assert wanted.object_generation == 9
    assert wanted.effective is Desired.PAUSED
    assert wanted.pause == PauseParameters(PauseMode.ABORT, clear_cache=True)
    assert (wanted.request_timeout, wanted.pause_timeout, wanted.resync) == (3, 77, 44)


@pytest.mark.parametrize(("desired", "effective"), [("running", Desired.RUNNING), (None, None)])
def test_effective_is_what_is_desired_or_nothing(desired: str | None, effective: Desired | None) -> None:
    builder = qwen().generation(desired) if desired else qwen()
    assert policy.effective(make_service(builder), 0.0) is effective


@pytest.mark.parametrize(
    ("held", "stored", "unanswered", "may_be_sent"),
    [
        pytest.param(ABORT, None, False, False, id="abort needs nothing stored"),
        pytest.param(WAIT, WAIT, False, False, id="an answered wait is no open question"),
        pytest.param(OPEN_WAIT, None, True, False, id="an open wait that is stored nowhere may not be sent"),
        pytest.param(OPEN_WAIT, WAIT, True, False, id="an answered wait in the object does not count"),
        pytest.param(
            OPEN_WAIT,
            OPEN_WAIT.model_copy(update={"clear_cache": False}),
            True,
            False,
            id="nor does one with other parameters",
        ),
        pytest.param(OPEN_WAIT, OPEN_WAIT, True, True, id="an open wait that is stored may be sent"),
    ],
)
def test_r5_a_wait_may_be_sent_once_the_object_says_that_it_is_open(
    held: LastPause, stored: LastPause | None, unanswered: bool, may_be_sent: bool
) -> None:
    service = make_service(paused(mode="wait"), status=LLMServiceStatus(last_pause=stored))
    wanted = policy.wanted(service, Desired.PAUSED, held, may_call=True)
    assert (wanted.wait_unanswered, wanted.wait_stored) == (unanswered, may_be_sent)


def test_r13_a_restarted_operator_finds_the_open_wait_in_the_object() -> None:
    service = make_service(paused(mode="keep"), status=LLMServiceStatus(last_pause=OPEN_WAIT))
    pause = policy.present_pause(service.spec, Desired.PAUSED, service.status.last_pause)
    wanted = policy.wanted(service, Desired.PAUSED, pause, may_call=True)
    assert wanted.pause.mode is PauseMode.WAIT
    assert wanted.wait_unanswered
    assert wanted.wait_stored


def test_r11_without_a_complete_view_the_terms_forbid_control_calls() -> None:
    assert not policy.wanted(make_service(paused()), Desired.PAUSED, ABORT, may_call=False).may_call


# A drain that is called off


@pytest.mark.parametrize(
    ("previous", "spec", "present"),
    [
        pytest.param(OPEN_WAIT, "abort", policy.unanswered(ABORT), id="a drain gives way to an abort"),
        pytest.param(OPEN_WAIT, "keep", OPEN_WAIT, id="but not to keep"),
        pytest.param(OPEN_WAIT, "wait", OPEN_WAIT, id="nor to another wait"),
        pytest.param(WAIT, "abort", WAIT, id="a drain that is over is a pause like any other"),
        pytest.param(KEEP, "abort", KEEP, id="what is paused with keep stays frozen"),
    ],
)
def test_r2_only_a_drain_gives_way_to_an_abort(previous: LastPause, spec: str, present: LastPause) -> None:
    assert policy.present_pause(make_service(paused(mode=spec)).spec, Desired.PAUSED, previous) == present


# deletionPolicy

DELETED_AT = clocks.to_seconds(EPOCH)


def held(
    desired: str | None = "paused",
    deletion: str = "resume",
    *,
    deleted: bool = False,
    finalizers: tuple[str, ...] = (),
    status: LLMServiceStatus | None = None,
    **spec: object,
) -> LLMService:
    builder = qwen().deletion_policy(deletion).spec(**spec)
    if desired is not None:
        builder.generation(desired)
    return make_service(builder, deleted=EPOCH if deleted else None, finalizers=finalizers, status=status)


OURS, THEIRS = FINALIZER, "example.com/theirs"


@pytest.mark.parametrize(
    ("service", "is_done", "expected"),
    [
        pytest.param(held(), False, (OURS,), id="it is there before the first pause"),
        pytest.param(held(finalizers=(THEIRS,)), False, (THEIRS, OURS), id="those of others stay"),
        pytest.param(held("running"), False, (), id="a fleet that was never paused needs none"),
        pytest.param(held("running", finalizers=(OURS,)), False, (OURS,), id="once there it stays for the next pause"),
        pytest.param(held(None), False, (), id="nothing where generation is absent"),
        pytest.param(held(deletion="leave"), False, (), id="leave: no finalizer"),
        pytest.param(held(deletion="leave", finalizers=(THEIRS, OURS)), False, (THEIRS,), id="leave: it goes"),
        pytest.param(held(finalizers=(OURS,), deleted=True), False, (OURS,), id="deleted: it holds the object"),
        pytest.param(held(finalizers=(OURS, THEIRS), deleted=True), True, (THEIRS,), id="deleted and done: it goes"),
        pytest.param(held(deleted=True), False, (), id="deleted: it cannot be added any more"),
        pytest.param(held(None, finalizers=(OURS,), deleted=True), False, (), id="deleted, generation absent: it goes"),
        pytest.param(
            held(deletion="leave", finalizers=(OURS,), deleted=True),
            False,
            (),
            id="deleted, leave: nothing is waited for",
        ),
    ],
)
def test_the_finalizers_of_the_object(service: LLMService, is_done: bool, expected: tuple[str, ...]) -> None:
    assert policy.wanted_finalizers(service, DELETED_AT, is_released_done=is_done) == expected


@pytest.mark.parametrize("desired", ["paused", "running", None])
@pytest.mark.parametrize("deletion", ["leave", "resume"])
@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize("finalizers", [(), (OURS,), (THEIRS, OURS), (OURS, THEIRS)])
def test_r14_finalizers_that_were_written_are_not_written_again(
    desired: str | None, deletion: str, is_deleted: bool, finalizers: tuple[str, ...]
) -> None:
    service = held(desired, deletion, deleted=is_deleted, finalizers=finalizers)
    once = policy.wanted_finalizers(service, DELETED_AT, is_released_done=False)
    service = held(desired, deletion, deleted=is_deleted, finalizers=once)
    assert policy.wanted_finalizers(service, DELETED_AT, is_released_done=False) == once


@pytest.mark.parametrize(
    ("service", "is_held"),
    [
        pytest.param(held(deletion="leave"), True, id="leave needs none"),
        pytest.param(held(), False, id="no pause without it"),
        pytest.param(held(finalizers=(THEIRS,)), False, id="that of others does not count"),
        pytest.param(held(finalizers=(OURS,)), True, id="it is there"),
    ],
)
def test_no_pause_before_the_finalizer_that_resume_needs(service: LLMService, is_held: bool) -> None:
    assert policy.wanted(service, Desired.PAUSED, ABORT, may_call=True).is_held is is_held


@pytest.mark.parametrize(
    ("service", "effective"),
    [
        pytest.param(held(deleted=True, finalizers=(OURS,)), Desired.RUNNING, id="resume"),
        pytest.param(held(deleted=True, deletion="leave"), Desired.PAUSED, id="leave: engines are left as they are"),
        pytest.param(held(None, deleted=True, finalizers=(OURS,)), None, id="generation absent: nothing on deletion"),
        pytest.param(held(finalizers=(OURS,)), Desired.PAUSED, id="not deleted"),
    ],
)
def test_what_a_deleted_object_wants_of_its_engines(service: LLMService, effective: Desired | None) -> None:
    assert policy.effective(service, DELETED_AT) is effective


def test_a_deleted_object_is_let_go_after_a_minute() -> None:
    service = held(deleted=True, finalizers=(OURS,))
    assert policy.release_ends_at(service) == DELETED_AT + 60
    assert not policy.is_release_over(service, DELETED_AT + 59.9)
    assert policy.is_release_over(service, DELETED_AT + 60)
    assert policy.release_ends_at(held()) == NEVER


def test_an_expired_pause_needs_no_finalizer_and_is_no_pause() -> None:
    expired = LLMServiceStatus(paused_since=EPOCH, paused_since_generation=2)
    service = held(status=expired, maxPausedSeconds=1, onMaxPaused="resume")
    assert policy.effective(service, DELETED_AT + 10) is Desired.RUNNING
    assert policy.wanted_finalizers(service, DELETED_AT + 10, is_released_done=False) == ()
    assert policy.present_pause(service.spec, Desired.RUNNING, ABORT) is None


@pytest.mark.parametrize(
    ("held", "stored", "expected"),
    [
        pytest.param(WAIT, OPEN_WAIT, OPEN_WAIT, id="another operator sent the wait that this one is about to send"),
        pytest.param(OPEN_WAIT, OPEN_WAIT, OPEN_WAIT, id="its own"),
        pytest.param(WAIT, WAIT, WAIT, id="answered"),
        pytest.param(WAIT, None, WAIT, id="nothing is stored"),
        pytest.param(ABORT, OPEN_WAIT, ABORT, id="another pause"),
        pytest.param(OPEN_WAIT, WAIT, OPEN_WAIT, id="what this one knows to be open stays open"),
    ],
)
def test_r5_an_unanswered_wait_in_the_object_counts_for_every_operator(
    held: LastPause, stored: LastPause | None, expected: LastPause
) -> None:
    assert policy.with_stored(held, stored) == expected
