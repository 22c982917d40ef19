"""What the operator really reports, in every state that matters, and what Argo CD and Flux make of it.

`LLMSERVICE_RECORD=1` writes what was reported into the test data of the Argo CD customization.
"""

import os
from pathlib import Path
from typing import Final

import pytest
import yaml

from llmservice_testing.fleet import Fleet
from llmservice_testing.gitops import GitOps, GopherLua, RealLua, Verdict, find_lua

from .argo_cd import CUSTOMIZATION, HEALTH, expected_health
from .states import STATES, recorded

KSTATUS: Final = {
    "never-visited": "InProgress",
    "changed-since": "InProgress",
    "paused": "Current",
    "running": "Current",
    "observing": "Current",
    "forgotten": "Current",
    "no-pods": "Current",
    "pausing": "InProgress",
    "unreachable": "InProgress",
    "endpoint-missing": "Failed",
    "pause-expired": "Failed",
    "paused-too-long": "Current",
    "deleting": "Terminating",
}
RECORD: Final = os.environ.get("LLMSERVICE_RECORD") == "1"


@pytest.mark.parametrize("state", STATES)
def test_what_the_operator_reports_is_understood_by_argo_cd_and_by_kstatus(
    fleet: Fleet, gitops: GitOps, gitops_program: Path, state: str
) -> None:
    service = STATES[state](fleet)
    data = CUSTOMIZATION / "testdata" / f"{state}.yaml"
    if RECORD:
        data.write_text(yaml.safe_dump(recorded(service), sort_keys=False, width=120))
    expected = expected_health()[f"testdata/{state}.yaml"]
    for interpreter in (RealLua(find_lua()), GopherLua(gitops_program)):
        seen = interpreter.run(HEALTH, recorded(service))
        assert (seen["status"], seen["message"]) == (expected["status"], expected["message"])
    (verdict,) = gitops.kstatus(service)
    assert verdict.status == KSTATUS[state]

    assert yaml.safe_load(data.read_text()) == recorded(service)


def test_the_reason_of_a_failure_reaches_flux(fleet: Fleet, gitops: GitOps) -> None:
    service = STATES["endpoint-missing"](fleet)
    (verdict,) = gitops.kstatus(service)
    assert verdict == Verdict("Failed", service["status"]["conditions"][0]["message"])
    assert fleet.members[0].name in verdict.message
