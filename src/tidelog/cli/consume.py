"""`tidelog consume`: the records of a topic, as they come."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tidelog.base.errors import OffsetOutOfRangeError, TidelogError, TimedOutError
from tidelog.base.ids import Offset, PartitionIndex, TopicPartition
from tidelog.cli.client_settings import client_arguments
from tidelog.cli.command import (
    INT64_MAX,
    UsageError,
    WholeNumber,
    argument,
    bootstrap_option,
    log_level_option,
    option,
    start_logging,
    timeout_ms,
    timeout_option,
)
from tidelog.cli.output import LiveRows, Row

if TYPE_CHECKING:
    from tidelog.client.consumer import Consumer
    from tidelog.client.core.values import ConsumerRecord
    from tidelog.client.options import Isolation

POLL_MS = 500
RECORDS_PER_POLL_MAX = 5_000


class StartOffset(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """`earliest`, `latest`, or an offset."""

    name = "offset"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int | str:
        text = str(value)
        if text in ("earliest", "latest"):
            return text
        if not text.isdecimal() or int(text) > INT64_MAX:
            self.fail(f"{text!r} is not earliest, latest or an offset from 0", parameter, context)
        return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consume:
    """Print the records of TOPIC, and wait for more until Ctrl-C.

    Prints values as they are. `--output json` tells offset, leader epoch, timestamp, key and headers too, one object
    a line; a key or value that is not UTF-8 becomes {"base64": "…"}.

    If the log was truncated below what was printed already, says so and ends with status 1: nothing is skipped.

    Examples:

        tidelog consume greetings --from-beginning
        tidelog consume greetings --partition 0 --offset 57 --count 10 --output json
        tidelog consume greetings --from-beginning --no-follow | wc -l
    """

    topic: str = argument(metavar="TOPIC")
    partition: int | None = option(
        "--partition", type=WholeNumber(), default=None, metavar="N", help="Only this one, not all."
    )
    offset: int | str = option(
        "--offset",
        type=StartOffset(),
        default="latest",
        metavar="earliest|latest|N",
        help="Where to start; a number needs --partition if there are several.",
    )
    from_beginning: bool = option("--from-beginning", is_flag=True, help="The same as --offset earliest.")
    count: int | None = option(
        "--count", "-n", type=WholeNumber(1), default=None, metavar="N", help="Stop after N records."
    )
    no_follow: bool = option("--no-follow", is_flag=True, help="Stop at what was the end when this started.")
    isolation_level: Isolation = option(
        "--isolation-level",
        type=click.Choice(["read_uncommitted", "read_committed"]),
        default="read_uncommitted",
        help="Whether to leave out what transactions did not commit.",
    )
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = option(
        "--output", "-o", type=click.Choice(["value", "table", "json"]), default="value", help="How to print records."
    )
    log_level: str = log_level_option()

    def run(self) -> LiveRows:
        if self.from_beginning and self.offset not in ("latest", "earliest"):
            raise UsageError(f"--from-beginning and --offset {self.offset} exclude each other; leave one out")
        start_logging(self.log_level)
        return LiveRows(
            columns=("partition", "offset", "leader_epoch", "timestamp", "key", "value"),
            batches=self._batches(),
        )

    def _batches(self) -> Iterator[list[Row]]:
        from tidelog import Consumer

        options = client_arguments(
            self.bootstrap,
            "consumer",
            auto_offset_reset="none",
            isolation_level=self.isolation_level,
            client_id="tidelog-consume",
            default_api_timeout_ms=timeout_ms(self.timeout),
        )
        consumer = Consumer(**options)
        with consumer:
            partitions = self._partitions(consumer)
            consumer.assign(partitions)
            self._seek(consumer, partitions)
            ends = self._ends(consumer, partitions) if self.no_follow else {}
            left = self.count
            before: list[Offset] = []
            since = time.monotonic()
            while left is None or left > 0:
                positions = [consumer.position(key).offset for key in partitions]
                behind = [pair for pair in zip(partitions, positions, strict=True) if pair[1] < ends.get(pair[0], 0)]
                if self.no_follow and not behind:
                    return
                if positions != before:
                    before, since = positions, time.monotonic()
                elif behind and time.monotonic() - since > self.timeout:
                    partition, position = behind[0]
                    raise TimedOutError(
                        f"{partition}: read up to offset {position} of {ends[partition]}, and nothing came for "
                        f"{self.timeout:g} s: does its leader serve? See `tidelog topics describe {self.topic}`"
                    )
                records = consumer.poll(POLL_MS, min(RECORDS_PER_POLL_MAX, left or RECORDS_PER_POLL_MAX))
                rows = [
                    row_of(found)
                    for found in records
                    if not self.no_follow or found.offset < ends[(found.topic, found.partition)]
                ]
                if left is not None:
                    left -= len(rows)
                yield rows

    def _ends(self, consumer: Consumer, partitions: list[TopicPartition]) -> dict[tuple[str, int], int]:
        """Where to stop. Raises `OffsetOutOfRangeError` if that lies before where to start."""
        ends: dict[tuple[str, int], int] = {
            (key.topic, key.partition): found.offset for key, found in consumer.end_offsets(partitions).items()
        }
        if isinstance(self.offset, int) and self.offset > ends[partitions[0]]:
            (start,) = consumer.beginning_offsets(partitions[:1]).values()
            raise OffsetOutOfRangeError(
                partitions[0], offset=self.offset, log_start_offset=start.offset, end_offset=ends[partitions[0]]
            )
        return ends

    def _partitions(self, consumer: Consumer) -> list[TopicPartition]:
        found = sorted(consumer.partitions_for(self.topic))
        if not found:
            raise TidelogError(f"there is no topic {self.topic!r}; see `tidelog topics list`")
        if self.partition is None:
            if isinstance(self.offset, int) and len(found) > 1:
                raise UsageError(
                    f"{self.topic} has {len(found)} partitions: say which --offset {self.offset} is meant for, "
                    "by --partition"
                )
            return [TopicPartition(self.topic, PartitionIndex(index)) for index in found]
        if self.partition not in found:
            raise TidelogError(f"{self.topic} has no partition {self.partition}; it has {found[0]} to {found[-1]}")
        return [TopicPartition(self.topic, PartitionIndex(self.partition))]

    def _seek(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if isinstance(self.offset, int):
            consumer.seek(partitions[0], self.offset)
        elif self.from_beginning or self.offset == "earliest":
            consumer.seek_to_beginning(partitions)
        else:
            consumer.seek_to_end(partitions)


def row_of(record: ConsumerRecord) -> Row:
    """A record as a row, under the names of Kafka's own tools."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "leader_epoch": record.leader_epoch,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type,
        "key": record.key,
        "value": record.value,
        "headers": [{"key": key, "value": value} for key, value in record.headers],
    }
