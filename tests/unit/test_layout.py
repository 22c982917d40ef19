"""How the repository is laid out, where a small slip would break much."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import yaml

import llmservice

ROOT = Path(__file__).parents[2]


def python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_operator_is_a_folder_of_sources_and_no_package() -> None:
    assert (ROOT / "operator" / "llmservice" / "__init__.py").is_file()
    assert not (ROOT / "operator" / "__init__.py").exists(), "it would shadow Python's own module operator"


def test_pythons_own_operator_is_importable_from_the_root_of_the_repository() -> None:
    assert python("-c", "import operator; print(operator.attrgetter.__name__)") == "attrgetter"


def test_the_code_under_test_is_that_of_this_repository() -> None:
    assert Path(llmservice.__file__).is_relative_to(ROOT / "operator")


def test_the_version_is_the_same_everywhere() -> None:
    declared = next(
        line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("version = ")
    )
    assert declared == f'version = "{version("llmservice")}"'
    assert python("-m", "llmservice.cli") == ""  # importing it does nothing
    assert python("-c", "from llmservice.cli import app; app(['version'])") == version("llmservice")


def test_there_is_one_file_for_one_resource() -> None:
    files = list((ROOT / "crds").glob("*.yaml"))
    assert [yaml.safe_load(file.read_text())["metadata"]["name"] for file in files] == ["llmservices.llmservice.io"]
