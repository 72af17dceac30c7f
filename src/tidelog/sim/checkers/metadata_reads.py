"""MetadataNeverGoesBack, OwnWritesSeen: what clients see of the metadata (KIP-1243).

Clients that share what they have seen are one context. A read is held against all that its context had seen, or
written, when it was begun: of two reads that overlap, either may be the newer one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.base.ids import LeaderEpoch, Offset, TopicId
from tidelog.sim.checkers.views import Broken


class TopicRead(NamedTuple):
    """A topic as an answer has it.

    Attributes:
        leader_epochs: by partition; None where the answer does not say.
    """

    topic_id: TopicId
    leader_epochs: tuple[LeaderEpoch | None, ...]


MetadataRead = Mapping[str, TopicRead | None]
"""What was told of the topics that were asked for, by name; None: there is no such topic."""


@dataclass(slots=True)
class _Seen:
    """Of one topic id, the latest of everything."""

    partition_count: int = 0
    leader_epochs: dict[int, LeaderEpoch] = field(default_factory=dict)

    def copy(self) -> _Seen:
        return _Seen(self.partition_count, self.leader_epochs.copy())


@dataclass(slots=True)
class _Context:
    topics: dict[TopicId, _Seen] = field(default_factory=dict)
    ids: dict[str, TopicId] = field(default_factory=dict)
    gone: set[TopicId] = field(default_factory=set)
    token: Offset | None = None
    created: dict[str, tuple[TopicId | None, int]] = field(default_factory=dict)
    deleted: dict[str, TopicId] = field(default_factory=dict)

    def copy(self) -> _Context:
        return _Context(
            {topic_id: seen.copy() for topic_id, seen in self.topics.items()},
            self.ids.copy(),
            self.gone.copy(),
            self.token,
            self.created.copy(),
            self.deleted.copy(),
        )


class BegunRead(NamedTuple):
    """A read that was not answered yet, and what its context knew when it was begun."""

    context: str
    known: _Context


class MetadataReads:
    """Both invariants, for the contexts of a cluster."""

    never_goes_back = "MetadataNeverGoesBack"
    own_writes_seen = "OwnWritesSeen"

    def __init__(self) -> None:
        self._contexts: dict[str, _Context] = {}

    # What a context writes.

    def on_created(self, context: str, name: str, topic_id: TopicId | None, partition_count: int) -> None:
        """It was told that its topic is made, or has so many partitions now.

        Args:
            topic_id: None where the answer does not say.
        """
        self._context(context).created[name] = (topic_id, partition_count)

    def on_deletion_begun(self, name: str) -> None:
        """Anybody asked for a topic to be deleted: from now on nobody can count on it."""
        for context in self._contexts.values():
            context.created.pop(name, None)

    def on_deleted(self, context: str, name: str, topic_id: TopicId) -> None:
        """It was told that its topic is gone."""
        self._context(context).deleted[name] = topic_id

    # What it reads.

    def begin(self, context: str) -> BegunRead:
        """A read is sent."""
        return BegunRead(context, self._context(context).copy())

    def on_answered(self, begun: BegunRead, read: MetadataRead, token: Offset | None = None) -> Iterator[Broken]:
        """The answer of a read.

        Args:
            token: the metadata offset that the answer reflects; None where it does not say.
        """
        now, known, who = self._context(begun.context), begun.known, begun.context
        if token is not None:
            if known.token is not None and token < known.token:
                yield Broken(self.never_goes_back, f"{who} was answered as of offset {token}, after {known.token}")
            now.token = token if now.token is None else max(token, now.token)
        for name, topic in read.items():
            if topic is None:
                if name in known.created and name in now.created:
                    yield Broken(self.own_writes_seen, f"{who} made {name}, and was told that there is no such topic")
                if name in known.ids:  # and what has come since this read was begun stays
                    now.gone.add(known.ids[name])
                continue
            yield from self._check_topic(known, who, name, topic)
            if known.ids.get(name, topic.topic_id) != topic.topic_id:
                now.gone.add(known.ids[name])
            now.ids[name] = topic.topic_id
            seen = now.topics.setdefault(topic.topic_id, _Seen())
            seen.partition_count = max(seen.partition_count, len(topic.leader_epochs))
            for index, leader_epoch in enumerate(topic.leader_epochs):
                if leader_epoch is not None:
                    seen.leader_epochs[index] = max(leader_epoch, seen.leader_epochs.get(index, leader_epoch))

    def _check_topic(self, known: _Context, who: str, name: str, topic: TopicRead) -> Iterator[Broken]:
        count = len(topic.leader_epochs)
        if known.deleted.get(name) == topic.topic_id:
            yield Broken(self.own_writes_seen, f"{who} deleted {name} of id {topic.topic_id}, and was told of it")
        elif topic.topic_id in known.gone:
            yield Broken(self.never_goes_back, f"{who} was told of {name} of id {topic.topic_id}, which was gone")
        own_id, own_count = known.created.get(name, (None, 0))
        if own_id is not None and own_id != topic.topic_id:
            what = f"{who} made {name} of id {own_id}, and was told of id {topic.topic_id}"
            yield Broken(self.own_writes_seen, what)
        elif count < own_count:
            yield Broken(self.own_writes_seen, f"{who} gave {name} {own_count} partitions, and was told of {count}")
        seen = known.topics.get(topic.topic_id)
        if seen is None:
            return
        if count < seen.partition_count:
            what = f"{who} was told of {count} partitions of {name}, after {seen.partition_count}"
            yield Broken(self.never_goes_back, what)
        for index, leader_epoch in enumerate(topic.leader_epochs):
            newest = seen.leader_epochs.get(index)
            if leader_epoch is not None and newest is not None and leader_epoch < newest:
                what = f"{who} was told of leader epoch {leader_epoch} of {name}-{index}, after {newest}"
                yield Broken(self.never_goes_back, what)

    def _context(self, name: str) -> _Context:
        return self._contexts.setdefault(name, _Context())
