"""Runs Ray Serve with LLM apps on this machine, under the orders of the process that started it.

It is run by the Python that has Ray and vLLM, so it imports nothing of this project. Orders come over a Unix socket, one
for each connection: a line of JSON, `{"do": ORDER, ...}`, is answered by one when it is carried out. The orders are the
public methods of `Apps`.

Usage: app.py SETTINGS (a JSON object, see `Settings`)
"""

import contextlib
import json
import os
import pickle
import signal
import socket
import sys
import time
import traceback
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray.exceptions  # type: ignore[import-not-found]
import ray.util  # type: ignore[import-not-found]
from ray.serve._private.common import RequestMetadata  # type: ignore[import-not-found]
from ray.serve.context import _get_global_client  # type: ignore[import-not-found]
from ray.serve.schema import ServeDeploySchema  # type: ignore[import-not-found]

import ray
from ray import serve

NAME = "app"
PLAIN_NAME = "plain"
PLAIN_ROUTE = "/plain"
DEV_BUILDER = "ray.llm._internal.serve.core.ingress.dev_ingress:build_dev_openai_app"
PLAIN_BUILDER = "ray.serve.llm:build_openai_app"

ASK_WITHIN_SECONDS = 60.0
START_ATTEMPTS = 3


@dataclass(frozen=True)
class Settings:
    """Where and what to serve.

    Attributes:
        model: the folder with the model.
        cpus: how many Ray is told that there are; each replica takes two, and each ingress one.
        folder: for Ray's session; short, since the paths of its sockets are limited to 107 bytes.
        socket: where orders are taken.
    """

    host: str
    port: int
    model: str
    model_id: str
    max_tokens: int
    cpus: int
    folder: str
    socket: str


