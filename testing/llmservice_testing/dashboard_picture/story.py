"""What happens to four fleets: something to see on every panel of the dashboard, and a cause for every alert."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from llmservice_testing.fleet import Fleet
from llmservice_testing.monitored import Stage

TOO_OLD_FOR_KEEP: Final = "0.14.1"


@dataclass(frozen=True)
class Fleets:
    """The fleets of the story."""

    qwen: Fleet
    """Is paused, grows meanwhile, and is resumed."""
    llama: Fleet
    """Is paused for longer than it may, while somebody resumes its engines by hand."""
    mistral: Fleet
    """Runs, and has an engine that does not answer."""
    phi: Fleet
    """Is asked for a mode that its engines do not have."""


def trouble(stage: Stage, *, max_paused_seconds: int, pause: Callable[[], None] = lambda: None) -> Fleets:
    """Ends when everything is in trouble. `pause` is called between the steps."""
    fleets = Fleets(*(stage.fleet(name) for name in ("qwen", "llama", "mistral", "phi")))
    for fleet, size in ((fleets.qwen, 4), (fleets.llama, 2), (fleets.mistral, 3)):
        fleet.grow(size)
        fleet.declare("running")
        fleet.wait("Ready", reason="InDesiredState")
    pause()
    fleets.llama.patch(generation="paused", maxPausedSeconds=max_paused_seconds)
    fleets.llama.wait("Paused")
    pause()
    fleets.qwen.want("paused")
    fleets.qwen.wait("Paused")
    pause()
    fleets.llama.members[0].engine.resume()
    fleets.llama.wait_for_event("DriftCorrected")
    pause()
    fleets.mistral.members[0].engine.stop()
    fleets.mistral.wait_for_targets(total=3, running=2, unreachable=1)
    pause()
    fleets.phi.grow(2, version=TOO_OLD_FOR_KEEP)
    fleets.phi.declare("paused", pause={"mode": "keep"})
    fleets.phi.wait("Stalled", reason="UnsupportedMode")
    pause()
    fleets.qwen.grow(2)
    fleets.qwen.wait_for_targets(total=6, paused=6)
    pause()
    fleets.llama.wait_for_event("PausedTooLong")
    pause()
    return fleets


def mending(fleets: Fleets, *, pause: Callable[[], None] = lambda: None) -> None:
    """Ends when all is as asked for again."""
    fleets.qwen.want("running")
    fleets.qwen.wait("Ready", reason="InDesiredState")
    pause()
    fleets.mistral.members[0].engine.start()
    fleets.mistral.wait("Ready", reason="InDesiredState")
    pause()
    fleets.phi.want("running")
    fleets.phi.wait("Ready", reason="InDesiredState")
    pause()
    fleets.llama.want("running")
    fleets.llama.wait("Ready", reason="InDesiredState")
    pause()
