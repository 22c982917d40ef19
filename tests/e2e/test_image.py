"""The operator's image: what is in it, and what is not."""

import hashlib
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmservice.api import GROUP
from llmservice_testing.kind import images
from llmservice_testing.kind.docker import size_of
from llmservice_testing.kind.images import OPERATOR
from llmservice_testing.kind.places import ROOT
from llmservice_testing.kind.running import output_of, run

UNWANTED = ("pip", "ensurepip", "setuptools", "hatchling", "gcc", "cc", "make")
"""Modules and programs."""
FOUND = """\
import importlib.util, shutil, sys
print([name for name in sys.argv[1:] if shutil.which(name) or importlib.util.find_spec(name)])
"""
INSTALLED = """\
import importlib.metadata
for found in importlib.metadata.distributions():
    print(f"{found.name}=={found.version}".lower().replace("_", "-"))
"""


@pytest.fixture(scope="module")
def inspected() -> dict[str, object]:
    """What Docker says of the image."""
    (found,) = json.loads(output_of(["docker", "image", "inspect", OPERATOR]))
    return dict(found)


def in_image(*command: str, options: tuple[str, ...] = ()) -> str:
    """Runs a command in the image as a cluster does: without a network, and nothing can be written."""
    strict = ["--rm", "--network", "none", "--read-only", "--cap-drop", "ALL", *options]
    return output_of(["docker", "run", *strict, "--entrypoint", command[0], OPERATOR, *command[1:]])


def test_it_runs_as_a_user_with_a_number_from_a_read_only_root(inspected: dict[str, object]) -> None:
    configuration = inspected["Config"]
    assert isinstance(configuration, dict)
    assert configuration["User"] == "65532:65532"
    assert configuration["Entrypoint"] == ["llmservice"]
    assert in_image("python3", "-c", "import os; print(os.getuid(), os.getgid())") == "65532 65532"
    # OpenShift chooses a user of its own.
    assert in_image("llmservice", "version", options=("--user", "1000620000:0")) == _version()


def test_its_labels_say_what_it_is(inspected: dict[str, object]) -> None:
    configuration = inspected["Config"]
    assert isinstance(configuration, dict)
    assert configuration["Labels"]["org.opencontainers.image.version"] == _version()
    assert configuration["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert OPERATOR.partition(":")[2] == _version()


def test_it_has_the_definition_of_this_repository() -> None:
    assert in_image("llmservice", "crd") == (ROOT / "crds" / f"llmservices.{GROUP}.yaml").read_text().strip()


def test_it_has_neither_compiler_nor_installer() -> None:
    for python in ("/opt/llmservice/bin/python", "python3"):
        assert in_image(python, "-c", FOUND, *UNWANTED) == "[]"


def test_every_package_in_it_is_one_of_the_lock_file() -> None:
    installed = set(in_image("/opt/llmservice/bin/python", "-c", INSTALLED).splitlines())
    locked = {
        line.split(" ")[0].lower().replace("_", "-")
        for line in (ROOT / "requirements" / "runtime.txt").read_text().splitlines()
        if "==" in line and not line.startswith((" ", "#"))
    }
    assert installed - locked == {f"llmservice=={_version()}"}


def test_its_size_is_told(record_figure: Callable[[str, object], None]) -> None:
    record_figure("size of the operator's image, MB", round(size_of(OPERATOR) / 1e6))
    assert size_of(OPERATOR) < 300e6, "it grew: look into it with `docker history`, then change this if it must be"


def test_nothing_of_the_build_machine_is_in_it(inspected: dict[str, object]) -> None:
    history = output_of(["docker", "history", "--no-trunc", "--format", "{{.CreatedBy}}", OPERATOR])
    assert "PIP_" not in history
    assert "PIP_" not in json.dumps(inspected["Config"])
    assert (
        in_image("python3", "-c", "import glob; print(glob.glob('/opt/llmservice/**/direct_url.json', recursive=True))")
        == "[]"
    )


@pytest.mark.timeout(600)
def test_the_same_sources_make_the_same_files(tmp_path: Path) -> None:
    again = "llmservice/operator:again"
    images.build_operator(again, cached=False)
    try:
        assert _contents(again, tmp_path) == _contents(OPERATOR, tmp_path)
    finally:
        output_of(["docker", "image", "rm", again])


def _contents(image: str, scratch: Path) -> dict[str, tuple[str, int]]:
    """The digest and the time of each file of ours in an image."""
    container = output_of(["docker", "create", image])
    archive = scratch / "image.tar"
    try:
        run(
            ["docker", "export", "--output", archive, container], f"Exporting {image}", log=scratch / "log", timeout=120
        )
    finally:
        output_of(["docker", "rm", container])
    with tarfile.open(archive) as files:
        return dict(_files(files))


def _files(archive: tarfile.TarFile) -> Iterator[tuple[str, tuple[str, int]]]:
    for member in archive:
        if member.isfile() and member.name.startswith("opt/llmservice/"):
            content = archive.extractfile(member)
            assert content is not None
            yield member.name, (hashlib.sha256(content.read()).hexdigest(), int(member.mtime))


def _version() -> str:
    line = next(line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("version = "))
    return line.split('"')[1]
