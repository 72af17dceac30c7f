"""Show the last records of a topic, and then each that comes, as `tail -f` does. Says so if the log loses some.

python examples/tail.py 127.0.0.1:9092 orders --last 10
"""

from __future__ import annotations

import argparse
from contextlib import suppress

from tidelog import Consumer, LogTruncatedError, TopicPartition


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("--last", type=int, default=10, help="of each partition")
    parser.add_argument("--no-follow", action="store_true", help="end at the end")
    arguments = parser.parse_args()
    with Consumer(arguments.bootstrap, auto_offset_reset="none") as consumer:
        topic = arguments.topic
        consumer.assign([TopicPartition(topic, index) for index in consumer.partitions_for(topic)], start="latest")
        consumer.seek_to_end(before=arguments.last)
        while True:
            try:
                for record in consumer.until_end() if arguments.no_follow else consumer:
                    text = (record.value or b"").decode(errors="replace")
                    print(f"{record.partition} {record.offset:>8} {text}", flush=True)
            except LogTruncatedError as lost:
                print(f"-- {lost.partition} lost what was shown from {lost.seek_to.offset} on")
                consumer.seek(lost.partition, lost.seek_to)
            else:
                break


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
