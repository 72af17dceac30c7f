"""The topics of the cluster, as consumer groups see them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from hashlib import blake2b

from tidelog.base.ids import BrokerId, TopicId
from tidelog.metadata.image import MetadataView, TopicImage
from tidelog.metadata.topic_names import INTERNAL_TOPICS

HASH_BYTES = 8

CHANGED_MAX = 1_000
"""Topics of which it is kept when they changed; at the limit any may have changed since."""


class KnownTopics:
    """What the newest metadata says. The hash of a topic is made when it is asked for, and kept until it may change.

    Args:
        version: of the metadata.
    """

    def __init__(self, view: MetadataView, version: int) -> None:
        self.view = view
        self.version = version
        self._hashes: dict[str, int] = {}
        self._changed: dict[str, int] = {}  # the version in which a topic changed last, of those that did
        self._moved = version

    def on_changed(self, view: MetadataView, version: int, changed: Collection[str] | None) -> None:
        """There is newer metadata.

        Args:
            changed: the topics that were made, deleted or altered; None if any may be, as where brokers moved.
        """
        self.view = view
        self.version = version
        if changed is None or len(changed) > CHANGED_MAX:
            self._hashes.clear()
            self._changed.clear()
            self._moved = version
        else:
            for name in changed:
                self._hashes.pop(name, None)
                self._changed[name] = version
            if len(self._changed) > CHANGED_MAX:
                self._changed.clear()
                self._moved = version

    def may_differ(self, names: Collection[str], since: int) -> bool:
        """Whether one of these topics may have changed after a version of the metadata."""
        return since < self._moved or any(self._changed.get(name, 0) > since for name in names)

    def ids(self, names: Iterable[str]) -> frozenset[TopicId]:
        """The ids of those topics that exist."""
        topics = self.view.topics_by_name
        return frozenset(topics[name].topic_id for name in names if name in topics)

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

    def is_matchable(self, name: str) -> bool:
        """Whether a pattern may match the topic."""
        return name in self.view.topics_by_name and name not in INTERNAL_TOPICS

    def hash_of(self, names: Collection[str]) -> int:
        """A number that changes with the topics that exist, their partitions and the racks of these (KIP-1101).

        Args:
            names: none twice.
        """
        topics = self.view.topics_by_name
        total = sum(self._hash(topics[name]) for name in names if name in topics) % (1 << 64)
        return total - (1 << 64) if total >= 1 << 63 else total

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
