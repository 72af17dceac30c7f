"""What a simulated broker answers to followers, producers and consumers, from its replicas and its image."""

from __future__ import annotations

from typing import Protocol

from tidelog.base.errors import Code, CorruptLogError, DiskError, KafkaError, refusal
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.log.slice import StaleSliceError
from tidelog.metadata.image import MetadataImage
from tidelog.records.lineage import EpochEntry
from tidelog.replica import (
    AcceptedFetch,
    EpochEndRequest,
    Fetched,
    FollowerFetch,
    LeaderReplica,
    LogStartRequest,
    RecordsRequest,
    ReplicaId,
    check_leader_epoch,
)
from tidelog.sim.replicas.fabric import Reply
from tidelog.sim.replicas.messages import (
    AskEpochEndOf,
    EpochEndTold,
    FetchRecords,
    FollowerAsks,
    LeaderAnswers,
    Leaders,
    ListOffsets,
    OffsetListed,
    Produce,
    Produced,
    RecordsFetched,
    WhoLeads,
)
from tidelog.sim.replicas.parked import Parked
from tidelog.sim.replicas.plan import Plan
from tidelog.sim.replicas.replica import HostedReplica

EARLIEST, LATEST = -2, -1


class Serving(Protocol):
    """The broker."""

    plan: Plan
    parked: Parked
    image: MetadataImage
    replicas: dict[ReplicaId, HostedReplica]
    is_registered: bool

    def now_ms(self) -> int: ...


def serve(broker: Serving, body: object, reply: Reply) -> None:
    """Answer, now or later; what is for nobody here is not answered."""
    match body:
        case FollowerAsks():
            _serve_follower(broker, body, reply)
        case Produce():
            _produce(broker, body, reply)
        case FetchRecords():
            _fetch(broker, body, reply)
        case ListOffsets():
            reply(_list_offsets(broker, body))
        case AskEpochEndOf():
            reply(_epoch_end(broker, body))
        case WhoLeads():
            topic = broker.image.topic(body.topic)
            if broker.is_registered:
                reply(Leaders(None) if topic is None else Leaders(topic.topic_id, tuple(topic.partitions)))


def _find(broker: Serving, name: ReplicaId) -> HostedReplica:
    replica = broker.replicas.get(name)
    if replica is None or replica.is_stopped:
        topic = broker.image.topic_by_id(name.topic_id)
        raise refusal(Code.UNKNOWN_TOPIC_ID if topic is None else Code.NOT_LEADER_OR_FOLLOWER, "it is not here")
    return replica


def _led(replica: HostedReplica, sent: LeaderEpoch | None) -> LeaderReplica:
    """The leader's machine, if the sender agrees about the epoch; an epoch error says more than another."""
    leader, state = replica.leader, replica.state
    if leader is not None:
        leader.check_leader_epoch(sent)
        return leader
    if state is not None:
        check_leader_epoch(replica.topic_partition, sent=sent, leader_epoch=state.leader_epoch)
    raise refusal(Code.NOT_LEADER_OR_FOLLOWER, f"{replica.topic_partition}: not the leader")


# Followers.


def _serve_follower(broker: Serving, asked: FollowerAsks, reply: Reply) -> None:
    request = asked.request
    try:
        replica = _find(broker, asked.replica)
        leader = _led(replica, request.current_leader_epoch)
        if isinstance(request, EpochEndRequest):
            end = leader.offset_for_leader_epoch(request.leader_epoch)
            reply(LeaderAnswers(None if end is None else EpochEntry(*end)))
        elif isinstance(request, LogStartRequest):
            reply(LeaderAnswers(leader.log_start_offset))
        else:
            _serve_follower_fetch(broker, replica, leader, asked, reply)
    except KafkaError as error:
        reply(LeaderAnswers(error.code))


