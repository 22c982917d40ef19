"""From patch to confirmed, and what else is counted: what is, and what is not."""

import time
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from llmservice.api import Condition, Desired, LLMService, LLMServiceStatus
from llmservice.metrics import ChangeClock, Confirmation
from llmservice_testing.builders import make_llmservice
from llmservice_testing.cluster import wait_until
from llmservice_testing.domain import EPOCH, make_service
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, OpenRequest
from llmservice_testing.monitored import Stage
from llmservice_testing.prometheus import wait_for_scrape

# The clock alone


DONE = "InDesiredState"


def seen(
    desired: str | None, object_generation: int, reason: str = "Progressing", *, about: int | None = None
) -> LLMService:
    """A version of the object: what it asks for, and how Ready stands, about this spec or an older one."""
    builder = make_llmservice("qwen").selector(app="qwen")
    if desired is not None:
        builder.generation(desired)
    condition = Condition.model_validate(
        {
            "type": "Ready",
            "status": str(reason in {DONE, "NoPods", "Observing"}),
            "reason": reason,
            "message": "",
            "observedGeneration": about or object_generation,
            "lastTransitionTime": EPOCH,
        }
    )
    return make_service(builder, object_generation=object_generation, status=LLMServiceStatus(conditions=(condition,)))


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        pytest.param(
            [
                seen("running", 1, DONE),
                seen("paused", 2, DONE, about=1),
                seen("paused", 2),
                seen("paused", 2, DONE),
            ],
            [Confirmation(Desired.PAUSED, 2.0)],
            id="from the sight of the change to the status that confirms it",
        ),
        pytest.param(
            [seen("running", 1, DONE), seen("paused", 2, DONE), seen("paused", 2, DONE)],
            [Confirmation(Desired.PAUSED, 0.0)],
            id="once",
        ),
        pytest.param([seen("paused", 1), seen("paused", 1, DONE)], [], id="a change that began before is not counted"),
        pytest.param(
            [seen("running", 1, DONE), seen("running", 2), seen("running", 2, DONE)],
            [],
            id="a change of something else is not counted",
        ),
        pytest.param(
            [seen("running", 1, DONE), seen("paused", 2), seen("paused", 3), seen("paused", 3, DONE)],
            [Confirmation(Desired.PAUSED, 2.0)],
            id="a change of something else meanwhile does not start it anew",
        ),
        pytest.param(
            [seen("running", 1, DONE), seen("paused", 2), seen("running", 3), seen("running", 3, DONE)],
            [Confirmation(Desired.RUNNING, 1.0)],
            id="a change that is taken back is not counted, the taking back is",
        ),
        pytest.param(
            [seen("running", 1, DONE), seen("paused", 2, "NoPods"), seen("paused", 2, DONE)],
            [],
            id="a change that found no pods is not counted when they come",
        ),
        pytest.param(
            [seen("paused", 1, DONE), seen(None, 2, "Observing"), seen("paused", 3, DONE)],
            [Confirmation(Desired.PAUSED, 0.0)],
            id="to ask for nothing is not counted",
        ),
        pytest.param(
            [
                seen("running", 1, DONE),
                seen("paused", 2, "EngineError"),
                seen("paused", 2),
                seen("paused", 2, DONE),
            ],
            [Confirmation(Desired.PAUSED, 2.0)],
            id="what stalls and is mended is counted with all the time it took",
        ),
    ],
)
def test_what_is_counted(versions: list[LLMService], expected: list[Confirmation]) -> None:
    clock = ChangeClock()
    found = [clock.see(version, float(now)) for now, version in enumerate(versions)]
    assert [one for one in found if one is not None] == expected


# The operator


def confirmations(stage: Stage, desired: str) -> tuple[float, float]:
    """How many the operator has counted, and their seconds in all."""
    families = text_string_to_metric_families(stage.operator.metrics())
    values = {
        sample.name.rpartition("_")[2]: sample.value
        for family in families
        if family.name == "llmservice_confirmation_duration_seconds"
        for sample in family.samples
        if sample.labels["desired"] == desired
    }
    return values["count"], values["sum"]


