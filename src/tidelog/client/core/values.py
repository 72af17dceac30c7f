"""What producers and consumers take and return: plain values, with Kafka's words. -1 of the wire is None here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from tidelog.base.errors import Code
from tidelog.base.ids import Position, TopicId, TopicPartition

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # of type checkers, which know the defaults (PEP 696)

    K = TypeVar("K", default=bytes | None)
    V = TypeVar("V", default=bytes | None)
else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")

Headers = tuple[tuple[str, bytes | None], ...]

_CODES = {int(code): code for code in Code}


def code_of(number: int) -> Code:
    """The code of an answer. One that is not in our table is the server's own trouble: UNKNOWN_SERVER_ERROR."""
    return _CODES.get(number, Code.UNKNOWN_SERVER_ERROR)


class RecordMetadata(NamedTuple):
    """Where a record went."""

    topic: str
    partition: int
    offset: int | None
    """None if it is not known: with acks=0, and for a duplicate that the broker has forgotten the place of."""
    timestamp: int
    """ms since 1970: the leader's clock if the topic says LogAppendTime, else the producer's."""
    leader_epoch: int | None
    """Of the leader that the producer knew when it sent the record; the record bears this epoch, or a later one, so it
    is not one to `seek` with."""


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """One record as it is read: its key and value as the deserializers made them, bytes without."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    timestamp: int
    """ms since 1970; -1 for none."""
    timestamp_type: str
    """`CreateTime` or `LogAppendTime`."""
    key: K
    value: V
    headers: Headers


class ConsumerRecords(list[ConsumerRecord[K, V]]):
    """What one `poll` gave: a list of records, in the order of their offsets within each partition.

    Kafka: `ConsumerRecords`.
    """

    # `begins` and `topic_ids` are the consumer's: where each reader stood before, and of which topic it was.

    __slots__ = ("_next", "begins", "topic_ids")

    def __init__(
        self,
        records: Iterable[ConsumerRecord[K, V]] = (),
        next_offsets: Mapping[TopicPartition, Position] | None = None,
        begins: Mapping[TopicPartition, Any] | None = None,
        topic_ids: Mapping[TopicPartition, TopicId | None] | None = None,
    ) -> None:
        super().__init__(records)
        self._next = dict(next_offsets or {})
        self.begins = begins or {}
        self.topic_ids = topic_ids or {}

    def next_offsets(self) -> dict[TopicPartition, Position]:
        """Where each partition that it came from is read on: behind these records, and what is hidden behind them.

        A position may be stored, and given to `seek` (KIP-1094).
        """
        return dict(self._next)


class Deserializers(NamedTuple):
    """What makes keys and values of their bytes. None leaves them as they are."""

    key: Callable[[Any], Any] | None
    value: Callable[[Any], Any] | None


RAW = Deserializers(None, None)


class OffsetAndEpoch(NamedTuple):
    """An offset that the broker looked up."""

    offset: int
    leader_epoch: int | None
    """Of the record at the offset; for the end of the log, the leader's own epoch, which may hold no record yet."""
    timestamp: int | None
    """ms since 1970, of the record found by time; None for the two ends of the log."""


class FetchedBatches(NamedTuple):
    """Whole batches of one partition as they came from the broker, one after the other, each with its CRC checked.

    Only batches whose records are to be delivered are in `buffer`: control batches, and under read_committed those of
    aborted transactions, are left out, so it may be empty while `next_offset` moves on. The first batch may start below
    `fetch_offset`, and it is the reader's to skip what lies there.
    """

    topic_partition: TopicPartition
    buffer: memoryview
    """The reader's to keep: nothing is ever written into it again."""
    fetch_offset: int
    """What was asked for, inclusive."""
    next_offset: int
    """The position after these batches."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    leader_epoch: int | None
    """Of the last batch."""
    topic_id: str | None
    """As Kafka prints it; None where the broker has none."""
    gaps: tuple[tuple[int, int], ...] = ()
    """Offsets before `next_offset`, from inclusive to exclusive, of which the broker has no batch, not even one that is
    left out here: compaction removed it, or it is lost."""


class CommittedOffset(NamedTuple):
    """How far a group has read a partition."""

    offset: int
    """The next one to read."""
    leader_epoch: int | None = None
    """Of the record before it. With it a consumer finds out about a truncation in between (KIP-320)."""
    metadata: str = ""
    """A word of whoever committed."""


class RebalanceKind(Enum):
    REVOKED = "revoked"
    ASSIGNED = "assigned"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Rebalance:
    """What changes for the caller.

    Attributes:
        kind: REVOKED: the partitions are still its own until it agrees, and offsets can be committed. LOST: they are
            another's already.
        partitions: which come, or go.
    """

    kind: RebalanceKind
    partitions: frozenset[TopicPartition]


class PartitionStatistics(NamedTuple):
    """How a consumer stands in one partition, as of the last answer to a fetch. None where nothing is known yet."""

    position: int | None
    """Offset of the next record to deliver."""
    log_start_offset: int | None
    high_watermark: int | None
    """As the leader said it last."""
    last_stable_offset: int | None
    lag: int | None
    """Offsets from the position to the end of what may be read (under read_committed: that is decided); never negative,
    though the position may be above a high watermark that went back."""
    high_watermark_regressions: int
    """How often a leader said a lower high watermark than was said before, since the partition was assigned. A new
    leader cannot know the old one's: it goes on from its own and catches up within a fetch of its followers. After an
    unclean election it stays lower."""
    truncations: int
    """How often the log was found to lack what was read, or stood past, since the partition was assigned."""


class ProducerStatistics(NamedTuple):
    """How a producer stands. The counts are since its start."""

    records_delivered: int
    batches_delivered: int
    bytes_delivered: int
    """Of records, before compression; at the most."""
    records_failed: int
    batches_retried: int
    """How often a batch was sent that had been sent before."""
    losses: int
    """How often it showed that acknowledged records are gone: see `on_records_lost`."""
    batches_waiting: int
    """Those that are filled included."""
    batches_in_flight: int
    """Sent, and not answered."""
    buffered_bytes: int
    """Of all that is neither delivered nor has failed: `buffer_memory` is the most."""
    oldest_batch_ms: int
    """How long the oldest of it has waited; 0 if there is none."""


class ResetReason(Enum):
    """Why a consumer moved a position by itself."""

    TRUNCATED = "the log was truncated"
    OUT_OF_RANGE = "the position lay outside the log"
    RECREATED = "the topic was recreated"


@dataclass(frozen=True, slots=True)
class PositionReset:
    """A consumer moved a position by itself, as its reset policy says. What `on_reset` is called with.

    After a truncation, whatever came from records at and above `divergent_offset` is to be undone; None says that the
    consumer cannot tell where the logs part.
    """

    topic_partition: TopicPartition
    reason: ResetReason
    position: Position
    """Where the reader stood."""
    divergent_offset: int | None
    new_offset: int | None
    """Where it goes on; None while a lookup by the policy is still to find it."""


class ResetPolicy(Enum):
    """What to do where there is no position, or where it is lost. Truncation resets precisely wherever it can."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CLOSEST = "closest"
    """Tidelog's own: the divergence if it is known, else the time of the last record read, else the latest offset."""
    BY_DURATION = "by_duration"
    """The first record of so long ago, or the latest offset if there is none since (KIP-1106)."""
    NONE = "none"
    """Raise, and go nowhere until the caller seeks."""


class IsolationLevel(Enum):
    """Whether records of open and aborted transactions are delivered."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"
