"""What an Admin tells of the cluster itself: its quorum, its features, the logs of its replicas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tidelog.base.errors import TidelogError

ElectionType = Literal["preferred", "unclean"]
"""`preferred`: the first replica of the list, if it is in sync. `unclean`: any that lives, though records are lost."""

UpgradeType = Literal["upgrade", "safe downgrade", "unsafe downgrade"]
"""Whether a level may only go up; down, if no metadata is lost by it; or down in any case."""


class Endpoint(NamedTuple):
    """Where a node listens, under one listener name."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """How far one node's copy of the metadata log is, as the quorum's leader knows.

    Attributes:
        directory_id: as Kafka prints it; None where it is not known.
        log_end_offset: exclusive; None if it has not fetched yet.
        last_fetch_ms: when it last fetched, in ms since 1970; None of the leader itself, and if it never did.
        last_caught_up_ms: when it last had all there was.
    """

    node_id: int
    directory_id: str | None
    log_end_offset: int | None
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """Who leads the metadata quorum, and who follows.

    Attributes:
        high_watermark: exclusive end of what is committed; None while the leader does not know it yet.
        endpoints: where voters listen; empty where brokers do not tell (before 3.9).
    """

    leader_id: int | None
    leader_epoch: int
    high_watermark: int | None
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: Mapping[int, tuple[Endpoint, ...]]


@dataclass(frozen=True, slots=True)
class FeatureDescription:
    """One feature.

    Attributes:
        supported: the lowest and the highest level that the broker which was asked can work at; None: it does not
            know the feature.
        level: what the whole cluster works at; None: it works without it.
    """

    name: str
    supported: tuple[int, int] | None
    level: int | None


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The level that a feature is to have; 0 is to be without it."""

    level: int
    upgrade_type: UpgradeType = "upgrade"


class EpochSpan(NamedTuple):
    """The records of one leader epoch in one replica's log: from `start_offset`, up to but not with `end_offset`."""

    leader_epoch: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class ReplicaLineage:
    """The leader epochs of one replica's log, oldest first.

    Attributes:
        spans: empty for a log without records, and where there is an `error`.
        error: why it could not be asked.
    """

    broker_id: int
    spans: tuple[EpochSpan, ...]
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class PartitionLineages:
    """What the replicas of a partition have, by broker."""

    leader_id: int | None
    leader_epoch: int | None
    isr: tuple[int, ...]
    replicas: Mapping[int, ReplicaLineage]


def epoch_spans(entries: Iterable[tuple[int, int]], log_end_offset: int) -> tuple[EpochSpan, ...]:
    """The spans of a lineage's entries (epoch, start), oldest first; nothing for a log that knows of no epoch."""
    held = list(entries)
    ends = [*(start_offset for _, start_offset in held[1:]), log_end_offset]
    return tuple(EpochSpan(*entry, end) for entry, end in zip(held, ends, strict=False))


def first_difference(one: tuple[EpochSpan, ...], other: tuple[EpochSpan, ...]) -> int | None:
    """The first offset that both logs hold, in different leader epochs; None if one continues the other.

    Where epochs are equal, the records are: nobody but the leader of an epoch writes any in it. What lies below the
    start of the shorter log counts as equal.
    """
    left, right = list(one), list(other)
    while left and right:
        a, b = left[0], right[0]
        start, end = max(a.start_offset, b.start_offset), min(a.end_offset, b.end_offset)
        if start < end and a.leader_epoch != b.leader_epoch:
            return start
        if a.end_offset <= end:
            left.pop(0)
        if b.end_offset <= end:
            right.pop(0)
    return None
