"""The topics of the cluster, as consumer groups see them."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Set
from hashlib import blake2b
from typing import NamedTuple

from tidelog.base.ids import BrokerId, TopicId
from tidelog.coordinator.groups.consumer.assignment import Pace, Pieces
from tidelog.metadata.image import MetadataView, TopicImage
from tidelog.metadata.topic_names import INTERNAL_TOPICS

HASH_BYTES = 8
HASH_RANGE = 1 << 64

CHANGED_MAX = 1_000
"""Changes of topics that are kept; at the limit any topic may have changed since."""


class TopicsHash(NamedTuple):
    """The sum of the hashes of some topics.

    Attributes:
        version: of the metadata that it was taken from.
    """

    version: int
    total: int

    @property
    def recorded(self) -> int:
        """As a record says it: signed."""
        total = self.total % HASH_RANGE
        return total - HASH_RANGE if total >= HASH_RANGE >> 1 else total


class KnownTopics:
    """What the newest metadata says. The hash of a topic is made when it is asked for, and kept until it may change.

    Args:
        version: of the metadata.
    """

    def __init__(self, view: MetadataView, version: int) -> None:
        self.view = view
        self.version = version
        self._hashes: dict[str, int] = {}
        self._changes: dict[str, list[_Change]] = {}  # of topics that changed, the oldest first
        self._change_count = 0
        self._moved = version

    def on_changed(self, view: MetadataView, version: int, changed: Collection[str] | None) -> None:
        """There is newer metadata.

        Args:
            changed: the topics that were made, deleted or altered; None if any may be, as where brokers moved.
        """
        before = self.view.topics_by_name
        self.view = view
        self.version = version
        if changed is None or len(changed) > CHANGED_MAX:
            self._hashes.clear()
            self._forget_changes()
            return
        for name in changed:
            known = self._hashes.pop(name, None) if name in before else 0
            self._changes.setdefault(name, []).append(_Change(version, known))
        self._change_count += len(changed)
        if self._change_count > CHANGED_MAX:
            self._forget_changes()

    def _forget_changes(self) -> None:
        self._changes.clear()
        self._change_count = 0
        self._moved = self.version

    def may_differ(self, names: Container[str], since: int) -> bool:
        """Whether one of these topics may have changed after a version of the metadata."""
        return since < self._moved or any(changes[-1].version > since for changes in self._changes_of(names))

    def _changes_of(self, names: Container[str]) -> Iterator[list[_Change]]:
        return (changes for name, changes in self._changes.items() if name in names)

    def ids(self, names: Iterable[str]) -> frozenset[TopicId]:
        """The ids of those topics that exist."""
        topics = self.view.topics_by_name
        return frozenset(topics[name].topic_id for name in names if name in topics)

    def ids_in_pieces(self, names: Iterable[str], pace: Pace) -> Pieces[frozenset[TopicId]]:
        """As `ids`, of many names."""
        topics = self.view.topics_by_name
        found: set[TopicId] = set()
        for name in names:
            topic = topics.get(name)
            if topic is not None:
                found.add(topic.topic_id)
            if pace.counts(1):
                yield
        return frozenset(found)

    def partition_count(self, topic: TopicId) -> int:
        """How many partitions a topic has; 0 if there is none."""
        found = self.view.topics_by_id.get(topic)
        return 0 if found is None else len(found.partitions)

    def name(self, topic: TopicId) -> str | None:
        """The name of a topic; None if there is none."""
        found = self.view.topics_by_id.get(topic)
        return None if found is None else found.name

    def matchable(self) -> Iterator[str]:
        """The names that patterns are matched against: those of internal topics are not among them."""
        return (name for name in self.view.topics_by_name if name not in INTERNAL_TOPICS)

    def still_matchable(self, names: Set[str]) -> frozenset[str]:
        """Those of them that a pattern may match."""
        return frozenset(self.view.topics_by_name.keys() & names).difference(INTERNAL_TOPICS)

    def hash_of(self, names: Collection[str]) -> TopicsHash:
        """A number that changes with the topics that exist, their partitions and the racks of these (KIP-1101).

        Args:
            names: none twice.
        """
        return TopicsHash(self.version, self._total(names))

    def hash_now(self, before: TopicsHash | None, names: Container[str]) -> TopicsHash | None:
        """The hash of topics of which only those are looked at that have changed; None where that is not enough.

        Args:
            before: theirs, as it was in a version of the metadata.
        """
        if before is None or before.version < self._moved:
            return None
        total = before.total
        for name, changes in self._changes.items():
            if name not in names or changes[-1].version <= before.version:
                continue
            then = next(one.hash_before for one in changes if one.version > before.version)
            if then is None:
                return None
            total += self._total((name,)) - then
        return TopicsHash(self.version, total)

    def hash_with(self, before: TopicsHash, added: Collection[str], removed: Collection[str]) -> TopicsHash:
        """The hash of other topics, from one that was taken from the metadata as they are now."""
        return TopicsHash(self.version, before.total + self._total(added) - self._total(removed))

    def look_at(self, names: Iterable[str], pace: Pace) -> Pieces[None]:
        """Make the hashes of topics that were not asked for yet, so that `hash_of` takes less long."""
        topics = self.view.topics_by_name
        for name in names:
            if name not in self._hashes and name in topics:
                topic = topics[name]
                self._hash(topic)
                if pace.counts(20 + len(topic.partitions)):
                    yield
                    topics = self.view.topics_by_name
            elif pace.counts(1):
                yield
                topics = self.view.topics_by_name

    def _total(self, names: Collection[str]) -> int:
        topics = self.view.topics_by_name
        hashes = self._hashes
        there = topics.keys() & names
        for name in there - hashes.keys():
            self._hash(topics[name])
        return sum(map(hashes.__getitem__, there))

    def _hash(self, topic: TopicImage) -> int:
        found = self._hashes.get(topic.name)
        if found is None:
            brokers = self.view.brokers
            one = blake2b(topic.topic_id.bytes, digest_size=HASH_BYTES)
            one.update(f"{topic.name}/{len(topic.partitions)}".encode())
            racks_of: dict[tuple[BrokerId, ...], bytes] = {}  # many partitions have the same replicas
            for partition in topic.partitions:
                replicas = partition.replicas
                known = racks_of.get(replicas)
                if known is None:
                    racks = {brokers[replica].rack for replica in replicas if replica in brokers}
                    known = racks_of[replicas] = repr(sorted(rack for rack in racks if rack is not None)).encode()
                one.update(known)
            found = self._hashes[topic.name] = int.from_bytes(one.digest())
        return found


class _Change(NamedTuple):
    """Of a topic.

    Attributes:
        hash_before: 0 if there was none of that name; None if nobody knew it.
    """

    version: int
    hash_before: int | None
