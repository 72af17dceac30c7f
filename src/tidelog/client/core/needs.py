"""What a reader of one partition may ask of its leader next."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset

EARLIEST, LATEST = -2, -1
"""What ListOffsets takes in place of a timestamp."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """Ask the leader for an offset (ListOffsets)."""

    timestamp: int
    """ms since 1970, EARLIEST or LATEST."""
    before: int = 0
    """So many offsets before what is found, but not before the log starts."""


@dataclass(frozen=True, slots=True)
class Validate:
    """Ask the leader where an epoch ends (OffsetForLeaderEpoch)."""

    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class FetchFrom:
    """Ask for records: the leader, or the replica that it has named."""

    offset: Offset
    size_bytes_max: int
    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class NeedsMetadata:
    """Nobody can be asked before the metadata says more."""


Need = LookUp | Validate | FetchFrom | NeedsMetadata
