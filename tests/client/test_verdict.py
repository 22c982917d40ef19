"""Whether a version of an LLMService confirms a change: every way in which it may not."""

from collections.abc import Callable

import pytest

from llmservice.api import Desired, PauseMode
from llmservice.client.errors import ChangedByOthersError, FleetError, NotFoundError, PausedOtherwiseError, StalledError
from llmservice.client.snapshot import Snapshot
from llmservice.client.verdict import ANY_MANNER, Asked, Change, Confirmed, Failed, Manner, Waiting, judge, new_token
from llmservice_testing.stored import StoredBuilder, make_stored

ME, OTHER = "trainer", "kubectl-patch"
TOKEN, ITS_TOKEN = new_token("trainer"), new_token("another")
KEEP = Manner(PauseMode.KEEP, clear_cache=False)

Later = Callable[[StoredBuilder], StoredBuilder]
"""What happens after the change was stored."""


def running_and_reported() -> StoredBuilder:
    """What a settled fleet looks like."""
    return make_stored().set("running", by=OTHER).reported("False")


def change_of(
    stored: StoredBuilder, wanted: str | None, token: str | None = None, manner: Manner = ANY_MANNER
) -> Change:
    snapshot = Snapshot(stored.obj())
    return Change(
        uid=snapshot.service.metadata.uid,
        object_generation=snapshot.object_generation,
        wanted=None if wanted is None else Desired(wanted),
        token=token,
        asked=None if wanted is None else Asked.of(snapshot),
        manner=manner,
    )


def paused_by_spec(later: Later, manner: Manner = ANY_MANNER) -> object:
    """The verdict on a pause that altered the spec."""
    stored = running_and_reported().set("paused", by=ME)
    change = change_of(stored, "paused", manner=manner)
    return judge(Snapshot(later(stored).obj()), change)


def paused_already(later: Later, manner: Manner = ANY_MANNER) -> object:
    """The verdict on a pause that altered nothing, as the fleet was paused and reported before."""
    stored = make_stored().set("paused", by=OTHER).reported("True", mode="abort", echo="older").asked(TOKEN)
    change = change_of(stored, "paused", TOKEN, manner)
    return judge(Snapshot(later(stored).obj()), change)


WAITS_FOR_A_CHANGED_SPEC: list[tuple[str, Later, bool]] = [
    ("nothing happened yet", lambda it: it, True),
    ("paused, said about the spec before", lambda it: it.reported("True", about=2), True),
    (
        "stalled, said about the spec before",
        lambda it: it.reported("Unknown", about=2, stalled=("EngineError", "x")),
        True,
    ),
    ("some are paused", lambda it: it.reported("Unknown", mode="abort"), False),
    ("all run", lambda it: it.reported("False"), False),
    (
        "paused, but the spec moved on in other ways",
        lambda it: it.reported("True", mode="abort").resync(3, by=OTHER),
        False,
    ),
]


@pytest.mark.parametrize(
    ("later", "is_silent"), [pytest.param(*each, id=name) for name, *each in WAITS_FOR_A_CHANGED_SPEC]
)
def test_a_pause_that_altered_the_spec_is_waited_for(later: Later, is_silent: bool) -> None:
    verdict = paused_by_spec(later)
    assert isinstance(verdict, Waiting)
    assert verdict.is_silent is is_silent
    assert verdict.why


CONFIRMS_A_CHANGED_SPEC: list[tuple[str, Later]] = [
    ("paused, about this spec", lambda it: it.reported("True", mode="abort")),
    (
        "paused, about a later spec that still wants it",
        lambda it: it.resync(3, by=OTHER).reported("True", mode="abort"),
    ),
    ("an applier joined", lambda it: it.joined("gitops").reported("True", mode="abort")),
    ("somebody asked for a fresh read", lambda it: it.asked("other").reported("True", mode="abort")),
]


@pytest.mark.parametrize("later", [pytest.param(each, id=name) for name, each in CONFIRMS_A_CHANGED_SPEC])
def test_a_pause_that_altered_the_spec_is_confirmed(later: Later) -> None:
    assert paused_by_spec(later) == Confirmed()


