"""What Ray Serve and its LLM ingress say, to the letter.

The bodies of 2.60.0 were captured from it; those of earlier versions were read in the sources.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any, Final

from llmservice_testing.ray_simulator.versions import Behaviour
from llmservice_testing.simulator.wire import Reply

TEXT: Final = "text/plain; charset=utf-8"

NO_ROUTES: Final = "Route table is not populated yet."
NO_REPLICAS: Final = "No replicas are available yet."
DRAINING: Final = "This node is being drained."

NOT_FOUND: Final = Reply.json({"detail": "Not Found"}, 404)


def no_route(path: str) -> Reply:
    """The proxy leads nowhere."""
    words = f"Path '{path}' not found. Ping http://.../-/routes for available routes."
    return Reply(404, words.encode(), TEXT)


def method_not_allowed(allowed: str) -> Reply:
    return Reply.json({"detail": "Method Not Allowed"}, 405).with_header("allow", allowed)


def unknown_model(model: str) -> Reply:
    return Reply.json({"detail": f'Got request for model "{model}". Could not find base model with ID "{model}".'}, 404)


def failed(words: str) -> Reply:
    """Something behind the ingress failed. What it said stands at the end of a traceback of 3 KB."""
    request = uuid.uuid4()
    message = f"Internal Server Error (Request ID: {request})"
    whole = f"Message: {message}, Internal exception: {message}, original exception: {_traceback(words)}"
    return _error({"message": whole, "type": "InternalServerError", "param": None, "code": 500}, 500)


def _traceback(words: str) -> str:
    """As Ray shows an exception of an actor."""
    actor = "\x1b[36mray::ServeReplica:app:LLMServer:tiny.handle_request()\x1b[39m (pid=22129, ip=10.0.0.7)"
    frames = [
        f'  File "/opt/ray/serve/_private/replica.py", line {line}, in handle_request\n'
        "    result = await self._replica_impl.handle_request("
        for line in range(1692, 1712)
    ]
    return "\n".join([actor, *frames, words])


def bad_option(name: str, problem: str) -> str:
    """What a replica says of an option with a value that it does not take."""
    return (
        f"pydantic_core._pydantic_core.ValidationError: 1 validation error for VLLMPauseConfig\n{name}\n  {problem}\n"
        "    For further information visit https://errors.pydantic.dev/2.14/v/literal_error"
    )


def no_such_method(method: object) -> str:
    """What a replica says of a method that its workers do not have."""
    return f"Exception: Call to collective_rpc method failed: Method {method!r} is not implemented."


def missing(where: tuple[str, ...], given: object) -> Reply:
    return _invalid("Field required", "missing", where, given)


def not_a_dictionary(where: tuple[str, ...], given: object) -> Reply:
    return _invalid("Input should be a valid dictionary", "dict_type", where, given)


def not_a_string(where: tuple[str, ...], given: object) -> Reply:
    return _invalid("Input should be a valid string", "string_type", where, given)


def not_an_object(given: object) -> Reply:
    return _invalid(
        "Input should be a valid dictionary or object to extract fields from", "model_attributes_type", ("body",), given
    )


def not_json(position: int) -> Reply:
    return _invalid("JSON decode error", "json_invalid", ("body", position), {})


def _invalid(message: str, kind: str, where: tuple[str | int, ...], given: object) -> Reply:
    words = f"Invalid request format: {message} at {where}"
    return _error({"message": words, "type": kind, "param": given, "code": "invalid_parameter"}, 400)


def _error(error: dict[str, object], status: int) -> Reply:
    return Reply.json({"error": error}, status)


def models(names: Sequence[str]) -> Reply:
    cards = [
        {
            "id": name,
            "object": "model",
            "owned_by": "organization-owner",
            "permission": [],
            "metadata": {"model_id": name, "input_modality": "text", "max_request_context_length": 2048},
        }
        for name in names
    ]
    return Reply.json({"data": cards, "object": "list"})


def openapi(behaviour: Behaviour, *, dev: bool) -> Reply:
    """The part of the description of the app that tells the versions apart."""
    options = "mode, clear_cache" if behaviour.takes_mode else "wait_for_inflight_requests, clear_cache"
    paths: dict[str, Any] = {"/v1/models": {"get": {}}, "/v1/completions": {"post": {}}}
    schemas: dict[str, Any] = {}
    if dev:
        paths |= {"/pause": {"post": {}}, "/resume": {"post": {}}, "/is_paused": {"get": {}}}
        schemas["PauseRequest"] = {
            "properties": {
                "model": {"type": "string", "title": "Model"},
                "options": {
                    "additionalProperties": True,
                    "type": "object",
                    "title": "Options",
                    "description": f"Engine-specific pause options (e.g., {options})",
                },
            },
            "type": "object",
            "required": ["model"],
            "title": "PauseRequest",
            "description": "Request to pause generation on an engine.",
        }
    document = {
        "openapi": "3.1.0",
        "info": {"title": "FastAPI", "version": "0.1.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    return Reply(200, json.dumps(document).encode())
