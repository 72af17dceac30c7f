"""Between the values of the metadata quorum and the messages of the wire: the only place that knows both.

On the wire everything is said of partition 0 of `__cluster_metadata`; -1, and a directory of all zeros, stand for what
is not known.

Kafka: `RaftUtil`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, cast
from uuid import UUID

from tidelog.base.errors import Code, KafkaError, MalformedMessageError, refusal
from tidelog.base.ids import CLUSTER_METADATA_TOPIC, BrokerId, ClusterId, LeaderEpoch, Offset
from tidelog.base.ports import Buffer
from tidelog.net.address import Address
from tidelog.quorum.values import (
    Answer,
    EpochAnswer,
    EpochBegun,
    EpochEnded,
    FetchAnswer,
    PeerRequest,
    QuorumFetch,
    ReplicaKey,
    SnapshotId,
    VoteAnswer,
    VoteRequested,
)
from tidelog.records import EpochEntry, split_batches
from tidelog.records.header import check_crc
from tidelog.wire.compile import Piece
from tidelog.wire.messages import api_01_fetch as fetch
from tidelog.wire.messages import api_52_vote as vote
from tidelog.wire.messages import api_53_begin_quorum_epoch as begin
from tidelog.wire.messages import api_54_end_quorum_epoch as end
from tidelog.wire.primitives import ZERO_UUID

METADATA_TOPIC_ID = UUID(int=1)
"""What Kafka names the metadata log by from Fetch 13 on."""
FETCH_VERSION_MIN = 17
"""Of what nodes of the quorum ask each other: the directory of the reader is said from there on."""
HIGH_WATERMARK_FROM_VERSION = 18
FETCH_SIZE_BYTES_MAX = 8 << 20

Endpoints = tuple[tuple[str, str, int], ...]


class PeerAnswer(NamedTuple):
    """A peer's answer, as the machine takes it.

    Attributes:
        answer: for the machine.
        records: whole batches, each as its checksum says, from the offset on that was asked for.
        addresses: where leaders listen that the answer names.
    """

    answer: Answer
    records: bytes
    addresses: dict[BrokerId, Address]


class NamedEndpoint(Protocol):
    """Where a node listens, in any of the answers that say so."""

    node_id: int
    host: str
    port: int


# Ids that may not be known.


def broker_id(number: int) -> BrokerId | None:
    return None if number < 0 else BrokerId(number)


def number_of(node_id: BrokerId | None) -> int:
    return -1 if node_id is None else node_id


def directory_id(value: UUID) -> UUID | None:
    return None if value == ZERO_UUID else value


def _zero(value: UUID | None) -> UUID:
    return value or ZERO_UUID


# What we ask others.


def request_of(
    peer_request: PeerRequest, cluster_id: ClusterId, target: BrokerId, endpoints: Endpoints
) -> tuple[Any, type[Any]]:
    """The message, and the class of its answer.

    Args:
        target: who is asked; below zero where nobody knows its id.
        endpoints: where this node listens for controllers.
    """
    name = CLUSTER_METADATA_TOPIC
    match peer_request:
        case VoteRequested():
            ballot = vote.VotePartition(
                replica_epoch=peer_request.leader_epoch,
                replica_id=peer_request.candidate.node_id,
                replica_directory_id=_zero(peer_request.candidate.directory_id),
                voter_directory_id=_zero(peer_request.voter.directory_id),
                last_offset_epoch=peer_request.last_leader_epoch,
                last_offset=peer_request.log_end_offset,
                pre_vote=peer_request.is_pre_vote,
            )
            voter_id = peer_request.voter.node_id
            return (
                vote.VoteRequest(cluster_id=cluster_id, voter_id=voter_id, topics=[vote.VoteTopic(name, [ballot])]),
                vote.VoteResponse,
            )
        case EpochBegun():
            begun = begin.BeginQuorumEpochPartition(
                voter_directory_id=_zero(peer_request.voter.directory_id),
                leader_id=peer_request.leader_id,
                leader_epoch=peer_request.leader_epoch,
            )
            return (
                begin.BeginQuorumEpochRequest(
                    cluster_id=cluster_id,
                    voter_id=peer_request.voter.node_id,
                    topics=[begin.BeginQuorumEpochTopic(name, [begun])],
                    leader_endpoints=[begin.LeaderEndpoint(*one) for one in peer_request.endpoints or endpoints],
                ),
                begin.BeginQuorumEpochResponse,
            )
        case EpochEnded():
            ended = end.EndQuorumEpochPartition(
                leader_id=peer_request.leader_id,
                leader_epoch=peer_request.leader_epoch,
                preferred_successors=[one.node_id for one in peer_request.preferred],
                preferred_candidates=[
                    end.ReplicaInfo(one.node_id, _zero(one.directory_id)) for one in peer_request.preferred
                ],
            )
            return (
                end.EndQuorumEpochRequest(
                    cluster_id=cluster_id,
                    topics=[end.EndQuorumEpochTopic(name, [ended])],
                    leader_endpoints=[end.LeaderEndpoint(*one) for one in endpoints],
                ),
                end.EndQuorumEpochResponse,
            )
        case QuorumFetch():
            return _fetch_request(peer_request, cluster_id), fetch.FetchResponse


def _fetch_request(peer_request: QuorumFetch, cluster_id: ClusterId) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=peer_request.leader_epoch,
        fetch_offset=peer_request.fetch_offset,
        last_fetched_epoch=peer_request.last_fetched_epoch,
        partition_max_bytes=FETCH_SIZE_BYTES_MAX,
        replica_directory_id=_zero(peer_request.replica.directory_id),
        high_watermark=-1 if peer_request.high_watermark is None else peer_request.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch.ReplicaState(replica_id=peer_request.replica.node_id),
        max_wait_ms=peer_request.wait_ms_max,
        min_bytes=0,
        max_bytes=FETCH_SIZE_BYTES_MAX,
        topics=[fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


# What others answer.


def answer_of(peer_request: PeerRequest, response: Any) -> PeerAnswer:
    """Translate a response into an answer for the machine.

    Raises:
        KafkaError: the request was refused as a whole, or the answer is not about the metadata log.
        MalformedBatchError: its records are damaged, or not those that were asked for.
    """
    if response.error_code:
        raise KafkaError(f"refused with {Code(response.error_code).name}", code=Code(response.error_code))
    match peer_request:
        case QuorumFetch():
            addresses = addresses_of(response.node_endpoints)
            partition = _only(response.responses)
            answer, records = _fetch_answer(peer_request, partition)
            return PeerAnswer(answer, records, addresses)
        case _:
            partition = _only(response.topics)
            code = Code(partition.error_code)
            leader_epoch, leader_id = LeaderEpoch(partition.leader_epoch), broker_id(partition.leader_id)
            addresses = addresses_of(response.node_endpoints)
            if isinstance(peer_request, VoteRequested):
                return PeerAnswer(VoteAnswer(code, leader_epoch, leader_id, partition.vote_granted), b"", addresses)
            return PeerAnswer(EpochAnswer(code, leader_epoch, leader_id), b"", addresses)


def addresses_of(named: Iterable[NamedEndpoint]) -> dict[BrokerId, Address]:
    return {BrokerId(one.node_id): Address(one.host, one.port) for one in named}


def _fetch_answer(peer_request: QuorumFetch, partition: fetch.PartitionData) -> tuple[FetchAnswer, bytes]:
    leader, diverging, snapshot = partition.current_leader, partition.diverging_epoch, partition.snapshot_id
    records = _records(partition.records, peer_request.fetch_offset)
    entry = (
        None
        if diverging is None or diverging.epoch < 0
        else EpochEntry(LeaderEpoch(diverging.epoch), Offset(diverging.end_offset))
    )
    loads = (
        None
        if snapshot is None or snapshot.epoch < 0
        else SnapshotId(Offset(snapshot.end_offset), LeaderEpoch(snapshot.epoch))
    )
    answer = FetchAnswer(
        code=Code(partition.error_code),
        leader_epoch=peer_request.leader_epoch if leader is None else LeaderEpoch(leader.leader_epoch),
        leader_id=None if leader is None else broker_id(leader.leader_id),
        fetch_offset=peer_request.fetch_offset,
        high_watermark=None if partition.high_watermark < 0 else Offset(partition.high_watermark),
        diverging=entry,
        snapshot=loads,
        end_offset=end_offset_of(records),
    )
    return answer, records


def _records(found: Piece | None, fetch_offset: Offset) -> bytes:
    """A copy of whole batches that follow each other. Raises as `answer_of`."""
    records = bytes(cast("Buffer", found)) if found else b""
    batches = split_batches(records)
    next_offset = fetch_offset
    for position, header in batches:
        check_crc(records, position, header)
        if header.base_offset != next_offset:
            raise MalformedMessageError(f"records from offset {header.base_offset} where {next_offset} is due")
        next_offset = Offset(header.next_offset)
    return records


def end_offset_of(records: Buffer) -> Offset | None:
    """The exclusive end of whole batches; None of none."""
    batches = split_batches(records)
    return Offset(batches[-1][1].next_offset) if batches else None


def _only(topics: Sequence[Any]) -> Any:
    """What is said of the metadata log. Raises KafkaError."""
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        name = getattr(topics[0], "topic_name", CLUSTER_METADATA_TOPIC)
        if name == CLUSTER_METADATA_TOPIC:
            return topics[0].partitions[0]
    raise refusal(Code.INVALID_REQUEST, "a message of the quorum that is not about the one metadata log")


# What others ask us.


def peer_request_of(request: Any, api_version: int, node_id: BrokerId) -> PeerRequest:
    """Translate the request of another node for the machine.

    Args:
        node_id: ours, where the request does not say whom it is for.

    Raises:
        KafkaError: INVALID_REQUEST: it is not about the metadata log, or not from a node.
    """
    partition = _only(request.topics)
    match request:
        case vote.VoteRequest():
            _check(partition.replica_id, partition.replica_epoch, partition.last_offset_epoch, partition.last_offset)
            return VoteRequested(
                leader_epoch=LeaderEpoch(partition.replica_epoch),
                candidate=ReplicaKey(BrokerId(partition.replica_id), directory_id(partition.replica_directory_id)),
                voter=_voter(request.voter_id, partition.voter_directory_id, node_id),
                last_leader_epoch=LeaderEpoch(partition.last_offset_epoch),
                log_end_offset=Offset(partition.last_offset),
                is_pre_vote=partition.pre_vote,
            )
        case begin.BeginQuorumEpochRequest():
            _check(partition.leader_id, partition.leader_epoch)
            return EpochBegun(
                leader_epoch=LeaderEpoch(partition.leader_epoch),
                leader_id=BrokerId(partition.leader_id),
                voter=_voter(request.voter_id, partition.voter_directory_id, node_id),
                endpoints=tuple((one.name, one.host, one.port) for one in request.leader_endpoints),
            )
        case end.EndQuorumEpochRequest():
            _check(partition.leader_id, partition.leader_epoch)
            preferred = [
                ReplicaKey(BrokerId(one.candidate_id), directory_id(one.candidate_directory_id))
                for one in partition.preferred_candidates
            ] or [ReplicaKey(BrokerId(one)) for one in partition.preferred_successors]
            return EpochEnded(LeaderEpoch(partition.leader_epoch), BrokerId(partition.leader_id), tuple(preferred))
        case _:
            return _quorum_fetch(request, partition, api_version)


def _check(*numbers: int) -> None:
    """Raises KafkaError: INVALID_REQUEST: one of them says that it is not known, and has to be."""
    if min(numbers) < 0:
        raise refusal(Code.INVALID_REQUEST, "who asks, its epoch or its log is not named")


def _voter(voter_id: int, voter_directory_id: UUID, node_id: BrokerId) -> ReplicaKey:
    return ReplicaKey(node_id if voter_id < 0 else BrokerId(voter_id), directory_id(voter_directory_id))


def _quorum_fetch(request: fetch.FetchRequest, partition: fetch.FetchPartition, api_version: int) -> QuorumFetch:
    replica_id = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    (topic,) = request.topics
    if (topic.topic or CLUSTER_METADATA_TOPIC) != CLUSTER_METADATA_TOPIC or topic.topic_id not in (
        ZERO_UUID,
        METADATA_TOPIC_ID,
    ):
        raise refusal(Code.INVALID_REQUEST, "only the metadata log is read from a controller")
    _check(partition.fetch_offset)
    if replica_id < 0 or partition.last_fetched_epoch < 0 or partition.partition != 0:
        raise refusal(
            Code.INVALID_REQUEST, "the metadata log is read by nodes, which say the epoch of their last record"
        )
    sends_high_watermark = (
        api_version >= HIGH_WATERMARK_FROM_VERSION and partition.high_watermark != fetch.HIGH_WATERMARK_UNSENT
    )
    return QuorumFetch(
        replica=ReplicaKey(BrokerId(replica_id), directory_id(partition.replica_directory_id)),
        leader_epoch=LeaderEpoch(partition.current_leader_epoch),
        fetch_offset=Offset(partition.fetch_offset),
        last_fetched_epoch=LeaderEpoch(partition.last_fetched_epoch),
        high_watermark=None if partition.high_watermark < 0 else Offset(partition.high_watermark),
        wait_ms_max=request.max_wait_ms,
        sends_high_watermark=sends_high_watermark,
    )


# What we answer.


def vote_response(answer: VoteAnswer, leader: tuple[BrokerId, Address] | None) -> vote.VoteResponse:
    """`leader`: where the leader listens, if that is known; so below."""
    partition = vote.VotedPartition(
        error_code=answer.code,
        leader_id=number_of(answer.leader_id),
        leader_epoch=answer.leader_epoch,
        vote_granted=answer.is_granted,
    )
    return vote.VoteResponse(
        topics=[vote.VotedTopic(CLUSTER_METADATA_TOPIC, [partition])],
        node_endpoints=[] if leader is None else [vote.NodeEndpoint(leader[0], *leader[1])],
    )


def begin_response(answer: EpochAnswer, leader: tuple[BrokerId, Address] | None) -> begin.BeginQuorumEpochResponse:
    partition = begin.BegunPartition(
        error_code=answer.code, leader_id=number_of(answer.leader_id), leader_epoch=answer.leader_epoch
    )
    return begin.BeginQuorumEpochResponse(
        topics=[begin.BegunTopic(CLUSTER_METADATA_TOPIC, [partition])],
        node_endpoints=[] if leader is None else [begin.NodeEndpoint(leader[0], *leader[1])],
    )


def end_response(answer: EpochAnswer, leader: tuple[BrokerId, Address] | None) -> end.EndQuorumEpochResponse:
    partition = end.EndedPartition(
        error_code=answer.code, leader_id=number_of(answer.leader_id), leader_epoch=answer.leader_epoch
    )
    return end.EndQuorumEpochResponse(
        topics=[end.EndedTopic(CLUSTER_METADATA_TOPIC, [partition])],
        node_endpoints=[] if leader is None else [end.NodeEndpoint(leader[0], *leader[1])],
    )


def fetch_response(
    answer: FetchAnswer, records: Piece | None, log_start_offset: Offset, leader: tuple[BrokerId, Address] | None
) -> fetch.FetchResponse:
    """With the records that the log holds now."""
    high_watermark = -1 if answer.high_watermark is None else answer.high_watermark
    partition = fetch.PartitionData(
        partition_index=0,
        error_code=answer.code,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start_offset=log_start_offset,
        current_leader=fetch.LeaderIdAndEpoch(number_of(answer.leader_id), answer.leader_epoch),
        diverging_epoch=None if answer.diverging is None else fetch.EpochEndOffset(*answer.diverging),
        snapshot_id=None
        if answer.snapshot is None
        else fetch.SnapshotId(answer.snapshot.end_offset, answer.snapshot.leader_epoch),
        records=records,
    )
    return fetch.FetchResponse(
        responses=[
            fetch.FetchableTopicResponse(
                topic=CLUSTER_METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
            )
        ],
        node_endpoints=[] if leader is None else [fetch.NodeEndpoint(leader[0], *leader[1])],
    )
