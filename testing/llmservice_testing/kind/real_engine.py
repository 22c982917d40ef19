"""A real vLLM in a pod, on the CPU.

It is 6 GB, so it is not put into an image: the node sees the folders in which `llmservice_testing.vllm` has installed it
on this machine, and so does the pod, at the same paths, since a virtual environment cannot be moved. With them comes the
Python that the environment belongs to. The pod's image gives no more than Debian's libraries.
"""

import os
import sys
from pathlib import Path
from typing import Final

from llmservice_testing.builders import Json
from llmservice_testing.kind import cluster
from llmservice_testing.kind.images import REAL_ENGINE, build_real_engine
from llmservice_testing.kind.pods import PORT
from llmservice_testing.vllm.install import ensure_installed
from llmservice_testing.vllm.installation import EXECUTABLE_VARIABLE, cache_root
from llmservice_testing.vllm.model import MAX_TOKENS, SERVED_NAME

_OF_THE_SYSTEM: Final = Path("/usr")
"""A Python that lives there comes with the image, too, and the image's /usr cannot be hidden."""


_ON_ONE_CPU: Final = """\
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.execv(sys.argv[1], sys.argv[1:])
"""
"""See `llmservice_testing.vllm.guard` for why."""


def mounts() -> list[Path]:
    """The folders that the node has to see, those that a later installation fills included."""
    folder = cache_root(os.environ)
    folder.mkdir(parents=True, exist_ok=True)
    folders = [folder, Path(sys.base_prefix)]
    if os.environ.get(EXECUTABLE_VARIABLE):
        folders.append(Path(os.environ[EXECUTABLE_VARIABLE]).parents[1])
    return [each for each in folders if each != _OF_THE_SYSTEM]


def provide() -> None:
    """Installs vLLM if it is not there, and gives the node the image to run it in. Raises InstallationError or KindError."""
    ensure_installed()
    cluster.load([build_real_engine()])


def real_engine_template(labels: dict[str, str]) -> Json:
    """The pod template of one vLLM with the tiny model. Raises InstallationError where it is not there."""
    installed = ensure_installed()
    folders = mounts()
    serve = [str(installed.executable), "serve", str(installed.model), "--served-model-name", SERVED_NAME]
    size = ["--load-format", "dummy", "--max-model-len", str(MAX_TOKENS), "--max-num-seqs", "8"]
    speed = ["--enforce-eager", "--dtype", "bfloat16", "--host", "0.0.0.0", "--port", str(PORT)]
    environment = {
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HOME": "/tmp",  # the pod's own
        "PYTHONPATH": "",
    }
    container = {
        "name": "vllm",
        "image": REAL_ENGINE,
        "imagePullPolicy": "Never",
        "command": [str(installed.executable.with_name("python")), "-c", _ON_ONE_CPU, *serve, *size, *speed],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "ports": [{"name": "http", "containerPort": PORT}],
        "startupProbe": _probe(periodSeconds=2, failureThreshold=150),
        "readinessProbe": _probe(periodSeconds=2, timeoutSeconds=5),
        # The folders may be readable by root alone.
        "securityContext": {"runAsUser": 0, "runAsGroup": 0, "allowPrivilegeEscalation": False},
        "volumeMounts": [
            {"name": f"folder-{number}", "mountPath": str(folder), "readOnly": True}
            for number, folder in enumerate(folders)
        ]
        + [{"name": "scratch", "mountPath": "/tmp"}, {"name": "shm", "mountPath": "/dev/shm"}],
    }
    volumes: list[Json] = [
        {"name": f"folder-{number}", "hostPath": {"path": str(folder), "type": "Directory"}}
        for number, folder in enumerate(folders)
    ]
    volumes += [{"name": "scratch", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory"}}]
    spec = {"terminationGracePeriodSeconds": 5, "containers": [container], "volumes": volumes}
    return {"metadata": {"labels": labels}, "spec": spec}


def _probe(**times: int) -> Json:
    return {"httpGet": {"path": "/health", "port": "http"}, **times}
