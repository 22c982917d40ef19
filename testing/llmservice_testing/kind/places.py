"""Where things are kept, and what they are called."""

import os
from pathlib import Path
from typing import Final

from llmservice_testing.controlplane.binaries import cache_root as controlplane_cache

ROOT: Final = Path(__file__).parents[3]
"""The repository: images are built from it."""

ARTIFACTS: Final = ROOT / ".artifacts" / "e2e"
"""What a run leaves behind: the kubeconfig, and logs."""
KUBECONFIG: Final = ARTIFACTS / "kubeconfig"
LOGS: Final = ARTIFACTS / "logs"

CLUSTER: Final = "llmservice-e2e"
NODE: Final = f"{CLUSTER}-control-plane"
"""The container that is the cluster's one node."""


def cache() -> Path:
    """The folder for what is built once: programs of a node, kind, Docker's log. By XDG, as that of the control plane."""
    return controlplane_cache(os.environ).parent / "kind"
