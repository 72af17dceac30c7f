"""How the leader of a classic group divides its partitions: Kafka's four assignors.

| name | who gets what | a rebalance |
|---|---|---|
| range | of each topic, the first members the first partitions | moves what the order moves |
| roundrobin | the partitions of all topics in turn | likewise |
| sticky | as many as the others, and of those what it has | moves as few as that allows |
| cooperative-sticky | likewise | and each is given on only once its owner has given it up (KIP-429) |

Kafka: `RangeAssignor`, `RoundRobinAssignor`, `StickyAssignor`, `CooperativeStickyAssignor`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.base.errors import MalformedMessageError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.wire.compile import decode, encode
from tidelog.wire.messages.consumer_protocol import ConsumerProtocolPartitions, StickyUserData

STICKY = "sticky"
"""The one whose members tell through user data what they have."""

Assignment = dict[str, list[TopicPartition]]
"""Of each member, by its id: its partitions."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member, as the leader of the group sees it.

    Attributes:
        topics: it subscribes to.
        owned: what it reads already, as it says.
        generation: in which it was given that; -1 if it does not say.
        instance_id: of a static member.
    """

    member_id: str
    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    instance_id: str | None = None

    @property
    def place(self) -> tuple[bool, str]:
        """By which members are sorted: static ones first, whose names stay."""
        return (self.instance_id is None, self.instance_id or self.member_id)


@dataclass(frozen=True, slots=True)
class Assignor:
    """One way to divide.

    Attributes:
        assign: gets the members and the number of partitions of each topic that exists.
        is_cooperative: whether members keep what they have while the group rebalances.
    """

    name: str
    assign: Callable[[Sequence[Subscriber], Mapping[str, int]], Assignment]
    is_cooperative: bool = False


def sticky_user_data(owned: frozenset[TopicPartition], generation: int) -> bytes:
    """What a member tells the leader of "sticky"."""
    return encode(StickyUserData(previous_assignment=rows_of(owned), generation=generation), 1)


def read_sticky_user_data(user_data: bytes) -> tuple[frozenset[TopicPartition], int]:
    """What a member has, and since which generation; nothing where it cannot be read."""
    for version in (1, 0):
        try:
            found = decode(StickyUserData, user_data, version)
        except MalformedMessageError:
            continue
        return partitions_of(found.previous_assignment), found.generation
    return frozenset(), -1


def rows_of(partitions: frozenset[TopicPartition]) -> list[ConsumerProtocolPartitions]:
    """Partitions as the members' protocol lists them."""
    rows: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        rows.setdefault(topic, []).append(index)
    return [ConsumerProtocolPartitions(topic, indexes) for topic, indexes in rows.items()]


def partitions_of(rows: Sequence[ConsumerProtocolPartitions]) -> frozenset[TopicPartition]:
    """The reverse of `rows_of`."""
    return frozenset(TopicPartition(row.topic, PartitionIndex(index)) for row in rows for index in row.partitions)


def _range(members: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    found: Assignment = {member.member_id: [] for member in members}
    for topic, count in sorted(partition_counts.items()):
        readers = sorted((member for member in members if topic in member.topics), key=_place)
        if not readers:
            continue
        share, more = divmod(count, len(readers))
        begin = 0
        for number, member in enumerate(readers):
            end = begin + share + (number < more)
            found[member.member_id] += [TopicPartition(topic, PartitionIndex(index)) for index in range(begin, end)]
            begin = end
    return found


def _round_robin(members: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    found: Assignment = {member.member_id: [] for member in members}
    in_turn = sorted(members, key=_place)
    turn = 0
    for topic, count in sorted(partition_counts.items()):
        if not any(topic in member.topics for member in members):
            continue
        for index in range(count):
            while topic not in in_turn[turn % len(in_turn)].topics:
                turn += 1
            found[in_turn[turn % len(in_turn)].member_id].append(TopicPartition(topic, PartitionIndex(index)))
            turn += 1
    return found


def _sticky(members: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    """Who has something keeps it, unless others have two less; what nobody has goes to who has least."""
    in_order = sorted(members, key=_place)
    owners = _owners(in_order, partition_counts)
    loads: dict[str, set[TopicPartition]] = {member.member_id: set() for member in in_order}
    for partition, owner in owners.items():
        loads[owner].add(partition)
    readers = {topic: [member.member_id for member in in_order if topic in member.topics] for topic in partition_counts}
    unowned = [
        TopicPartition(topic, PartitionIndex(index))
        for topic in sorted(partition_counts, key=lambda topic: (len(readers[topic]), topic))
        for index in range(partition_counts[topic])
    ]
    for partition in unowned:
        if partition not in owners and readers[partition.topic]:
            loads[_least(readers[partition.topic], loads)].add(partition)
    is_balanced = False
    while not is_balanced:
        is_balanced = True
        for member_id in sorted(loads, key=lambda member_id: -len(loads[member_id])):
            # What it was not reading is moved first: that costs nobody anything.
            for partition in sorted(loads[member_id], key=lambda one: (owners.get(one) == member_id, one)):
                other = _least(readers[partition.topic], loads)
                if len(loads[member_id]) - len(loads[other]) < 2:
                    continue
                loads[member_id].discard(partition)
                loads[other].add(partition)
                is_balanced = False
    return {member_id: sorted(partitions) for member_id, partitions in loads.items()}


def _cooperative_sticky(members: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    """As sticky. What another still reads is nobody's until it has given it up, and the group rebalances once more."""
    owners = {partition: member.member_id for member in members for partition in member.owned}
    return {
        member_id: [partition for partition in partitions if owners.get(partition, member_id) == member_id]
        for member_id, partitions in _sticky(members, partition_counts).items()
    }


def _owners(members: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> dict[TopicPartition, str]:
    """Who has which partition: of several who say so, who was given it last; nobody, if that is not known."""
    claims: dict[TopicPartition, list[Subscriber]] = {}
    for member in members:
        for partition in member.owned:
            if partition.topic in member.topics and partition.partition < partition_counts.get(partition.topic, 0):
                claims.setdefault(partition, []).append(member)
    owners = {}
    for partition, claimants in claims.items():
        newest = max(claimant.generation for claimant in claimants)
        left = [claimant for claimant in claimants if claimant.generation == newest]
        if len(left) == 1:
            owners[partition] = left[0].member_id
    return owners


def _least(member_ids: Sequence[str], loads: Mapping[str, set[TopicPartition]]) -> str:
    return min(member_ids, key=lambda member_id: len(loads[member_id]))


def _place(member: Subscriber) -> tuple[bool, str]:
    return member.place


ASSIGNORS: Mapping[str, Assignor] = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", _range),
        Assignor("roundrobin", _round_robin),
        Assignor(STICKY, _sticky),
        Assignor("cooperative-sticky", _cooperative_sticky, is_cooperative=True),
    )
}
