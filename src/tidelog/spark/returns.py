"""Partitions that were missing, and come back: the query goes on where it stood in them. Pure.

A topic that is not there may have been deleted. It may also be that brokers did not know of it for a while, or that
the options named other topics or another cluster. Its id tells: who comes back under the same one was never deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidelog.base.ids import Offset, TopicPartition
from tidelog.spark.offsets import Loss, ReadPosition, StreamOffset
from tidelog.spark.plan import ClusterFacts

MISSING_MAX = 1_000
"""Partitions that are remembered while they are missing. Each takes some hundred bytes of each batch's offset."""
NAMES_MAX = 10
"""Partitions that a line of the log names."""


def returned(
    before: StreamOffset, facts: ClusterFacts, target: Collection[TopicPartition] | None
) -> dict[TopicPartition, ReadPosition]:
    """The partitions that were missing and are there again, with where the query stood in them.

    A topic without an id may be another one of the same name, and is read as a new one.

    Args:
        before: the end of the last batch.
        facts: of the cluster, now.
        target: the partitions that this run reads; None for all.
    """
    return {
        key: loss.position
        for key, loss in before.missing.items()
        if key in facts.partitions
        and key not in before.positions
        and loss.topic_id is not None
        and loss.topic_id == facts.topic_ids.get(key.topic)
        and (target is None or key in target)
    }


def set_back(
    before: StreamOffset, cut_short: Mapping[TopicPartition, tuple[ReadPosition, Loss]]
) -> dict[TopicPartition, ReadPosition]:
    """Where the last batch began in the partitions that were missing when it ran again: it read nothing of them.

    Args:
        before: the end of the last batch.
        cut_short: what that batch could not read, with where it should have ended.
    """
    return {
        key: loss.position
        for key, (position, loss) in cut_short.items()
        if loss.cause == "missing" and loss.topic_id is not None and before.positions.get(key) == position
    }


def with_unread(
    losses: Mapping[TopicPartition, Loss],
    cut_short: Mapping[TopicPartition, Loss],
    back: Mapping[TopicPartition, Loss],
    facts: ClusterFacts,
) -> dict[TopicPartition, Loss]:
    """The losses of partitions of which a batch that ran again could not read all, be that found now or not.

    Args:
        losses: those that are found now.
        cut_short: those that the last batch found.
        back: of partitions that are there again, what was known of them while they were missing.
        facts: of the cluster, now.
    """
    unread = {key: loss for key, loss in cut_short.items() if loss.cause != "missing" or loss.topic_id is None}
    unread |= {key: loss._replace(cause="truncated") for key, loss in back.items() if loss.resume_offset is not None}
    return {
        key: _farther_back(loss, losses.get(key, loss))
        if key in facts.partitions
        # To be made up for if it comes back. Where it cannot be told how far, all is read again.
        else losses[key]._replace(resume_offset=loss.resume_offset or Offset(0))
        for key, loss in unread.items()
    }


def _farther_back(one: Loss, other: Loss) -> Loss:
    return min(one, other, key=lambda loss: -1 if loss.resume_offset is None else loss.resume_offset)


def still_missing(
    before: StreamOffset, ended: Collection[TopicPartition], losses: Mapping[TopicPartition, Loss]
) -> dict[TopicPartition, Loss]:
    """The partitions that are missing after a batch, those that have been so for the longest time first.

    Args:
        before: the end of the batch before.
        ended: the partitions that are there.
        losses: that the batch makes up for.
    """
    missing = {key: loss for key, loss in before.missing.items() if key not in ended}
    missing |= {key: loss for key, loss in sorted(losses.items()) if loss.cause == "missing" and key not in ended}
    return dict(list(missing.items())[-MISSING_MAX:])


def returned_text(partition: TopicPartition, position: ReadPosition) -> str:
    """The line of the driver's log that says that a partition is there again."""
    return (
        f"{partition} is there again; the query goes on at offset {position.offset}, where it stood when the partition "
        "was missing. What was said to be gone with it is not"
    )


def forgotten(before: StreamOffset, after: StreamOffset) -> list[TopicPartition]:
    """The partitions of which it is not remembered any more where the query stood when they went missing."""
    lost = {key for key, loss in after.losses.items() if loss.cause == "missing"}
    return sorted((before.missing.keys() | lost) - after.missing.keys() - after.positions.keys())


def forgotten_text(partitions: Sequence[TopicPartition]) -> str:
    """The line of the driver's log that says so."""
    names = ", ".join(str(key) for key in partitions[:NAMES_MAX])
    more = f" and {len(partitions) - NAMES_MAX} more" if len(partitions) > NAMES_MAX else ""
    return (
        f"more than {MISSING_MAX} partitions are missing, and it is forgotten where the query stood in {names}{more}: "
        "if they come back, they are read from their start"
    )
