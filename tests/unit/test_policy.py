"""What one LLMService wants: from spec and stored status alone."""

import pytest

from llmservice.api import Desired, LastPause, LLMServiceStatus, PauseMode
from llmservice.domain import policy
from llmservice.domain.fleet import PauseParameters
from llmservice_testing.builders import LLMServiceBuilder, make_llmservice
from llmservice_testing.domain import make_service

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
