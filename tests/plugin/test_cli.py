"""`llmservice` has the commands of `kubectl llm` among its own, and starts as fast."""

import subprocess
import sys

from typer.testing import CliRunner

from llmservice.cli import app


def test_llmservice_has_the_commands_of_the_plugin() -> None:
    for command in ("pause", "resume", "status", "doctor", "operator", "crd", "version"):
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0
    refused = CliRunner().invoke(app, ["pause"])
    assert refused.exit_code == 2
    assert "say which fleets" in refused.output


def test_only_the_operator_itself_needs_kopf() -> None:
    program = "import sys, llmservice.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert {"kopf", "kubernetes", "aiohttp", "llmservice.handlers"} & set(done.stdout.split()) == set()
