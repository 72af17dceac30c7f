"""Whether what a reader stood past is still in the log, and from where on it is not (KIP-320).

Pure: a function here that needs to know where a leader epoch ends `yield`s the epoch and is sent the leader's
answer, so that whoever drives it can ask for many partitions in one request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from tidelog.base.errors import Code, KafkaError, LogTruncatedError
from tidelog.base.ids import LeaderEpoch, Offset, TopicPartition
from tidelog.base.invariant import invariant
from tidelog.client.core.positions import PositionStatus, Questions, Truncated, Undefined, validate
from tidelog.records.lineage import LeaderEpochLineage
from tidelog.spark.offsets import LINEAGE_LENGTH_MAX, Loss, ReadPosition
from tidelog.spark.tags import LOG_TRUNCATION, tagged_text


class PartitionFacts(NamedTuple):
    """What the cluster says of one partition now.

    Attributes:
        leader_epoch: of its leader. None from brokers that do not tell.
        log_start_offset: the first offset there is.
        end_offset: the first offset that a reader may not read yet: the high watermark or, for readers of
            committed records, the last stable offset.
    """

    leader_epoch: LeaderEpoch | None
    log_start_offset: Offset
    end_offset: Offset


class OnTruncation(Enum):
    """What a reader does that finds records gone which it stood past."""

    FAIL = "fail"
    REWIND = "rewind"
    EARLIEST = "earliest"
    LATEST = "latest"


class CannotTellError(KafkaError):
    """The leader cannot say yet where an epoch ends, or says what it took back since. Never a truncation: ask again."""

    code = Code.OFFSET_NOT_AVAILABLE


def place(
    offset: Offset,
    facts: PartitionFacts,
    after: ReadPosition | None = None,
    *,
    epochs_max: int | None = LINEAGE_LENGTH_MAX,
) -> Questions[ReadPosition]:
    """The position at `offset`, with the leader epoch of the record before it.

    The current epoch would not do: it may hold no record, and then a lineage without it is nothing to worry about,
    while one without the epoch of a record that was read means that the record is gone.

    Args:
        offset: at or below the end offset.
        facts: of the partition, now.
        after: a valid position at or below `offset`, of which the lineage is continued.
        epochs_max: leader epochs of the lineage; None for all that the log has. Each is a question.
    """
    if after is not None and after.offset == offset:
        return after
    if offset == 0 or facts.leader_epoch is None:
        return ReadPosition(offset)
    if offset <= facts.log_start_offset:
        return ReadPosition(offset, facts.leader_epoch, unread=True)
    # Ends grow with epochs: the record's epoch is the smallest that does not end before `offset`.
    too_old, record_epoch = -1, facts.leader_epoch
    known = after if after is not None and not after.unread else None
    if known is not None and known.leader_epoch is not None:
        if known.leader_epoch == facts.leader_epoch:
            return ReadPosition(offset, known.leader_epoch, lineage=known.lineage)
        answer = yield known.leader_epoch
        if answer is not None and answer[1] >= offset:
            return ReadPosition(offset, known.leader_epoch, lineage=known.lineage)
        too_old = known.leader_epoch
    while too_old + 1 < record_epoch:
        asked = LeaderEpoch((too_old + record_epoch) // 2)
        answer = yield asked
        if answer is not None and answer[1] >= offset:
            record_epoch = answer[0]
        else:
            too_old = asked
    lineage = yield from _lineage(record_epoch, facts.log_start_offset, known, epochs_max)
    return ReadPosition(offset, record_epoch, lineage=lineage)


def _lineage(
    record_epoch: LeaderEpoch, log_start_offset: Offset, known: ReadPosition | None, epochs_max: int | None
) -> Questions[tuple[tuple[LeaderEpoch, Offset], ...]]:
    """The leader epochs up to `record_epoch`, down to those of `known` or as far as the log and the limit reach."""
    older: tuple[tuple[LeaderEpoch, Offset], ...] = ()
    newer: list[tuple[LeaderEpoch, Offset]] = []
    epoch = record_epoch
    while epoch > 0 and (epochs_max is None or len(newer) < epochs_max):
        before = yield LeaderEpoch(epoch - 1)  # it ends where `epoch` starts
        if before is None or before[1] <= log_start_offset:
            break
        newer.append((epoch, before[1]))
        epoch = before[0]
        if known is not None and known.leader_epoch is not None and epoch <= known.leader_epoch:
            older, epoch = known.lineage or ((known.leader_epoch, Offset(0)),), LeaderEpoch(-1)
    if epoch >= 0:
        newer.append((epoch, Offset(0)))
    lineage = (*older, *reversed(newer))[-(epochs_max or 0) :]
    # Nothing is known of what was before the first: it is taken to reach back to the beginning.
    return ((lineage[0][0], Offset(0)), *lineage[1:]) if len(lineage) > 1 else ()


def examine(position: ReadPosition, facts: PartitionFacts) -> Questions[Loss | None]:
    """What is gone of that which lies below `position`, or above it and was never read.

    Raises:
        CannotTellError: ask again later.
    """
    if position.offset > 0 and facts.leader_epoch is not None:
        standing = _standing(position, facts.leader_epoch)
        verdict = yield from validate(standing, facts.leader_epoch)
        if isinstance(verdict, Undefined):
            raise CannotTellError(f"the leader knows no end of leader epoch {standing.leader_epoch} yet")
        if isinstance(verdict, Truncated):
            return Loss("truncated", position, verdict.divergent_offset)
    if position.offset < facts.log_start_offset:
        return Loss("retention", position, facts.log_start_offset)
    return None


def is_ahead(position: ReadPosition, facts: PartitionFacts) -> bool:
    """Whether the position is of a leader epoch that this leader has not heard of."""
    return facts.leader_epoch is not None and _standing(position, facts.leader_epoch).is_ahead_of(facts.leader_epoch)


def _standing(position: ReadPosition, leader_epoch: LeaderEpoch) -> PositionStatus:
    """A position without an epoch is held against the end of the log, as one that was looked up there."""
    if position.leader_epoch is None:
        return PositionStatus.looked_up(position.offset, leader_epoch)
    lineage = LeaderEpochLineage(position.lineage or [(position.leader_epoch, Offset(0))])
    return PositionStatus(position.offset, position.leader_epoch, was_read=not position.unread, lineage=lineage)


def resume_offset(loss: Loss, on_truncation: OnTruncation, facts: PartitionFacts | None) -> Offset | None:
    """Where to go on after a loss, under any policy but `fail`. None: the partition is no more.

    `rewind` goes back as far as records were taken back, and no further; where that cannot be told, and for what
    retention removed or a topic of the same name replaced, to the first offset that there is.
    """
    invariant(on_truncation is not OnTruncation.FAIL, "nothing is resumed under onTruncation=fail")
    if facts is None:
        return None
    if on_truncation is OnTruncation.LATEST:
        return facts.end_offset
    if on_truncation is OnTruncation.REWIND and loss.cause == "truncated" and loss.resume_offset is not None:
        return max(loss.resume_offset, facts.log_start_offset)
    return facts.log_start_offset


class Consequences(NamedTuple):
    """What going on after a loss does to the results. Counts are of offsets, and upper bounds.

    Attributes:
        gone_count: of the offsets that the query had read, those that are gone: results may still count them.
        read_again_count: of the offsets that the query had read, those that are still there and are read again.
        skipped_count: offsets that are never read.
    """

    gone_count: int
    read_again_count: int
    skipped_count: int


def consequences_of(loss: Loss, resumed: Offset | None) -> Consequences:
    """What it means to go on at `resumed`; None: the query did not, or there is no such partition any more."""
    stood = loss.position.offset
    if loss.cause == "retention":
        return Consequences(0, 0, 0 if resumed is None else max(0, resumed - stood))
    if loss.cause != "truncated":
        # Nothing of the old topic is read again, whatever the new one holds; of that, what lies before is never read.
        return Consequences(stood, 0, resumed or 0)
    parted = loss.resume_offset
    if resumed is None:
        return Consequences(max(0, stood - (parted or 0)), 0, 0)
    if parted is None:  # all may be gone, and each that is read again may be one of those
        return Consequences(stood, max(0, stood - resumed), max(0, resumed - stood))
    return Consequences(max(0, stood - parted), max(0, parted - resumed), max(0, resumed - parted))


_WORDS = {
    "truncated": "was truncated, and records that this query stood past are gone",
    "retention": "lost records to retention before this query read them",
    "recreated": "is another topic of the same name than the one that this query read",
    "missing": "does not exist any more, or is not selected any more",
}


def went_on_text(
    partition: TopicPartition,
    loss: Loss,
    resumed: Offset | None,
    on_truncation: OnTruncation,
    facts: PartitionFacts | None,
    *,
    operators: Sequence[str] | None,
) -> str:
    """The line of the driver's log that says that a query goes on after a loss. A tag with JSON ends it.

    Args:
        partition: which lost records.
        loss: what it lost.
        resumed: where the query goes on; None: the partition is no more.
        on_truncation: why it goes on.
        facts: of the partition, now.
        operators: what keeps state in the query; None if nobody looked.
    """
    effects = consequences_of(loss, resumed)
    entry = _loss_json(partition, loss, facts) | {
        "goneCount": effects.gone_count,
        "readAgainCount": effects.read_again_count,
        "resumedOffset": resumed,
        "skippedCount": effects.skipped_count,
    }
    too_many = effects.gone_count + (0 if loss.resume_offset is None else effects.read_again_count)
    if operators:
        state = f" Its state counts up to {too_many} records too many: {', '.join(operators)}."
    elif operators is None:
        state = (
            " Its state was not checked (option checkpoint): aggregates, joins and deduplications count up to "
            f"{too_many} records too many."
        )
    else:
        state = " It keeps no state."
    counted = [
        f"at most {count} offsets {what}"
        for count, what in (
            (effects.gone_count, "that it had read are gone, and its results may still count them"),
            (effects.read_again_count, "that it had read are read again"),
            (effects.skipped_count, "are skipped"),
        )
        if count
    ]
    where = "leaves it out from here on" if resumed is None else f"goes on at offset {resumed}"
    words = (
        f"{partition} {_WORDS[loss.cause]}; the query stood at offset {loss.position.offset} and {where} "
        f"(onTruncation={on_truncation.value}){': ' if counted else ''}{'; '.join(counted)}."
    )
    details = {
        "losses": [entry],
        "onTruncation": on_truncation.value,
        "operators": None if operators is None else list(operators),
        "v": 1,
    }
    return f"{words}{state if too_many else ''} {tagged_text(LOG_TRUNCATION, details)}"


class StreamTruncatedError(LogTruncatedError):
    """Records that the query has read, or stood past, are gone. The text carries `[LOG_TRUNCATION]{json}`, on one line.

    Nothing was skipped. Undo what came from the lost records and restart with onTruncation=rewind; or restart with
    earliest or latest, or with a new checkpoint, and know what that means for the results.
    """

    def __init__(self, losses: Mapping[TopicPartition, Loss], facts: Mapping[TopicPartition, PartitionFacts]) -> None:
        entries = [_loss_json(key, loss, facts.get(key)) for key, loss in sorted(losses.items())]
        partition, loss = min(losses.items())
        others = f" (and {len(losses) - 1} more)" if len(losses) > 1 else ""
        self._set(
            f"{tagged_text(LOG_TRUNCATION, {'losses': entries, 'v': 1} | self._more())}\n"
            f"{partition}{others} {_WORDS[loss.cause]}; the query stood at offset {loss.position.offset}. "
            f"{self._remedy(loss)}",
            partition,
            position=loss.position.offset,
            divergent_offset=loss.resume_offset,
            leader_epoch=loss.position.leader_epoch,
            log_start_offset=None if facts.get(partition) is None else facts[partition].log_start_offset,
        )

    def _more(self) -> dict[str, object]:
        """What the tag says beside the losses."""
        return {}

    def _remedy(self, loss: Loss) -> str:
        if loss.cause == "retention":
            return (
                "Nothing that it read is wrong. Restart the query with onTruncation=rewind: it goes on at offset "
                f"{loss.resume_offset}, where the log starts."
            )
        if loss.cause == "recreated":
            return (
                "If kafka.bootstrap.servers names another cluster than before, correct it. Otherwise undo what came "
                "from the old topic, then restart the query with onTruncation=rewind, earliest or latest."
            )
        if loss.cause == "missing":
            return (
                "If the options name other topics than before, correct them, or start with a new checkpointLocation. "
                "Otherwise restart the query with onTruncation=rewind: it goes on without what is missing."
            )
        return (
            "Undo what came from the lost records, then restart the query with onTruncation=rewind, earliest or latest."
        )


class StatefulRewindError(StreamTruncatedError):
    """A query under `onTruncation=rewind` counted, in its state, records that are gone. Spark cannot uncount them.

    Its text is that of `StreamTruncatedError`, and names the operators. Nothing was skipped, nothing read again.
    """

    def __init__(
        self,
        losses: Mapping[TopicPartition, Loss],
        facts: Mapping[TopicPartition, PartitionFacts],
        *,
        checkpoint: str,
        operators: Sequence[str],
    ) -> None:
        self.checkpoint = checkpoint
        self.operators = tuple(operators)
        super().__init__(losses, facts)

    def _more(self) -> dict[str, object]:
        return {"checkpoint": self.checkpoint, "operators": list(self.operators)}

    def _remedy(self, loss: Loss) -> str:
        return (
            f"It does not rewind, since {self.checkpoint} has state that counted them: {', '.join(self.operators)}. "
            "Compute the results anew with a new checkpointLocation; or restart without the option checkpoint, or with "
            "failOnDataLoss=false, if results may be wrong by that much."
        )


def _loss_json(partition: TopicPartition, loss: Loss, facts: PartitionFacts | None) -> dict[str, object]:
    """One entry of the list behind `[LOG_TRUNCATION]`, for programs to read."""
    return {
        "cause": loss.cause,
        "divergentOffset": loss.resume_offset if loss.cause == "truncated" else None,
        "leaderEpoch": loss.position.leader_epoch,
        "logStartOffset": None if facts is None else facts.log_start_offset,
        "offset": loss.position.offset,
        "partition": partition.partition,
        "topic": partition.topic,
        "topicId": loss.topic_id,
    }
