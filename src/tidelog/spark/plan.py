"""From what the cluster says and what the options ask for to the ranges of one batch. Pure.

A batch of a stream is planned in two halves, which may run in different lives of the query: `next_end` decides
where it ends (Spark writes that down), `ranges_of` derives from two such offsets what is read, always the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tidelog.base.errors import TidelogError
from tidelog.base.ids import LeaderEpoch, Offset, TopicPartition
from tidelog.spark.offsets import CheckpointError, ReadPosition, StreamOffset
from tidelog.spark.tags import OFFSET_OUT_OF_RANGE, tagged_text
from tidelog.spark.truncation import PartitionFacts

RANGE_RECORDS_MAX = 4_000_000
"""A task never reads more: its retry after a failure is bounded, and no column comes near Arrow's 2 GiB."""

LATEST = -1
EARLIEST = -2
"""How offsets in options spell the ends of the log, as Kafka's ListOffsets does."""


class PlanError(TidelogError):
    """What the options ask for is not there. Names the option, the partition, and what there is."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What the cluster says of the selected topics, at one moment.

    Attributes:
        topic_ids: of those that exist; None from brokers that have no ids.
        partitions: those that are selected.
        with_gaps: topics in which offsets may be missing, because they are compacted.
    """

    topic_ids: Mapping[str, str | None]
    partitions: Mapping[TopicPartition, PartitionFacts]
    with_gaps: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading starts or ends: the first of the four that is given counts, `named` being the last resort.

    Attributes:
        option: as it is called, for errors.
        timestamp_ms: the first record at or after it, in every partition.
        timestamps_ms: the same by partition.
        offsets: by partition; may be LATEST or EARLIEST.
        named: LATEST or EARLIEST.
        latest_without_match: a timestamp that no record reaches means the end of the log; else it is an error.
    """

    option: str
    named: int
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    latest_without_match: bool = False

    def timestamp_of(self, partition: TopicPartition) -> int | None:
        """What to look up in this partition before `resolve`, if anything."""
        if self.timestamp_ms is not None:
            return self.timestamp_ms
        return None if self.timestamps_ms is None else self.timestamps_ms.get(partition)

    def check_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Per-partition values must name all partitions that are read, and no others, as in Spark's connector.

        Raises:
            PlanError: lists those that are missing or superfluous.
        """
        if self.timestamp_ms is not None:
            return
        given = self.timestamps_ms if self.timestamps_ms is not None else self.offsets
        if given is None:
            return
        wanted = set(partitions)
        problems = []
        if wanted - given.keys():
            problems.append(f"it lacks {_names(wanted - given.keys())}")
        if given.keys() - wanted:
            problems.append(f"there is no {_names(given.keys() - wanted)}")
        if problems:
            raise PlanError(f"{self.option} must name every partition that is read: {' and '.join(problems)}")

    def resolve(self, partition: TopicPartition, facts: PartitionFacts, found: Offset | None, *, clamp: bool) -> Offset:
        """The offset that this means in one partition.

        Args:
            partition: which.
            facts: of the partition.
            found: what the look-up of `timestamp_of` answered; None if no record is so late, or nothing was looked up.
            clamp: take an offset outside the log for the nearer end of it, instead of failing (failOnDataLoss=false).

        Raises:
            PlanError: there is no such offset or no such timestamp.
        """
        timestamp_ms = self.timestamp_of(partition)
        if timestamp_ms is not None:
            if found is None and not self.latest_without_match:
                raise PlanError(
                    f"{self.option}: {partition} holds no record at or after timestamp {timestamp_ms}; "
                    "startingOffsetsByTimestampStrategy=latest would start at its end"
                )
            # Records at or above the end offset may not be read yet.
            return facts.end_offset if found is None else min(found, facts.end_offset)
        asked = self.named if self.offsets is None else self.offsets[partition]
        if asked == LATEST:
            return facts.end_offset
        if asked == EARLIEST:
            return facts.log_start_offset
        nearest = min(max(asked, facts.log_start_offset), facts.end_offset)
        if nearest != asked and not clamp:
            raise PlanError(
                f"{self.option}: offset {asked} of {partition} lies outside what there is, "
                f"[{facts.log_start_offset}, {facts.end_offset}]; failOnDataLoss=false would take the nearer end"
            )
        return Offset(nearest)

    def is_moved(self, partition: TopicPartition, offset: Offset) -> bool:
        """Whether `resolve` took another offset than the one that was given."""
        if self.timestamp_of(partition) is not None or self.offsets is None:
            return False
        return self.offsets[partition] not in (LATEST, EARLIEST, offset)


