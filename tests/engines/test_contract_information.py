"""What an engine tells about itself, running, paused and asleep."""

import re

import pytest

from llmservice_testing.vllm.client import EngineClient

from .conftest import Subject

SLEEP_STATE = re.compile(r'^vllm:engine_sleep_state\{[^}]*sleep_state="(\w+)"[^}]*\} (\S+)', re.MULTILINE)


async def sleep_gauge(client: EngineClient) -> dict[str, float]:
    """The gauge that tells whether an engine's memory is there, by its state; empty where it is not told."""
    metrics = (await client.get("/metrics")).text
    return {state: float(value) for state, value in SLEEP_STATE.findall(metrics)}


async def test_the_version_is_told_and_rust_tells_its_frontend(subject: Subject) -> None:
    told = (await subject.client.get("/version")).json()

    expected = {"version": subject.version}
    if subject.frontend == "rust":
        expected["rust_frontend_version"] = subject.version
    assert told == expected


@pytest.mark.parametrize("mode", ["abort", "wait", "keep"])
async def test_health_does_not_tell_that_it_is_paused(subject: Subject, mode: str) -> None:
    await subject.client.post("/pause", mode=mode)

    answer = await subject.client.get("/health")
    assert (answer.status_code, answer.content) == (200, b"")


async def test_server_info_tells_sleep_mode_and_data_parallel_size_by_frontend(subject: Subject) -> None:
    config = (await subject.client.get("/server_info", config_format="json")).json()["vllm_config"]

    if subject.frontend == "python":
        assert config["model_config"]["enable_sleep_mode"] is False
        assert config["parallel_config"]["data_parallel_size"] == 1
    else:
        assert config["transport_mode"]["Bootstrapped"]["data_parallel_size"] == 1
        assert "model_config" not in config


async def test_server_info_is_text_unless_json_is_asked_for(subject: Subject) -> None:
    assert isinstance((await subject.client.get("/server_info")).json()["vllm_config"], str)


async def test_a_paused_engine_says_that_it_sleeps_but_its_gauge_does_not(subject: Subject) -> None:
    assert (await subject.client.get("/is_sleeping")).json() == {"is_sleeping": False}
    await subject.client.post("/pause", mode="keep")

    assert (await subject.client.get("/is_sleeping")).json() == {"is_sleeping": True}
    gauge = {"awake": 1, "weights_offloaded": 0, "discard_all": 0}
    assert await sleep_gauge(subject.client) == (gauge if subject.frontend == "python" else {})


async def test_a_sleeping_engine_says_that_it_is_paused_and_only_python_has_the_gauge(subject: Subject) -> None:
    answer = await subject.client.post("/sleep", level="1")

    assert answer.json() == {"status": "sleeping", "level": 1}
    assert await subject.client.is_paused()
    gauge = {"awake": 0, "weights_offloaded": 1, "discard_all": 0}
    assert await sleep_gauge(subject.client) == (gauge if subject.frontend == "python" else {})


async def test_waking_resumes(subject: Subject) -> None:
    await subject.client.post("/sleep", level="1")

    answer = await subject.client.post("/wake_up")

    assert answer.json() == {"status": "awake", "tags": None}
    assert not await subject.client.is_paused()
    assert (await subject.client.get("/is_sleeping")).json() == {"is_sleeping": False}


async def test_waking_a_part_does_not_resume(subject: Subject) -> None:
    await subject.client.post("/sleep", level="1")

    answer = await subject.client.post("/wake_up", tags="weights")

    assert answer.json() == {"status": "sleeping", "tags": ["weights"]}
    assert await subject.client.is_paused()


async def test_resume_does_not_look_whether_it_sleeps(subject: Subject) -> None:
    await subject.client.post("/sleep", level="1")

    assert (await subject.client.post("/resume")).status_code == 200

    assert not await subject.client.is_paused()
    assert (await subject.client.get("/is_sleeping")).json() == {"is_sleeping": True}


async def test_waking_resumes_an_engine_that_was_only_paused(subject: Subject) -> None:
    await subject.client.post("/pause", mode="keep")

    await subject.client.post("/wake_up")

    assert not await subject.client.is_paused()


async def test_sleep_at_level_0_is_a_pause_under_another_name(subject: Subject) -> None:
    await subject.client.post("/sleep", level="0", mode="keep")

    assert await subject.client.is_paused()
    await subject.client.post("/resume")
    assert not await subject.client.is_paused()
    assert (await subject.client.get("/is_sleeping")).json() == {"is_sleeping": False}


async def test_after_sleep_at_level_0_the_gauge_says_not_awake_until_it_is_woken(subject: Subject) -> None:
    if subject.frontend == "rust":
        assert await sleep_gauge(subject.client) == {}
        return
    await subject.client.post("/sleep", level="0", mode="keep")
    await subject.client.post("/resume")

    assert await sleep_gauge(subject.client) == {"awake": 0, "weights_offloaded": 0, "discard_all": 0}
    await subject.client.post("/wake_up")
    assert await sleep_gauge(subject.client) == {"awake": 1, "weights_offloaded": 0, "discard_all": 0}


async def test_a_level_that_there_is_not_is_refused(subject: Subject) -> None:
    answer = await subject.client.post("/sleep", level="7")

    assert answer.status_code == 400
    assert "level" in answer.json()["error"]["param"]
    assert not await subject.client.is_paused()


@pytest.mark.parametrize(("name", "value"), [("level", "deep"), ("mode", "nonsense")])
async def test_a_parameter_of_sleep_that_cannot_be_read_is_refused(subject: Subject, name: str, value: str) -> None:
    answer = await subject.client.post("/sleep", **{name: value})

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == (f"query.{name}" if subject.frontend == "python" else None)
    assert not await subject.client.is_paused()
