"""The API server itself is restarted while a client waits."""

import threading
from concurrent.futures import ThreadPoolExecutor

from llmservice.client import Fleet as Client
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.simulator import Fault


def test_a_block_survives_that_the_api_server_is_restarted_before_during_and_after_it(
    fleet: Fleet, client: Client, control_plane: ControlPlane, own_operator: OperatorProcess
) -> None:
    fleet.grow(2)
    fleet.declare("running")
    fleet.wait("Paused", "False")
    for route in ("/pause", "/resume"):
        fleet.engines[0].faults.script(route, Fault.slow(before=1.0))

    begun, over = threading.Event(), threading.Event()

    def train() -> bool:
        with client.paused() as p:
            begun.set()
            return over.wait(2 * PATIENCE_SECONDS) and fleet.all_paused() and p.is_ours

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(train)
        fleet.engines[0].asked("/pause", within=PATIENCE_SECONDS)
        control_plane.restart_apiserver()
        assert begun.wait(PATIENCE_SECONDS)
        control_plane.restart_apiserver()
        over.set()
        fleet.engines[0].asked("/resume", within=PATIENCE_SECONDS)
        control_plane.restart_apiserver()
        assert done.result(PATIENCE_SECONDS)
    assert not any(engine.paused for engine in fleet.engines)
    assert own_operator.is_running
