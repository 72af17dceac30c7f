"""Requests that list partitions by topic: those that do not exist are answered apart from the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

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


def merged(topics: list[T]) -> list[T]:
    """Each topic once: clients look answers up by its name."""
    by_name: dict[str, T] = {}
    for topic in topics:
        found = by_name.setdefault(topic.name, topic)
        if found is not topic:
            found.partitions += topic.partitions
    return list(by_name.values())
