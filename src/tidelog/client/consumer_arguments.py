"""What a consumer makes of what its caller gives it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import ConfigError, TidelogError
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, Position, TopicPartition
from tidelog.base.ports import Clock
from tidelog.client.core.needs import EARLIEST, LATEST, LookUp
from tidelog.client.core.values import CommittedOffset, ConsumerRecord, ConsumerRecords
from tidelog.client.options import start_ms

if TYPE_CHECKING:
    from tidelog.client.group_member import TopicSubscription
    from tidelog.client.options import Start


def topics_to_read(topics: str | re.Pattern[str] | Iterable[str], group_protocol: str) -> TopicSubscription:
    """What `subscribe` was given.

    Raises:
        ConfigError: the pattern has flags, and the group's coordinator looks for its topics.
        TidelogError: no topics are named.
    """
    from tidelog.client.group_member import TopicSubscription

    if isinstance(topics, re.Pattern):
        if topics.flags & ~re.UNICODE and group_protocol == "consumer":
            raise ConfigError(
                f"subscribe({topics!r}): with group_protocol='consumer' the broker looks for topics, and knows no"
                " flags of a pattern: write them into it, as (?i)"
            )
        return TopicSubscription(pattern=topics)
    names = frozenset([topics] if isinstance(topics, str) else topics)
    if not names:
        raise TidelogError("subscribe: no topics are named: to read nothing, call unsubscribe")
    return TopicSubscription(names)


def place_of(call: str, start: Start | None, clock: Clock) -> LookUp | None:
    """What a call was given as `start`; None for nothing. Raises ConfigError: it is no place to start at."""
    ago_ms = start_ms(f"Consumer.{call}", start)
    if start is None:
        return None
    if ago_ms is None:
        return LookUp(EARLIEST if start == "earliest" else LATEST)
    return LookUp(max(clock.wall_ms() - ago_ms, 0))


def position_of(
    partition: TopicPartition, offset: int | Position, leader_epoch: int | None
) -> tuple[Offset, LeaderEpoch | None]:
    """What `seek` was given. Raises TypeError, ValueError: it is no position."""
    if isinstance(offset, Position):
        if leader_epoch is not None:
            raise TypeError(f"seek({offset}, leader_epoch={leader_epoch}): a position has a leader epoch of its own")
        offset, leader_epoch = offset
    if offset < 0:
        raise ValueError(f"{partition}: offset {offset} is negative; see seek_to_beginning and seek_to_end")
    return Offset(offset), None if leader_epoch is None else LeaderEpoch(leader_epoch)


def timestamp_of(when: int | datetime) -> int:
    """What `seek_to_time` was given, in ms since 1970. Raises ValueError: it is before that."""
    timestamp = int(when.timestamp() * 1000) if isinstance(when, datetime) else when
    if timestamp < 0:
        raise ValueError(f"seek_to_time({timestamp}): ms since 1970 are not negative")
    return timestamp


def committing(
    offsets: ConsumerRecord[Any, Any]
    | ConsumerRecords[Any, Any]
    | Mapping[TopicPartition, int | Position | CommittedOffset],
) -> dict[TopicPartition, CommittedOffset]:
    """What `commit` was given. Raises TypeError, ValueError: it is not that."""
    if isinstance(offsets, ConsumerRecord):
        partition = TopicPartition(offsets.topic, PartitionIndex(offsets.partition))
        return {partition: CommittedOffset(offsets.offset + 1, offsets.leader_epoch)}
    if isinstance(offsets, ConsumerRecords):
        offsets = offsets.next_offsets()
    if not isinstance(offsets, Mapping):
        raise TypeError(
            f"commit({offsets!r}): a record, what poll returned, or {{TopicPartition(…): next offset}} is expected"
        )
    found = {}
    for key, given in offsets.items():
        if not isinstance(given, int | Position | CommittedOffset) or isinstance(given, bool):
            raise TypeError(f"commit: {key}: {given!r} is neither an offset nor a Position nor a CommittedOffset")
        committed = CommittedOffset(given) if isinstance(given, int) else CommittedOffset(*given)
        if committed.offset < 0:
            raise ValueError(f"commit: {key}: offset {committed.offset} is negative")
        found[TopicPartition(*key)] = committed
    return found
