"""What a proxy says while its app is not there yet: this decides what counts as starting."""

import pytest

from .conftest import Birth, Subject

NO_ROUTES = "Route table is not populated yet."


@pytest.mark.parametrize("path", ["/-/routes", "/-/healthz"])
async def test_a_proxy_without_routes_says_503(birth: Birth, path: str) -> None:
    assert birth.without_routes[path] == (503, NO_ROUTES)


@pytest.mark.parametrize("path", ["/is_paused", "/v1/models", "/openapi.json"])
async def test_a_proxy_without_routes_answers_404_to_everything_else(birth: Birth, path: str) -> None:
    [answer] = [answer for asked, answer in birth.without_routes.items() if asked.partition("?")[0] == path]

    assert answer == (404, f"Path '{path}' not found. Ping http://.../-/routes for available routes.")


async def test_the_route_is_there_before_the_app_answers_anything(birth: Birth) -> None:
    assert birth.deploying["/-/routes"] == (200, '{"/":"app"}')
    assert birth.deploying["/-/healthz"] == (200, "success")
    assert birth.deploying["/is_paused?model=tiny"] is None
    assert birth.deploying["/v1/models"] is None
    assert birth.deploying["/openapi.json"] is None


async def test_a_running_app_has_its_route(subject: Subject) -> None:
    routes = await subject.client.get("/-/routes")
    assert (routes.status_code, routes.json()) == (200, {"/": "app"})

    health = await subject.client.get("/-/healthz")
    assert (health.status_code, health.text) == (200, "success")
