"""Copy a topic into another, so that each record counts once, whatever is killed meanwhile: the copier, or a node.

    python examples/exactly_once_copy.py 127.0.0.1:9092 orders invoices copier-1

Both topics have the same partitions. The last argument names the copier: one copier runs under a name, and a restarted
one goes on where the last committed transaction ended. Ctrl-C ends it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress

from tidelog import Admin, Consumer, Position, Producer, TopicPartition, TransactionAbortableError


def committed_positions(bootstrap: str, group: str, partitions: list[TopicPartition]) -> dict[TopicPartition, Position]:
    """Where the last committed transaction ended, with leader epochs, so that a truncation in between is noticed."""
    with Admin(bootstrap) as admin:
        found = admin.list_group_offsets(group, partitions)
    return {partition: Position(at.offset, at.leader_epoch) for partition, at in found.items()}


def go_to(consumer: Consumer, positions: Mapping[TopicPartition, Position]) -> None:
    """Read on from these positions, and from the beginning of the other partitions."""
    for partition in consumer.assignment():
        if partition in positions:
            consumer.seek(partition, positions[partition])
        else:
            consumer.seek_to_beginning([partition])


def copy(bootstrap: str, source: str, target: str, name: str) -> None:
    """Copy until something fails that no retry repairs."""
    with (
        Producer(bootstrap, transactional_id=name) as producer,
        Consumer(bootstrap, isolation_level="read_committed", auto_offset_reset="earliest") as consumer,
    ):
        # First the name, then the positions: a predecessor that still runs can commit nothing from here on.
        producer.init_transactions()
        partitions = [TopicPartition(source, index) for index in consumer.partitions_for(source)]
        positions = committed_positions(bootstrap, name, partitions)
        consumer.assign(partitions)
        go_to(consumer, positions)
        while True:
            records = consumer.poll(timeout_ms=1_000, max_records=100)
            if not records:
                continue
            try:
                with producer.transaction() as transaction:
                    for record in records:
                        transaction.send(target, record.value, record.key, partition=record.partition)
                    transaction.send_offsets(records.next_offsets(), name)
            except TransactionAbortableError as error:
                print(f"aborted, and done again: {error}", file=sys.stderr)
                go_to(consumer, positions)
            else:
                positions |= records.next_offsets()


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    with suppress(KeyboardInterrupt):  # what was open is aborted
        copy(*sys.argv[1:])
