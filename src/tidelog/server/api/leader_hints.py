"""Where a client that asked the wrong broker finds the leader, in the answer that tells it so (KIP-951).

Kafka: `KafkaApis`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar
from uuid import UUID

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, TopicId
from tidelog.metadata import MetadataImage

E = TypeVar("E")

WRONG_LEADER = frozenset((Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH))
"""What a client is told that should ask another broker, or in another leader epoch."""


def leader_of(image: MetadataImage, topic: str | UUID, index: int) -> tuple[int, int]:
    """(leader id, leader epoch) of a partition, by its topic's name or id; -1 for what is not known."""
    found = image.topic(topic) if isinstance(topic, str) else image.topic_by_id(TopicId(topic))
    if found is None or not 0 <= index < len(found.partitions):
        return -1, -1
    state = found.partitions[index]
    return (-1 if state.leader is None else state.leader), state.leader_epoch


def endpoints_of(
    image: MetadataImage,
    leaders: Iterable[int],
    listener_name: str,
    make: Callable[[int, str, int, str | None], E],
) -> list[E]:
    """Where brokers listen under the name of the listener that was asked, each once; `make` makes a row."""
    rows = []
    for leader in sorted(set(leaders)):
        broker = image.brokers.get(BrokerId(leader))
        endpoint = None if broker is None else broker.endpoint(listener_name)
        if broker is not None and endpoint is not None:
            rows.append(make(leader, endpoint.host, endpoint.port, broker.rack))
    return rows