def test_where_the_api_server_keeps_no_record_the_value_alone_counts() -> None:
    stored = make_stored().set("paused", by=ME).without_record()
    change = change_of(stored, "paused")
    assert judge(Snapshot(stored.reported("True").obj()), change) == Confirmed()
    verdict = judge(Snapshot(stored.set("running", by=OTHER).without_record().obj()), change)
    assert isinstance(verdict, Failed)
    assert isinstance(verdict.error, ChangedByOthersError)
    assert verdict.error.managers == ()
    assert "by somebody" in str(verdict.error)


FAILS: list[tuple[str, Later, type[FleetError], str]] = [
    (
        "it was resumed",
        lambda it: it.set("running", by=OTHER),
        ChangedByOthersError,
        "spec.generation was changed by kubectl-patch",
    ),
    (
        "it was resumed and paused again",
        lambda it: it.set("running", by=OTHER).set("paused", by=OTHER).reported("True", mode="abort"),
        ChangedByOthersError,
        "by kubectl-patch meanwhile, and is paused now",
    ),
    ("the field was removed", lambda it: it.set(None, by=OTHER), ChangedByOthersError, "is absent now"),
    (
        "the mode was changed",
        lambda it: it.pausing("wait", by="ops"),
        ChangedByOthersError,
        "spec.pause.mode was changed by ops",
    ),
    (
        "clearCache was changed",
        lambda it: it.pausing(clear_cache=True, by="ops"),
        ChangedByOthersError,
        "spec.pause.clearCache",
    ),
    ("it is being deleted", lambda it: it.reported("True").deleted(), NotFoundError, "being deleted"),
    ("it was created anew", lambda it: it.reported("True").created_anew(), NotFoundError, "created anew"),
    (
        "a person is needed",
        lambda it: it.reported("Unknown", stalled=("EndpointMissing", "qwen-0 answered 404")),
        StalledError,
        "Stalled, EndpointMissing: qwen-0 answered 404",
    ),
    (
        "all are paused, and a person is needed",
        lambda it: it.reported("True", mode="abort", stalled=("PodsClaimed", "qwen-0 belongs to another")),
        StalledError,
        "PodsClaimed",
    ),
]


@pytest.mark.parametrize(("later", "kind", "words"), [pytest.param(*each, id=name) for name, *each in FAILS])
def test_waiting_on_will_not_help(later: Later, kind: type[FleetError], words: str) -> None:
    verdict = paused_by_spec(later)
    assert isinstance(verdict, Failed)
    assert type(verdict.error) is kind
    assert words in str(verdict.error)
    assert verdict.error.fleet == "default/qwen"


WAITS_FOR_AN_ECHO: list[tuple[str, Later, bool]] = [
    ("nothing happened yet, and the status says paused since long", lambda it: it, False),
    ("another echo came", lambda it: it.reported("True", mode="abort", echo="another"), False),
    (
        "stalled, said before the echo",
        lambda it: it.reported("True", echo="older", stalled=("EngineError", "x")),
        False,
    ),
    ("somebody asked by hand before it was done", lambda it: it.asked("step-1"), True),
    ("that was done, and ours was not", lambda it: it.asked("step-1").reported("True", echo="step-1"), True),
    ("another program asked before it was done", lambda it: it.asked(ITS_TOKEN), False),
    ("one that it asked for before us is done", lambda it: it.reported("True", mode="abort", echo=ITS_TOKEN), False),
]


@pytest.mark.parametrize(
    ("later", "is_overwritten"), [pytest.param(*each, id=name) for name, *each in WAITS_FOR_AN_ECHO]
)
def test_a_pause_that_altered_nothing_is_waited_for(later: Later, is_overwritten: bool) -> None:
    verdict = paused_already(later)
    assert isinstance(verdict, Waiting)
    assert verdict.is_silent
    assert verdict.is_overwritten is is_overwritten


def test_a_pause_that_altered_nothing_is_confirmed_by_the_echo_of_its_own_request() -> None:
    assert paused_already(lambda it: it.reported("True", mode="abort", echo=TOKEN)) == Confirmed()
    later = paused_already(lambda it: it.reported("True", mode="abort", echo=TOKEN).asked("another"))
    assert later == Confirmed(), "somebody who asks afterwards takes nothing away"


def test_another_program_that_asks_in_between_confirms_for_both() -> None:
    later = paused_already(lambda it: it.asked(ITS_TOKEN).reported("True", mode="abort", echo=ITS_TOKEN))
    assert later == Confirmed()


