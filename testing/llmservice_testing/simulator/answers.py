"""What engines say, to the letter.

The bodies of 0.32.0 were captured from it, with both frontends; earlier and later shapes were read in the sources.
"""

from __future__ import annotations

import json
from typing import Final

from llmservice_testing.simulator.versions import Behaviour
from llmservice_testing.simulator.wire import Reply

PAUSED: Final = Reply.json({"status": "paused"})
RESUMED: Final = Reply.json({"status": "resumed"})
IS_PAUSED: Final = {state: Reply.json({"is_paused": state}) for state in (True, False)}
IS_SLEEPING: Final = {state: Reply.json({"is_sleeping": state}) for state in (True, False)}
EMPTY: Final = Reply(200)
INTERNAL_SERVER_ERROR: Final = Reply(500, b"Internal Server Error", "text/plain; charset=utf-8")
UNAUTHORIZED: Final = Reply.json({"error": "Unauthorized"}, 401)


def not_found(behaviour: Behaviour) -> Reply:
    """No such route, or one that is hidden while VLLM_SERVER_DEV_MODE is off."""
    return Reply.json({"detail": "Not Found"}, 404) if behaviour.frontend == "python" else Reply(404)


def method_not_allowed(behaviour: Behaviour, allowed: str) -> Reply:
    if behaviour.frontend == "python":
        return Reply.json({"detail": "Method Not Allowed"}, 405).with_header("allow", allowed)
    return Reply(405).with_header("allow", "GET,HEAD" if allowed == "GET" else allowed)


def unreadable_parameter(behaviour: Behaviour, name: str, python: str, rust: str, rust_names: str | None) -> Reply:
    """A query parameter that cannot be read.

    Args:
        python: what the Python frontend says of it.
        rust: what the Rust frontend says of it.
        rust_names: the parameter that the Rust frontend blames. It is fixed for a route, whichever was wrong.
    """
    if behaviour.frontend == "python":
        return _validation_error(name, python)
    return bad_request_in_rust(behaviour, f"Failed to deserialize query string: {rust}", rust_names)


def _validation_error(name: str, text: str) -> Reply:
    message = f"1 validation error:\n  {text}"
    return Reply.json(
        {"error": {"message": message, "type": "Bad Request", "param": f"query.{name}", "code": 400}}, 400
    )


def bad_request_in_rust(behaviour: Behaviour, message: str, name: str | None) -> Reply:
    if behaviour.integer_error_codes:
        error: dict[str, object] = {"message": message, "type": "BadRequestError", "param": name, "code": 400}
    else:
        kind = "invalid_request_error"
        error = {"message": message, "type": kind, "param": name, "code": kind}
    return Reply.json({"error": error}, 400)


def level_out_of_range(behaviour: Behaviour, level: int) -> Reply:
    """A level of sleep that there is not."""
    if behaviour.frontend == "rust":
        return bad_request_in_rust(behaviour, "level must be between 0 and 2", "level")
    kind, name, bound, relation = (
        ("less_than_equal", "le", 2, "less than or equal to")
        if level > 0
        else ("greater_than_equal", "ge", 0, "greater than or equal to")
    )
    message = f"Input should be {relation} {bound}"
    context = f"{{'{name}': {bound}}}"
    return _validation_error(
        "level", f"{{'type': '{kind}', 'loc': 'query.level', 'msg': '{message}', 'input': '{level}', 'ctx': {context}}}"
    )


def engine_failed(behaviour: Behaviour, python: str, rust: str) -> Reply:
    """The engine behind the API server refused or failed."""
    if behaviour.frontend == "python":
        return Reply.json({"error": python}, 500)
    if behaviour.integer_error_codes:
        error: dict[str, object] = {"message": rust, "type": "InternalServerError", "param": None, "code": 500}
    else:
        error = {"message": rust, "type": "server_error", "param": None, "code": "server_error"}
    return Reply.json({"error": error}, 500)


def ranks_differ(behaviour: Behaviour, ranks: tuple[bool, ...]) -> Reply:
    """`/is_paused` of a data-parallel server whose engines disagree."""
    return engine_failed(
        behaviour,
        "Failed to fetch pause status: Engines returned different is_scheduler_paused results: " + str(list(ranks)),
        "failed to call is_paused: utility call `is_scheduler_paused` returned inconsistent results across engines: "
        f"[{', '.join(str(rank).lower() for rank in ranks)}]",
    )


