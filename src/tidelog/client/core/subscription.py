"""All partitions that a consumer is assigned: what to ask of which broker next, and what may be delivered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tidelog.base.errors import KafkaError, MalformedBatchError, RecordDeserializationError, TidelogError
from tidelog.base.ids import BrokerId, PartitionIndex, Position, TopicId, TopicPartition, uuid_text
from tidelog.client.core.fetch_messages import RequestsByPartition, partition_request
from tidelog.client.core.fetched import FetchedRange
from tidelog.client.core.metadata_cache import MetadataCache
from tidelog.client.core.needs import FetchFrom, LookUp, NeedsMetadata, Validate
from tidelog.client.core.positions import PositionStatus
from tidelog.client.core.reader import PartitionReader, Phase
from tidelog.client.core.values import (
    RAW,
    ConsumerRecord,
    ConsumerRecords,
    Deserializers,
    FetchedBatches,
    PositionReset,
    ResetPolicy,
)
from tidelog.records.batch import read_records_of

_make_record = partial(tuple.__new__, ConsumerRecord)

Begins = dict[TopicPartition, tuple[PositionStatus, TopicId | None]]
"""Where readers stood, and of which topic they were."""


@dataclass(slots=True)
class PollPlan:
    """The requests to send, and to whom. Fetches count as sent only once the shell has a connection for them."""

    look_ups: dict[BrokerId, RequestsByPartition] = field(default_factory=dict)
    validations: dict[BrokerId, RequestsByPartition] = field(default_factory=dict)
    fetches: dict[BrokerId, list[tuple[PartitionReader, FetchFrom]]] = field(default_factory=dict)
    needs_metadata: bool = False


class Subscription:
    """See the module.

    Args:
        policy: what to do where a position is lost.
        fetch_size_bytes: of one partition at a time.
        retry_delay_ms: how long to wait after so many failures in a row.
        deserializers: of keys and values; they are called on the loop.
        unknown_ms_max, begins_at: see `PartitionReader`.
    """

    def __init__(
        self,
        policy: ResetPolicy,
        fetch_size_bytes: int,
        retry_delay_ms: Callable[[int], int],
        *,
        deserializers: Deserializers = RAW,
        unknown_ms_max: int | None = None,
        begins_at: Callable[[], int] | None = None,
    ) -> None:
        self.readers: dict[TopicPartition, PartitionReader] = {}
        self.paused: set[TopicPartition] = set()
        self._policy = policy
        self._fetch_size_bytes = fetch_size_bytes
        self._retry_delay_ms = retry_delay_ms
        self._deserializers = deserializers
        self._unknown_ms_max = unknown_ms_max
        self._begins_at = begins_at
        self._resets: list[PositionReset] = []

    # What the caller wants.
    def assign(
        self,
        partitions: Iterable[TopicPartition],
        metadata: MetadataCache,
        now_ms: int,
        *,
        is_awaiting: bool = False,
    ) -> None:
        """These, and no others, from now on. Those that were assigned before keep their positions.

        Args:
            is_awaiting: whether new ones start only where `PartitionReader.start` says.
        """
        before = self.readers
        self.readers = {}
        for partition in partitions:
            reader = before.get(partition)
            if reader is None:
                reader = PartitionReader(
                    partition,
                    self._policy,
                    self._fetch_size_bytes,
                    self._retry_delay_ms,
                    self._resets.append,
                    unknown_ms_max=self._unknown_ms_max,
                    begins_at=self._begins_at,
                    is_awaiting=is_awaiting,
                )
            self.readers[partition] = reader
        self.paused &= self.readers.keys()
        self.on_metadata(metadata, now_ms)

    # What happened.
    def on_metadata(self, metadata: MetadataCache, now_ms: int) -> None:
        for partition, reader in self.readers.items():
            topic_id, view = metadata.topic_id(partition.topic), metadata.partition(partition)
            reader.on_metadata(topic_id, view, now_ms, refusal=metadata.refusal(partition))

    # What to do.
    def plan(self, now_ms: int) -> PollPlan:
        """The requests that are due now."""
        plan = PollPlan()
        for partition, reader in self.readers.items():
            if partition in self.paused and reader.phase is Phase.FETCHING:
                continue
            need = reader.need(now_ms)
            if need is None:
                continue
            if isinstance(need, NeedsMetadata) or reader.leader_id is None:
                plan.needs_metadata = True
            elif isinstance(need, LookUp):
                plan.look_ups.setdefault(reader.leader_id, {})[partition] = partition_request(reader, need)
            elif isinstance(need, Validate):
                plan.validations.setdefault(reader.leader_id, {})[partition] = partition_request(reader, need)
            else:
                plan.fetches.setdefault(need.broker_id, []).append((reader, need))
        return plan

    @staticmethod
    def start_fetches(wanted: Iterable[tuple[PartitionReader, FetchFrom]]) -> RequestsByPartition:
        """Note that these are being fetched now."""
        return {reader.topic_partition: partition_request(reader, need) for reader, need in wanted}

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When `plan` may have more to say though nothing happened: the ends of back-offs."""
        pending = [reader.not_before_ms for reader in self.readers.values() if reader.not_before_ms > now_ms]
        return min(pending, default=None)

    def take_resets(self) -> list[PositionReset]:
        """Positions that moved by policy since the last call."""
        resets = self._resets[:]
        self._resets.clear()
        return resets

    @property
    def awaiting(self) -> list[TopicPartition]:
        """Those that wait to be told where to start."""
        return [key for key, reader in self.readers.items() if reader.phase is Phase.AWAITING]

    # What may be delivered.
    @property
    def has_some(self) -> bool:
        """Whether anything is held to be delivered, even if it is only a position that moves."""
        return any(reader.held and key not in self.paused for key, reader in self.readers.items())

    def error(self) -> TidelogError | None:
        """Why a partition stopped, if one did."""
        return next((reader.error for reader in self.readers.values() if reader.error is not None), None)

    def take_records(self, records_max: int) -> ConsumerRecords[Any, Any]:
        """Deliver up to so many records, in the order of their offsets within each partition."""
        taken: list[ConsumerRecord[Any, Any]] = []
        next_offsets: dict[TopicPartition, Position] = {}
        begins: dict[TopicPartition, PositionStatus] = {}
        for reader in self._in_turn():
            begins[reader.topic_partition] = reader.place()
            while reader.held and len(taken) < records_max:
                fetched = reader.held[0]
                try:
                    _take_records(reader, fetched, taken, records_max, self._deserializers)
                except MalformedBatchError as error:
                    where = f"{reader.topic_partition}: offset {reader.offset}"
                    reader.stop(reader.generation, KafkaError(f"{where}: {error}; to skip it, seek", code=error.code))
                    break
                except RecordDeserializationError as error:
                    reader.stop(reader.generation, error)
                    break
                except BaseException:  # of a deserializer: Ctrl-C, or what is no Exception. Nobody gets what was taken
                    for key, place in begins.items():
                        self.readers[key].give_back(place, self.readers[key].topic_id)
                    raise
                if fetched.next_batch == len(fetched.batches):
                    reader.on_all_delivered()
            if (position := reader.position) is not None:
                next_offsets[reader.topic_partition] = position
            if len(taken) >= records_max:
                break
        return ConsumerRecords(taken, next_offsets, begins, {key: self.readers[key].topic_id for key in begins})

    def take_batches(self, answers_max: int, begins: Begins) -> list[FetchedBatches]:
        """Deliver whole batches, of up to so many answers of brokers; each gives one value or more.

        Args:
            begins: is told where each reader stood before, unless it knows of an earlier place.
        """
        taken: list[FetchedBatches] = []
        for reader in self._in_turn():
            if answers_max > 0:
                begins.setdefault(reader.topic_partition, (reader.place(), reader.topic_id))
            while reader.held and answers_max > 0:
                taken += _take_batches(reader, reader.held[0])
                answers_max -= 1
        return taken

    def _in_turn(self) -> list[PartitionReader]:
        """Those that have something, the next one first; whoever comes first now comes last then."""
        ready = [reader for key, reader in self.readers.items() if reader.held and key not in self.paused]
        if len(ready) > 1:
            first = ready[0]
            self.readers[first.topic_partition] = self.readers.pop(first.topic_partition)
        return ready