def moved_text(bound: Bound, partition: TopicPartition, offset: Offset, facts: PartitionFacts) -> str:
    """That an offset of the options lies outside the log (failOnDataLoss=false), as a line of the driver's log."""
    assert bound.offsets is not None
    asked = bound.offsets[partition]
    details = {
        "asked": asked,
        "endOffset": facts.end_offset,
        "logStartOffset": facts.log_start_offset,
        "option": bound.option,
        "partition": partition.partition,
        "taken": offset,
        "topic": partition.topic,
        "v": 1,
    }
    return (
        f"{bound.option}: offset {asked} of {partition} lies outside what there is, [{facts.log_start_offset}, "
        f"{facts.end_offset}]; {offset} is taken in its place (failOnDataLoss=false). "
        f"{tagged_text(OFFSET_OUT_OF_RANGE, details)}"
    )


class Range(NamedTuple):
    """What one task reads: [start_offset, end_offset) of a partition.

    Attributes:
        leader_epoch_before: of the record before `start_offset`, if known: where the reader seeks to (KIP-320).
        leader_epoch_min: no record of the range may be of an older one; None if none is known.
        leader_epoch_max: no record of the range may be of a newer one; None if none is known.
        may_have_gaps: offsets may be missing, because the topic is compacted.
    """

    partition: TopicPartition
    topic_id: str | None
    start_offset: Offset
    end_offset: Offset
    leader_epoch_before: LeaderEpoch | None = None
    leader_epoch_min: LeaderEpoch | None = None
    leader_epoch_max: LeaderEpoch | None = None
    may_have_gaps: bool = False

    @property
    def record_count(self) -> int:
        """Offsets in the range; compaction and transactions may have left fewer records."""
        return self.end_offset - self.start_offset

    @staticmethod
    def between(partition: TopicPartition, topic_id: str | None, begin: ReadPosition, end: ReadPosition) -> Range:
        """The range between two positions. The epoch of a position whose record was never there bounds nothing."""
        first = None if begin.unread else begin.leader_epoch
        last = None if end.unread else end.leader_epoch
        return Range(partition, topic_id, begin.offset, end.offset, first, first, last)


