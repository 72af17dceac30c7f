"""librdkafka, through confluent-kafka. With `--all-connections` it keeps a connection to each broker."""

from __future__ import annotations

import sys
import threading
import time
from functools import partial

import confluent_kafka
from lines import EVERY_SECONDS, Arguments, arguments, say_acknowledged, say_read, value_of

DEBUG = {"debug": "broker,metadata,topic"}


def read(given: Arguments, settings: dict[str, str]) -> None:
    if given.group_protocol is None:
        consumer = confluent_kafka.Consumer(settings | {"group.id": given.topic, "enable.auto.commit": "false"})
        consumer.assign([confluent_kafka.TopicPartition(given.topic, 0, confluent_kafka.OFFSET_END)])
    else:
        consumer = confluent_kafka.Consumer(
            settings | {"group.id": given.topic, "group.protocol": given.group_protocol}
        )
        consumer.subscribe([given.topic])
    while True:
        record = consumer.poll(1.0)
        if record is None:
            continue
        if error := record.error():
            print(error, file=sys.stderr, flush=True)
        else:
            say_read(record.value())


def on_delivery(sent_ns: int, error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
    if error is None:
        say_acknowledged(sent_ns)
    else:
        print(error, file=sys.stderr, flush=True)


def main() -> None:
    given = arguments()
    settings = {"bootstrap.servers": given.bootstrap, **(DEBUG if given.is_debugged else {})}
    if "--all-connections" in sys.argv:
        settings |= {"enable.sparse.connections": "false"}
    threading.Thread(target=read, args=(given, settings | {"client.id": "reader"}), daemon=True).start()
    producer = confluent_kafka.Producer(settings | {"acks": "all", "client.id": "writer"})
    while True:
        sent_ns = time.time_ns()
        producer.produce(given.topic, value_of(sent_ns), partition=0, on_delivery=partial(on_delivery, sent_ns))
        producer.poll(0)
        until = time.monotonic() + EVERY_SECONDS
        while (left := until - time.monotonic()) > 0:
            producer.poll(left)


if __name__ == "__main__":
    main()
