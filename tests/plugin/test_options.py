"""Command lines, exit statuses, and who set what: the small pure parts."""

import pytest
import typer

from llmservice.api import PauseMode
from llmservice.client.errors import (
    ChangedByOthersError,
    ConfigurationError,
    FleetError,
    ForbiddenError,
    NotFoundError,
    OperatorSilentError,
    PausedOtherwiseError,
    StalledError,
    TimedOutError,
    UnavailableError,
)
from llmservice.client.snapshot import Snapshot
from llmservice.plugin import undo
from llmservice.plugin.authorship import ago, authors
from llmservice.plugin.exits import Exit, worst
from llmservice.plugin.objects import merged
from llmservice.plugin.options import Mode, Where, Which, seconds, which
from llmservice.plugin.running import exit_of
from llmservice_testing.stored import make_stored

HERE = Where()


def test_the_modes_are_those_of_the_api() -> None:
    assert [mode.value for mode in Mode] == [mode.value for mode in PauseMode]


@pytest.mark.parametrize(
    ("said", "meant"), [("90", 90), ("90s", 90), ("0.5s", 0.5), ("5m", 300), ("1h30m", 5400), ("1h0m1s", 3601)]
)
def test_durations_are_written_as_for_kubectl(said: str, meant: float) -> None:
    assert seconds(said) == meant


@pytest.mark.parametrize("said", ["", "0", "-1s", "5 minutes", "m", "1d", "721h"])
def test_other_durations_are_refused_with_their_value(said: str) -> None:
    with pytest.raises(typer.BadParameter, match=f"got {said!r}"):
        seconds(said)


def test_names_may_be_written_as_kubectl_prints_them_and_twice() -> None:
    given = ["llmservice.llmservice.io/qwen", "llms/qwen", "other"]
    assert which(given, None, every=False, where=HERE, is_change=True) == Which(("qwen", "other"))


def test_a_change_needs_to_know_of_what_and_a_look_does_not() -> None:
    assert which(None, None, every=False, where=HERE, is_change=False) == Which()
    with pytest.raises(typer.BadParameter, match="say which fleets"):
        which(None, None, every=False, where=Where(all_namespaces=True), is_change=True)
    assert which(None, None, every=True, where=Where(all_namespaces=True), is_change=True).every


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (TimedOutError("x"), Exit.TIMED_OUT),
        (OperatorSilentError("x"), Exit.TIMED_OUT),
        (StalledError("EngineError", "x", fleet=""), Exit.NEEDS_PERSON),
        (ChangedByOthersError("spec.generation", "running", (), fleet=""), Exit.CHANGED),
        (PausedOtherwiseError("mode keep", "mode abort", fleet=""), Exit.CHANGED),
        (NotFoundError("x", fleet=""), Exit.NOT_FOUND),
        (ForbiddenError("x", fleet="", status=403), Exit.REFUSED),
        (UnavailableError("x"), Exit.UNAVAILABLE),
        (ConfigurationError("x"), Exit.UNAVAILABLE),
        (FleetError("x"), Exit.ERROR),
    ],
)
def test_each_kind_of_error_has_an_exit_status(error: FleetError, end: Exit) -> None:
    assert exit_of(error) is end


def test_several_ends_are_the_one_that_all_failures_share() -> None:
    assert worst([Exit.OK, Exit.OK]) is Exit.OK
    assert worst([Exit.OK, Exit.NEEDS_PERSON]) is Exit.NEEDS_PERSON
    assert worst([Exit.TIMED_OUT, Exit.TIMED_OUT]) is Exit.TIMED_OUT
    assert worst([Exit.TIMED_OUT, Exit.NOT_FOUND]) is Exit.ERROR


# Who set what


def test_only_who_owns_the_field_is_its_author() -> None:
    stored = make_stored().set("paused", by="trainer").resync(3, by="somebody").joined("argocd").obj()
    for entry, time in zip(stored["metadata"]["managedFields"], ("03", "01", "09", "02"), strict=True):
        entry["time"] = f"2026-01-01T00:00:{time}Z"
    by_time = {entry["manager"]: entry["time"] for entry in stored["metadata"]["managedFields"]}
    found = authors(Snapshot(stored), "spec", "generation")
    expected = sorted(("trainer", "argocd"), key=lambda name: by_time[name], reverse=True)
    assert [author.manager for author in found] == expected


def test_of_a_manager_with_several_entries_the_one_that_owns_the_field_tells_when() -> None:
    stored = make_stored().set("paused", by="trainer").obj()
    for entry in stored["metadata"]["managedFields"]:
        entry["time"] = "2026-01-01T00:00:01Z"
    applied = {"manager": "trainer", "operation": "Apply", "time": "2026-01-01T00:00:09Z", "fieldsV1": {"f:spec": {}}}
    stored["metadata"]["managedFields"].append(applied)
    (found,) = authors(Snapshot(stored), "spec", "generation")
    assert (found.operation, found.at) == ("Update", 1767225601.0)


def test_an_api_server_that_keeps_no_record_names_nobody() -> None:
    assert authors(Snapshot(make_stored().set("paused", by="x").without_record().obj()), "spec", "generation") == ()


@pytest.mark.parametrize(
    ("passed", "said"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172800, "2d"), (-5, "0s")],
)
def test_ages_are_said_as_kubectl_says_them(passed: int, said: str) -> None:
    assert ago(1000.0, 1000.0 + passed) == said


# How to undo


def test_a_plain_change_is_undone_by_its_counterpart_and_any_other_by_a_patch() -> None:
    before = Snapshot(make_stored().set("running", by="x").obj())
    assert (
        undo.command(before, {"spec": {"generation": "paused"}}, " --context=east")
        == "kubectl llm resume qwen -n default --context=east"
    )
    patch = {"spec": {"generation": "paused", "pause": {"mode": "keep", "clearCache": False}}}
    assert undo.reverse(before, patch) == {"generation": "running", "pause": {"mode": "abort", "clearCache": None}}
    absent = Snapshot(make_stored().obj())
    assert undo.command(absent, {"spec": {"generation": "paused"}}, "") == (
        'kubectl patch llmservices.llmservice.io qwen -n default --type=merge -p \'{"spec":{"generation":null}}\''
    )
    assert undo.command(before, {"metadata": {"annotations": {"a": "b"}}}, "") is None


def test_what_a_patch_did_not_alter_is_not_restored() -> None:
    before = Snapshot(make_stored().set("running", by="x").obj())
    same = {"spec": {"generation": "paused", "pause": {"mode": "abort"}}}
    assert undo.reverse(before, same) == {"generation": "running"}


def test_a_change_and_its_reverse_are_no_change() -> None:
    before = make_stored().set("running", by="x").obj()
    patch = {"spec": {"generation": "paused", "pause": {"mode": "keep", "clearCache": True}}}
    back = undo.reverse(Snapshot(before), patch)
    assert merged(merged(before, patch), {"spec": back}) == before