def paused_for_requests(behaviour: Behaviour) -> Reply:
    """A new request while paused with `abort` or `wait`, from 0.33 on."""
    message = "Generation is paused. Please retry after it resumes."
    return Reply.json({"error": {"message": message, "type": "ServiceUnavailableError", "code": 503}}, 503)


def unknown_model(behaviour: Behaviour, asked: str, served: str) -> Reply:
    if behaviour.frontend == "python":
        message = f"The model `{asked}` does not exist. Valid aliases: {served}."
        error: dict[str, object] = {"message": message, "type": "NotFoundError", "param": "model", "code": 404}
    else:
        message = f"The model `{asked}` does not exist."
        error = {"message": message, "type": "invalid_request_error", "param": "model", "code": "model_not_found"}
    return Reply.json({"error": error}, 404)


def version(behaviour: Behaviour) -> Reply:
    if behaviour.frontend == "python":
        return Reply.json({"version": behaviour.version})
    return Reply.json({"version": behaviour.version, "rust_frontend_version": behaviour.version})


def server_info(behaviour: Behaviour, *, as_json: bool, model: str, sleep_mode: bool, data_parallel_size: int) -> Reply:
    """The part of `/server_info` that says how the server is laid out. The frontends share no shape."""
    config: object
    if behaviour.frontend == "rust":
        config = {
            "transport_mode": {
                "Bootstrapped": {"engine_count": data_parallel_size, "data_parallel_size": data_parallel_size}
            },
            "coordinator_mode": None,
            "model": model,
            "served_model_name": [model],
        }
    else:
        config = {
            "model_config": {"model": model, "served_model_name": model, "enable_sleep_mode": sleep_mode},
            "parallel_config": {
                "data_parallel_size": data_parallel_size,
                "data_parallel_size_local": data_parallel_size,
                "data_parallel_external_lb": False,
                "data_parallel_hybrid_lb": False,
            },
        }
    return Reply.json(
        {
            "vllm_config": config if as_json else str(config),
            "vllm_env": {"VLLM_SERVER_DEV_MODE": True},
            "system_env": {},
        }
    )


def metrics(behaviour: Behaviour, *, model: str, sleep_level: int | None, running: int, waiting: int) -> Reply:
    """The gauges of `/metrics` that a client of the control routes may want.

    With the Rust frontend there is no `engine_sleep_state`, asleep or not. With Python's, after `/sleep?level=0` all
    three of its values are 0, until `/wake_up`: `/resume` does not set them back. Both seen on 0.32.0.
    """
    labels = f'engine="0",model_name="{model}"'
    lines = [
        "# TYPE vllm:num_requests_running gauge",
        f"vllm:num_requests_running{{{labels}}} {running:.1f}",
        "# TYPE vllm:num_requests_waiting gauge",
        f"vllm:num_requests_waiting{{{labels}}} {waiting:.1f}",
    ]
    if behaviour.frontend == "python":
        state = {None: "awake", 0: None, 1: "weights_offloaded", 2: "discard_all"}[sleep_level]
        lines.append("# TYPE vllm:engine_sleep_state gauge")
        lines += [
            f'vllm:engine_sleep_state{{{labels},sleep_state="{name}"}} {float(name == state)}'
            for name in ("awake", "weights_offloaded", "discard_all")
        ]
    return Reply(200, "\n".join([*lines, ""]).encode(), "text/plain; version=0.0.4; charset=utf-8")


def completion(*, model: str, tokens: int, reason: str) -> Reply:
    return Reply.json(_completion(model, "x" * tokens, reason, tokens))


STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
STREAM_END: Final = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


def streamed_completion(*, model: str, text: str, reason: str | None, tokens: int | None) -> bytes:
    """One event of a streamed answer; only the last has a reason and the count of tokens."""
    event = b"data: " + json.dumps(_completion(model, text, reason, tokens)).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


def _completion(model: str, text: str, reason: str | None, tokens: int | None) -> dict[str, object]:
    usage = None
    if tokens is not None:
        usage = {"prompt_tokens": 1, "total_tokens": tokens + 1, "completion_tokens": tokens}
    return {
        "id": "cmpl-simulated",
        "object": "text_completion",
        "model": model,
        "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": reason, "stop_reason": None}],
        "usage": usage,
    }
