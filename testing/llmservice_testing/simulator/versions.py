"""What differs between versions and frontends of vLLM, as far as a client of its control routes can see.

Read in the published sources of vLLM 0.12.0 to 0.33.0. There the router is `vllm/entrypoints/rl/online/api_router.py`
(0.32.0 on), `vllm/entrypoints/serve/dev/rlhf/` (0.23.0 on), `vllm/entrypoints/serve/rlhf/` (0.13.0 on) or
`vllm/entrypoints/openai/api_server.py` (0.12.0); the Rust frontend is `rust/src/server/src/`.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Literal

Frontend = Literal["python", "rust"]


class PauseKept(enum.Enum):
    """Where an engine keeps that it is paused, which decides how its control calls overlap."""

    FLAG = "flag"
    """0.12 to 0.15: a flag in the API server. A second pause returns at once, though the first still drains."""
    LOCK = "lock"
    """0.16: the flag is under a lock held while a pause drains; `keep` goes to the engine past the flag."""
    ENGINE = "engine"
    """0.17 on: the scheduler's own state. Calls overlap freely."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How one version with one frontend behaves."""

    version: str
    frontend: Frontend
    kept: PauseKept
    takes_mode: bool
    """`mode=abort|wait|keep` is known; before, it is an unknown key and ignored, so that everything is aborted."""
    takes_wait_for_inflight: bool
    """`wait_for_inflight_requests` is known; from 0.32.0 on, and with the Rust frontend, it is ignored."""
    pause_needs_dev_mode: bool
    """Before 0.16 `/pause`, `/resume` and `/is_paused` are served without VLLM_SERVER_DEV_MODE too."""
    compares_ranks: bool
    """`/is_paused` asks all data-parallel ranks and answers 500 when they differ; before, the first one counts."""
    rejects_while_paused: bool
    """New requests are answered 503 while paused with `abort` or `wait`; before, they are queued."""
    sleeping_when_paused: bool
    """`is_sleeping` is true for a merely paused engine too."""
    refuses_resume_in_flight: bool
    """A member of a data-parallel MoE group refuses `/resume` with 500 while its pause is in flight."""
    sleep_answers_json: bool
    """`/sleep` and `/wake_up` answer JSON and `level` is validated; before, they answer an empty body."""
    partial_wake_keeps_paused: bool
    """`/wake_up` for a part of the memory does not resume; before 0.24 it does."""
    integer_error_codes: bool
    """Rust's error body says `"type":"InternalServerError","code":500`; before, both were `server_error`."""
    has_pause: bool
    """The control routes exist at all: the Rust frontend has them from 0.24.0 on."""

    @classmethod
    def of(cls, version: str, frontend: Frontend = "python") -> Behaviour:
        """The behaviour of a version such as `0.32.0`, `0.14.1` or `0.33.0rc1+cpu`.

        Raises:
            ValueError: it does not begin with two numbers, or had no such routes yet (before 0.12).
        """
        found = re.match(r"v?(\d+)\.(\d+)", version)
        if found is None:
            raise ValueError(f"not a version of vLLM: {version!r}")
        release = (int(found[1]), int(found[2]))
        if release < (0, 12):
            raise ValueError(f"vLLM {version} has no /pause; 0.12 was the first to have it")
        python = frontend == "python"
        if release < (0, 16):
            kept = PauseKept.FLAG
        elif release < (0, 17):
            kept = PauseKept.LOCK
        else:
            kept = PauseKept.ENGINE
        return cls(
            version=version,
            frontend=frontend,
            kept=kept,
            takes_mode=release >= (0, 16),
            takes_wait_for_inflight=python and release < (0, 32),
            pause_needs_dev_mode=release >= (0, 16),
            compares_ranks=not python or release >= (0, 32),
            rejects_while_paused=release >= (0, 33),
            sleeping_when_paused=release >= (0, 17),
            refuses_resume_in_flight=release >= (0, 21),
            sleep_answers_json=release >= (0, 32),
            partial_wake_keeps_paused=release >= (0, 24),
            integer_error_codes=release >= (0, 33),
            has_pause=python or release >= (0, 24),
        )
