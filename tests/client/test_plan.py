"""What is sent to the API server, given what stands there."""

from collections.abc import Callable

import pytest

from llmservice.api import Desired, PauseMode
from llmservice.client import plan
from llmservice.client.errors import ChangedByOthersError, NotFoundError, PausedOtherwiseError
from llmservice.client.plan import Request
from llmservice.client.snapshot import Snapshot
from llmservice.client.verdict import ANY_MANNER, Change, Manner, new_token
from llmservice_testing.stored import VERIFY, StoredBuilder, make_stored

ME, OTHER = "trainer", "kubectl-patch"
TOKEN = new_token(ME)
KEEP = Manner(PauseMode.KEEP, clear_cache=False)


def seen(stored: StoredBuilder) -> Snapshot:
    return Snapshot(stored.obj())


def without_precondition(request: Request) -> object:
    """The patch, apart from what it was planned on, which must stand in each."""
    if request.patch is None:
        return None
    patch = {**request.patch, "metadata": dict(request.patch["metadata"])}
    assert patch["metadata"].pop("resourceVersion")
    assert patch["metadata"].pop("uid")
    if not patch["metadata"]:
        del patch["metadata"]
    return patch


ASKS_FOR_A_READ = {"metadata": {"annotations": {VERIFY: TOKEN}}}


@pytest.mark.parametrize("before", [pytest.param("running", id="running"), pytest.param(None, id="nothing")])
@pytest.mark.parametrize(
    ("manner", "pause"),
    [
        pytest.param(ANY_MANNER, None, id="in any manner"),
        pytest.param(KEEP, {"mode": "keep", "clearCache": False}, id="in one manner"),
        pytest.param(Manner(PauseMode.WAIT), {"mode": "wait"}, id="only the mode"),
        pytest.param(Manner(clear_cache=True), {"clearCache": True}, id="only clearCache"),
    ],
)
def test_a_pause_alters_the_spec_in_one_patch_and_is_ours(before: str | None, manner: Manner, pause: object) -> None:
    request = plan.pause(seen(make_stored().set(before, by=OTHER)), manner, ME, TOKEN)
    spec = {"generation": "paused"} | ({} if pause is None else {"pause": pause})
    assert without_precondition(request) == {"spec": spec}
    assert (request.wanted, request.token, request.is_ours) == (Desired.PAUSED, None, True)


@pytest.mark.parametrize(("by", "is_ours"), [(ME, True), (OTHER, False)])
def test_a_pause_of_what_is_paused_only_asks_for_a_fresh_read(by: str, is_ours: bool) -> None:
    stored = make_stored().pausing("keep", clear_cache=False, by=by).set("paused", by=by)
    for each in (stored, stored.reported("True", mode="keep", clear_cache=False)):
        request = plan.pause(seen(each), KEEP, ME, TOKEN)
        assert without_precondition(request) == ASKS_FOR_A_READ
        assert (request.token, request.is_ours) == (TOKEN, is_ours)


Later = Callable[[StoredBuilder], StoredBuilder]


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(lambda it: it.pausing("abort", by=OTHER), id="the spec says so, and it has not begun"),
        pytest.param(lambda it: it.reported("True", mode="abort"), id="it was done so"),
        pytest.param(
            lambda it: it.pausing("keep", by=OTHER).reported("True", mode="abort"), id="keep is for the next one"
        ),
        pytest.param(lambda it: it.pausing("keep", clear_cache=True, by=OTHER), id="with another clearCache"),
    ],
)
def test_a_pause_of_what_is_paused_otherwise_is_refused(later: Later) -> None:
    stored = make_stored().set("paused", by=OTHER)
    with pytest.raises(PausedOtherwiseError):
        plan.pause(seen(later(stored)), KEEP, ME, TOKEN)


def test_what_the_defaults_mean_is_known_before_the_pause_has_begun() -> None:
    stored = make_stored().pausing("keep", by=OTHER).set("paused", by=OTHER)
    assert plan.pause(seen(stored), Manner(clear_cache=False), ME, TOKEN).token == TOKEN
    with pytest.raises(PausedOtherwiseError, match="clearCache false already"):
        plan.pause(seen(stored), Manner(clear_cache=True), ME, TOKEN)


def test_a_resume_sets_running_also_where_nothing_was_wanted() -> None:
    for before in ("paused", None):
        request = plan.resume(seen(make_stored().set(before, by=OTHER)), TOKEN)
        assert without_precondition(request) == {"spec": {"generation": "running"}}
        assert (request.wanted, request.token) == (Desired.RUNNING, None)
    request = plan.resume(seen(make_stored().set("running", by=OTHER)), TOKEN)
    assert without_precondition(request) == ASKS_FOR_A_READ
    assert request.token == TOKEN


def test_what_is_being_deleted_is_neither_paused_nor_resumed() -> None:
    deleted = seen(make_stored().set("running", by=OTHER).deleted())
    with pytest.raises(NotFoundError):
        plan.pause(deleted, ANY_MANNER, ME, TOKEN)
    with pytest.raises(NotFoundError):
        plan.resume(deleted, TOKEN)


def held(stored: StoredBuilder) -> Change:
    """A pause of ours that was confirmed."""
    return plan.pause(seen(make_stored().set("running", by=OTHER)), ANY_MANNER, ME, TOKEN).change(seen(stored))


def test_the_end_of_a_block_resumes_what_it_paused_and_only_that() -> None:
    stored = make_stored().set("paused", by=ME)
    change = held(stored)
    request = plan.release(seen(stored), change, ME, is_sent=False)
    assert without_precondition(request) == {"spec": {"generation": "running"}}
    for is_sent in (False, True):
        with pytest.raises(ChangedByOthersError):
            plan.release(seen(make_stored().set("paused", by=OTHER)), change, ME, is_sent=is_sent)
        with pytest.raises(ChangedByOthersError):
            plan.release(seen(make_stored().set("running", by=OTHER)), change, ME, is_sent=is_sent)


def test_a_resume_that_was_stored_without_our_knowing_is_not_sent_again() -> None:
    stored = make_stored().set("paused", by=ME)
    change = held(stored)
    resumed = seen(stored.set("running", by=ME))
    request = plan.release(resumed, change, ME, is_sent=True)
    assert request.patch is None
    assert request.change(resumed).object_generation == resumed.object_generation
    with pytest.raises(ChangedByOthersError, match="by trainer"):
        plan.release(resumed, change, ME, is_sent=False)


def test_a_pause_that_was_not_confirmed_is_taken_back_where_it_is_ours() -> None:
    stored = make_stored().set("running", by=OTHER)
    asked_on = seen(stored).service.metadata.resource_version
    still_on_its_way = plan.take_back(seen(stored), asked_on, ME, TOKEN)
    assert without_precondition(still_on_its_way) == ASKS_FOR_A_READ, "any write makes it come too late"
    assert plan.take_back(seen(stored.resync(3, by=OTHER)), asked_on, ME, TOKEN).patch is None
    ours = plan.take_back(seen(stored.set("paused", by=ME)), asked_on, ME, TOKEN)
    assert without_precondition(ours) == {"spec": {"generation": "running"}}
    theirs = make_stored().set("running", by=ME).set("paused", by=OTHER)
    assert plan.take_back(seen(theirs), asked_on, ME, TOKEN).patch is None
