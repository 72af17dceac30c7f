"""`tidelog spark`: what concerns Spark's queries, and needs no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tidelog.cli.command import argument, log_level_option, option, start_logging
from tidelog.cli.output import Row, Rows, Section, Sections

if TYPE_CHECKING:
    from tidelog.spark.checkpoints import SourceOffset

_CONNECTORS = {
    "tidelog": "of format tidelog",
    "kafka": "of Spark's Kafka connector",
    "other": "of another format",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOffsets:
    """Print where the query of a CHECKPOINT stands, as the option `startingOffsets` of a new query has it.

    CHECKPOINT is what `checkpointLocation` is: a path, or a URI (s3:, s3a:, hdfs:, gs:, abfss:), which needs
    `pip install 'tidelog[spark]'`. It may be of a query that reads with Tidelog's source or with Spark's own Kafka
    connector. The offsets are those of the newest committed batch. A batch that is planned and not committed may have
    reached the sink; a new query reads it again. Stop the query first.

    `--output value` prints the offsets alone, one line for each source.

    Examples:

        tidelog spark offsets /data/checkpoints/flights
        tidelog spark offsets s3a://lake/checkpoints/flights --output value
    """

    checkpoint: str = argument(metavar="CHECKPOINT")
    output: str = option(
        "--output", "-o", type=click.Choice(["table", "json", "value"]), default="table", help="How to print it."
    )
    log_level: str = log_level_option()

    def run(self) -> Sections | Rows:
        from tidelog.spark.checkpoints import OTHER, Checkpoint
        from tidelog.spark.offsets import CheckpointError

        start_logging(self.log_level)
        opened = Checkpoint(self.checkpoint)
        planned, committed = opened.planned(), opened.committed()
        if not committed:
            said = f"batch {planned[-1]} is planned" if planned else "none is planned either"
            raise CheckpointError(
                f"checkpoint {opened.location} has no committed batch ({said}): the query has finished nothing, so it "
                "can begin anew where it began"
            )
        newest = committed[-1]
        try:
            sources = opened.sources(newest)
        except FileNotFoundError:
            raise CheckpointError(
                f"checkpoint {opened.location}: commits/{newest} is there, and offsets/{newest} is not: it is damaged"
            ) from None
        known = [one for one in sources if one.connector != OTHER]
        if not known:
            raise CheckpointError(
                f"checkpoint {opened.location} is of a query that reads neither with Tidelog's source nor with Spark's "
                "Kafka connector: it has no offsets of a log"
            )
        if self.output == "value":
            return Rows({"starting_offsets": _compact(one)} for one in known)
        pending = [number for number in planned if number > newest]
        return Sections(_sections(known, newest, pending[-1] if pending else None))


def _sections(sources: list[SourceOffset], newest: int, pending: int | None) -> Iterator[Section]:
    for one in sources:
        has_epochs = one.connector == "tidelog"
        title = [f"source {one.source}, {_CONNECTORS[one.connector]}: where batch {newest} ends, the newest committed"]
        if pending is not None:
            title.append(
                f"batch {pending} is planned and not committed: a part of it may have reached the sink, and a new "
                "query reads it again"
            )
        if not has_epochs:
            title.append(
                "it holds no leader epochs: whether the log was truncated below these offsets before now cannot be seen"
            )
        facts: Row = {
            "source": one.source,
            "connector": one.connector,
            "batch": newest,
            "pending_batch": pending,
            "has_epochs": has_epochs,
            "starting_offsets": one.starting_offsets(),
        }
        positions = {} if one.stream is None else one.stream.positions
        rows = [
            {
                "topic": key.topic,
                "partition": key.partition,
                "offset": offset,
                "leader_epoch": positions[key].leader_epoch if key in positions else None,
            }
            for key, offset in sorted(one.offsets.items())
        ]
        title.append(f"startingOffsets={_compact(one)}")
        yield Section("\n".join(title), facts, Rows(rows, nothing="nothing was read yet"))


def _compact(one: SourceOffset) -> str:
    return json.dumps(one.starting_offsets(), separators=(",", ":"))