def _take_records(
    reader: PartitionReader,
    fetched: FetchedRange,
    taken: list[ConsumerRecord[Any, Any]],
    records_max: int,
    deserializers: Deserializers,
) -> None:
    assert reader.offset is not None
    while fetched.next_batch < len(fetched.batches) and len(taken) < records_max:
        at, header = fetched.batches[fetched.next_batch]
        if fetched.decoded is None:
            fetched.decoded = read_records_of(reader.topic_partition, fetched.buffer, at, header, _make_record)
            if header.base_offset < reader.offset:
                fetched.decoded = [record for record in fetched.decoded if record.offset >= reader.offset]
            fetched.decoded_at = 0
        start = fetched.decoded_at
        records, refused = fetched.decoded[start : start + records_max - len(taken)], None
        if deserializers is not RAW:
            records, refused = _deserialized(records, deserializers)
        fetched.decoded_at = start + len(records)
        next_offset = records[-1].offset + 1 if records else header.next_offset
        if fetched.decoded_at == len(fetched.decoded) and refused is None:
            fetched.decoded = None
            fetched.next_batch += 1
            next_offset = header.next_offset
        taken += records
        if records or refused is None:
            reader.on_delivered(next_offset, records[-1].timestamp if records else header.max_timestamp)
        if refused is not None:
            raise refused


