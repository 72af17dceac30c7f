"""Share the work of a topic among threads, and among as many processes as run this program with the same group.

    python examples/worker_group.py 127.0.0.1:9092 orders billing --workers 4

Each record is worked on at least once: it is committed when its work is done. Ctrl-C ends the program: each worker
finishes its record first.
"""

from __future__ import annotations

import argparse
import logging
import signal
import threading

from tidelog import Consumer, ConsumerRecord, TopicPartition, WakeupError


def work(worker: str, record: ConsumerRecord[str | None, str]) -> None:
    """What is to be done with a record: put your own here."""
    logging.info("%s: %s-%d at %d: %s", worker, record.topic, record.partition, record.offset, record.value)


def run(worker: str, consumer: Consumer[str | None, str], topic: str) -> None:
    """Work until somebody wakes the consumer."""

    def tell(what: str, partitions: list[TopicPartition]) -> None:
        logging.info("%s: %s %s", worker, what, [one.partition for one in partitions])

    with consumer:
        consumer.subscribe(
            [topic],
            start="earliest",
            on_assigned=lambda partitions: tell("works on", partitions),
            on_revoked=lambda partitions: tell("gives up", partitions),
        )
        try:
            for record in consumer:
                work(worker, record)
                consumer.commit(record)
        except WakeupError:
            logging.info("%s: is done", worker)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("group")
    parser.add_argument("--workers", type=int, default=4)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    consumers = [
        Consumer(
            arguments.bootstrap,
            group_id=arguments.group,
            auto_offset_reset="none",  # a loss is raised, and ends the program
            enable_auto_commit=False,
            partition_assignment_strategy=["cooperative-sticky"],
            value_deserializer=bytes.decode,
        )
        for _ in range(arguments.workers)
    ]
    threads = [
        threading.Thread(target=run, args=(f"worker {number}", consumer, arguments.topic))
        for number, consumer in enumerate(consumers, 1)
    ]
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    for thread in threads:
        thread.start()
    while not stop.wait(0.2) and all(thread.is_alive() for thread in threads):
        pass
    for consumer in consumers:
        consumer.wakeup()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
