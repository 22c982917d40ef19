"""A simulator of Ray Serve LLM apps: by version and fault, with replicas that come and go, many in one process.

For code in an event loop `RaySimulator`, for synchronous code `RaySimulatorThread`. The same contract tests run against it
and against a real app (tests/ray), so that it cannot drift.
"""

from llmservice_testing.ray_simulator.app import SimulatedApp, Stage
from llmservice_testing.ray_simulator.proxy import SimulatedProxy
from llmservice_testing.ray_simulator.replica import ReplicaError, SimulatedReplica
from llmservice_testing.ray_simulator.simulator import RaySimulator
from llmservice_testing.ray_simulator.thread import RaySimulatorThread, ThreadedApp, ThreadedProxy, ThreadedReplica
from llmservice_testing.ray_simulator.versions import Behaviour

__all__ = [
    "Behaviour",
    "RaySimulator",
    "RaySimulatorThread",
    "ReplicaError",
    "SimulatedApp",
    "SimulatedProxy",
    "SimulatedReplica",
    "Stage",
    "ThreadedApp",
    "ThreadedProxy",
    "ThreadedReplica",
]
