"""A real vLLM, in a pod."""

import pytest

from llmservice_testing.cluster import wait_until
from llmservice_testing.kind.client import Client
from llmservice_testing.kind.pods import PATIENCE_SECONDS, PodFleet, is_ready
from llmservice_testing.kind.real_engine import provide, real_engine_template

START_SECONDS = 300


@pytest.mark.real_engine
@pytest.mark.timeout(START_SECONDS + 240)
def test_a_real_vllm_in_a_pod_is_paused_holds_requests_and_answers_them_after_the_resume(
    fleet: PodFleet, client: Client
) -> None:
    provide()
    fleet.begin_with(1, real_engine_template({"app": "qwen"}))
    fleet.expose()
    wait_until(
        lambda: all(map(is_ready, fleet.pods())) and fleet.pods(),
        START_SECONDS,
        what="vLLM being ready",
        last=fleet.log,
    )
    (engine,) = fleet.engines()
    wait_until(lambda: client.complete("qwen", within=60) == {"status": 200}, PATIENCE_SECONDS, what="vLLM serving")
    assert not engine.is_paused()

    fleet.declare("paused", pause={"mode": "keep"})
    fleet.wait("Paused")
    assert engine.is_paused()
    assert fleet.status()["targetStates"][0]["version"].startswith("0.")
    assert all(map(is_ready, fleet.pods())), "a paused engine stays alive and passes its probes"

    with client.request("qwen") as request:
        assert client.complete("qwen", within=3) == {"error": "TimeoutError"}
        assert request.is_open
        fleet.want("running")
        assert request.answer(within=PATIENCE_SECONDS) == {"status": 200}
    fleet.wait("Paused", "False")
    assert not engine.is_paused()
