"""What checkers look at: replicas as somebody outside sees them, and how they say what is broken.

A view is a picture of one moment. Whoever runs a story, a small world or a simulation draws it, and the checkers know
nothing of the code that made it so. A picture is cheap: `records` may be the log's own list, as long as it is looked at
before the next step.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.metadata.image import PartitionImage
from tidelog.records.lineage import EpochEntry

Record = tuple[LeaderEpoch, Hashable]
"""A record: the leader epoch that wrote it, and what it says, which no other record does."""


class Broken(NamedTuple):
    """An invariant that does not hold, and where. Prints as `Name: what`."""

    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


class ReplicaView(NamedTuple):
    """One broker's replica of one partition.

    Attributes:
        is_up: whether its process runs, and the controller has heard that it does.
        leads: whether it believes that it leads, in `leader_epoch`.
        leader_epoch: that it goes by; None while its broker is down.
        records: from the log start on; those of a broker that is down are what its disk has.
        lineage: the leader epochs that it would answer from.
        high_watermark: exclusive; what it knows of it.
        isr: as it presumes while it leads; empty for others.
        serves_consumers: whether a consumer that asks now is given what lies below the high watermark.
        name: of the broker, in what is said about it.
        starts_at: where its log starts, which may be further on than where `records` do: its first file has them yet.
    """

    broker_id: BrokerId
    is_up: bool
    leads: bool
    leader_epoch: LeaderEpoch | None
    log_start_offset: Offset
    records: Sequence[Record]
    lineage: Sequence[EpochEntry]
    high_watermark: Offset
    isr: frozenset[BrokerId] = frozenset()
    serves_consumers: bool = False
    name: str = ""
    starts_at: Offset = Offset(0)

    @property
    def called(self) -> str:
        return self.name or f"broker {self.broker_id}"

    @property
    def log_end_offset(self) -> Offset:
        return Offset(self.log_start_offset + len(self.records))

    def at(self, offset: int) -> Record | None:
        """The record at an offset; None where the log has none (any more)."""
        index = offset - self.log_start_offset
        return self.records[index] if 0 <= index < len(self.records) else None


class PartitionView(NamedTuple):
    """All replicas of one partition.

    Attributes:
        state: the controller's truth, whoever has heard of it.
    """

    state: PartitionImage
    replicas: Mapping[BrokerId, ReplicaView]

    def called(self, broker: BrokerId) -> str:
        """The name of a broker, whether or not it has a replica."""
        found = self.replicas.get(broker)
        return f"broker {broker}" if found is None else found.called


def text_of(record: Record | None) -> str:
    """`m2@0`: record m2, of leader epoch 0."""
    return "nothing" if record is None else f"{record[1]}@{record[0]}"
