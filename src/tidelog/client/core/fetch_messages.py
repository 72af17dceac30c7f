"""The requests of a consumer out of what its readers need, and the answers back to the readers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog.base.errors import Code, KafkaError, MalformedBatchError, refusal
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.client.core.fetched import Aborted, read_fetched
from tidelog.client.core.needs import FetchFrom, LookUp, Validate
from tidelog.client.core.positions import EpochEnd
from tidelog.client.core.reader import PartitionReader
from tidelog.client.core.values import IsolationLevel, code_of
from tidelog.wire.messages.api_01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidelog.wire.messages.api_02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.messages.api_23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.wire.primitives import ZERO_UUID

LAST_FETCH_VERSION_WITH_NAMES = 12
"""Later versions of Fetch speak of topic ids alone."""

_CONSUMER = -1  # as replica id
_TIERED_LOOK_UP_MS = 30_000
_ISOLATION = {IsolationLevel.READ_UNCOMMITTED: 0, IsolationLevel.READ_COMMITTED: 1}


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How a consumer fetches; sizes in bytes, times in ms.

    Attributes:
        rack: where it is; empty if it does not matter.
        preferred_ms: so long it reads from the replica that a leader has named, before it asks the leader again.
    """

    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    isolation_level: IsolationLevel
    check_crcs: bool
    rack: str = ""
    preferred_ms: int = 300_000


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """What a request fetches for one reader."""

    reader: PartitionReader
    generation: int
    need: LookUp | Validate | FetchFrom


RequestsByPartition = dict[TopicPartition, PartitionRequest]


def partition_request(reader: PartitionReader, need: LookUp | Validate | FetchFrom) -> PartitionRequest:
    """Note that a request for `need` is under way."""
    reader.in_flight = reader.generation
    return PartitionRequest(reader, reader.generation, need)


def fetch_request(
    requested: RequestsByPartition, settings: FetchSettings, max_wait_ms: int
) -> tuple[FetchRequest, bool]:
    """A Fetch for these readers, outside of any session.

    Returns:
        The request, and whether all topic ids are known, without which only versions up to
        `LAST_FETCH_VERSION_WITH_NAMES` will do.
    """
    topics: dict[str, FetchTopic] = {}
    has_ids = True
    for (name, partition), question in requested.items():
        need = question.need
        assert isinstance(need, FetchFrom)
        reader = question.reader
        if reader.topic_id is None:
            has_ids = False
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchTopic(topic=name, topic_id=reader.topic_id or ZERO_UUID, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=partition,
                current_leader_epoch=_on_wire(reader.leader_epoch),
                fetch_offset=need.offset,
                partition_max_bytes=need.size_bytes_max,
            )
        )
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.max_bytes,
        isolation_level=_ISOLATION[settings.isolation_level],
        topics=list(topics.values()),
        rack_id=settings.rack,
    )
    return request, has_ids


def on_fetch_response(
    requested: RequestsByPartition, response: FetchResponse, settings: FetchSettings, now_ms: int
) -> set[str]:
    """Bring an answer to the readers.

    Returns:
        The topics of which the metadata is stale, as the answer shows.
    """
    if response.error_code:
        error = refusal(code_of(response.error_code), f"fetch: {code_of(response.error_code).meaning}")
        for question in requested.values():
            question.reader.on_refused(question.generation, error, now_ms)
        return {partition.topic for partition in requested}
    stale: set[str] = set()
    ids = {question.reader.topic_id: partition.topic for partition, question in requested.items()}
    answered = set()
    for topic in response.responses:
        name = topic.topic or ids.get(TopicId(topic.topic_id), "")
        for data in topic.partitions:
            found = requested.get((name, data.partition_index))  # type: ignore[call-overload]  # a tuple like any other
            if found is not None:
                answered.add(found.reader.topic_partition)
                if _on_partition(found, data, settings, now_ms):
                    stale.add(name)
    for partition in requested.keys() - answered:
        requested[partition].reader.on_failure(requested[partition].generation, now_ms)
        stale.add(partition.topic)
    return stale


def _on_partition(requested: PartitionRequest, data: PartitionData, settings: FetchSettings, now_ms: int) -> bool:
    """Returns whether the metadata is stale."""
    reader, generation = requested.reader, requested.generation
    code = code_of(data.error_code)
    if code is Code.OFFSET_OUT_OF_RANGE:
        reader.on_out_of_range(generation)
        return False
    if code is not Code.NONE:
        reader.on_refused(generation, _refused("fetch", reader.topic_partition, code), now_ms)
        return code.retriable
    if data.diverging_epoch is not None and data.diverging_epoch.end_offset >= 0:
        reader.on_diverging(generation)
        return False
    if data.preferred_read_replica >= 0 and not data.records:
        reader.on_preferred(generation, BrokerId(data.preferred_read_replica), now_ms + settings.preferred_ms)
        return False
    need = requested.need
    assert isinstance(need, FetchFrom)
    aborted = None
    if settings.isolation_level is IsolationLevel.READ_COMMITTED:
        aborted = [Aborted(found.producer_id, found.first_offset) for found in data.aborted_transactions or ()]
    try:
        fetched = read_fetched(
            data.records,  # type: ignore[arg-type]  # what is decoded is a buffer
            need.offset,
            aborted=aborted,
            check_crcs=settings.check_crcs,
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset,
            log_start_offset=data.log_start_offset,
        )
    except MalformedBatchError as error:
        where = f"{reader.topic_partition}: fetched from offset {need.offset}"
        reader.stop(generation, KafkaError(f"{where}: {error}; to skip it, seek behind it", code=error.code))
        return False
    reader.on_fetched(generation, fetched)
    return False