class Apps:
    """The apps of one Ray cluster on this machine."""

    def __init__(self, settings: Settings) -> None:
        """Start Ray and its proxy, which has no route yet."""
        self._settings = settings
        self._declared: dict[str, dict[str, Any]] = {}
        _start_ray(settings)
        self._http = {"host": settings.host, "port": settings.port}
        serve.start(proxy_location="HeadOnly", http_options=self._http)

    def deploy(self, *, replicas: int) -> dict[str, Any]:
        """Declare the app with the control routes and so many replicas. A later call changes their number alone."""
        scaled = [{"name": f"LLMServer:{self._settings.model_id}", "num_replicas": replicas}]
        self._declared[NAME] = self._app(NAME, "/", DEV_BUILDER, {"num_replicas": 1}) | {"deployments": scaled}
        return self._apply()

    def add_plain(self) -> dict[str, Any]:
        """Declare an app without the control routes too, below a route of its own, with a model scaled to zero."""
        asleep = {"autoscaling_config": {"min_replicas": 0, "initial_replicas": 0, "max_replicas": 1}}
        self._declared[PLAIN_NAME] = self._app(PLAIN_NAME, PLAIN_ROUTE, PLAIN_BUILDER, asleep)
        return self._apply()

    def remove_plain(self) -> dict[str, Any]:
        """Undo `add_plain`."""
        self._declared.pop(PLAIN_NAME, None)
        return self._apply()

    def _app(self, name: str, route: str, builder: str, model_deployment: dict[str, Any]) -> dict[str, Any]:
        settings = self._settings
        model = {
            "model_loading_config": {"model_id": settings.model_id, "model_source": settings.model},
            "accelerator_config": {"kind": "cpu"},
            "deployment_config": model_deployment,
            "engine_kwargs": {
                "load_format": "dummy",
                "max_model_len": settings.max_tokens,
                "enforce_eager": True,
                "dtype": "bfloat16",
                "max_num_seqs": 8,
            },
        }
        arguments = {"llm_configs": [model], "ingress_deployment_config": {"num_replicas": 1}}
        return {"name": name, "route_prefix": route, "import_path": builder, "args": arguments}

    def _apply(self) -> dict[str, Any]:
        declared = {"http_options": self._http, "applications": list(self._declared.values())}
        _get_global_client().deploy_apps(ServeDeploySchema.model_validate(declared))
        return {}

    def status(self) -> dict[str, Any]:
        """What Serve says of each app, and of each of its deployments."""
        return {
            "apps": {
                name: {
                    "status": str(app.status.value),
                    "message": app.message,
                    "deployments": {
                        each: {"status": str(found.status.value), "replicas": dict(found.replica_states)}
                        for each, found in app.deployments.items()
                    },
                }
                for name, app in serve.status().applications.items()
            }
        }

    def replicas(self) -> dict[str, Any]:
        """The replicas by name, and whether each is paused: the truth, which no public route tells."""
        paused: dict[str, bool] = {}
        for name in self._names():
            with contextlib.suppress(ValueError, ray.exceptions.RayActorError):  # it has just ended
                paused[name] = bool(self._ask(name, "is_paused", {}))
        return {"replicas": paused}

    def bind(self) -> dict[str, Any]:
        """Give each replica one CPU in its turn, with all that it started; see `guard` for why that is needed."""
        cpus = sorted(os.sched_getaffinity(0))
        for number, name in enumerate(self._names()):
            actor = ray.get_actor(name, namespace="serve")
            pid = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=ASK_WITHIN_SECONDS)
            for thread in _threads_below(pid):
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.sched_setaffinity(thread, {cpus[number % len(cpus)]})
        return {}

    def call(self, *, replica: str, method: str, options: dict[str, Any]) -> dict[str, Any]:
        """Call a method of one replica, past the ingress."""
        self._ask(replica, method, options)
        return {}

    def kill(self, *, replica: str) -> dict[str, Any]:
        """End the process of a replica, as a crash would."""
        ray.kill(ray.get_actor(replica, namespace="serve"), no_restart=True)
        return {}

    def _names(self) -> list[str]:
        actors = ray.util.list_named_actors(all_namespaces=True)
        return sorted(actor["name"] for actor in actors if f"::{NAME}#LLMServer:" in actor["name"])

    def _ask(self, replica: str, method: str, options: dict[str, Any]) -> Any:
        """As Ray's own broadcast does it, for one replica."""
        number = f"order-{uuid.uuid4()}"
        metadata = pickle.dumps(RequestMetadata(request_id=number, internal_request_id=number, call_method=method))
        actor = ray.get_actor(replica, namespace="serve")
        return ray.get(actor.handle_request.remote(metadata, **options), timeout=ASK_WITHIN_SECONDS)


def _threads_below(process: int) -> list[int]:
    """The ids of the threads of a process and of all its descendants."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
        for task in (Path("/proc") / str(process) / "task").iterdir():
            found.append(int(task.name))
            for child in (task / "children").read_text().split():
                found += _threads_below(int(child))
    return found


def _start_ray(settings: Settings) -> None:
    """Ray gives its own processes half a minute, and no more, to find each other; a busy machine may need another try."""
    for attempt in range(1, START_ATTEMPTS + 1):
        try:
            ray.init(
                num_cpus=settings.cpus,
                include_dashboard=False,
                object_store_memory=100 * 1024 * 1024,
                _temp_dir=settings.folder,
                _node_ip_address=settings.host,
            )
        except Exception:  # it raises nothing more particular
            if attempt == START_ATTEMPTS:
                raise
            traceback.print_exc()
            ray.shutdown()
        else:
            return


def main() -> None:
    settings = Settings(**json.loads(sys.argv[1]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    apps = Apps(settings)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(settings.socket)
        listener.listen()
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("rw") as stream:
                stream.write(json.dumps(_carried_out(apps, json.loads(stream.readline()))) + "\n")


def _carried_out(apps: Apps, order: dict[str, Any]) -> dict[str, Any]:
    started = time.monotonic()
    try:
        answer: dict[str, Any] = getattr(apps, order.pop("do"))(**order)
    except Exception as error:  # noqa: BLE001  # whatever it is, the one who gave the order is told
        return {"error": f"{type(error).__name__}: {error}"}
    return answer | {"seconds": time.monotonic() - started}


if __name__ == "__main__":
    main()
