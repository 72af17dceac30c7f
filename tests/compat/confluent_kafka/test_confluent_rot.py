"""Rot that no checksum covers: librdkafka passes over records that a wrong base offset hides, unless it gets none."""

from __future__ import annotations

import time
from struct import Struct

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from support.clients.confluent import Sent, create_topic, new_producer, produce

INT64 = Struct(">q")
BATCHES, RECORDS, ROTTEN = 20, 16, 9
SECONDS = 8


def test_no_record_is_passed_over_where_a_base_offset_rotted(start_node, topic: str) -> None:  # type: ignore[no-untyped-def]
    node = start_node(config={"log.segment.bytes": "16384"})
    try:
        create_topic(AdminClient({"bootstrap.servers": node.bootstrap}), topic)
        values = [b"%d-" % index + b"x" * 40 for index in range(BATCHES * RECORDS)]
        for batch in range(BATCHES):
            producer = new_producer(node.bootstrap, linger_ms=200)
            produce(producer, topic, [Sent(value) for value in values[batch * RECORDS : (batch + 1) * RECORDS]])
        node.stop()
        path = next(node.data_dir.rglob(f"{topic}-0/*0000.log"))
        data = bytearray(path.read_bytes())
        at = 0
        while INT64.unpack_from(data, at)[0] < ROTTEN * RECORDS:
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        rotten = INT64.unpack_from(data, at)[0]
        INT64.pack_into(data, at, rotten + 16)
        path.write_bytes(data)
        node.restart()
        found, errors = read_for(node.bootstrap, topic, SECONDS)
        assert found == list(enumerate(values))[:rotten]
        assert errors == {KafkaError.INVALID_MSG}  # CORRUPT_MESSAGE: nobody else has them
    finally:
        node.close()


def read_for(bootstrap: str, topic: str, seconds: float) -> tuple[list[tuple[int, bytes]], set[int]]:
    """Offsets and values that a consumer is given from the start on, and the errors."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "rot", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes]] = []
    errors: set[int] = set()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            message = consumer.poll(0.2)
        except KafkaException as error:
            errors.add(error.args[0].code())
            continue
        if message is None:
            continue
        failure = message.error()
        if failure is not None:
            errors.add(failure.code())
        else:
            found.append((message.offset() or 0, message.value() or b""))
    consumer.close()
    return found, errors
