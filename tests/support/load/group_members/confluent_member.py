"""A member of a group by confluent-kafka: commits as it goes, and all it has read when partitions are taken from it."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from support.load.group_members.told import (
    CLASSIC,
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    WITHOUT_OFFSETS,
    Voice,
    listen,
)


def main() -> None:
    told, leaving = listen()
    voice = Voice()
    config: dict[str, Any] = {
        "bootstrap.servers": told.bootstrap,
        "group.id": told.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 50,
        "reconnect.backoff.max.ms": 200,
    }
    if told.protocol == CLASSIC:
        config["partition.assignment.strategy"] = told.strategy
        config |= {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS}
    else:
        config |= {"group.protocol": told.protocol, "group.remote.assignor": told.strategy}
    if told.instance is not None:
        config["group.instance.id"] = told.instance
    consumer: Any = Consumer(config)  # the types of `commit` want a literal
    positions: dict[int, int] = {}

    def commit(partitions: set[int], *, waits: bool) -> None:
        offsets = [TopicPartition(told.topic, one, positions[one]) for one in partitions & positions.keys()]
        try:
            if offsets:
                consumer.commit(offsets=offsets, asynchronous=not waits)
        except KafkaException:
            pass  # what is not committed is read again

    def on_revoke(_: Consumer, partitions: list[TopicPartition]) -> None:
        taken = {one.partition for one in partitions}
        commit(taken, waits=True)
        for one in taken:
            positions.pop(one, None)
        voice.revoked()

    consumer.subscribe([told.topic], on_revoke=on_revoke)
    while not leaving.is_set():
        offsets: dict[int, list[int]] = {}
        for message in consumer.consume(1_000, timeout=0.05):
            partition, offset, error = message.partition(), message.offset(), message.error()
            if error is not None and error.str().startswith(WITHOUT_OFFSETS):
                consumer.unsubscribe()
                consumer.subscribe([told.topic], on_revoke=on_revoke)
            if error is None and partition is not None and offset is not None:
                offsets.setdefault(partition, []).append(offset)
        for partition, found in offsets.items():
            voice.read(partition, found)
            positions[partition] = found[-1] + 1
        commit(set(offsets), waits=False)
        voice.owns({one.partition for one in consumer.assignment()})
    if told.instance is None:
        # Not `close` alone: its own revocation may wait for ever (tests/compat/confluent_kafka/FINDINGS.md).
        consumer.unsubscribe()
        while consumer.assignment():
            consumer.consume(1, timeout=0.05)
    commit(set(positions), waits=True)
    consumer.close()
    voice.closed()


if __name__ == "__main__":
    main()
