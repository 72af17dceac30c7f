"""`tidelog groups`: list, describe and delete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.base.errors import Code
from tidelog.cli.command import (
    argument,
    bootstrap_option,
    log_level_option,
    open_admin,
    option,
    output_option,
    timeout_option,
)
from tidelog.cli.deletion import delete_each
from tidelog.cli.output import Row, Rows

if TYPE_CHECKING:
    from tidelog.base.ids import TopicPartition
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.group_descriptions import GroupDescription, GroupMember
    from tidelog.client.core.values import OffsetAndEpoch

SHARE = "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups:
    """List the groups of all kinds, those without members included.

    Example:

        tidelog groups list --state Stable
    """

    state: tuple[str, ...] = option(
        "--state", multiple=True, metavar="STATE", help="Only those in it, such as Stable or Empty. May be repeated."
    )
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            listed = admin.list_groups(self.state)
        rows = [
            {"group": each.group_id, "state": each.state, "type": each.type, "protocol_type": each.protocol_type}
            for each in listed
        ]
        return Rows(rows, nothing="no groups")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroups:
    """Show how far each GROUP has read, how much is left (LAG), and who reads; without a name, of all groups.

    Examples:

        tidelog groups describe billing
        tidelog groups describe billing --members
    """

    groups: tuple[str, ...] = argument(metavar="[GROUP]...", nargs=-1)
    members: bool = option("--members", is_flag=True, help="The members with what they read, instead of the offsets.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            names = self.groups or tuple(listing.group_id for listing in admin.list_groups())
            described = admin.describe_groups(names).values()
            if self.members:
                rows = [row for group in described for row in _member_rows(group)]
            else:
                rows = [row for group in described for row in _offset_rows(admin, group)]
        return Rows(rows, nothing="no members" if self.members else "nothing was committed")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroups:
    """Delete each GROUP, with the offsets that it committed. It must have no members.

    Example:

        tidelog groups delete billing
    """

    groups: tuple[str, ...] = argument(metavar="GROUP...", nargs=-1, required=True)
    if_exists: bool = option("--if-exists", is_flag=True, help="It is no failure if one is not there.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            return delete_each(
                self.groups,
                lambda group: admin.delete_groups([group]),
                absent=Code.GROUP_ID_NOT_FOUND,
                may_be_absent=self.if_exists,
            )


def end_offsets(admin: Admin, partitions: list[TopicPartition]) -> dict[TopicPartition, OffsetAndEpoch]:
    """Where the logs end that are still there: a group may have committed for a topic that was deleted since."""
    there = {name for name in {each.topic for each in partitions} if _exists(admin, name)}
    latest = admin.list_offsets({each: "latest" for each in partitions if each.topic in there})
    return {partition: offset for partition, offset in latest.items() if offset is not None}


def _exists(admin: Admin, topic: str) -> bool:
    from tidelog.base.errors import UnknownTopicError

    try:
        admin.describe_topics([topic])
    except UnknownTopicError:
        return False
    return True


def _offset_rows(admin: Admin, group: GroupDescription) -> list[Row]:
    if group.protocol_type == SHARE:
        return _share_offset_rows(admin, group)
    committed = admin.list_group_offsets(group.group_id)
    readers = {partition: member for member in group.members for partition in member.partitions}
    partitions = sorted({*committed, *readers})
    ends = end_offsets(admin, partitions)
    rows: list[Row] = []
    for partition in partitions:
        position, end, reader = committed.get(partition), ends.get(partition), readers.get(partition)
        rows.append(
            {
                "group": group.group_id,
                "state": group.state,
                "topic": partition.topic,
                "partition": partition.partition,
                "committed": None if position is None else position.offset,
                "leader_epoch": None if position is None else position.leader_epoch,
                "log_end": None if end is None else end.offset,
                "lag": None if position is None or end is None else max(0, end.offset - position.offset),
                "client": None if reader is None else reader.client_id,
                "host": None if reader is None else reader.client_host,
            }
        )
    return rows


def _share_offset_rows(admin: Admin, group: GroupDescription) -> list[Row]:
    """Several members may read a partition, and what lies behind the offset may be done already."""
    offsets = admin.list_share_group_offsets(group.group_id)
    readers: dict[TopicPartition, list[GroupMember]] = {}
    for member in group.members:
        for partition in member.partitions:
            readers.setdefault(partition, []).append(member)
    partitions = sorted({*offsets, *readers})
    ends = end_offsets(admin, partitions)
    rows: list[Row] = []
    for partition in partitions:
        position, end, members = offsets.get(partition), ends.get(partition), readers.get(partition, [])
        rows.append(
            {
                "group": group.group_id,
                "state": group.state,
                "topic": partition.topic,
                "partition": partition.partition,
                "committed": None if position is None else position.start_offset,
                "leader_epoch": None,
                "log_end": None if end is None else end.offset,
                "lag": None if position is None else position.lag,
                "client": ", ".join(member.client_id for member in members) or None,
                "host": ", ".join(dict.fromkeys(member.client_host for member in members)) or None,
            }
        )
    return rows


def _member_rows(group: GroupDescription) -> list[Row]:
    return [
        {
            "group": group.group_id,
            "state": group.state,
            "client": member.client_id,
            "host": member.client_host,
            "instance": member.group_instance_id,
            "protocol": group.protocol,
            "partitions": [f"{partition.topic}-{partition.partition}" for partition in member.partitions],
            "member": member.member_id,
        }
        for member in group.members
    ]
