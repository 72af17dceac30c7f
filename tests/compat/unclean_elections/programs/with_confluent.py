"""confluent-kafka (librdkafka): `auto.offset.reset=error`; the producer idempotent, with `enable.gapless.guarantee`."""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from compat.unclean_elections.programs.lines import Arguments, Reader, Send, arguments, say, write_all


def consumer_of(given: Arguments, reset: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": given.bootstrap,
            "group.id": given.group,
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
        }
    )


def read(consumer: Consumer, last: str) -> None:
    reader = Reader(last)
    while not reader.is_done:
        message = consumer.poll(0.2)
        if message is None:
            reader.on_nothing()
        elif (error := message.error()) is not None:
            reader.on_error(error.name(), None, error.str())
        else:
            reader.on_record(message.offset() or 0, (message.value() or b"").decode())


def write(given: Arguments) -> None:
    def on_error(error: KafkaError) -> None:
        if error.fatal():
            say("lost", error.name(), "-", error.str())

    def new_producer() -> Send:
        producer = Producer(
            {
                "bootstrap.servers": given.bootstrap,
                "enable.idempotence": True,
                "enable.gapless.guarantee": True,
                "error_cb": on_error,
            }
        )

        def send(value: str) -> Callable[[], int]:
            delivered: list[tuple[KafkaError | None, Message]] = []
            producer.produce(given.topic, value.encode(), partition=0, on_delivery=lambda *fate: delivered.append(fate))

            def wait() -> int:
                producer.flush(30)
                error, message = delivered[0]
                if error is not None:
                    raise KafkaException(error)
                return message.offset() or 0

            return wait

        return send

    write_all(new_producer, lambda error: (error.args[0].name(), None))


def main() -> None:
    given = arguments()
    say("version", "confluent-kafka", confluent_kafka.version())
    if given.role == "write":
        write(given)
        return
    consumer = consumer_of(given, "earliest" if given.role == "commit" else "error")
    if given.role == "read":
        consumer.assign([TopicPartition(given.topic, 0, 0)])
    else:
        consumer.subscribe([given.topic])
    read(consumer, given.last)
    if given.role == "commit":
        consumer.commit(asynchronous=False)
        say("committed")
    consumer.close()


if __name__ == "__main__":
    main()
