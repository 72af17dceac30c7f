"""What consumers tell each other through JoinGroup and SyncGroup: subscriptions and assignments ("consumer" protocol).

The brokers carry them as bytes. They look inside for two things only: whether a group still reads a topic whose offsets
are to be deleted, and what to show of a group that is described. Version 1 tells what a member owns (KIP-429), 2 since
which generation (KIP-792), 3 its rack (KIP-881).
"""

from __future__ import annotations

from tidelog.base.errors import MalformedMessageError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.base.ports import Buffer
from tidelog.wire.compile import decode
from tidelog.wire.schema import array, bytes_, field, int32, message, string, struct

PROTOCOL_TYPE = "consumer"
"""Of groups whose members speak this; others, as Connect's workers, have formats of their own."""

VERSION_MAX = 3
VERSION_SIZE_BYTES = 2


@struct
class ConsumerProtocolPartitions:
    """Partitions of one topic."""

    topic: str = field(string, doc="The topic.")
    partitions: list[int] = field(array(int32), doc="Their numbers.")


@message(api_key=-1, versions="0-3", kind="data")
class ConsumerProtocolSubscription:
    """What a member wants to read, and what it reads already."""

    topics: list[str] = field(array(string), doc="The topics it subscribes to.")
    user_data: bytes | None = field(bytes_, nullable="0+", default=None, doc="Of the assignor.")
    owned_partitions: list[ConsumerProtocolPartitions] = field(
        array(ConsumerProtocolPartitions), versions="1+", default_factory=list, ignorable=True, doc="What it reads."
    )
    generation_id: int = field(int32, versions="2+", default=-1, ignorable=True, doc="Since when; -1 if not at all.")
    rack_id: str | None = field(
        string, versions="3+", nullable="3+", default=None, ignorable=True, doc="Where it stands."
    )


@message(api_key=-2, versions="0-3", kind="data")
class ConsumerProtocolAssignment:
    """What a member is to read."""

    assigned_partitions: list[ConsumerProtocolPartitions] = field(
        array(ConsumerProtocolPartitions), doc="The partitions."
    )
    user_data: bytes | None = field(bytes_, nullable="0+", default=None, doc="Of the assignor.")


@message(api_key=-3, versions="0-1", kind="data")
class StickyUserData:
    """What a member tells the assignor "sticky" beside its subscription. No number says which version it is."""

    previous_assignment: list[ConsumerProtocolPartitions] = field(
        array(ConsumerProtocolPartitions), doc="What it reads."
    )
    generation: int = field(int32, versions="1+", default=-1, doc="In which it was given that.")


def subscribed_topics(metadata: Buffer) -> frozenset[str]:
    """The topics in a member's metadata. Raises MalformedMessageError: it is not of this protocol."""
    return frozenset(read_subscription(metadata).topics)


def read_subscription(metadata: Buffer) -> ConsumerProtocolSubscription:
    """What a member's metadata says. Raises MalformedMessageError: it is not of this protocol."""
    version = _version(metadata)
    return decode(ConsumerProtocolSubscription, metadata, version, VERSION_SIZE_BYTES, ignores_trailing_bytes=True)


def assigned_partitions(assignment: Buffer) -> tuple[TopicPartition, ...]:
    """The partitions in a member's assignment, sorted; none where it is empty, as while a group rebalances.

    Raises:
        MalformedMessageError: it is not of this protocol.
    """
    if not len(assignment):
        return ()
    version = _version(assignment)
    found = decode(ConsumerProtocolAssignment, assignment, version, VERSION_SIZE_BYTES, ignores_trailing_bytes=True)
    return tuple(
        sorted(
            TopicPartition(each.topic, PartitionIndex(index))
            for each in found.assigned_partitions
            for index in each.partitions
        )
    )


def _version(data: Buffer) -> int:
    """Newer versions only add to the end: they are read as the newest that is known."""
    if len(data) < VERSION_SIZE_BYTES:
        raise MalformedMessageError(f"consumer protocol: {len(data)} bytes hold no version")
    version = int.from_bytes(data[:VERSION_SIZE_BYTES], signed=True)
    if version < 0:
        raise MalformedMessageError(f"consumer protocol: there is no version {version}")
    return min(version, VERSION_MAX)
