"""What differs between versions of Ray, as far as a client of the control routes can see.

Read in the published packages of Ray 2.54.0, 2.55.0, 2.56.1 and 2.60.0, `ray/llm/_internal/serve/`: the mixin
`core/ingress/mixins/pausable.py` and the class VLLMPauseConfig in `engines/vllm/vllm_engine.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How one version behaves.

    Attributes:
        takes_mode: the option `mode` is known; before 2.56 it is an unknown key and ignored, so that everything is
            aborted. From 2.56 on it is `wait_for_inflight_requests` that is ignored.
    """

    version: str
    takes_mode: bool

    @classmethod
    def of(cls, version: str) -> Behaviour:
        """The behaviour of a version such as `2.60.0`.

        Raises:
            ValueError: it does not begin with two numbers, or had no such routes yet (before 2.54).
        """
        found = re.match(r"(\d+)\.(\d+)", version)
        if found is None:
            raise ValueError(f"not a version of Ray: {version!r}")
        release = (int(found[1]), int(found[2]))
        if release < (2, 54):
            raise ValueError(f"Ray {version} has no /pause; 2.54 was the first to have it")
        return cls(version, takes_mode=release >= (2, 56))
