"""The readiness gate: out of the Service before any pause, back when every engine of the pod was read as running."""

import pytest

from llmservice.domain import gate
from llmservice.domain.fleet import NEVER, Gate, Sight
from llmservice.domain.gate import Attempt
from llmservice_testing.domain import Story, make_target, make_wanted

PAUSED, RUNNING, SLEEPING, INCONSISTENT = Sight.PAUSED, Sight.RUNNING, Sight.SLEEPING, Sight.INCONSISTENT
OPEN, CLOSED, UNSET = Gate(True, 1000.0), Gate(False, 1000.0), Gate(None)


def story(desired: str | None = "running", port: str = "8000") -> Story:
    return Story(make_wanted(desired), make_target(port=port))


def serving(*stories: Story) -> bool | None:
    return gate.wanted_serving(stories[0].wanted, [each.state for each in stories])


@pytest.mark.parametrize("sight", list(Sight))
def test_it_closes_when_paused_is_wanted_whatever_was_read(sight: Sight) -> None:
    assert serving(story("paused").read(sight)) is False


def test_it_closes_before_anything_was_read() -> None:
    assert serving(story("paused")) is False
    assert gate.wanted_serving(make_wanted("paused"), []) is False


@pytest.mark.parametrize("desired", ["running", None])
@pytest.mark.parametrize(
    ("sights", "opens"),
    [
        pytest.param([RUNNING], True, id="the only engine runs"),
        pytest.param([RUNNING, RUNNING], True, id="all run"),
        pytest.param([RUNNING, PAUSED], None, id="one is paused"),
        pytest.param([RUNNING, SLEEPING], None, id="one is asleep"),
        pytest.param([RUNNING, INCONSISTENT], None, id="ranks of one disagree"),
        pytest.param([PAUSED], None, id="none runs"),
    ],
)
def test_it_opens_when_all_targets_of_the_pod_were_read_as_running(
    desired: str | None, sights: list[Sight], opens: bool | None
) -> None:
    assert serving(*(story(desired, str(port)).read(sight) for port, sight in enumerate(sights))) is opens


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(story(port="8001"), id="never read"),
        pytest.param(story(port="8001").ask(), id="only asked"),
        pytest.param(story(port="8001").read(RUNNING).fail(), id="the last read failed"),
        pytest.param(story(port="8001").fail(), id="no read ever succeeded"),
        pytest.param(story(port="8001").read(RUNNING).verify(), id="a fresh read was asked for"),
        pytest.param(story(port="8001").read(PAUSED).call().answered(), id="called, and not read since"),
    ],
)
def test_it_stays_as_it_is_while_one_target_of_the_pod_is_not_known_to_run(last: Story) -> None:
    assert serving(story().read(RUNNING), last) is None


def test_it_does_not_open_by_a_read_from_before_the_resume_was_wanted() -> None:
    told = Story(make_wanted("paused")).read(RUNNING).respec("running")
    assert serving(told) is None
    assert serving(told.read(RUNNING)) is True


def test_it_does_not_open_without_any_target() -> None:
    assert gate.wanted_serving(make_wanted("running"), []) is None


@pytest.mark.parametrize(
    ("present", "wanted", "is_written"),
    [
        pytest.param(OPEN, False, True, id="close"),
        pytest.param(CLOSED, True, True, id="open"),
        pytest.param(UNSET, True, True, id="open for the first time"),
        pytest.param(UNSET, False, False, id="no condition yet is as good as closed"),
        pytest.param(OPEN, True, False, id="R14 open already"),
        pytest.param(CLOSED, False, False, id="R14 closed already"),
        pytest.param(OPEN, None, False, id="leave it open"),
        pytest.param(CLOSED, None, False, id="leave it closed"),
        pytest.param(UNSET, None, False, id="leave it unset"),
    ],
)
def test_it_is_written_only_where_it_differs(present: Gate, wanted: bool | None, is_written: bool) -> None:
    assert gate.is_to_be_set(present, wanted) is is_written


@pytest.mark.parametrize(
    ("present", "delay", "refused", "at"),
    [
        pytest.param(None, 30.0, None, -NEVER, id="a pod without the gate is not delayed"),
        pytest.param(UNSET, 30.0, None, -NEVER, id="no condition yet: no delay"),
        pytest.param(OPEN, 0.0, None, NEVER, id="never while it is open"),
        pytest.param(OPEN, 30.0, None, NEVER, id="never while it is open, with a delay"),
        pytest.param(CLOSED, 0.0, None, 1000.0, id="closed: at once"),
        pytest.param(OPEN, 0.0, Attempt(1005.0), 1005.0, id="a refused write delays by no more than the delay: none"),
        pytest.param(OPEN, 30.0, Attempt(1005.0), 1035.0, id="a refused write delays by no more than the delay"),
    ],
)
def test_when_a_pause_may_be_sent(present: Gate | None, delay: float, refused: Attempt | None, at: float) -> None:
    assert gate.pause_allowed_at(present, delay, refused) == at


def test_the_drain_delay_counts_from_the_transition_and_is_never_shorter_than_asked() -> None:
    at = gate.pause_allowed_at(CLOSED, 30.0, None)
    closed_at_latest = CLOSED.since + 1.0
    assert closed_at_latest + 30.0 <= at <= closed_at_latest + 31.0