def look_up_request(requested: RequestsByPartition, isolation_level: IsolationLevel) -> ListOffsetsRequest:
    """A ListOffsets for these readers."""
    timestamps = {}
    for partition, question in requested.items():
        assert isinstance(question.need, LookUp)
        timestamps[partition] = question.need.timestamp
    epochs = {partition: question.reader.leader_epoch for partition, question in requested.items()}
    return list_offsets_request(timestamps, epochs, isolation_level)


def list_offsets_request(
    timestamps: Mapping[TopicPartition, int],
    leader_epochs: Mapping[TopicPartition, LeaderEpoch | None],
    isolation_level: IsolationLevel,
) -> ListOffsetsRequest:
    """A ListOffsets, fenced by the leader epochs that are known."""
    topics: dict[str, ListOffsetsTopic] = {}
    for partition, timestamp in timestamps.items():
        topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic, partitions=[]))
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=partition.partition,
                current_leader_epoch=_on_wire(leader_epochs.get(partition)),
                timestamp=timestamp,
            )
        )
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=_ISOLATION[isolation_level],
        topics=list(topics.values()),
        timeout_ms=_TIERED_LOOK_UP_MS,
    )


def on_look_up_response(requested: RequestsByPartition, response: ListOffsetsResponse, now_ms: int) -> set[str]:
    """As `on_fetch_response`."""
    rows = list_offsets_rows(response)
    stale = set()
    for partition, question in requested.items():
        reader, row = question.reader, rows.get(partition)
        code = Code.UNKNOWN_SERVER_ERROR if row is None else code_of(row.error_code)
        if row is None or code is not Code.NONE:
            reader.on_refused(question.generation, _refused("list offsets", partition, code), now_ms)
            stale.add(partition.topic)
            continue
        offset = Offset(row.offset) if row.offset >= 0 else None
        leader_epoch = LeaderEpoch(row.leader_epoch) if row.leader_epoch >= 0 else None
        reader.on_looked_up(question.generation, offset, leader_epoch, now_ms)
    return stale


def list_offsets_rows(response: ListOffsetsResponse) -> dict[tuple[str, int], ListOffsetsPartitionResponse]:
    """The rows of an answer by topic and partition."""
    return {(topic.name, row.partition_index): row for topic in response.topics for row in topic.partitions}


def epoch_end_request(requested: RequestsByPartition) -> OffsetForLeaderEpochRequest:
    """An OffsetForLeaderEpoch for these readers."""
    questions = {}
    for partition, question in requested.items():
        assert isinstance(question.need, Validate)
        questions[partition] = (question.reader.leader_epoch, question.need.leader_epoch)
    return offset_for_leader_epoch_request(questions)


def offset_for_leader_epoch_request(
    questions: Mapping[TopicPartition, tuple[LeaderEpoch | None, LeaderEpoch]],
) -> OffsetForLeaderEpochRequest:
    """An OffsetForLeaderEpoch: per partition the current leader epoch, if it is known, and the one to ask about."""
    topics: dict[str, OffsetForLeaderTopic] = {}
    for partition, (current_leader_epoch, leader_epoch) in questions.items():
        topic = topics.setdefault(partition.topic, OffsetForLeaderTopic(topic=partition.topic, partitions=[]))
        topic.partitions.append(
            OffsetForLeaderPartition(
                partition=partition.partition,
                current_leader_epoch=_on_wire(current_leader_epoch),
                leader_epoch=leader_epoch,
            )
        )
    return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=list(topics.values()))


def epoch_end_rows(
    response: OffsetForLeaderEpochResponse,
) -> dict[tuple[str, int], tuple[Code, EpochEnd]]:
    """The rows of an answer by topic and partition: the code, and (epoch, end offset) unless that is undefined."""
    rows: dict[tuple[str, int], tuple[Code, EpochEnd]] = {}
    for topic in response.topics:
        for row in topic.partitions:
            answer = None
            if row.leader_epoch >= 0 and row.end_offset >= 0:
                answer = LeaderEpoch(row.leader_epoch), Offset(row.end_offset)
            rows[topic.topic, row.partition] = code_of(row.error_code), answer
    return rows


def on_epoch_end_response(
    requested: RequestsByPartition, response: OffsetForLeaderEpochResponse, now_ms: int
) -> set[str]:
    """As `on_fetch_response`."""
    rows = epoch_end_rows(response)
    stale = set()
    for partition, question in requested.items():
        reader, need = question.reader, question.need
        assert isinstance(need, Validate)
        code, answer = rows.get(partition, (Code.UNKNOWN_SERVER_ERROR, None))
        if code is not Code.NONE:
            reader.on_refused(question.generation, _refused("validate", partition, code), now_ms)
            stale.add(partition.topic)
        else:
            reader.on_epoch_end(question.generation, need.leader_epoch, answer, now_ms)
    return stale


def on_no_answer(requested: Iterable[PartitionRequest], now_ms: int) -> None:
    """A request was lost: nothing is known."""
    for question in requested:
        question.reader.on_failure(question.generation, now_ms)


def _refused(what: str, partition: TopicPartition, code: Code) -> KafkaError:
    return KafkaError(f"{what}: {partition}: {code.meaning} ({code.name})", code=code)


def _on_wire(leader_epoch: LeaderEpoch | None) -> int:
    return -1 if leader_epoch is None else leader_epoch