def _deserialized(
    records: Sequence[ConsumerRecord[Any, Any]], deserializers: Deserializers
) -> tuple[list[ConsumerRecord[Any, Any]], RecordDeserializationError | None]:
    """The records with their keys and values as they are made, up to the first that is not, and why that is not."""
    made: list[ConsumerRecord[Any, Any]] = []
    for topic, partition, offset, epoch, timestamp, kind, key, value, headers in records:
        what = "key"
        try:
            if deserializers.key is not None:
                key = deserializers.key(key)  # noqa: PLW2901
            what = "value"
            if deserializers.value is not None:
                value = deserializers.value(value)  # noqa: PLW2901
        except Exception as why:
            place = TopicPartition(topic, PartitionIndex(partition))
            is_null = (key if what == "key" else value) is None
            refused = RecordDeserializationError(
                place, offset=offset, leader_epoch=epoch, what=what, why=why, is_null=is_null
            )
            refused.__cause__ = why
            return made, refused
        made.append(_make_record((topic, partition, offset, epoch, timestamp, kind, key, value, headers)))
    return made, None


def _take_batches(reader: PartitionReader, fetched: FetchedRange) -> list[FetchedBatches]:
    assert reader.offset is not None
    taken = []
    start: int = reader.offset
    topic_id = None if reader.topic_id is None else uuid_text(reader.topic_id)
    runs = fetched.runs(start)
    for index, (view, headers) in enumerate(runs or [(fetched.buffer[:0], [])]):
        is_last = index + 1 >= len(runs)
        next_offset = fetched.next_offset if is_last else headers[-1].next_offset
        epoch = headers[-1].leader_epoch if headers else -1
        taken.append(
            FetchedBatches(
                reader.topic_partition,
                view,
                start,
                next_offset,
                fetched.high_watermark,
                fetched.last_stable_offset,
                fetched.log_start_offset,
                epoch if epoch >= 0 else None,
                topic_id,
                tuple(gap for gap in fetched.gaps if start < gap[1] and gap[0] < next_offset),
            )
        )
        for header in headers:
            reader.on_delivered(header.next_offset, header.max_timestamp)
        start = next_offset
    reader.on_all_delivered()
    return taken
