"""Every command of docs/plugin.md does what the page says."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from llmservice.plugin.doctor import chain
from llmservice.plugin.exits import Exit
from llmservice_testing.fleet import Fleet

from .conftest import KubectlPlugin, Plugin

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "plugin.md").read_text()
COMMANDS = [
    line.removeprefix("$ ")
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("$ ")
]


@pytest.mark.usefixtures("operator")
def test_every_command_of_the_page_succeeds_in_its_order(
    make_fleet: Callable[..., Fleet], llm: Plugin, kubectl_llm: KubectlPlugin
) -> None:
    for name in ("qwen", "llama"):
        fleet = make_fleet(name=name)
        fleet.grow(3)
        fleet.declare("running")
        fleet.cluster.patch_llmservice(fleet.namespace, name, {"metadata": {"labels": {"team": "red"}}})
    assert len(COMMANDS) > 10
    for command in COMMANDS:
        program, plugin, *words = shlex.split(command)
        assert (program, plugin) == ("kubectl", "llm")
        if "--watch" in words:
            watching = kubectl_llm.start(*words)
            assert watching.line("llama")
            assert watching.interrupt().status == 0
        else:
            printed = llm.ok(*words)
            follows = PAGE.partition(f"$ {command}\n")[2].splitlines()[0]
            assert not follows.startswith("llmservice") or printed == f"{follows}\n"


def test_every_cause_and_every_exit_status_is_on_the_page() -> None:
    causes = set()
    for check in chain.CHECKS:
        source = Path(check.__code__.co_filename).read_text()
        causes |= set(re.findall(r'(?:problem|warning|note|make)\(\s*"([A-Z]\w+)"', source))
    assert len(causes) > 30
    assert {cause for cause in causes if f"`{cause}`" not in PAGE} == set()
    told = set(re.findall(r"^\| ([\d, ]+) \|", PAGE, re.MULTILINE))
    assert {int(number) for each in told for number in each.split(", ")} == {end.value for end in Exit}
