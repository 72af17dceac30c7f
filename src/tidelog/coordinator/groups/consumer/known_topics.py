"""The topics of the cluster, as consumer groups see them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from hashlib import blake2b

from tidelog.base.ids import TopicId
from tidelog.metadata.image import MetadataView, TopicImage
from tidelog.metadata.topic_names import INTERNAL_TOPICS

HASH_BYTES = 8


class KnownTopics:
    """What the newest metadata says. The hash of a topic is made when it is asked for, and kept until it may change.

    Args:
        version: of the metadata.
    """

    def __init__(self, view: MetadataView, version: int) -> None:
        self.view = view
        self.version = version
        self._hashes: dict[str, bytes] = {}

    def on_changed(self, view: MetadataView, version: int, changed: Collection[str] | None) -> None:
        """There is newer metadata.

        Args:
            changed: the topics that were made, deleted or altered; None if any may be, as where brokers moved.
        """
        self.view = view
        self.version = version
        if changed is None:
            self._hashes.clear()
        else:
            for name in changed:
                self._hashes.pop(name, None)

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

    def hash_of(self, names: Iterable[str]) -> int:
        """A number that changes with the topics that exist, their partitions and the racks of these (KIP-1101)."""
        topics = self.view.topics_by_name
        whole = blake2b(digest_size=HASH_BYTES)
        is_empty = True
        for name in sorted(names):
            topic = topics.get(name)
            if topic is not None:
                is_empty = False
                whole.update(self._hash(topic))
        return 0 if is_empty else int.from_bytes(whole.digest(), signed=True)

    def _hash(self, topic: TopicImage) -> bytes:
        found = self._hashes.get(topic.name)
        if found is None:
            brokers = self.view.brokers
            one = blake2b(topic.topic_id.bytes, digest_size=HASH_BYTES)
            one.update(f"{topic.name}/{len(topic.partitions)}".encode())
            for partition in topic.partitions:
                racks = {brokers[replica].rack for replica in partition.replicas if replica in brokers}
                one.update(repr(sorted(rack for rack in racks if rack is not None)).encode())
            found = self._hashes[topic.name] = one.digest()
        return found
