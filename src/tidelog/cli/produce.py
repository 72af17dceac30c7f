"""`tidelog produce`: lines of stdin become records."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

import click
from click.core import ParameterSource

from tidelog.base.errors import TidelogError
from tidelog.cli.client_settings import client_arguments
from tidelog.cli.command import (
    KeyValue,
    UsageError,
    WholeNumber,
    argument,
    bootstrap_option,
    log_level_option,
    option,
    output_option,
    start_logging,
    timeout_ms,
    timeout_option,
)
from tidelog.cli.output import Row, Rows

if TYPE_CHECKING:
    from tidelog.client.core.values import RecordMetadata
    from tidelog.client.futures import Future
    from tidelog.client.options import Acks, CompressionType

UNACKNOWLEDGED_RECORDS_MAX = 50_000
"""Lines read ahead of the broker's acknowledgements; reading waits beyond that."""


@dataclass(slots=True)
class PartitionTally:
    """What one partition took in. Offsets are None where the broker was not asked for them (acks=0)."""

    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None


@dataclass(slots=True)
class Tally:
    """What came of the records, by partition, in the order in which they were sent."""

    partitions: dict[int, PartitionTally] = field(default_factory=dict)
    failed: int = 0
    first_error: TidelogError | None = None

    def add(self, result: Future[RecordMetadata]) -> None:
        """Count one record; waits for its acknowledgement."""
        error = result.exception()
        if error is not None:
            self.failed += 1
            self.first_error = self.first_error or error
            return
        written = result.result()
        tally = self.partitions.setdefault(written.partition, PartitionTally())
        tally.records += 1
        if written.offset is not None:
            tally.first_offset = written.offset if tally.first_offset is None else tally.first_offset
            tally.last_offset = written.offset

    def rows(self, topic: str) -> Iterator[Row]:
        for partition, tally in sorted(self.partitions.items()):
            yield {
                "topic": topic,
                "partition": partition,
                "records": tally.records,
                "first_offset": tally.first_offset,
                "last_offset": tally.last_offset,
            }


@dataclass(frozen=True, slots=True, kw_only=True)
class Produce:
    """Write each line of standard input to TOPIC as a record.

    The topic is made if it is not there and the broker makes topics by itself (auto.create.topics.enable).
    Prints what each partition took. Ends with status 1 if any record was not acknowledged.

    Examples:

        echo 'hello' | tidelog produce greetings
        tidelog produce users --key-separator : --acks all < users.txt
    """

    topic: str = argument(metavar="TOPIC")
    key_separator: str | None = option(
        "--key-separator", "-k", default=None, metavar="TEXT", help="What parts a line into key and value."
    )
    partition: int | None = option(
        "--partition", type=WholeNumber(), default=None, metavar="N", help="Write to this one only."
    )
    header: tuple[tuple[str, str], ...] = option(
        "--header", type=KeyValue(), multiple=True, metavar="KEY=VALUE", help="A header of every record. Repeatable."
    )
    acks: Acks = option(
        "--acks", type=click.Choice(["all", "1", "0"]), default="all", help="Who must hold a record before it counts."
    )
    compression: CompressionType = option(
        "--compression",
        type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
        default="none",
        help="Of batches.",
    )
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option(
        "How long to look for a broker; if given, also for a record to be acknowledged, which else is 120."
    )
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        start_logging(self.log_level)
        from tidelog import Producer

        tally = Tally()
        headers = [(key, value.encode()) for key, value in self.header]
        context = click.get_current_context(silent=True)
        is_said = context is not None and context.get_parameter_source("timeout") is ParameterSource.COMMANDLINE
        options = client_arguments(
            self.bootstrap,
            "producer",
            **dict.fromkeys(("delivery_timeout_ms", "request_timeout_ms") if is_said else (), timeout_ms(self.timeout)),
            acks=self.acks,
            compression_type=self.compression,
            max_block_ms=timeout_ms(self.timeout),
            client_id="tidelog-produce",
        )
        producer = Producer(**options)
        with producer:
            unacknowledged: deque[Future[RecordMetadata]] = deque()
            for key, value in read_records(sys.stdin.buffer, self.key_separator):
                sent = producer.send(self.topic, value, key, partition=self.partition, headers=headers)
                unacknowledged.append(sent)
                while unacknowledged and (len(unacknowledged) > UNACKNOWLEDGED_RECORDS_MAX or unacknowledged[0].done()):
                    tally.add(unacknowledged.popleft())
            for sent in unacknowledged:
                tally.add(sent)
        if tally.failed:
            written = sum(partition.records for partition in tally.partitions.values())
            raise TidelogError(
                f"{tally.failed} of {tally.failed + written} records were not written to {self.topic}: "
                f"{tally.first_error}"
            )
        return Rows(
            tally.rows(self.topic),
            columns=("topic", "partition", "records", "first_offset", "last_offset"),
            nothing="no lines came in: nothing was written",
        )


def read_records(lines: BinaryIO | Iterable[bytes], key_separator: str | None) -> Iterator[tuple[bytes | None, bytes]]:
    """Key and value of each line, without its newline.

    Raises:
        UsageError: a line has no separator. Names the line; those before it are on their way.
    """
    if key_separator == "":
        raise UsageError("--key-separator is empty; give the text between key and value, for example ':'")
    separator = key_separator.encode() if key_separator is not None else None
    for number, line in enumerate(lines, start=1):
        text = line[:-1] if line.endswith(b"\n") else line
        if separator is None:
            yield None, text
            continue
        key, found, value = text.partition(separator)
        if not found:
            raise UsageError(f"line {number} has no {key_separator!r} between key and value; later lines were not read")
        yield key, value
