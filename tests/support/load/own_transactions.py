"""Stories of our own transactional producers, which end in the same way on every broker that speaks the protocol."""

from __future__ import annotations

import pytest

from tidelog import (
    Admin,
    ConfigResource,
    Consumer,
    KafkaError,
    Position,
    Producer,
    ProducerFencedError,
    TimedOutError,
    TopicPartition,
    TransactionAbortableError,
    aio,
)
from tidelog.client.options import Isolation
from tidelog.records import read_records, split_batches

__all__ = [
    "aborted_is_not_read",
    "another_takes_over",
    "offsets_and_output_together",
    "open_for_too_long",
    "prepared_and_resumed",
    "refused_and_gone_on",
]

WAIT_MS = 20_000


def reader(bootstrap: str, topic: str, isolation_level: Isolation = "read_committed") -> Consumer:
    """A consumer that stands at the beginning of partition 0."""
    consumer: Consumer = Consumer(bootstrap, auto_offset_reset="earliest", isolation_level=isolation_level)
    consumer.assign([TopicPartition(topic, 0)])
    return consumer


def values(bootstrap: str, topic: str, count: int, isolation_level: Isolation = "read_committed") -> list[bytes | None]:
    """The values of the first records of partition 0."""
    found: list[bytes | None] = []
    with reader(bootstrap, topic, isolation_level) as consumer:
        while len(found) < count:
            records = consumer.poll(WAIT_MS)
            assert records, f"only {found} of {count} records came"
            found += [record.value for record in records]
    return found


def fail(producer: Producer, topic: str) -> None:
    with producer.transaction() as transaction:
        transaction.send(topic, b"aborted", partition=0).result()
        raise ZeroDivisionError


def aborted_is_not_read(bootstrap: str, topic: str) -> None:
    """Nor what is open, nor markers: in records, Arrow and batches."""
    partition = TopicPartition(topic, 0)
    with Producer(bootstrap, transactional_id=topic) as producer, Producer(bootstrap) as plain:
        with producer.transaction() as transaction:
            transaction.send(topic, b"0", partition=0)
        with pytest.raises(ZeroDivisionError):
            fail(producer, topic)
        with producer.transaction() as transaction:
            transaction.send(topic, b"1", partition=0)
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0).result()
        plain.send(topic, b"behind", partition=0).result()
        every = [b"0", b"aborted", b"1", b"open", b"behind"]
        assert values(bootstrap, topic, 5, "read_uncommitted") == every
        assert values(bootstrap, topic, 2) == [b"0", b"1"]
        with reader(bootstrap, topic) as consumer:
            arrow: list[bytes] = []
            while len(arrow) < 2:
                arrow += consumer.poll_arrow(WAIT_MS, columns=["value"]).column("value").to_pylist()
            assert consumer.poll(500) == []  # the open transaction holds up what is behind it
            end = consumer.statistics()[partition].last_stable_offset
            assert consumer.end_offsets([partition])[partition].offset == end == consumer.position(partition).offset
        with reader(bootstrap, topic) as consumer:
            batches: list[bytes | None] = []
            while len(batches) < 2:
                for fetched in consumer.poll_batches(WAIT_MS):
                    for at, header in split_batches(fetched.buffer):
                        assert not header.is_control
                        batches += [record.value for record in read_records(fetched.buffer, at, header)]
        assert arrow == batches == [b"0", b"1"]
        producer.abort_transaction()
    assert values(bootstrap, topic, 3) == [b"0", b"1", b"behind"]


