"""A simulator of vLLM engines: by version and fault, a thousand in one process.

For code in an event loop `Simulator`, for synchronous code `SimulatorThread`, for everything else
`python -m llmservice_testing.simulator`. The same contract tests run against it and against real engines
(tests/engines), so that it cannot drift.
"""

from llmservice_testing.simulator.calls import Call
from llmservice_testing.simulator.engine import SimulatedEngine
from llmservice_testing.simulator.faults import EVERY_ROUTE, Dies, Fault, FaultScript, Says
from llmservice_testing.simulator.group import MoeGroup
from llmservice_testing.simulator.life import Options
from llmservice_testing.simulator.simulator import Simulator
from llmservice_testing.simulator.thread import SimulatorThread, ThreadedEngine
from llmservice_testing.simulator.versions import Behaviour

__all__ = [
    "EVERY_ROUTE",
    "Behaviour",
    "Call",
    "Dies",
    "Fault",
    "FaultScript",
    "MoeGroup",
    "Options",
    "Says",
    "SimulatedEngine",
    "Simulator",
    "SimulatorThread",
    "ThreadedEngine",
]
