"""How an engine was started, and what it holds from its start to its death."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from llmservice_testing.simulator.control import Control, control_of
from llmservice_testing.simulator.group import MoeGroup
from llmservice_testing.simulator.scheduler import Scheduler
from llmservice_testing.simulator.versions import Behaviour

MEMORY: Final = frozenset({"weights", "kv_cache"})
"""What `/wake_up?tags=` may name; all of it goes when an engine falls asleep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How an engine was started.

    Attributes:
        dev_mode: VLLM_SERVER_DEV_MODE.
        api_key: `--api-key`; guards `/v1` alone, never the control routes.
        root_path: `--root-path`; the routes are served below it and without it. The Rust frontend has none (0.32.0).
        model: `--served-model-name`.
        sleep_mode: `--enable-sleep-mode`: its memory really goes when it sleeps, and then `/pause`, or work after
            `/resume`, crashes it. Without it `/sleep` is answered all the same, as on a CPU.
        data_parallel_size: ranks behind this one server.
        tokens_per_second: of each running request.
    """

    dev_mode: bool = True
    api_key: str | None = None
    root_path: str = ""
    model: str = "tiny"
    sleep_mode: bool = False
    data_parallel_size: int = 1
    tokens_per_second: float = 1000.0


class EngineLife:
    """One life of an engine, from its start to its death.

    Args:
        crash: called where a real engine would crash.
    """

    def __init__(
        self, behaviour: Behaviour, options: Options, group: MoeGroup | None, crash: Callable[[], None]
    ) -> None:
        self.behaviour = behaviour
        self.options = options
        self.scheduler = Scheduler(options.tokens_per_second)
        self.control: Control = control_of(behaviour, self.scheduler, group)
        self.group = group
        if group is not None:
            group.join(self.scheduler)
        self.sleep_level: int | None = None
        self.asleep: frozenset[str] = frozenset()
        self.forced_ranks: tuple[bool, ...] | None = None
        self.crash = crash

    @property
    def is_asleep(self) -> bool:
        """Whether any of its memory is gone."""
        return bool(self.asleep)

    @property
    def lost_memory(self) -> bool:
        return self.is_asleep and self.options.sleep_mode

    def end(self) -> None:
        """The process is gone, and with it every request."""
        self.scheduler.abort_all()
        if self.group is not None:
            self.group.leave(self.scheduler)
