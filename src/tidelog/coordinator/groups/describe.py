"""What is told of groups to those who watch them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.base.errors import Code
from tidelog.coordinator.groups.consumer.describe_consumer_groups import CONSUMER
from tidelog.coordinator.groups.consumer.describe_consumer_groups import listed as listed_consumer_groups
from tidelog.coordinator.groups.group import Group, GroupState
from tidelog.coordinator.groups.group_journal import GroupJournal
from tidelog.coordinator.groups.share.describe_share_groups import SHARE
from tidelog.coordinator.groups.share.describe_share_groups import listed as listed_share_groups
from tidelog.wire.messages.api_15_describe_groups import DescribedGroup, DescribedGroupMember
from tidelog.wire.messages.api_16_list_groups import ListedGroup

CLASSIC = "classic"
NAMES_MISSING_GROUPS_SINCE = 6
"""The version of DescribeGroups from which on a group that is not there is an error, and no dead group (KIP-1043)."""


def described(journal: GroupJournal, group: Group | None, group_id: str, api_version: int) -> DescribedGroup:
    """A group with its members; what they want and got is told of a stable one only."""
    if group is None:
        if journal.state.has_offsets(group_id) and group_id not in journal.state.consumer_groups:
            return DescribedGroup(group_id=group_id, group_state=GroupState.EMPTY.value)
        missing = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if api_version >= NAMES_MISSING_GROUPS_SINCE:
            missing.error_code = Code.GROUP_ID_NOT_FOUND.value
            others = (journal.state.consumer_groups, journal.state.share_groups)
            kind = "classic group" if any(group_id in groups for groups in others) else "group"
            missing.error_message = f"there is no {kind} {group_id!r}"
        return missing
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ],
    )


def listed(
    journal: GroupJournal, groups: Mapping[str, Group], states: Sequence[str] = (), types: Sequence[str] = ()
) -> tuple[ListedGroup, ...]:
    """All groups, or those in one of some states and of one of some types, whatever the case of the letters."""
    wanted_states = {one.lower() for one in states}
    wanted_types = {one.lower() for one in types} or {CLASSIC, CONSUMER, SHARE}
    state = journal.state
    found: list[ListedGroup] = []
    if CLASSIC in wanted_types:
        classic = [(group_id, group.protocol_type or "", group.state) for group_id, group in groups.items()]
        simple = {**state.offsets, **state.pending.groups} if state.pending else state.offsets
        classic += (
            (group_id, "", GroupState.EMPTY)
            for group_id in simple
            if group_id not in groups and group_id not in state.consumer_groups
        )
        found += (
            ListedGroup(group_id=group_id, protocol_type=protocol_type, group_state=one.value, group_type=CLASSIC)
            for group_id, protocol_type, one in classic
        )
    if CONSUMER in wanted_types:
        found += listed_consumer_groups(state.consumer_groups)
    if SHARE in wanted_types:
        found += listed_share_groups(state.share_groups)
    return tuple(one for one in found if not wanted_states or one.group_state.lower() in wanted_states)