def test_a_pause_and_a_resume_are_each_counted_once(stage: Stage, make_fleet: Callable[[str], Fleet]) -> None:
    fleet = make_fleet("gemma")
    fleet.grow(2)
    before = {desired: confirmations(stage, desired)[0] for desired in ("paused", "running")}
    fleet.declare("running")
    fleet.wait("Ready", reason="InDesiredState")
    assert confirmations(stage, "running")[0] == before["running"]  # it is new
    for desired in ("paused", "running"):
        fleet.want(desired)
        fleet.wait("Ready", reason="InDesiredState")
        wait_until(
            lambda desired=desired: confirmations(stage, desired)[0] == before[desired] + 1,  # type: ignore[misc]
            PATIENCE_SECONDS,
            what=f"a confirmation of {desired}",
        )
    assert confirmations(stage, "paused")[0] == before["paused"] + 1


def test_the_seconds_are_those_of_the_drain(stage: Stage, make_fleet: Callable[[str], Fleet]) -> None:
    """A pause that waits is confirmed by the end of its requests, not earlier."""
    fleet = make_fleet("olmo")
    member = fleet.add()
    fleet.declare("running", pause={"mode": "wait"})
    fleet.wait("Ready", reason="InDesiredState")
    before = confirmations(stage, "paused")
    with OpenRequest(member.engine):
        fleet.want("paused")
        member.engine.asked("/pause")
        drains_from = time.monotonic()
        wait_for_scrape(stage.prometheus)
        assert confirmations(stage, "paused") == before
        drained = time.monotonic() - drains_from
    fleet.wait("Ready", reason="InDesiredState")
    wait_until(
        lambda: confirmations(stage, "paused")[0] == before[0] + 1, PATIENCE_SECONDS, what="a confirmation of paused"
    )
    assert confirmations(stage, "paused")[1] - before[1] > drained


def test_a_change_that_another_operator_began_is_not_counted(
    stage: Stage, mended: None, make_fleet: Callable[[str], Fleet]
) -> None:
    fleet = make_fleet("falcon")
    member = fleet.add()
    fleet.declare("running", pause={"mode": "wait"})
    fleet.wait("Ready", reason="InDesiredState")
    with OpenRequest(member.engine):
        fleet.want("paused")
        member.engine.asked("/pause")
        stage.operator.kill()
        stage.operator.start()
    fleet.wait("Ready", reason="InDesiredState")
    fleet.let_pass()
    assert confirmations(stage, "paused")[0] == 0


def test_drift_is_counted_for_the_fleets_that_are_there_from_zero(
    stage: Stage, make_fleet: Callable[[str], Fleet]
) -> None:
    fleet = make_fleet("yi")
    fleet.grow(1)
    fleet.declare("paused")
    fleet.wait("Ready", reason="InDesiredState")
    series = f'llmservice_drift_corrections_total{{name="yi",namespace="{fleet.namespace}"}}'
    assert f"{series} 0.0" in stage.operator.metrics()
    fleet.members[0].engine.resume()
    fleet.wait_for_event("DriftCorrected")
    assert f"{series} 1.0" in stage.operator.metrics()
    fleet.delete()
    wait_until(
        lambda: series not in stage.operator.metrics(), PATIENCE_SECONDS, what="the series of a fleet being gone"
    )


def test_an_expired_pause_is_no_pause(stage: Stage, make_fleet: Callable[[str], Fleet]) -> None:
    """Its clock stands on in the status, so that it stays expired; but its engines run."""
    fleet = make_fleet("command")
    fleet.grow(1)
    fleet.declare("paused", maxPausedSeconds=1, onMaxPaused="resume")
    labels = f'{{name="command",namespace="{fleet.namespace}"}}'
    wait_until(
        lambda: f"llmservice_paused_since_timestamp_seconds{labels}" in stage.operator.metrics(),
        PATIENCE_SECONDS,
        what="the beginning of the pause",
    )
    fleet.wait("Stalled", reason="PauseExpired")
    assert fleet.status()["pausedSince"]
    assert f"llmservice_paused_since_timestamp_seconds{labels}" not in stage.operator.metrics()
    assert f"llmservice_pause_limit_seconds{labels} 1.0" in stage.operator.metrics()
