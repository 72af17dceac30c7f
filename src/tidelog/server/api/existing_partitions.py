"""Requests that list partitions by topic: those that do not exist are answered apart from the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import UUID

from tidelog.base.ids import TopicId

if TYPE_CHECKING:
    from tidelog.metadata import MetadataImage


class _Partition(Protocol):
    partition_index: int


class _Topic(Protocol):
    name: str

    @property
    def partitions(self) -> list[Any]: ...
    @partitions.setter
    def partitions(self, partitions: list[Any]) -> None: ...


T = TypeVar("T", bound=_Topic)


def take_out_missing(image: MetadataImage, topics: list[T]) -> tuple[list[T], list[T]]:
    """Keep in each topic what exists.

    Returns:
        The topics of which something exists, and, as topics of their own, what does not.
    """
    known = image.topics_by_name
    missing: list[T] = []
    for topic in topics:
        found = known.get(topic.name)
        count = 0 if found is None else len(found.partitions)
        partitions: list[_Partition] = topic.partitions
        wrong = [one for one in partitions if not 0 <= one.partition_index < count]
        if wrong:
            missing.append(type(topic)(name=topic.name, partitions=wrong))  # type: ignore[call-arg]
            topic.partitions = [one for one in partitions if 0 <= one.partition_index < count]
    if missing:
        topics = [topic for topic in topics if topic.partitions]
    return topics, missing


class _TopicById(Protocol):
    name: str
    topic_id: UUID


B = TypeVar("B", bound=_TopicById)


def named(image: MetadataImage, topics: list[B]) -> tuple[list[B], list[B]]:
    """Give topics that a request knows by their ids their names.

    Returns:
        Those that there are, and those that there are not.
    """
    known: list[B] = []
    unknown: list[B] = []
    for topic in topics:
        found = image.topic_by_id(TopicId(topic.topic_id))
        if found is None:
            unknown.append(topic)
        else:
            topic.name = found.name
            known.append(topic)
    return known, unknown


def with_ids(image: MetadataImage, topics: list[B]) -> list[B]:
    """Give topics of an answer their ids; those that are no more are left out."""
    known = []
    for topic in topics:
        found = image.topic(topic.name)
        if found is not None:
            topic.topic_id = found.topic_id
            known.append(topic)
    return known


def merged(topics: list[T]) -> list[T]:
    """Each topic once: clients look answers up by its name."""
    by_name: dict[str, T] = {}
    for topic in topics:
        found = by_name.setdefault(topic.name, topic)
        if found is not topic:
            found.partitions += topic.partitions
    return list(by_name.values())
