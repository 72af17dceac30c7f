"""kafka-python."""

from __future__ import annotations

import logging
import threading
import time
from functools import partial

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from lines import EVERY_SECONDS, Arguments, arguments, say_acknowledged, say_read, value_of


def read(given: Arguments) -> None:
    bootstrap = given.bootstrap.split(",")
    if given.group_protocol is None:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, client_id="reader")
        partition = TopicPartition(given.topic, 0)
        consumer.assign([partition])
        consumer.seek_to_end(partition)
    else:
        consumer = KafkaConsumer(given.topic, bootstrap_servers=bootstrap, client_id="reader", group_id=given.topic)
    for record in consumer:
        say_read(record.value)


def main() -> None:
    given = arguments()
    logging.basicConfig(
        level=logging.DEBUG if given.is_debugged else logging.CRITICAL, format="%(asctime)s %(name)s %(message)s"
    )
    threading.Thread(target=read, args=(given,), daemon=True).start()
    producer = KafkaProducer(bootstrap_servers=given.bootstrap.split(","), acks="all", client_id="writer")
    while True:
        sent_ns = time.time_ns()
        outcome = producer.send(given.topic, value_of(sent_ns), partition=0)
        outcome.add_callback(partial(_on_acknowledged, sent_ns))
        time.sleep(EVERY_SECONDS)


def _on_acknowledged(sent_ns: int, _: object) -> None:
    say_acknowledged(sent_ns)


if __name__ == "__main__":
    main()
