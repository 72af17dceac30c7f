"""Control records: what the protocol itself writes into logs, and no reader is shown.

The key is `version int16 (0) | type int16`. The value is a message whose first field is its version. Data partitions
hold the markers that end transactions; the metadata quorum writes the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct
from typing import Any
from uuid import UUID

from tidelog.base.errors import Code, MalformedMessageError, refusal
from tidelog.base.ports import Buffer
from tidelog.records.batch import BatchBuilder, Record
from tidelog.wire.compile import decode, encode
from tidelog.wire.primitives import ZERO_UUID
from tidelog.wire.schema import array, field, int16, int32, int64, layout_of, message, string, struct, uint16, uuid

_KEY = Struct(">hh")
_KEY_VERSION = 0
_VERSION = Struct(">h")


class ControlType(IntEnum):
    """What a control record says. Readers skip the types that they do not know."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@message(api_key=ControlType.COMMIT, versions="0", kind="data")
class EndTransactionMarker:
    """A transaction of the batch's producer ended here. Whether it was committed is in the key."""

    version: int = field(int16, default=0, doc="Of this message.")
    coordinator_epoch: int = field(int32, doc="Leader epoch of the coordinator that decided; an older one is refused.")


@struct
class LeaderChangeVoter:
    """A voter of the quorum by its id."""

    voter_id: int = field(int32, doc="Its node id.")
    voter_directory_id: UUID = field(
        uuid, versions="1+", default=ZERO_UUID, doc="The id of its metadata log's directory (KIP-853)."
    )


@message(api_key=ControlType.LEADER_CHANGE, versions="0-1", flexible="0+", kind="data")
class LeaderChangeMessage:
    """The first record of a leader epoch in the metadata log: committing it commits all before it."""

    version: int = field(int16, default=0, doc="Of this message.")
    leader_id: int = field(int32, doc="Who leads.")
    voters: list[LeaderChangeVoter] = field(array(LeaderChangeVoter), default_factory=list, doc="Who could vote.")
    granting_voters: list[LeaderChangeVoter] = field(
        array(LeaderChangeVoter), default_factory=list, doc="Who voted for the leader."
    )


@message(api_key=ControlType.SNAPSHOT_HEADER, versions="0", flexible="0+", kind="data")
class SnapshotHeader:
    """The first record of a snapshot."""

    version: int = field(int16, default=0, doc="Of this message.")
    last_contained_log_timestamp: int = field(int64, doc="Of the last record that the snapshot stands for, in ms.")


@message(api_key=ControlType.SNAPSHOT_FOOTER, versions="0", flexible="0+", kind="data")
class SnapshotFooter:
    """The last record of a snapshot: without it the snapshot is not whole."""

    version: int = field(int16, default=0, doc="Of this message.")


@message(api_key=ControlType.KRAFT_VERSION, versions="0", flexible="0+", kind="data")
class KRaftVersion:
    """The version of the quorum's own protocol (KIP-853)."""

    version: int = field(int16, default=0, doc="Of this message.")
    kraft_version: int = field(int16, doc="0: voters are configured; 1: they are kept in the log.")


@struct
class VoterEndpoint:
    """Where a voter listens under one listener name."""

    name: str = field(string, doc="The listener's name.")
    host: str = field(string, doc="Its host.")
    port: int = field(uint16, doc="Its port.")


@struct
class KRaftVersionFeature:
    """The versions of the quorum's protocol that a voter can speak."""

    min_supported_version: int = field(int16, doc="The lowest.")
    max_supported_version: int = field(int16, doc="The highest.")


@struct
class VoterDetails:
    """A voter with all that others need to reach it."""

    voter_id: int = field(int32, doc="Its node id.")
    voter_directory_id: UUID = field(uuid, doc="The id of its metadata log's directory.")
    endpoints: list[VoterEndpoint] = field(array(VoterEndpoint), doc="Where it listens.")
    kraft_version_feature: KRaftVersionFeature = field(KRaftVersionFeature, doc="What it can speak.")


@message(api_key=ControlType.KRAFT_VOTERS, versions="0", flexible="0+", kind="data")
class Voters:
    """The set of voters from here on (KIP-853)."""

    version: int = field(int16, default=0, doc="Of this message.")
    voters: list[VoterDetails] = field(array(VoterDetails), doc="All of them.")


