"""What the operator answers over HTTP."""

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter

from llmservice import endpoints
from llmservice_testing.ports import free_ports


async def get(url: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.get(url)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_an_address_without_a_host_is_every_address(host: str) -> None:
    """In a cluster of IPv6 alone the kubelet could not reach the probes otherwise."""
    (port,) = free_ports(1)
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc()
    async with endpoints.serving(f":{port}", {"/metrics": endpoints.metrics(registry)}):
        answer = await get(f"http://{host}:{port}/metrics")
    assert answer.status_code == 200
    assert "things_total 1.0" in answer.text


@pytest.mark.parametrize(
    ("missing", "status", "text"), [("", 200, "ok\n"), ("the definition", 503, "the definition\n")]
)
async def test_a_probe_fails_with_what_is_missing(missing: str, status: int, text: str) -> None:
    (port,) = free_ports(1)

    async def lack() -> str:
        return missing

    async with endpoints.serving(f"127.0.0.1:{port}", {"/readyz": endpoints.probe(lack)}):
        answer = await get(f"http://127.0.0.1:{port}/readyz")
    assert (answer.status_code, answer.text) == (status, text)
