"""Log lines: one line each, with their details, for people or for machines."""

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from llmservice.logs import JsonFormatter, LogFormat, TextFormatter, configure


def record(
    message: str = "Did a thing", *args: object, level: int = logging.INFO, **details: object
) -> logging.LogRecord:
    made = logging.LogRecord("llmservice.runtime", level, __file__, 1, message, args, None)
    made.created = 1764583200.25
    made.__dict__.update(details)
    return made


@pytest.fixture
def _logging() -> Iterator[None]:
    """Puts back what `configure` changes for the whole process."""
    names = (None, "llmservice", "kopf._core.reactor.running")
    loggers = [logging.getLogger(name) for name in names]
    before = [(each, each.level, list(each.handlers)) for each in loggers]
    yield
    for each, level, handlers in before:
        each.setLevel(level)
        each.handlers[:] = handlers


def test_text_is_one_line_with_time_level_logger_message_and_details() -> None:
    line = TextFormatter().format(record("Did %s", "it", service="default/qwen", pods=3))
    assert line == "2025-12-01T10:00:00.250Z INFO llmservice.runtime: Did it service=default/qwen pods=3"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("first\nsecond", '"first\\nsecond"'),
        (None, "None"),
        (0, "0"),
    ],
)
def test_details_that_could_be_misread_are_quoted(value: object, shown: str) -> None:
    assert TextFormatter().format(record(error=value)).endswith(f" error={shown}")


def test_details_of_a_hostile_engine_cannot_forge_a_line() -> None:
    line = TextFormatter().format(record(error="x\n2026-12-01T10:00:00Z INFO llmservice: All is well"))
    assert "\n" not in line


def test_json_is_one_object_with_the_details_as_keys() -> None:
    line = JsonFormatter().format(record("Did %s", "it", service="default/qwen", pods=3))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2025-12-01T10:00:00.250Z",
        "level": "info",
        "logger": "llmservice.runtime",
        "message": "Did it",
        "service": "default/qwen",
        "pods": 3,
    }


def test_json_shows_what_is_no_json_as_text() -> None:
    assert json.loads(JsonFormatter().format(record(error=ValueError("no"))))["error"] == "no"


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_traceback_is_shown(formatter: logging.Formatter) -> None:
    failed = record("Broke", level=logging.ERROR)
    try:
        int("the matter")
    except ValueError:
        failed.exc_info = sys.exc_info()
    line = formatter.format(failed)
    assert "ValueError: invalid literal" in line
    assert "test_logs.py" in line


@pytest.mark.usefixtures("_logging")
@pytest.mark.parametrize(("log_format", "parses"), [(LogFormat.JSON, True), (LogFormat.TEXT, False)])
def test_lines_go_to_standard_error_in_the_chosen_format(
    log_format: LogFormat, parses: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(log_format, "INFO")
    logging.getLogger("llmservice.x").info("Did it", extra={"pods": 3})
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert "Did it" in line
    assert line.startswith("{") is parses


@pytest.mark.usefixtures("_logging")
def test_the_level_is_ours_and_libraries_speak_from_warning_on(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogFormat.TEXT, "DEBUG")
    logging.getLogger("llmservice.x").debug("ours")
    logging.getLogger("aiohttp").info("chatter")
    logging.getLogger("aiohttp").warning("trouble")
    printed = capsys.readouterr().err
    assert "ours" in printed
    assert "trouble" in printed
    assert "chatter" not in printed


@pytest.mark.usefixtures("_logging")
def test_less_severe_lines_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogFormat.TEXT, "WARNING")
    logging.getLogger("llmservice.x").info("detail")
    assert capsys.readouterr().err == ""
