"""`tidelog groups reset-offsets`: let a group read again, or skip."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.cli.command import (
    INT64_MAX,
    UsageError,
    WholeNumber,
    argument,
    bootstrap_option,
    log_level_option,
    open_admin,
    option,
    output_option,
    timeout_option,
)
from tidelog.cli.groups import SHARE
from tidelog.cli.output import Row, Rows

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.client.core.values import CommittedOffset


class TopicPartitions(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """`TOPIC`, or `TOPIC:0,2` for some of its partitions."""

    name = "topic"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> tuple[str, tuple[int, ...]]:
        if isinstance(value, tuple):
            return value
        topic, colon, numbers = str(value).partition(":")
        parts = numbers.split(",") if colon else []
        if not topic or not all(part.isascii() and part.isdecimal() for part in parts):
            self.fail(f"{value!r} is not TOPIC or TOPIC:PARTITION,…", parameter, context)
        return topic, tuple(map(int, parts))


class Timestamp(click.ParamType):  # type: ignore[type-arg]  # as above
    """A time in ISO 8601, in local time unless it says otherwise; as ms since 1970."""

    name = "time"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return round(datetime.fromisoformat(str(value)).timestamp() * 1_000)
        except ValueError:
            self.fail(f"{value!r} is not a time like 2030-01-31T18:00 or 2030-01-31T18:00Z", parameter, context)


def is_share_group(admin: Admin, group: str) -> bool:
    """Whether there is a share group of that name (KIP-932)."""
    from tidelog.base.errors import Code, KafkaError

    try:
        return admin.describe_groups([group])[group].protocol_type == SHARE
    except KafkaError as error:
        if error.code is Code.GROUP_ID_NOT_FOUND:
            return False
        raise


def share_offsets(admin: Admin, group: str) -> dict[TopicPartition, CommittedOffset]:
    """Where a share group stands."""
    from tidelog import CommittedOffset

    return {each: CommittedOffset(one.start_offset) for each, one in admin.list_share_group_offsets(group).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsets:
    """Change from where GROUP reads on: show what would change, and change it with --execute.

    The group must have no members: stop its consumers first. Offsets beyond a log's ends are taken back to them. A
    share group forgets what it has done from there on.

    Examples:

        tidelog groups reset-offsets billing --topic flights --to-earliest
        tidelog groups reset-offsets billing --topic flights:0,2 --to-time 2030-01-31T18:00 --execute
        tidelog groups reset-offsets billing --all-topics --shift-by -100 --execute
    """

    group: str = argument(metavar="GROUP")
    topic: tuple[tuple[str, tuple[int, ...]], ...] = option(
        "--topic",
        type=TopicPartitions(),
        multiple=True,
        metavar="TOPIC[:N,…]",
        help="A topic, or some of its partitions. May be repeated.",
    )
    all_topics: bool = option("--all-topics", is_flag=True, help="Everything that the group committed for.")
    to_earliest: bool = option("--to-earliest", is_flag=True, help="To where each log starts.")
    to_latest: bool = option("--to-latest", is_flag=True, help="To where each log ends.")
    to_offset: int | None = option(
        "--to-offset", type=WholeNumber(0, INT64_MAX), default=None, metavar="N", help="To this offset."
    )
    to_time: int | None = option(
        "--to-time", type=Timestamp(), default=None, metavar="TIME", help="To the first record at or after it."
    )
    shift_by: int | None = option(
        "--shift-by",
        type=WholeNumber(-INT64_MAX, INT64_MAX),
        default=None,
        metavar="N",
        help="So many further; negative: back.",
    )
    execute: bool = option("--execute", is_flag=True, help="Do it, rather than show it.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        self._check()
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            is_share = is_share_group(admin, self.group)
            committed = share_offsets(admin, self.group) if is_share else admin.list_group_offsets(self.group)
            partitions = self._partitions(admin, list(committed))
            targets = self._targets(admin, partitions, committed)
            if self.execute and is_share:
                admin.alter_share_group_offsets(self.group, {each: to.offset for each, to in targets.items()})
            elif self.execute:
                admin.alter_group_offsets(self.group, targets)
        rows: list[Row] = [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "from": committed[partition].offset if partition in committed else None,
                "to": target.offset,
                "leader_epoch": target.leader_epoch,
                "done": self.execute,
            }
            for partition, target in targets.items()
        ]
        return Rows(rows, nothing="the group committed nothing")

    def _check(self) -> None:
        ways = [self.to_earliest, self.to_latest, *(each is not None for each in self._numbers())]
        if sum(ways) != 1:
            raise UsageError("say where to, once: --to-earliest, --to-latest, --to-offset, --to-time or --shift-by")
        if self.all_topics == bool(self.topic):
            raise UsageError("say of what: --topic TOPIC, or --all-topics")

    def _numbers(self) -> tuple[int | None, ...]:
        return self.to_offset, self.to_time, self.shift_by

    def _partitions(self, admin: Admin, committed: list[TopicPartition]) -> list[TopicPartition]:
        if self.all_topics:
            return sorted(committed)
        described = admin.describe_topics(dict.fromkeys(name for name, _ in self.topic))
        found = set[TopicPartition]()
        for name, chosen in self.topic:
            there = [each.partition for each in described[name].partitions]
            for index in chosen:
                if index not in there:
                    raise UsageError(f"topic {name} has no partition {index}: it has {len(there)}, from 0 on")
            found |= {TopicPartition(name, PartitionIndex(index)) for index in chosen or there}
        return sorted(found)

    def _targets(
        self, admin: Admin, partitions: list[TopicPartition], committed: dict[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Where each partition is to be read from, with the leader epoch where the log tells it."""
        from tidelog import CommittedOffset

        starts = admin.list_offsets(dict.fromkeys(partitions, "earliest"))
        ends = admin.list_offsets(dict.fromkeys(partitions, "latest"))
        time = self.to_time
        at_time = {} if time is None else admin.list_offsets(dict.fromkeys(partitions, time))

        def target(partition: TopicPartition) -> CommittedOffset:
            start, end = starts[partition], ends[partition]
            assert start is not None
            assert end is not None
            low, high = CommittedOffset(start.offset, start.leader_epoch), CommittedOffset(end.offset, end.leader_epoch)
            if self.to_earliest:
                return low
            if self.to_latest:
                return high
            if self.to_time is not None:
                found = at_time[partition]
                return high if found is None else CommittedOffset(found.offset, found.leader_epoch)
            if self.shift_by is None:
                assert self.to_offset is not None
                wanted = self.to_offset
            elif partition in committed:
                wanted = committed[partition].offset + self.shift_by
            else:
                raise UsageError(f"{partition}: nothing was committed that could be shifted; name another way")
            return low if wanted <= low.offset else high if wanted >= high.offset else CommittedOffset(wanted)

        return {partition: target(partition) for partition in partitions}
