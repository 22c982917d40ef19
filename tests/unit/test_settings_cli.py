"""What the operator can be told, and what it says when it is told wrongly."""

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner, Result

from llmservice import crd
from llmservice.cli import app
from llmservice.logs import LogFormat
from llmservice.settings import OperatorSettings


def run(*arguments: str, environment: dict[str, str] | None = None) -> Result:
    # Wide, so that no message is broken into lines; and without an API server, whatever this machine has.
    surroundings = {"COLUMNS": "300", "TERMINAL_WIDTH": "300", "KUBECONFIG": "/nonexistent", **(environment or {})}
    return CliRunner().invoke(app, list(arguments), env=surroundings)


def words(result: Result) -> str:
    return " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param((), ["--namespace", "--all-namespaces"], id="no namespaces"),
        pytest.param(("--namespace", "a", "--all-namespaces"), ["--namespace", "--all-namespaces"], id="some and all"),
        pytest.param(("--all-namespaces", "--log-level", "loud"), ["--log-level", "loud"], id="no such level"),
        pytest.param(("--all-namespaces", "--log-format", "xml"), ["--log-format", "xml", "json"], id="no such format"),
        pytest.param(
            ("--all-namespaces", "--metrics-address", "nonsense"), ["--metrics-address", "nonsense"], id="no address"
        ),
        pytest.param(
            ("--all-namespaces", "--health-address", "host:port"), ["--health-address", "host:port"], id="no port"
        ),
        pytest.param(
            ("--all-namespaces", "--metrics-address", "0.0.0.0:99999"),
            ["--metrics-address", "0.0.0.0:99999"],
            id="a port that does not exist",
        ),
        pytest.param(("--all-namespaces", "--frobnicate"), ["--frobnicate"], id="no such option"),
        pytest.param(("--all-namespaces", "surplus"), ["surplus"], id="a surplus argument"),
        pytest.param(("--namespace",), ["--namespace"], id="an option without its value"),
    ],
)
def test_a_wrong_flag_is_named_with_its_value(arguments: tuple[str, ...], expected: list[str]) -> None:
    result = run("operator", *arguments)
    assert result.exit_code == 2
    said = words(result)
    # The log level is shown as it was understood.
    assert [word for word in expected if word.lower() not in said.lower()] == []
    assert "Traceback" not in said


def test_a_wrong_variable_is_named_with_its_value() -> None:
    result = run("operator", "--all-namespaces", environment={"LLMSERVICE_LOG_LEVEL": "LOUD"})
    assert result.exit_code == 2
    said = words(result).lower().replace("-", "_")
    assert "log_level" in said
    assert "loud" in said


def test_without_a_way_to_the_api_server_it_says_so_and_fails() -> None:
    result = run("operator", "--all-namespaces")
    assert result.exit_code == 1
    assert "KUBECONFIG" in words(result)
    assert "Traceback" not in words(result)


@pytest.mark.parametrize("namespaces", ["a", '["a"]', "a,b"])
def test_all_namespaces_on_the_command_line_wins_over_the_environment(namespaces: str) -> None:
    result = run("operator", "--all-namespaces", environment={"LLMSERVICE_NAMESPACES": namespaces})
    assert result.exit_code == 1, "it should get as far as looking for an API server"


def test_help_is_shown_without_a_command() -> None:
    said = words(run())
    assert "operator" in said
    assert "crd" in said


def test_help_names_every_option() -> None:
    said = words(run("operator", "--help"))
    for option in ("namespace", "all-namespaces", "log-format", "log-level", "metrics-address", "health-address"):
        assert f"--{option}" in said


def test_crd_prints_the_definition() -> None:
    result = run("crd")
    assert (result.exit_code, result.output) == (0, crd.to_yaml())


def test_the_defaults_are_those_that_help_tells() -> None:
    settings = OperatorSettings()
    assert (settings.log_format, settings.log_level) == (LogFormat.TEXT, "INFO")
    assert (settings.metrics_address, settings.health_address) == (":9090", ":8080")


def test_flags_win_over_the_environment_which_wins_over_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMSERVICE_LOG_FORMAT", "json")
    monkeypatch.setenv("LLMSERVICE_LOG_LEVEL", "DEBUG")
    settings = OperatorSettings(log_level="ERROR")
    assert (settings.log_format, settings.log_level) == (LogFormat.JSON, "ERROR")


@pytest.mark.parametrize("address", ["", ":9090", "127.0.0.1:0", "[::1]:9090", "localhost:65535"])
def test_addresses_that_are_taken(address: str) -> None:
    assert OperatorSettings(metrics_address=address).metrics_address == address


@pytest.mark.parametrize("address", ["9090", "host:", ":x", "host:1 ", "a b:1", "http://host"])
def test_addresses_that_are_not_taken(address: str) -> None:
    with pytest.raises(ValidationError, match="metrics_address"):
        OperatorSettings(metrics_address=address)
