"""What transactional ids take in memory: counted as they change, and bounded."""

from __future__ import annotations

import random

import pytest

from support.fixtures.coordinated_transactions import A, B, CoordinatedTransactions
from tidelog.base.errors import Code
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.coordinator.transactions import ProducerIdentity
from tidelog.coordinator.transactions.state import ID_BYTES, PARTITION_BYTES

MANY = [TopicPartition("data", PartitionIndex(index)) for index in range(100)]


def test_an_id_that_finds_no_room_is_refused_and_others_go_on() -> None:
    world = CoordinatedTransactions(memory_bytes=3 * ID_BYTES)
    producer = world.begun(transactional_id="t")
    world.begun(transactional_id="second")
    batches = len(world.batches)
    assert world.refused(world.init(transactional_id="third")) is Code.THROTTLING_QUOTA_EXCEEDED
    assert sorted(world.coordinator.transactions) == ["second", "t"]
    assert len(world.batches) == batches
    world.added(producer, A)
    again = world.begun(transactional_id="second")
    assert again.producer_epoch == 1


def test_a_partition_that_finds_no_room_is_refused_and_the_transaction_goes_on() -> None:
    world = CoordinatedTransactions(memory_bytes=2 * ID_BYTES)
    producer = world.opened(A, B)
    assert world.refused(world.add(producer, *MANY)) is Code.THROTTLING_QUOTA_EXCEEDED
    assert world.transaction.partitions == {A, B}
    world.added(producer, A)  # it is there
    world.memory.limit_bytes = world.memory.used_bytes - 1
    world.added(producer, A, version=0)  # what is written takes no more than before
    assert world.refused(world.add(producer, MANY[-1])) is Code.THROTTLING_QUOTA_EXCEEDED
    following = world.completed(producer)
    world.memory.limit_bytes = 1 << 20
    world.added(following, *MANY)


def test_a_request_that_finds_no_room_to_wait_is_to_come_again() -> None:
    world = CoordinatedTransactions()
    following = world.ended(world.opened(A))
    before = world.memory.used_bytes
    replaced = world.add(following, *MANY)
    assert world.memory.used_bytes > before + PARTITION_BYTES * len(MANY)
    waits = world.add(following, B)
    assert world.refused(replaced) is Code.CONCURRENT_TRANSACTIONS
    assert before < world.memory.used_bytes < before + PARTITION_BYTES * len(MANY)
    world.disconnect(waits)
    assert world.memory.used_bytes == before
    world.memory.limit_bytes = before
    assert world.refused(world.add(following, B)) is Code.CONCURRENT_TRANSACTIONS


def test_what_is_above_the_bound_after_a_fail_over_stays() -> None:
    world = CoordinatedTransactions()
    for name in "abc":
        world.begun(transactional_id=name)
    world.memory.limit_bytes = ID_BYTES
    world.fail_over()
    assert sorted(world.coordinator.transactions) == ["a", "b", "c"]
    assert world.memory.used_bytes > 3 * ID_BYTES
    assert world.refused(world.init(transactional_id="d")) is Code.THROTTLING_QUOTA_EXCEEDED


def test_an_id_that_nobody_used_gives_its_memory_back() -> None:
    world = CoordinatedTransactions()
    world.begun(transactional_id="t")
    world.pass_ms(world.settings.expiration_ms + world.settings.expiry_check_interval_ms)
    assert (world.coordinator.transactions, world.memory.used_bytes) == ({}, 0)


@pytest.mark.parametrize("seed", range(5))
def test_the_books_balance_whatever_producers_do(seed: int) -> None:
    rng = random.Random(seed)
    world = CoordinatedTransactions()
    producers: dict[str, ProducerIdentity] = {}
    for _ in range(300):
        name = rng.choice("abc")
        producer = producers.get(name)
        what = rng.randrange(5)
        if producer is None or what == 0:
            answer = world.answers.get(world.init(transactional_id=name))
            if isinstance(answer, ProducerIdentity):
                producers[name] = answer
        elif what < 3:
            world.add(producer, *rng.sample(MANY, rng.randint(1, 9)), transactional_id=name)
        elif what == 3:
            answer = world.answers.get(world.end(producer, transactional_id=name))
            if isinstance(answer, ProducerIdentity):
                producers[name] = answer
        elif world.sends:
            world.mark(rng.choice(list(world.sends.values())).destination)
        else:
            world.pass_ms(rng.randint(1, 2_000))
    waiting = world.coordinator._waiting._requests
    assert world.coordinator._waiting._ids == {one.request_id: name for name, one in waiting.items()}
    world.fail_over()
    expected = sum(
        ID_BYTES + len(name) + PARTITION_BYTES * len(one.partitions)
        for name, one in world.coordinator.transactions.items()
    )
    assert world.memory.used_bytes == expected
