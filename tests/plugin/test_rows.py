"""What `status` says about a fleet, as words."""

from llmservice.client.snapshot import Snapshot
from llmservice.plugin.rows import PODS, Tone, line, rows
from llmservice_testing.builders import Json

from .conftest import NOW, stored, trouble


def shown(service: Json, *, wide: bool = False) -> list[list[str]]:
    """The words of all rows."""
    return [[cell.text for cell in row] for row in rows([Snapshot(service)], NOW, with_namespace=True, wide=wide)]


def written_at(service: Json, when: str) -> Json:
    """The record says that everything was last written then."""
    for entry in service["metadata"]["managedFields"]:
        entry["time"] = when
    return service


def test_a_paused_fleet_says_since_when_and_who_asked_for_it() -> None:
    service = written_at(stored(), "2026-01-01T00:00:00Z")
    service["status"] |= {"pausedSince": "2026-01-01T00:01:00Z", "pausedSinceGeneration": 2}
    fleet, first, second = shown(service)
    assert fleet == ["default/qwen", "paused", "paused 2/2 for 60s", "", "trainer, 2m ago", ""]
    assert first == ["  qwen-0", "", "paused", "0.32.0", "", ""]
    assert second[0] == "  qwen-1"


def test_engines_that_start_are_not_waited_for_and_not_counted() -> None:
    assert shown(stored("running", "running starting"))[0][2] == "1 running, 1 starting"
    service = stored("paused", "paused starting")
    service["status"]["conditions"][0]["status"] = "True"
    assert shown(service)[0][2] == "paused 1/1"


def test_a_status_about_an_older_spec_says_nothing_about_the_state() -> None:
    service = stored()
    service["metadata"]["generation"] += 1
    fleet, *engines = rows([Snapshot(service)], NOW, with_namespace=False, wide=False)
    assert (fleet[0].text, fleet[2].text) == ("qwen", "unknown")
    assert "has not answered to this change yet (observedGeneration 2, generation 3)" in fleet[-1].text
    assert {row[2].tone for row in engines} == {Tone.ASIDE}


def test_what_the_first_engine_says_is_not_said_twice() -> None:
    fleet, engine, _ = shown(trouble(stored("paused", "failed paused"), 0, "EngineError", "answered 400: never"))
    assert fleet[-1] == "Stalled, EngineError: qwen-0"
    assert engine[-1] == "EngineError: answered 400: never"


def test_a_large_fleet_shows_the_first_and_says_how_many_more_there_are() -> None:
    service = stored("paused", " ".join(["paused"] * 64))
    service["status"]["targets"]["total"] = 1000
    assert len(shown(service)) == 1 + PODS + 1
    assert shown(service)[-1][0] == f"  and {1000 - PODS} more"
    assert shown(service, wide=True)[-1][0] == "  and 936 more"


def test_several_engines_of_a_pod_are_told_apart_by_their_ports() -> None:
    service = stored("paused", "paused paused", engine={"ports": [8000, 8001]})
    for index, target in enumerate(service["status"]["targetStates"]):
        target |= {"pod": "qwen-0", "url": f"http://[fd00::1]:{8000 + index}/prefix"}
    assert [row[0] for row in shown(service)[1:]] == ["  qwen-0:8000", "  qwen-0:8001"]


def test_a_line_for_a_log_has_no_empty_fields() -> None:
    said = line(Snapshot(written_at(stored(), "2026-01-01T00:00:00Z")), NOW)
    assert said == "default/qwen desired='paused' state='paused 2/2' set by='trainer, 2m ago'"


def test_an_object_that_is_being_deleted_says_what_holds_it() -> None:
    service = stored()
    service["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["llmservice.io/resume"]}
    assert shown(service)[0][-1] == "it is being deleted; held by llmservice.io/resume"
