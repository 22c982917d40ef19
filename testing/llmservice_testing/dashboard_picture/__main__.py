"""The command; see the package."""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from llmservice_testing import monitoring
from llmservice_testing.controlplane.progress import Task
from llmservice_testing.dashboard_picture import story
from llmservice_testing.dashboard_picture.picture import draw
from llmservice_testing.monitored import Stage, monitored

STEP_SECONDS: Final = 9.0
"""Between two steps of the story, so that each can be seen."""
MAX_PAUSED_SECONDS: Final = 55


def record(stage: Stage) -> tuple[float, float]:
    """Plays the story, and returns when it began and ended, in seconds since the epoch."""
    began = time.time()

    def pause() -> None:
        time.sleep(STEP_SECONDS)

    fleets = story.trouble(stage, max_paused_seconds=MAX_PAUSED_SECONDS, pause=pause)
    fleets.qwen.want("running")
    fleets.qwen.wait("Ready", reason="InDesiredState")
    pause()
    fleets.mistral.members[0].engine.start()
    fleets.mistral.wait("Ready", reason="InDesiredState")
    pause()
    return began, time.time()


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m llmservice_testing.dashboard_picture",
        description="Draw the dashboard as SVG from the answers of a real Prometheus. Takes about two minutes.",
    )
    parser.add_argument("file", type=Path, help="where to write the picture, say docs/images/dashboard.svg")
    file: Path = parser.parse_args(arguments).file
    with (
        tempfile.TemporaryDirectory(prefix="llmservice-picture-") as folder,
        Task("Playing the story"),
        monitored(Path(folder), groups=monitoring.groups()) as stage,
    ):
        began, ended = record(stage)
        file.write_text(draw(stage.prometheus, began, ended))
    print(f"Wrote {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