def _serve_follower_fetch(
    broker: Serving,
    replica: HostedReplica,
    leader: LeaderReplica,
    asked: FollowerAsks,
    reply: Reply,
) -> None:
    request = asked.request
    assert isinstance(request, RecordsRequest)
    fetch = FollowerFetch(
        asked.sender,
        request.fetch_offset,
        request.current_leader_epoch,
        request.last_fetched_epoch,
        asked.broker_epoch,
        broker.now_ms(),
    )
    accepted = leader.accept_fetch(fetch)
    if not isinstance(accepted, AcceptedFetch):
        reply(LeaderAnswers(Fetched(diverging=accepted)))
        return
    leader.on_fetch(accepted)
    replica.run()

    def attempt(is_last: bool) -> bool:
        if replica.leader is not leader:
            reply(LeaderAnswers(Code.NOT_LEADER_OR_FOLLOWER))
            return True
        end_offset = replica.log.log_end_offset
        if request.fetch_offset >= end_offset and not is_last:
            return False
        try:
            records, next_offset = _read(replica, request.fetch_offset, end_offset, broker.plan.fetch_size_bytes)
        except KafkaError as error:
            reply(LeaderAnswers(error.code))
            return True
        told = Fetched(next_offset if records else None, leader.high_watermark, max(leader.log_start_offset, Offset(0)))
        reply(LeaderAnswers(told, records))
        return True

    broker.parked.wait(replica, broker.plan.fetch_wait_ms, attempt)


def _read(replica: HostedReplica, offset: Offset, end_offset: Offset, size_bytes_max: int) -> tuple[bytes, Offset]:
    """Whole batches from the log, and where they end."""
    try:
        found = replica.log.read(offset, size_bytes_max=size_bytes_max, end_offset=end_offset)
        data = found.read_all()
        return data, found.next_offset
    except (CorruptLogError, DiskError, StaleSliceError) as error:
        raise refusal(Code.KAFKA_STORAGE_ERROR, str(error)) from error


# Producers and consumers.


def _produce(broker: Serving, asked: Produce, reply: Reply) -> None:
    def acknowledge(code: Code, offset: Offset | None) -> None:
        if asked.acks:
            reply(Produced(code, offset))

    try:
        replica = _find(broker, asked.replica)
    except KafkaError as error:
        acknowledge(error.code, None)
        return
    replica.on_produced(asked.acks == -1, asked.batch, acknowledge)


def _fetch(broker: Serving, asked: FetchRecords, reply: Reply) -> None:
    def attempt(is_last: bool) -> bool:
        try:
            replica = _find(broker, asked.replica)
            if replica.follower is not None:
                replica.follower.check_serves(asked.leader_epoch)
            else:
                _led(replica, asked.leader_epoch)
            log, high_watermark = replica.log, replica.high_watermark
            if not log.log_start_offset <= asked.offset <= log.log_end_offset:
                raise refusal(Code.OFFSET_OUT_OF_RANGE, "outside the log")
            records = b""
            if asked.offset < high_watermark:
                records, _ = _read(replica, asked.offset, high_watermark, asked.size_bytes_max)
            elif not is_last:
                return False
            reply(RecordsFetched(Code.NONE, records, high_watermark, log.log_start_offset))
        except KafkaError as error:
            reply(RecordsFetched(error.code))
        return True

    replica = broker.replicas.get(asked.replica)
    if replica is None:
        attempt(True)
    else:
        broker.parked.wait(replica, broker.plan.fetch_wait_ms, attempt)


def _list_offsets(broker: Serving, asked: ListOffsets) -> OffsetListed:
    try:
        replica = _find(broker, asked.replica)
        leader = _led(replica, asked.leader_epoch)
        if asked.timestamp == LATEST:
            return OffsetListed(Code.NONE, leader.latest_offset(), leader.leader_epoch)
        log = replica.log
        if asked.timestamp == EARLIEST:
            start = log.log_start_offset
            return OffsetListed(Code.NONE, start, log.lineage.epoch_at(start))
        found = log.offset_for_timestamp(asked.timestamp, leader.high_watermark)
        if found is None:
            leader.latest_offset()  # refuses while it may be that one is not committed yet
            return OffsetListed(Code.NONE)
        return OffsetListed(Code.NONE, Offset(found.offset), LeaderEpoch(found.leader_epoch))
    except KafkaError as error:
        return OffsetListed(error.code)
    except (CorruptLogError, DiskError):
        return OffsetListed(Code.KAFKA_STORAGE_ERROR)


def _epoch_end(broker: Serving, asked: AskEpochEndOf) -> EpochEndTold:
    try:
        leader = _led(_find(broker, asked.replica), asked.current_leader_epoch)
    except KafkaError as error:
        return EpochEndTold(error.code)
    end = leader.offset_for_leader_epoch(asked.leader_epoch)
    return EpochEndTold(Code.NONE, None if end is None else EpochEntry(*end))
