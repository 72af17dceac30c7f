"""`tidelog log directories` and `tidelog log move`: in which directories of a broker the logs lie."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.cli.command import (
    WholeNumber,
    argument,
    bootstrap_option,
    log_level_option,
    open_admin,
    option,
    output_option,
    timeout_option,
)
from tidelog.cli.output import Row, Rows

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.log_dirs import LogDescription

LOOK_AGAIN_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowLogDirectories:
    """Show what lies in the log directories of brokers, and what is on its way to another.

    OFFSET_LAG of a copy is how many offsets it is behind the log whose place it will take.

    Examples:

        tidelog log directories
        tidelog log directories --broker 1 --topic flights
    """

    broker: tuple[int, ...] = option(
        "--broker", multiple=True, type=WholeNumber(), metavar="ID", help="Only of this one."
    )
    topic: tuple[str, ...] = option("--topic", multiple=True, metavar="TOPIC", help="Only logs of this one.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            found = admin.describe_log_dirs(self.broker or None)
        rows: list[Row] = []
        for broker_id, directories in found.items():
            for path, each in directories.items():
                of_directory: Row = {"broker": broker_id, "directory": path}
                if each.error is not None:
                    rows.append({**of_directory, "state": each.error.code.name})
                wanted = [log for log in each.logs if not self.topic or log.partition.topic in self.topic]
                rows += [{**of_directory, **_of_log(log)} for log in wanted]
        return Rows(rows, nothing="no logs")


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLog:
    """Move replicas of TOPIC that a broker has to another of its log directories. They are served all the while.

    Named with the directory where it lies, a replica stays there, and a move of it is ended.
    `replica.alter.log.dirs.io.max.bytes.per.second` of the broker says how fast it copies.

    Ends with status 1 if a replica is not moved.

    Example:

        tidelog log move flights --partition 0 --broker 1 --to /disks/2/tidelog --wait
    """

    topic: str = argument(metavar="TOPIC")
    partition: tuple[int, ...] = option(
        "--partition", type=WholeNumber(), multiple=True, metavar="N", help="Only this one. May be repeated."
    )
    broker: int = option("--broker", type=WholeNumber(), required=True, metavar="ID", help="Whose replicas.")
    to: str = option("--to", required=True, metavar="DIR", help="One of the log.dirs of that broker.")
    wait: bool = option("--wait", is_flag=True, help="Return when they lie there.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        target = os.path.abspath(self.to)
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            partitions = [TopicPartition(self.topic, PartitionIndex(index)) for index in self.partition]
            if not partitions:
                states = admin.describe_topics([self.topic])[self.topic].partitions
                partitions = [
                    TopicPartition(self.topic, PartitionIndex(each.partition))
                    for each in states
                    if self.broker in each.replicas
                ]
            outcomes = admin.alter_replica_log_dirs({(self.broker, each): target for each in partitions})
            refused = [error for error in outcomes.values() if error is not None]
            if refused:
                raise KafkaError(str(refused[0]), code=refused[0].code)
            if self.wait:
                _wait_until_moved(admin, self.broker, partitions)
            rows = [{"directory": path, **_of_log(log)} for path, log in _logs_of(admin, self.broker, partitions)]
        return Rows(rows, nothing="nothing to move: the broker has no replica of it")


def _logs_of(admin: Admin, broker_id: int, partitions: list[TopicPartition]) -> list[tuple[str, LogDescription]]:
    if not partitions:
        return []
    directories = admin.describe_log_dirs([broker_id], partitions)[broker_id]
    return [(path, log) for path, each in directories.items() for log in each.logs]


def _wait_until_moved(admin: Admin, broker_id: int, partitions: list[TopicPartition]) -> None:
    """Return when none of them is on its way. Ctrl-C ends the waiting, not the way."""
    while any(log.is_future for _, log in _logs_of(admin, broker_id, partitions)):
        time.sleep(LOOK_AGAIN_SECONDS)


def _of_log(log: LogDescription) -> Row:
    return {
        "topic": log.partition.topic,
        "partition": log.partition.partition,
        "state": "copy" if log.is_future else "log",
        "size_bytes": log.size_bytes,
        "offset_lag": log.offset_lag,
    }