def offsets_and_output_together(bootstrap: str, topic: str) -> None:
    """The group has no members: its partitions are assigned by hand."""
    partition = TopicPartition(topic, 1)

    def committed() -> list[tuple[int, int | None]]:
        with Admin(bootstrap) as admin:
            found = admin.list_group_offsets(topic, [partition])
        return [(at.offset, at.leader_epoch) for at in found.values()]

    with Producer(bootstrap) as plain:
        plain.send(topic, b"input", partition=1).result()
    with (
        Producer(bootstrap, transactional_id=topic) as producer,
        Consumer(bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([partition])
        records = consumer.poll(WAIT_MS)
        positions = records.next_offsets()
        assert positions == {partition: Position(1, 0)}
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"lost", partition=0)
        producer.send_offsets_to_transaction(positions, topic)
        producer.abort_transaction()
        assert committed() == []
        with producer.transaction() as transaction:
            for record in records:
                transaction.send(topic, record.value, partition=0)
            transaction.send_offsets(positions, topic)
        with producer.transaction() as transaction:  # comes behind the markers of the one before
            transaction.send(topic, b"next", partition=0)
            transaction.send_offsets({partition: Position(1, 0)}, topic)
        assert values(bootstrap, topic, 2) == [b"input", b"next"]
        assert committed() == [(1, 0)]


def another_takes_over(bootstrap: str, topic: str) -> None:
    """The transaction of the older one is aborted, and it says that it is fenced."""
    with Producer(bootstrap, transactional_id=topic) as older, Producer(bootstrap, transactional_id=topic) as newer:
        older.init_transactions()
        older.begin_transaction()
        older.send(topic, b"older", partition=0).result()
        newer.init_transactions()
        with newer.transaction() as transaction:
            transaction.send(topic, b"newer", partition=0)
        with pytest.raises(ProducerFencedError, match=f"transactional id '{topic}'"):
            older.commit_transaction()
        with pytest.raises(ProducerFencedError):
            older.send(topic, b"again", partition=0)
        with newer.transaction() as transaction:
            transaction.send(topic, b"newest", partition=0)
    assert values(bootstrap, topic, 2) == [b"newer", b"newest"]


def refused_and_gone_on(bootstrap: str, topic: str) -> None:
    """What a leader, or a group's coordinator, refuses aborts its transaction, and the next one counts from anew."""
    with Admin(bootstrap) as admin:
        admin.alter_configs({ConfigResource("topic", topic): {"max.message.bytes": "1000"}})
    with Producer(bootstrap, transactional_id=topic, default_api_timeout_ms=4_000) as producer:
        for number in range(2):
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic, b"taken", partition=0).result()
            refused = producer.send(topic, b"x" * 2_000, partition=0)
            with pytest.raises(TransactionAbortableError, match="MESSAGE_TOO_LARGE"):
                producer.commit_transaction()
            assert refused.exception(0) is not None
            producer.abort_transaction()
            with producer.transaction() as transaction:
                transaction.send(topic, b"%d" % number, partition=0)
        producer.begin_transaction()
        with pytest.raises(TimedOutError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            producer.send_offsets_to_transaction({TopicPartition("nowhere", 0): 1}, topic)
        producer.abort_transaction()
        with producer.transaction() as transaction:
            transaction.send(topic, b"2", partition=0)
    assert values(bootstrap, topic, 3) == [b"0", b"1", b"2"]


def open_for_too_long(bootstrap: str, topic: str) -> None:
    """The coordinator aborts it, and fences its producer."""
    with Producer(bootstrap, transactional_id=topic, transaction_timeout_ms=100) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"late", partition=0).result()
        with Producer(bootstrap) as plain:
            plain.send(topic, b"behind", partition=0).result()
        assert values(bootstrap, topic, 1) == [b"behind"]
        with pytest.raises(ProducerFencedError):
            producer.commit_transaction()


async def prepared_and_resumed(bootstrap: str, topic: str) -> None:
    """By a producer that has no transactions of its own. What it commits twice is committed once."""
    prepared = []
    for number in range(2):
        async with (
            aio.Producer(bootstrap, transactional_id=f"{topic}-{number}") as producer,
            producer.transaction() as transaction,
        ):
            await transaction.send(topic, b"%d" % number, partition=0)
            prepared.append(await transaction.prepare())
    async with aio.Producer(bootstrap) as plain:
        await (await plain.send(topic, b"behind", partition=0))
        first, second = (plain.resume_transaction(*one) for one in prepared if one is not None)
        await first.commit()
        await first.commit()
        await second.abort()
        again = plain.resume_transaction(*prepared[0])  # type: ignore[misc]
        await again.commit()
        with pytest.raises(KafkaError):
            await plain.resume_transaction(*prepared[1]).commit()  # type: ignore[misc]
    async with aio.Producer(bootstrap, transactional_id=f"{topic}-0") as producer:  # the id goes on
        with pytest.raises(TransactionAbortableError):
            await fail_to_send(producer, topic)
        async with producer.transaction() as transaction:
            await transaction.send(topic, b"next", partition=0)
    found: list[bytes | None] = []
    async with aio.Consumer(bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while len(found) < 3:
            found += [record.value for record in await consumer.poll(WAIT_MS)]
    assert found == [b"0", b"behind", b"next"]


async def fail_to_send(producer: aio.Producer, topic: str) -> None:
    async with producer.transaction() as transaction:
        await transaction.send(topic, b"first", partition=0)
        with pytest.raises(KafkaError, match="no partition 7"):
            await transaction.send(topic, b"second", partition=7)
