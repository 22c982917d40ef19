"""The engines of a fleet: simulated ones in a process of their own, or a real vLLM."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import httpx

from bench.figures import Action
from bench.stage import Stage
from llmservice_testing.controlplane.processes import wait_until_ready
from llmservice_testing.ports import free_ports
from llmservice_testing.vllm import RealEngine

PORT: Final = 8000
REAL_ADDRESS: Final = "127.70.0.1"
_FIRST: Final = ipaddress.ip_address("127.71.0.1")
_START_SECONDS: Final = 60.0
_ADMIN_SECONDS: Final = 60.0


@dataclass(frozen=True)
class SimulatedEngines:
    """Engines at consecutive addresses, and the simulator's admin API."""

    addresses: tuple[str, ...]
    admin: httpx.Client

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(f"http://{address}:{PORT}" for address in self.addresses)

    def calls(self) -> dict[str, int]:
        """Calls since the last `forget_calls`, by method and path."""
        totals: dict[str, int] = self._ask("GET", "/calls")["calls"]
        return totals

    def forget_calls(self) -> None:
        self._ask("DELETE", "/calls")

    def first_and_last_call(self) -> tuple[float, float]:
        """When the first call since `forget_calls` came in, and when the last answer went out, by the monotonic clock."""
        calls = [call for name in self._ask("GET", "/engines") for call in self._ask("GET", f"/calls?engine={name}")]
        return min(call["at"] for call in calls), max(call["answered_at"] for call in calls)

    def number_in_state_after(self, action: Action) -> int:
        """How many engines are, in truth, as `action` should have left them."""
        wanted = action == "pause"
        return sum(engine["paused"] is wanted for engine in self._ask("GET", "/engines").values())

    def _ask(self, method: str, path: str) -> Any:
        return self.admin.request(method, path).raise_for_status().json()


@contextlib.contextmanager
def simulated(stage: Stage, size: int) -> Iterator[SimulatedEngines]:
    """`size` engines, all running. Raises ServerNotReadyError."""
    (port,) = free_ports(1)
    arguments = ["-m", "llmservice_testing.simulator", "--engines", str(size), "--first", str(_FIRST)]
    with (
        stage.python(f"simulator-{size}", [*arguments, "--port", str(PORT), "--admin", f"127.0.0.1:{port}"]) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=_ADMIN_SECONDS, trust_env=False) as admin,
    ):
        wait_until_ready(process, lambda: _lacks(admin), timeout=_START_SECONDS)
        yield SimulatedEngines(tuple(str(_FIRST + number) for number in range(size)), admin)


def _lacks(admin: httpx.Client) -> str | None:
    try:
        admin.get("/calls").raise_for_status()
    except httpx.HTTPError as error:
        return f"{type(error).__name__}: {error}"
    return None


def real(stage: Stage) -> RealEngine:
    """A vLLM with the Python frontend, not started. Raises InstallationError."""
    return RealEngine("python", host=REAL_ADDRESS, port=PORT, log=stage.folder / "vllm.log")
