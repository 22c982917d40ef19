"""Where Prometheus comes from, and what it says when it refuses something."""

import shutil
from pathlib import Path

import pytest

from llmservice_testing.prometheus import (
    Programs,
    Prometheus,
    PrometheusNotFoundError,
    PromtoolError,
    find_prometheus,
)


def test_those_on_the_path_are_taken(programs: Programs, tmp_path: Path) -> None:
    for program in (programs.prometheus, programs.promtool):
        (tmp_path / program.name).symlink_to(program)
    found = find_prometheus({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert found == Programs(tmp_path / "prometheus", tmp_path / "promtool")


def test_without_any_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PrometheusNotFoundError, match=r"there is no apt-get\. Install Prometheus"):
        find_prometheus({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")})


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs Debian's apt-get")
def test_a_package_that_cannot_be_had_is_told_in_the_words_of_apt(tmp_path: Path) -> None:
    sources = tmp_path / "apt.conf"
    sources.write_text(
        'Dir::Etc::SourceList "/dev/null"; Dir::Etc::SourceParts "/dev/null"; Dir::State::Lists "/nowhere";'
    )
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("apt-get", "dpkg-deb", "dpkg"):
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    environment = {"PATH": str(folder), "XDG_CACHE_HOME": str(tmp_path / "cache"), "APT_CONFIG": str(sources)}
    with pytest.raises(PrometheusNotFoundError, match="Unable to locate package prometheus"):
        find_prometheus(environment)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and not path.name.endswith(".lock")]


def test_rules_that_are_wrong_are_refused_before_it_starts(programs: Programs, tmp_path: Path) -> None:
    groups = [{"name": "wrong", "rules": [{"alert": "Wrong", "expr": "sum by"}]}]
    with pytest.raises(PromtoolError, match="Wrong"):
        Prometheus(programs, tmp_path, scrape_configs=[], groups=groups)
