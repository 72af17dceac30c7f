"""Write a topic to Parquet files by Arrow, without a Python object for any record.

    python examples/kafka_to_parquet.py 127.0.0.1:9092 orders archive DIRECTORY --until-end

A file holds some records of all partitions. It appears under its name when it is whole, and only then its offsets are
committed: no record is left out, and after a crash the records of one file may be in the next one again (`topic`,
`partition` and `offset` tell). Needs `pip install 'tidelog[arrow]'`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog import Consumer, TopicPartition

ROWS_PER_FILE = 1_000_000
SECONDS_PER_FILE = 60.0


def write(batches: list[pa.RecordBatch], directory: Path) -> Path:
    """One file, whole or not at all."""
    table = pa.Table.from_batches(batches)
    path = directory / f"{time.time_ns()}.parquet"
    unfinished = path.with_suffix(".unfinished")
    pq.write_table(table, unfinished, compression="zstd")
    return unfinished.rename(path)


def archive(consumer: Consumer, directory: Path, *, until_end: bool) -> None:
    """File after file; until nothing comes any more, if that is wanted."""
    batches: list[pa.RecordBatch] = []
    rows, begun_at = 0, time.monotonic()
    while True:
        batch = consumer.poll_arrow(timeout_ms=2_000)
        if batch.num_rows:
            batches.append(batch)
            rows += batch.num_rows
        is_last = until_end and not batch.num_rows
        is_due = rows >= ROWS_PER_FILE or time.monotonic() - begun_at >= SECONDS_PER_FILE
        if batches and (is_due or is_last):
            path = write(batches, directory)
            consumer.commit()  # all that was read is in files now
            print(f"{path.name}: {rows} rows", flush=True)
            batches, rows, begun_at = [], 0, time.monotonic()
        if is_last:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("group")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--until-end", action="store_true", help="end when nothing comes for two seconds")
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    # A rebalance would give away partitions whose rows are in no file yet: this program takes all of them itself.
    with Consumer(
        arguments.bootstrap, group_id=arguments.group, auto_offset_reset="none", enable_auto_commit=False
    ) as consumer:
        topic = arguments.topic
        partitions = [TopicPartition(topic, index) for index in consumer.partitions_for(topic)]
        consumer.assign(partitions, start="earliest")
        archive(consumer, arguments.directory, until_end=arguments.until_end)


if __name__ == "__main__":
    main()