def admit(
    begin: Mapping[TopicPartition, Offset], latest: Mapping[TopicPartition, Offset], limit: int | None
) -> dict[TopicPartition, Offset]:
    """Where the next batch ends in each partition (maxOffsetsPerTrigger).

    The limit is shared out in proportion to what waits in each partition; each gets one record at least, so that
    none starves: with a limit below the number of partitions a batch is as large as that number.

    Args:
        begin: where it begins.
        latest: the end of what may be read. One below `begin` (a new leader's high watermark lags) counts as equal.
        limit: records of the batch, at least 1; None for all.
    """
    waiting = {partition: max(0, latest[partition] - offset) for partition, offset in begin.items()}
    total = sum(waiting.values())
    if limit is None or total <= limit:
        return {partition: Offset(offset + waiting[partition]) for partition, offset in begin.items()}
    shares = {partition: max(1, limit * count // total) if count else 0 for partition, count in waiting.items()}
    # What rounding down left goes to those that wait longest for it, the largest first.
    left = max(0, limit - sum(shares.values()))
    for partition in sorted(waiting, key=lambda key: (-(limit * waiting[key] % total), key))[:left]:
        shares[partition] = min(shares[partition] + 1, waiting[partition])
    return {partition: Offset(offset + shares[partition]) for partition, offset in begin.items()}


def is_too_little(waiting_count: int, minimum: int | None, waited_ms: int, delay_ms_max: int) -> bool:
    """Whether the next batch should wait for more (minOffsetsPerTrigger), having waited `waited_ms` already."""
    return minimum is not None and waiting_count < minimum and waited_ms < delay_ms_max


def ranges_of(start: StreamOffset, end: StreamOffset) -> dict[TopicPartition, tuple[ReadPosition, ReadPosition]]:
    """What the batch between two offsets of the stream reads: for each partition where it begins and ends.

    Empty ranges are among them: their positions are worth validating as well.

    Raises:
        CheckpointError: the two do not belong together.
    """
    if start == end:
        return {}
    ranges = {}
    for partition, last in end.positions.items():
        first = end.begin.get(partition, start.positions.get(partition))
        if first is None:
            raise CheckpointError(
                f"the checkpoint does not say where {partition} begins: an offset is missing or of another query. "
                "Restore the checkpoint, or start with a new checkpointLocation"
            )
        if first.offset > last.offset:
            raise CheckpointError(
                f"the checkpoint has {partition} begin at {first.offset} and end at {last.offset}: offsets of two "
                "queries are mixed up. Restore the checkpoint, or start with a new checkpointLocation"
            )
        ranges[partition] = (first, last)
    return ranges


def clip(begin: ReadPosition, end: ReadPosition, resume: Offset | None) -> tuple[ReadPosition, ReadPosition]:
    """What a replay can still read of [begin, end) when `resume` is the first offset that is not what it was.

    The rest is read again by the batch after it, which finds the same loss, begins at `resume` and says so.
    """
    if resume is None or resume <= begin.offset:
        return begin, begin
    # What is left was written no later than the rest.
    return begin, end._replace(offset=min(resume, end.offset))


def split(ranges: Iterable[Range], *, records_max: int | None, count_min: int | None) -> list[Range]:
    """Cut ranges into those that tasks read, and drop the empty ones.

    Args:
        ranges: one for each partition.
        records_max: of one task (maxRecordsPerPartition), besides RANGE_RECORDS_MAX; at least 1.
        count_min: tasks to aim at (minPartitions); the larger ranges are cut into more of them.
    """
    limit = min(records_max or RANGE_RECORDS_MAX, RANGE_RECORDS_MAX)
    full = [whole for whole in ranges if whole.record_count > 0]
    total = sum(whole.record_count for whole in full)
    parts = {whole.partition: -(-whole.record_count // limit) for whole in full}
    if count_min is not None and sum(parts.values()) < count_min:
        for whole in full:
            share = (2 * count_min * whole.record_count + total) // (2 * total)  # rounded
            parts[whole.partition] = min(max(parts[whole.partition], share), whole.record_count)
    return [piece for whole in full for piece in _cut(whole, parts[whole.partition])]


def _cut(whole: Range, parts: int) -> list[Range]:
    cuts = [Offset(whole.start_offset + whole.record_count * number // parts) for number in range(parts + 1)]
    pieces = [whole._replace(start_offset=start, end_offset=end) for start, end in pairwise(cuts)]
    # The epoch before an inner cut is known only if the whole range has but one.
    within = whole.leader_epoch_min if whole.leader_epoch_min == whole.leader_epoch_max else None
    return [*pieces[:1], *(piece._replace(leader_epoch_before=within) for piece in pieces[1:])]


def lag_json(positions: Mapping[TopicPartition, ReadPosition], facts: ClusterFacts) -> dict[str, object]:
    """How far the stream is behind: `progress.sources[].latestOffset`, with the names of Spark's connector."""
    topics: dict[str, dict[str, dict[str, int]]] = {}
    behind = []
    for partition, now in sorted(facts.partitions.items()):
        position = positions.get(partition)
        lag = max(0, now.end_offset - (now.log_start_offset if position is None else position.offset))
        behind.append(lag)
        topics.setdefault(partition.topic, {})[str(partition.partition)] = {
            "endOffset": now.end_offset,
            "offsetsBehindLatest": lag,
        }
    return {
        "avgOffsetsBehindLatest": sum(behind) / len(behind) if behind else 0.0,
        "maxOffsetsBehindLatest": max(behind, default=0),
        "minOffsetsBehindLatest": min(behind, default=0),
        "topics": topics,
        "v": 1,
    }


def _names(partitions: Iterable[TopicPartition]) -> str:
    names = [str(partition) for partition in sorted(partitions)]
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
