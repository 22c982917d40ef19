"""Which pods a confirmation names."""

from llmservice.client.pods import Pod, is_listed_in_full, number_confirmed, pods_of
from llmservice.client.snapshot import Snapshot
from llmservice_testing.builders import Json
from llmservice_testing.stored import make_stored, make_target


def confirmed(*targets: Json) -> Snapshot:
    return Snapshot(make_stored().set("paused", by="trainer").reported("True", targets=list(targets)).obj())


def named(snapshot: Snapshot) -> list[tuple[str, tuple[str, ...]]]:
    return [(pod.name, pod.urls) for pod in pods_of(snapshot.service.status.target_states)]


def test_each_pod_is_named_with_all_its_engines() -> None:
    found = confirmed(make_target("b"), make_target("a", port=8001), make_target("a"))
    assert named(found) == [("a", ("http://a:8001", "http://a:8000")), ("b", ("http://b:8000",))]
    (first, _) = pods_of(found.service.status.target_states)
    assert isinstance(first, Pod)
    assert (first.uid, first.engines[0].version, first.engines[0].state) == ("uid-of-a", "0.32.0", "paused")


def test_what_is_asleep_is_named_and_what_is_starting_is_not() -> None:
    found = confirmed(make_target("awake"), make_target("asleep", "sleeping"), make_target("new", "starting"))
    assert [name for name, _ in named(found)] == ["asleep", "awake"]
    assert number_confirmed(found.service) == 2


def test_the_status_names_at_most_64() -> None:
    assert is_listed_in_full(confirmed(*(make_target(f"qwen-{n}") for n in range(64))).service)
    assert not is_listed_in_full(confirmed(*(make_target(f"qwen-{n}") for n in range(65))).service)
