"""What is imported: `kubectl llm` starts often, and has to answer at once."""

import subprocess
import sys

import pytest


def imported_by(program: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after running a program."""
    report = f"import sys\ntry:\n    {program}\nexcept SystemExit:\n    pass\nprint('\\n' + ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "words", [["--help"], ["pause", "--help"], ["doctor", "--help"], ["pause"], ["status", "-A", "-n", "x"]]
)
def test_help_and_wrong_usage_need_neither_the_client_nor_the_models(words: list[str]) -> None:
    loaded = imported_by(f"from llmservice.plugin.app import app; app(args={words}, prog_name='kubectl-llm')")
    assert "llmservice.plugin.options" in loaded
    assert {"kubernetes", "aiohttp", "rich.live", "llmservice.api"} & loaded == set()


def test_no_command_needs_kopf_or_the_operator() -> None:
    modules = "changing, completion, status"
    loaded = imported_by(f"from llmservice.plugin import {modules}; import llmservice.plugin.doctor.command")
    assert "llmservice.client.remote" in loaded
    assert {
        "kopf",
        "llmservice.handlers",
        "llmservice.runtime",
        "llmservice.cli",
        "prometheus_client",
    } & loaded == set()
