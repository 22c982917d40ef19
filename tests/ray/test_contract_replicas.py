"""Replicas that differ, come and go: what the aggregate tells of them, and what it hides."""

from .conftest import Subject


async def test_is_paused_is_true_where_one_replica_alone_is_paused(subject: Subject) -> None:
    first, second = await subject.replicas.paused()

    await subject.replicas.pause(first)

    assert await subject.replicas.paused() == {first: True, second: False}
    assert await subject.client.is_paused()


async def test_is_paused_hides_a_replica_that_runs(subject: Subject) -> None:
    await subject.client.pause(mode="keep", clear_cache=False)
    first, second = await subject.replicas.paused()

    await subject.replicas.resume(first)

    assert await subject.replicas.paused() == {first: False, second: True}
    assert await subject.client.is_paused()


async def test_a_repeated_pause_reaches_the_replica_that_runs(subject: Subject) -> None:
    await subject.client.pause(mode="keep", clear_cache=False)
    first, _ = await subject.replicas.paused()
    await subject.replicas.resume(first)

    await subject.client.pause(mode="keep", clear_cache=False)

    assert set((await subject.replicas.paused()).values()) == {True}


async def test_is_paused_is_false_only_where_all_run(subject: Subject) -> None:
    await subject.client.pause(mode="keep", clear_cache=False)
    first, second = await subject.replicas.paused()

    await subject.replicas.resume(first)
    assert await subject.client.is_paused()
    await subject.replicas.resume(second)
    assert not await subject.client.is_paused()


async def test_workers_are_told_apart_by_number_and_in_no_order(subject: Subject) -> None:
    numbers = await subject.client.worker_numbers()
    assert len(numbers) == len(set(numbers)) == 2

    await subject.client.pause(mode="keep", clear_cache=False)
    assert sorted(await subject.client.worker_numbers()) == sorted(numbers)
    assert await subject.client.is_paused()
    await subject.client.resume()

    assert sorted(await subject.client.worker_numbers()) == sorted(numbers)


async def test_a_drain_keeps_no_one_from_telling_workers_apart(subject: Subject) -> None:
    numbers = await subject.client.worker_numbers()
    request = subject.client.begin_completion(subject.longest_tokens)
    await request.begun()
    pause = subject.client.begin_pause(mode="wait")
    await subject.client.until_paused(True)

    assert sorted(await subject.client.worker_numbers()) == sorted(numbers)

    assert not pause.done()
    assert (await request).tokens == subject.longest_tokens


async def test_a_replica_that_is_added_during_a_pause_runs_and_is_paused_hides_it(subject: Subject) -> None:
    await subject.client.pause(mode="keep", clear_cache=False)
    before = await subject.replicas.paused()
    numbers = set(await subject.client.worker_numbers())

    await subject.replicas.scale(3)

    after = await subject.replicas.paused()
    [added] = after.keys() - before.keys()
    assert after == {**dict.fromkeys(before, True), added: False}
    assert await subject.client.is_paused()
    assert set(await subject.client.worker_numbers()) > numbers, "the added one is told apart"

    await subject.client.pause(mode="keep", clear_cache=False)
    assert set((await subject.replicas.paused()).values()) == {True}


async def test_a_replica_that_is_replaced_during_a_pause_runs_and_is_paused_hides_it(subject: Subject) -> None:
    await subject.client.pause(mode="keep", clear_cache=False)
    killed, kept = await subject.replicas.paused()
    numbers = set(await subject.client.worker_numbers())

    await subject.replicas.replace(killed)

    after = await subject.replicas.paused()
    [replacement] = after.keys() - {kept}
    assert after == {kept: True, replacement: False}
    assert await subject.client.is_paused()
    assert len(set(await subject.client.worker_numbers()) & numbers) == 1