def test_the_echo_alone_confirms_no_pause() -> None:
    verdict = paused_already(lambda it: it.reported("Unknown", mode="abort", echo=TOKEN))
    assert isinstance(verdict, Waiting)
    assert not verdict.is_silent
    assert "Paused is Unknown, Mixed: 2 targets: 1 paused, 1 running" in verdict.why


@pytest.mark.parametrize(
    ("manner", "mode", "clear_cache", "words"),
    [
        pytest.param(KEEP, "abort", True, "with mode abort already, and mode keep was asked for", id="another mode"),
        pytest.param(KEEP, "keep", True, "with clearCache true already, and clearCache false", id="another clearCache"),
        pytest.param(Manner(clear_cache=False), "wait", True, "clearCache", id="only clearCache was asked for"),
    ],
)
@pytest.mark.parametrize("way", [paused_by_spec, paused_already])
def test_a_fleet_that_is_paused_otherwise_is_not_taken_for_what_was_asked(
    way: Callable[[Later, Manner], object], manner: Manner, mode: str, clear_cache: bool, words: str
) -> None:
    verdict = way(lambda it: it.reported("True", mode=mode, clear_cache=clear_cache, echo=TOKEN), manner)
    assert isinstance(verdict, Failed)
    assert isinstance(verdict.error, PausedOtherwiseError)
    assert words in str(verdict.error)


def test_what_is_not_asked_for_may_be_anything() -> None:
    for manner in (ANY_MANNER, Manner(PauseMode.WAIT), Manner(clear_cache=False)):
        verdict = paused_by_spec(lambda it: it.reported("True", mode="wait", clear_cache=False), manner)
        assert verdict == Confirmed()


def test_a_resume_is_confirmed_by_every_engine_running_and_nothing_less() -> None:
    stored = make_stored().set("paused", by=ME).reported("True", mode="abort").set("running", by=ME)
    change = change_of(stored, "running")
    for paused, expected in (("True", Waiting), ("Unknown", Waiting), ("False", Confirmed)):
        assert isinstance(judge(Snapshot(stored.reported(paused).obj()), change), expected)
    stale = stored.reported("False", about=1)
    assert isinstance(judge(Snapshot(stale.obj()), change), Waiting)


def test_a_version_from_before_the_change_says_nothing_not_even_of_others() -> None:
    before = Snapshot(make_stored().set("running", by=OTHER).reported("False").obj())
    change = change_of(running_and_reported().set("paused", by=ME), "paused")
    verdict = judge(before, change)
    assert isinstance(verdict, Waiting)
    assert verdict.is_silent


def test_whoever_only_waits_or_verifies_does_not_mind_who_changes_what() -> None:
    stored = running_and_reported()
    waiting = Change(Snapshot(stored.obj()).service.metadata.uid, 2, Desired.PAUSED)
    assert isinstance(judge(Snapshot(stored.set("paused", by=OTHER).obj()), waiting), Waiting)
    assert judge(Snapshot(stored.reported("True", mode="abort").obj()), waiting) == Confirmed()
    verifying = change_of(stored.asked(TOKEN), None, TOKEN)
    assert isinstance(judge(Snapshot(stored.obj()), verifying), Waiting)
    changed = stored.set("running", by=OTHER).reported("Unknown", echo=TOKEN)
    assert judge(Snapshot(changed.obj()), verifying) == Confirmed()


def test_a_verification_tells_that_a_person_is_needed() -> None:
    stored = running_and_reported().asked(TOKEN)
    verifying = change_of(stored, None, TOKEN)
    verdict = judge(Snapshot(stored.reported("Unknown", echo=TOKEN, stalled=("Unauthorized", "401")).obj()), verifying)
    assert isinstance(verdict, Failed)
    assert isinstance(verdict.error, StalledError)
    assert (verdict.error.reason, verdict.error.message) == ("Unauthorized", "401")


def test_a_condition_about_an_older_spec_counts_no_more_than_a_status_about_it() -> None:
    stored = running_and_reported().set("paused", by=ME)
    change, now = change_of(stored, "paused"), stored.reported("True", mode="abort").obj()
    assert judge(Snapshot(now), change) == Confirmed()
    now["status"]["conditions"][0]["observedGeneration"] -= 1
    assert isinstance(judge(Snapshot(now), change), Waiting)
