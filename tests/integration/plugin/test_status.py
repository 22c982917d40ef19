"""`kubectl llm status`: what is shown of fleets and engines, once and living."""

import json
import os
import pty
import re
import select
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from llmservice_testing.cluster import wait_until
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, Kubectl
from llmservice_testing.simulator import Fault, Options

from .conftest import KubectlPlugin, Plugin

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[[0-9;]+m")


def rows(text: str) -> list[list[str]]:
    """Cells of a table; those of a row that are empty are left out."""
    return [[cell for cell in re.split(r"\s{2,}", line.strip()) if cell] for line in text.splitlines()]


def set_generation(fleet: Fleet, generation: str, *, by: str) -> None:
    """As another client does it."""
    fleet.cluster.request(
        "PATCH",
        f"/apis/llmservice.io/v1alpha1/namespaces/{fleet.namespace}/llmservices/{fleet.name}",
        body={"spec": {"generation": generation}},
        content_type="application/merge-patch+json",
        fieldManager=by,
    )


@pytest.mark.usefixtures("operator")
def test_a_fleet_and_each_engine_are_shown_with_state_version_and_what_is_in_the_way(fleet: Fleet, llm: Plugin) -> None:
    fleet.add(version="0.31.0")
    fleet.add(options=Options(dev_mode=False))
    fleet.declare("paused")
    fleet.wait("Stalled")
    fleet.wait_for_targets(total=2, paused=1, failed=1)
    head, service, failed, paused = rows(llm.ok("status", "qwen"))
    assert head == ["FLEET/POD", "DESIRED", "STATE", "VERSION", "SET BY", "IN THE WAY"]
    assert service[:3] == ["qwen", "paused", "1 paused, 1 failed"]
    assert service[-1] == "Stalled, EndpointMissing: qwen-1"
    assert failed[:2] == ["qwen-1", "failed"]
    assert failed[2].startswith("EndpointMissing: GET /is_paused answered 404")
    assert paused == ["qwen-0", "paused", "0.31.0"]
    assert fleet.members[0].engine.url in llm.ok("status", "-o", "wide")


@pytest.mark.usefixtures("without_operator")
def test_case_54_who_last_set_generation_is_named_whoever_else_changed_the_object(fleet: Fleet, llm: Plugin) -> None:
    fleet.declare()
    set_generation(fleet, "paused", by="trainer")
    fleet.patch(resyncSeconds=7)  # by somebody else, later
    said = llm.ok("status", "qwen")
    assert "trainer, " in said
    set_generation(fleet, "running", by="night-shift")
    said = llm.ok("status", "qwen")
    assert "night-shift, " in said
    assert "trainer" not in said


@pytest.mark.usefixtures("without_operator")
def test_a_status_about_an_older_spec_is_not_shown_as_the_state(fleet: Fleet, llm: Plugin) -> None:
    fleet.declare("paused")
    service = rows(llm.ok("status"))[1]
    assert service[2] == "unknown"
    assert service[-1] == ("the operator has not answered to this change yet (observedGeneration -1, generation 1)")


@pytest.mark.usefixtures("without_operator")
def test_all_namespaces_names_and_objects(make_fleet: Callable[..., Fleet], llm: Plugin, kubectl: Kubectl) -> None:
    for name in ("one", "two"):
        fleet = make_fleet(name=name)
        fleet.declare("running")
    shown = [row[0] for row in rows(llm.ok("status", "-A"))]
    assert {f"{fleet.namespace}/one", f"{fleet.namespace}/two"} <= set(shown)
    assert llm.ok("status", "-o", "name") == "llmservice.llmservice.io/one\nllmservice.llmservice.io/two\n"
    assert json.loads(llm.ok("status", "one", "-o", "json")) == json.loads(
        kubectl("get", "llmservice", "one", "-o", "json").stdout
    )
    done = llm("status", "one", "three")
    assert done.status == 6
    assert [row[0] for row in rows(done.output)] == ["FLEET/POD", "one"]
    assert f"namespace {fleet.namespace} has no LLMService three" in done.errors


def test_an_empty_namespace_is_no_error(llm: Plugin) -> None:
    done = llm("status")
    assert (done.status, done.output) == (0, "")
    assert "No LLMServices found in namespace" in done.errors


# Living


@pytest.mark.usefixtures("operator")
def test_in_a_pipe_watch_prints_a_line_for_each_change(fleet: Fleet, kubectl_llm: KubectlPlugin) -> None:
    fleet.grow(2)
    fleet.declare("running")
    fleet.wait("Ready")
    watching = kubectl_llm.start("status", "--watch")
    assert "desired='running' state='running 2/2'" in watching.line(f"{fleet.namespace}/qwen")
    set_generation(fleet, "paused", by="trainer")
    assert "set by='trainer, " in watching.line("state='paused 2/2")
    fleet.delete()
    watching.line(f"{fleet.namespace}/qwen is gone")
    assert watching.interrupt().status == 0


class Terminal:
    """A command on a terminal of 160 columns, and all that it drew."""

    def __init__(self, plugin: KubectlPlugin, *arguments: str, **environment: str) -> None:
        self._main, terminal = pty.openpty()
        self._process = subprocess.Popen(
            plugin.words(*arguments),
            env=plugin.environment | {"TERM": "xterm-256color"} | environment,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
        )
        os.close(terminal)
        self.drawn = ""

    def until(self, words: str) -> str:
        """What was drawn since the last table began, once it shows `words`; without colours and movements."""

        def look() -> str | None:
            last = self._plain().rpartition("FLEET/POD")[2]
            return last if words in last else None

        return wait_until(look, PATIENCE_SECONDS, what=f"{words!r} on the screen", last=lambda: self.drawn[-3000:])

    def drawn_until(self, words: str) -> None:
        """Returns when these words were drawn at any time."""
        wait_until(lambda: words in self._plain(), PATIENCE_SECONDS, what=f"{words!r} on the screen")

    def _plain(self) -> str:
        while select.select([self._main], [], [], 0)[0]:
            try:
                self.drawn += os.read(self._main, 65536).decode(errors="replace")
            except OSError:  # the other end is closed
                break
        return CONTROL.sub("", self.drawn).replace("\r", "")

    def end(self) -> int:
        """Ctrl-C; returns the exit status."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        """Ends it, if it has not."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._main)


@pytest.fixture
def on_terminal(kubectl_llm: KubectlPlugin) -> Iterator[Callable[..., Terminal]]:
    """Runs commands on terminals."""
    opened: list[Terminal] = []

    def make(*arguments: str, **environment: str) -> Terminal:
        opened.append(Terminal(kubectl_llm, *arguments, **environment))
        return opened[-1]

    yield make
    for terminal in opened:
        terminal.close()


@pytest.mark.usefixtures("operator")
def test_on_a_terminal_watch_redraws_the_table_as_it_changes(
    fleet: Fleet, on_terminal: Callable[..., Terminal]
) -> None:
    fleet.grow(2)
    fleet.declare("running")
    fleet.wait("Ready")
    screen = on_terminal("status", "--watch")
    assert "qwen-1" in screen.until("running 2/2")
    set_generation(fleet, "paused", by="trainer")
    frame = screen.until("paused 2/2")
    assert "trainer, " in frame
    assert "running" not in frame
    assert COLOUR.search(screen.drawn)
    assert screen.end() == 0


@pytest.mark.usefixtures("operator")
def test_on_a_terminal_a_change_shows_what_it_waits_for_and_leaves_only_its_result(
    fleet: Fleet, on_terminal: Callable[..., Terminal]
) -> None:
    member = fleet.add()
    fleet.declare("running")
    member.engine.faults.script("/pause", Fault.slow(before=2.0))
    screen = on_terminal("pause", "qwen")
    screen.drawn_until("qwen waiting for paused: ")
    screen.drawn_until("llmservice.llmservice.io/qwen paused: 1 target confirmed, mode abort, clearCache true")
    assert screen.drawn.index("\x1b[2K") > 0  # the living line is taken away


@pytest.mark.usefixtures("operator")
def test_colour_is_for_terminals_only_and_no_color_is_heeded(
    fleet: Fleet, kubectl_llm: KubectlPlugin, on_terminal: Callable[..., Terminal]
) -> None:
    fleet.paused(1)
    assert "\x1b" not in kubectl_llm("status").output
    coloured = on_terminal("status")
    coloured.until("paused 1/1")
    assert re.search(r"\x1b\[32m", coloured.drawn)
    plain = on_terminal("status", NO_COLOR="1")
    plain.until("paused 1/1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", plain.drawn)


@pytest.mark.usefixtures("operator")
def test_watch_goes_on_through_an_outage_of_the_api_server_and_says_that_it_is_old(
    fleet: Fleet, kubectl_llm: KubectlPlugin, on_terminal: Callable[..., Terminal], control_plane: ControlPlane
) -> None:
    fleet.paused(1)
    screen = on_terminal("status", "-w")
    screen.until("paused 1/1")
    control_plane.stop_apiserver()
    try:
        screen.drawn_until("as it was")
    finally:
        control_plane.start_apiserver()
    set_generation(fleet, "running", by="trainer")
    screen.until("running 1/1")
