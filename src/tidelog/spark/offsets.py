"""What Spark keeps of us in its checkpoint: where every partition stands, and under which leader epoch.

    {"begin": {…}, "missing": […],
     "topics": {"t": {"id": "<22 characters>", "p": {"0": {"leaderEpoch": 3, "offset": 57}}}},
     "truncatedFrom": {…}, "v": 1}

`topics` is where a batch ends (exclusive). `begin` is where it begins, for the partitions of which the end of the
batch before does not say so: all of the first batch, those that are new, those that were reset after a loss. It
belongs to the *end*, because Spark writes that down before the batch runs: a replay then reads the same ranges.
`truncatedFrom` is where a reset partition stood before, and why it could not go on from there.
`missing` is where the query stood in partitions that are not there now: they may come back.

Spark compares offsets as text, so there is one way only to write each: keys in the order of `json.dumps(sort_keys)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from tidelog.base.errors import TidelogError
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition, parse_uuid

VERSION = 1
KEYS = frozenset({"begin", "missing", "replans", "topics", "truncatedFrom", "v"})
"""Of the JSON of an offset."""
LINEAGE_LENGTH_MAX = 8
"""Leader epochs that a position remembers; older ones only make a truncation that reaches so far back less exact."""

Json = dict[str, object]
T = TypeVar("T")


class CheckpointError(TidelogError):
    """The offsets in a checkpoint are not ours, or contradict each other. Says which, and what to do."""


class ReadPosition(NamedTuple):
    """Where a reader stands: all below `offset` is behind it.

    Attributes:
        offset: the next one to read.
        leader_epoch: of the record before `offset`. None if there is none (offset 0), or it cannot be told.
        unread: the record before is gone already, so `leader_epoch` is only one that was known to lead when
            the position was taken; its absence from a lineage proves nothing.
        lineage: (leader epoch, start offset) of the epochs up to `leader_epoch`, as far back as known; empty if it
            is one epoch only. It tells, later, how far a truncation reached.
    """

    offset: Offset
    leader_epoch: LeaderEpoch | None = None
    unread: bool = False
    lineage: tuple[tuple[LeaderEpoch, Offset], ...] = ()


class Loss(NamedTuple):
    """That records a reader stood past are gone.

    Attributes:
        cause: `truncated` (a leader took them back, KIP-320), `retention` (removed before they were read),
            `recreated` (the topic of this name is another one now) or `missing` (no topic or partition any more).
        position: where the reader stood.
        resume_offset: the first offset that it has not read, or must read again: for `truncated` the divergent
            offset. None if it cannot be told.
        topic_id: of the topic that the position was in, as Kafka prints it.
        in_replay: the batch before ran again, went on at `resume_offset` itself, and ended where it should.
    """

    cause: str
    position: ReadPosition
    resume_offset: Offset | None
    topic_id: str | None = None
    in_replay: bool = False


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """One offset of the stream, as in `checkpoint/offsets/N`. Empty, it is the one before the first batch.

    Attributes:
        missing: those that have been missing for the longest time come first.
        replans: how many batches before this one, without a break, read again what the one before them could not. Two
            of them may read the same range, and Spark takes equal offsets for nothing to do.
    """

    topic_ids: Mapping[str, str | None] = field(default_factory=dict)
    positions: Mapping[TopicPartition, ReadPosition] = field(default_factory=dict)
    begin: Mapping[TopicPartition, ReadPosition] = field(default_factory=dict)
    losses: Mapping[TopicPartition, Loss] = field(default_factory=dict)
    missing: Mapping[TopicPartition, Loss] = field(default_factory=dict)
    replans: int = 0

    def resumed(self, partition: TopicPartition) -> Offset | None:
        """Where the query went on after the loss of a partition; None if there is no such partition any more."""
        if self.losses[partition].in_replay:
            return self.losses[partition].resume_offset
        return self.begin[partition].offset if partition in self.begin else None

    def standing_at(
        self, moved: Mapping[TopicPartition, ReadPosition], topic_ids: Mapping[str, str | None]
    ) -> StreamOffset:
        """The same, but that some partitions stand elsewhere, those of `topic_ids` being added."""
        return replace(self, topic_ids={**self.topic_ids, **topic_ids}, positions={**self.positions, **moved})

    def to_json(self) -> Json:
        """The canonical form: equal offsets give equal text."""
        offset: Json = {}
        if self.begin:
            offset["begin"] = _per_topic(self.begin, _position_json)
        if self.missing:
            offset["missing"] = [
                {**_loss_json(loss), "partition": int(key.partition), "topic": key.topic}
                for key, loss in self.missing.items()
            ]
        if self.replans:
            offset["replans"] = self.replans
        if self.topic_ids:
            partitions = _per_topic(self.positions, _position_json)
            offset["topics"] = {
                topic: {"id": topic_id, "p": partitions.get(topic, {})}
                for topic, topic_id in sorted(self.topic_ids.items())
            }
        if self.losses:
            offset["truncatedFrom"] = _per_topic(self.losses, _loss_json)
        offset["v"] = VERSION
        return offset

    @staticmethod
    def from_json(offset: object) -> StreamOffset:
        """The inverse of `to_json`.

        Raises:
            CheckpointError: it is of another version, or of another source, or not one that we wrote.
        """
        if not isinstance(offset, dict):
            raise CheckpointError(f"the checkpoint holds {offset!r} where an offset of this source is expected")
        if "v" not in offset:
            raise CheckpointError(
                f"the checkpoint holds {offset!r}, which is no offset of this source (`v` is missing); one of Spark's "
                "Kafka connector has neither leader epochs nor topic ids: start with a new checkpointLocation"
            )
        if offset["v"] != VERSION:
            raise CheckpointError(
                f"the checkpoint is of version {offset['v']!r}, this is tidelog for version {VERSION}: "
                "run the tidelog that wrote it, or start with a new checkpointLocation"
            )
        try:
            topics = dict(_object(offset.get("topics", {})))
            return StreamOffset(
                topic_ids={topic: _parse_id(_object(entry)["id"]) for topic, entry in topics.items()},
                positions=_parse(((topic, _object(entry)["p"]) for topic, entry in topics.items()), _parse_position),
                begin=_parse(_object(offset.get("begin", {})).items(), _parse_position),
                losses=_parse(_object(offset.get("truncatedFrom", {})).items(), _parse_loss),
                missing=dict(map(_parse_missing, _list(offset.get("missing", [])))),
                replans=_number(offset.get("replans", 0)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the checkpoint holds an offset that this source never wrote ({type(error).__name__}: {error}): "
                f"{offset!r}. Restore the checkpoint, or start with a new checkpointLocation"
            ) from None


def _position_json(position: ReadPosition) -> Json:
    entry: Json = {"leaderEpoch": position.leader_epoch}
    if position.lineage:
        entry["lineage"] = [list(pair) for pair in position.lineage]
    entry["offset"] = position.offset
    if position.unread:
        entry["unread"] = True
    return entry


def _loss_json(loss: Loss) -> Json:
    entry = _position_json(loss.position)
    entry |= {"cause": loss.cause, "id": loss.topic_id, "resumeOffset": loss.resume_offset}
    if loss.in_replay:
        entry["inReplay"] = True
    return dict(sorted(entry.items()))


def _per_topic(values: Mapping[TopicPartition, T], to_json: Callable[[T], Json]) -> dict[str, Json]:
    topics: dict[str, Json] = {}
    for topic, partition in sorted(values, key=lambda key: (key.topic, str(key.partition))):
        topics.setdefault(topic, {})[str(partition)] = to_json(values[TopicPartition(topic, partition)])
    return topics


def _parse(topics: Iterable[tuple[str, object]], parse: Callable[[Mapping[str, object]], T]) -> dict[TopicPartition, T]:
    return {
        TopicPartition(topic, PartitionIndex(int(partition))): parse(_object(entry))
        for topic, partitions in topics
        for partition, entry in _object(partitions).items()
    }


def _parse_position(entry: Mapping[str, object]) -> ReadPosition:
    epoch = entry["leaderEpoch"]
    lineage = map(_list, _list(entry.get("lineage", [])))
    return ReadPosition(
        Offset(_number(entry["offset"])),
        None if epoch is None else LeaderEpoch(_number(epoch)),
        entry.get("unread", False) is True,
        tuple((LeaderEpoch(_number(epoch)), Offset(_number(start))) for epoch, start in lineage),
    )


def _parse_loss(entry: Mapping[str, object]) -> Loss:
    resume = entry["resumeOffset"]
    return Loss(
        str(entry["cause"]),
        _parse_position(entry),
        None if resume is None else Offset(_number(resume)),
        _parse_id(entry["id"]),
        entry.get("inReplay", False) is True,
    )


def _parse_missing(value: object) -> tuple[TopicPartition, Loss]:
    entry = _object(value)
    key = TopicPartition(str(entry["topic"]), PartitionIndex(_number(entry["partition"])))
    return key, _parse_loss(entry)


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise TypeError(f"a list is expected, not {value!r}")
    return value


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"an object is expected, not {value!r}")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"a number from 0 is expected, not {value!r}")
    return value


def _parse_id(value: object) -> str | None:
    if value is None:
        return None
    parse_uuid(str(value))  # an id of Kafka's, or a ValueError
    return str(value)
