"""Fixtures for tests of what is monitored: a real Prometheus scrapes a real operator that looks after simulated fleets."""

from collections.abc import Callable, Iterator

import pytest

from llmservice_testing import monitoring
from llmservice_testing.controlplane import find_assets
from llmservice_testing.dashboard_picture import story
from llmservice_testing.fleet import Fleet
from llmservice_testing.monitored import Stage, monitored
from llmservice_testing.prometheus import Programs, find_prometheus


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Gets the programs before the first test, if any test needs them: that may take longer than a test may."""
    names = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    if session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        if "programs" in names:
            find_prometheus()
        if "stage" in names:
            find_assets()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that end the trouble come last; the order is left as it is otherwise."""
    items.sort(key=lambda item: "mended" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def programs() -> Programs:
    """Prometheus and promtool."""
    return find_prometheus()


@pytest.fixture(scope="module")
def stage(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """All that runs. Its alerts are the real ones, but wait for a second only."""
    with monitored(
        tmp_path_factory.mktemp("monitored"), groups=monitoring.hastened(monitoring.groups()), programs=programs
    ) as running:
        yield running


@pytest.fixture(scope="module")
def fleets(stage: Stage) -> story.Fleets:
    """Four fleets that have seen some trouble, and are in it. Leave them so."""
    return story.trouble(stage, max_paused_seconds=1)


@pytest.fixture(scope="module")
def mended(fleets: story.Fleets) -> None:
    """The trouble is over, for the rest of the file."""
    story.mending(fleets)


@pytest.fixture
def make_fleet(stage: Stage) -> Iterator[Callable[[str], Fleet]]:
    """Makes a fleet of the test's own."""
    made: list[Fleet] = []

    def make(name: str) -> Fleet:
        made.append(stage.fleet(name))
        return made[-1]

    yield make
    for fleet in made:
        stage.remove(fleet)