QuorumControlRecord = LeaderChangeMessage | SnapshotHeader | SnapshotFooter | KRaftVersion | Voters
ControlRecord = EndTransactionMarker | QuorumControlRecord

_CLASSES: dict[ControlType, type[Any]] = {
    ControlType.ABORT: EndTransactionMarker,
    ControlType.COMMIT: EndTransactionMarker,
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeader,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooter,
    ControlType.KRAFT_VERSION: KRaftVersion,
    ControlType.KRAFT_VOTERS: Voters,
}
_QUORUM_TYPES = {cls: control_type for control_type, cls in _CLASSES.items() if cls is not EndTransactionMarker}


def control_key(control_type: ControlType) -> bytes:
    """The key of a control record."""
    return _KEY.pack(_KEY_VERSION, control_type)


def control_value(control_record: ControlRecord) -> bytes:
    """The value of a control record, in the version that its first field says."""
    return encode(control_record, control_record.version)


def read_control_type(key: Buffer | None) -> ControlType | None:
    """What a control record with this key says; None for a type that this release does not know.

    Raises:
        KafkaError: INVALID_RECORD: the key is missing or cut short.
    """
    if key is None or len(key) < _KEY.size:
        raise refusal(Code.INVALID_RECORD, "a control record has no key of 4 bytes")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise refusal(Code.INVALID_RECORD, f"a control record has key version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return None


def read_control_record(record: Record) -> tuple[ControlType, ControlRecord] | None:
    """The control record in a record of a control batch; None for a type that this release does not know.

    A newer version than this release knows is read as the newest it knows, as such messages only gain tagged fields.

    Raises:
        KafkaError: INVALID_RECORD: key or value are not what they claim.
    """
    control_type = read_control_type(record.key)
    if control_type is None:
        return None
    value = record.value
    if value is None or len(value) < _VERSION.size:
        raise refusal(Code.INVALID_RECORD, f"the {control_type.name} record at offset {record.offset} has no value")
    cls = _CLASSES[control_type]
    version = min(_VERSION.unpack_from(value)[0], layout_of(cls).versions[-1])
    if version < 0:
        raise refusal(
            Code.INVALID_RECORD, f"the {control_type.name} record at offset {record.offset} has version {version}"
        )
    try:
        return control_type, decode(cls, value, version)
    except MalformedMessageError as error:
        raise refusal(
            Code.INVALID_RECORD, f"the {control_type.name} record at offset {record.offset}: {error}"
        ) from error


def read_end_transaction_marker(record: Record) -> EndTransactionMarker | None:
    """The marker in a record of a control batch, or None if it is another kind of control record. Raises as above."""
    if read_control_type(record.key) not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    found = read_control_record(record)
    assert found is not None
    marker = found[1]
    assert isinstance(marker, EndTransactionMarker)
    return marker


def end_transaction_batch(
    *, committed: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    """The control batch that ends a producer's transaction on one partition."""
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True)
    marker = EndTransactionMarker(coordinator_epoch=coordinator_epoch)
    builder.append(
        timestamp_ms, control_key(ControlType.COMMIT if committed else ControlType.ABORT), control_value(marker)
    )
    return builder.build()


def control_batch(*control_records: QuorumControlRecord, timestamp_ms: int) -> bytes:
    """One control batch of the metadata log, or of a snapshot of it, with these records in their order.

    Args:
        control_records: what it says: the start of an epoch, a change of the voters, a snapshot's header or footer.
        timestamp_ms: since 1970.
    """
    builder = BatchBuilder(control=True)
    for control_record in control_records:
        builder.append(timestamp_ms, control_key(_QUORUM_TYPES[type(control_record)]), control_value(control_record))
    return builder.build()


def leader_change_batch(
    *, leader_id: int, voters: Iterable[int], timestamp_ms: int, granting_voters: Iterable[int] | None = None
) -> bytes:
    """The control batch that opens a leader epoch of the metadata log.

    Args:
        leader_id: who leads.
        voters: who could vote.
        timestamp_ms: since 1970.
        granting_voters: who voted for the leader; None for all voters.
    """
    voters = list(voters)
    granting = voters if granting_voters is None else list(granting_voters)
    change = LeaderChangeMessage(
        leader_id=leader_id,
        voters=[LeaderChangeVoter(voter_id) for voter_id in voters],
        granting_voters=[LeaderChangeVoter(voter_id) for voter_id in granting],
    )
    return control_batch(change, timestamp_ms=timestamp_ms)
