"""What the control routes of an engine answer, and what they change. One assertion, four engines (see conftest)."""

import pytest

from llmservice_testing.vllm.client import EngineClient

from .conftest import Frontend, Subject

MODES = ["abort", "wait", "keep"]


async def test_an_engine_starts_running(subject: Subject) -> None:
    answer = await subject.client.get("/is_paused")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"is_paused": False}


@pytest.mark.parametrize("mode", MODES)
async def test_pause_and_resume_are_answered_and_read_back(subject: Subject, mode: str) -> None:
    paused = await subject.client.post("/pause", mode=mode, clear_cache="false")
    assert (paused.status_code, paused.json()) == (200, {"status": "paused"})
    assert await subject.client.is_paused()

    resumed = await subject.client.post("/resume")
    assert (resumed.status_code, resumed.json()) == (200, {"status": "resumed"})
    assert not await subject.client.is_paused()


@pytest.mark.parametrize("mode", MODES)
async def test_a_repeated_call_changes_nothing(subject: Subject, mode: str) -> None:
    for _ in range(2):
        assert (await subject.client.post("/pause", mode=mode)).status_code == 200
        assert await subject.client.is_paused()
    for _ in range(2):
        assert (await subject.client.post("/resume")).status_code == 200
        assert not await subject.client.is_paused()


async def test_an_unknown_parameter_is_ignored(subject: Subject) -> None:
    answer = await subject.client.post("/pause", mode="keep", clear_cache="false", reason="weights")

    assert answer.status_code == 200
    assert await subject.client.is_paused()


async def test_an_unknown_mode_is_refused_and_changes_nothing(subject: Subject) -> None:
    answer = await subject.client.post("/pause", mode="nonsense")

    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert "nonsense" in error["message"]
    expected = {
        "python": ("Bad Request", "query.mode", 400),
        "rust": ("invalid_request_error", "mode", "invalid_request_error"),
    }
    assert (error["type"], error["param"], error["code"]) == expected[subject.frontend]
    assert not await subject.client.is_paused()


async def test_a_boolean_that_is_none_is_refused(subject: Subject) -> None:
    answer = await subject.client.post("/pause", mode="abort", clear_cache="perhaps")

    assert answer.status_code == 400
    error = answer.json()["error"]
    if subject.frontend == "python":
        assert error["param"] == "query.clear_cache"
    else:
        assert error["param"] == "mode", "the Rust frontend names this one whichever is meant"
        assert "clear_cache" in error["message"]
    assert not await subject.client.is_paused()


@pytest.mark.parametrize(("method", "path"), [("GET", "/pause"), ("GET", "/resume"), ("POST", "/is_paused")])
async def test_another_method_is_405(subject: Subject, method: str, path: str) -> None:
    answer = await (subject.client.get(path) if method == "GET" else subject.client.post(path))

    assert answer.status_code == 405
    assert answer.content == (b'{"detail":"Method Not Allowed"}' if subject.frontend == "python" else b"")


async def test_an_unknown_path_is_404(subject: Subject) -> None:
    answer = await subject.client.post("/pause_generation")

    assert answer.status_code == 404
    assert answer.content == (b'{"detail":"Not Found"}' if subject.frontend == "python" else b"")


@pytest.mark.parametrize(("method", "path"), [("POST", "/pause"), ("POST", "/resume"), ("GET", "/is_paused")])
async def test_without_development_mode_the_control_routes_are_404(
    hidden: EngineClient, backend: tuple[str, Frontend], method: str, path: str
) -> None:
    answer = await (hidden.get(path) if method == "GET" else hidden.post(path))

    assert answer.status_code == 404
    assert answer.content == (b'{"detail":"Not Found"}' if backend[1] == "python" else b"")


async def test_without_development_mode_the_version_is_told(hidden: EngineClient) -> None:
    assert (await hidden.get("/version")).json()["version"] == "0.32.0"


async def test_the_api_key_guards_requests_for_tokens_but_no_control_route(subject: Subject) -> None:
    refused = await subject.client.post_json("/v1/completions", {"model": "tiny", "prompt": "x", "max_tokens": 1})
    assert (refused.status_code, refused.json()) == (401, {"error": "Unauthorized"})

    assert (await subject.client.post("/pause", mode="keep")).status_code == 200
    assert (await subject.client.post("/resume")).status_code == 200


async def test_only_the_python_frontend_serves_routes_below_a_root_path(subject: Subject) -> None:
    """The Rust frontend refuses to start with --root-path."""
    answer = await subject.client.post("/engines/a/pause", mode="keep")

    assert answer.status_code == (200 if subject.frontend == "python" else 404)
    assert await subject.client.is_paused() is (subject.frontend == "python")
