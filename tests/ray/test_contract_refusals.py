"""How calls are refused: what tells an unknown model, a missing route and a failing replica from each other."""

import json
from typing import Any

import httpx
import pytest

from llmservice_testing.ray.client import AppClient

from .conftest import Subject

CONTROL = [("POST", "/pause"), ("POST", "/resume"), ("GET", "/is_paused")]
UNKNOWN = 'Got request for model "nope". Could not find base model with ID "nope".'


async def call(client: AppClient, method: str, path: str, model: str) -> httpx.Response:
    return await (client.get(path, model=model) if method == "GET" else client.post_json(path, {"model": model}))


@pytest.mark.parametrize(("method", "path"), CONTROL)
async def test_an_unknown_model_is_404_and_named(subject: Subject, method: str, path: str) -> None:
    answer = await call(subject.client, method, path, "nope")

    assert (answer.status_code, answer.json()) == (404, {"detail": UNKNOWN})
    assert not await subject.client.is_paused()


async def test_the_models_are_listed(subject: Subject) -> None:
    answer = await subject.client.get("/v1/models")

    assert answer.status_code == 200
    assert [model["id"] for model in answer.json()["data"]] == ["tiny"]


@pytest.mark.parametrize(
    ("body", "kind", "where"),
    [
        ("", "missing", "('body',)"),
        ("{x", "json_invalid", "('body', 1)"),
        ("[1]", "model_attributes_type", "('body',)"),
        ('{"options": {}}', "missing", "('body', 'model')"),
        ('{"model": 1}', "string_type", "('body', 'model')"),
        ('{"model": "tiny", "options": [1]}', "dict_type", "('body', 'options')"),
    ],
)
async def test_a_body_of_another_form_is_refused_before_any_replica_is_asked(
    subject: Subject, body: str, kind: str, where: str
) -> None:
    answer = await subject.client.post_text("/pause", body)

    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["message"].startswith("Invalid request format: ")
    assert error["message"].endswith(f" at {where}")
    assert (error["type"], error["code"]) == (kind, "invalid_parameter")
    assert not await subject.client.is_paused()


async def test_is_paused_needs_the_model(subject: Subject) -> None:
    answer = await subject.client.get("/is_paused")

    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "Invalid request format: Field required at ('query', 'model')"


@pytest.mark.parametrize("options", [{"mode": "nonsense"}, {"clear_cache": "perhaps"}])
async def test_an_option_that_a_replica_does_not_understand_is_500_with_its_words_at_the_end(
    subject: Subject, options: dict[str, Any]
) -> None:
    answer = await subject.client.pause(**options)

    assert answer.status_code == 500
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("InternalServerError", 500)
    assert error["message"].startswith("Message: Internal Server Error (Request ID: ")
    said = error["message"].rpartition("\n  File ")[2]
    assert "1 validation error for VLLMPauseConfig" in said
    assert not await subject.client.is_paused()


@pytest.mark.parametrize(("method", "path"), [("GET", "/pause"), ("GET", "/resume"), ("POST", "/is_paused")])
async def test_another_method_is_405(subject: Subject, method: str, path: str) -> None:
    answer = await (subject.client.get(path) if method == "GET" else subject.client.post(path))

    assert (answer.status_code, answer.content) == (405, b'{"detail":"Method Not Allowed"}')


@pytest.mark.parametrize("path", ["/version", "/health", "/pause_generation"])
async def test_a_route_that_there_is_not_is_404(subject: Subject, path: str) -> None:
    answer = await subject.client.get(path)

    assert (answer.status_code, answer.content) == (404, b'{"detail":"Not Found"}')


async def test_the_description_tells_that_there_are_control_routes_and_which_options_they_know(
    subject: Subject,
) -> None:
    document = (await subject.client.get("/openapi.json")).json()

    assert {"/pause", "/resume", "/is_paused"} <= document["paths"].keys()
    options = document["components"]["schemas"]["PauseRequest"]["properties"]["options"]
    assert options["description"] == "Engine-specific pause options (e.g., mode, clear_cache)"
    assert "wait_for_inflight_requests" not in json.dumps(document)


async def test_an_app_that_was_not_built_for_development_has_no_control_routes(plain: AppClient) -> None:
    for method, path in CONTROL:
        answer = await call(plain, method, path, "tiny")
        assert (answer.status_code, answer.content) == (404, b'{"detail":"Not Found"}')

    assert "/pause" not in (await plain.get("/openapi.json")).json()["paths"]
    assert [model["id"] for model in (await plain.get("/v1/models")).json()["data"]] == ["tiny"]
