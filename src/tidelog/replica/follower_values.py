"""What goes into and comes out of the follower's side of a partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.records.lineage import EpochEntry


@dataclass(frozen=True, slots=True)
class FollowerSettings:
    """What the configuration says about following.

    Attributes:
        fetch_backoff_ms: `replica.fetch.backoff.ms`: after a refusal, or no answer, nothing is sent for so long.
    """

    fetch_backoff_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class EpochEndRequest:
    """OffsetForLeaderEpoch: where does `leader_epoch` end?

    Attributes:
        number: of the request; its answer is told with it.
        current_leader_epoch: the leader refuses a question from another epoch than its own, and so answers none.
    """

    number: int
    leader: BrokerId
    current_leader_epoch: LeaderEpoch
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class RecordsRequest:
    """Fetch, which says as well that all below `fetch_offset` is here.

    It is sent when that is true, or when it does not matter whether it is (`fetch_ahead`).

    Attributes:
        last_fetched_epoch: of the record before `fetch_offset`; None when there is none.
    """

    number: int
    leader: BrokerId
    current_leader_epoch: LeaderEpoch
    fetch_offset: Offset
    last_fetched_epoch: LeaderEpoch | None
    log_start_offset: Offset


@dataclass(frozen=True, slots=True)
class LogStartRequest:
    """ListOffsets *earliest*: where does the leader's log start?"""

    number: int
    leader: BrokerId
    current_leader_epoch: LeaderEpoch


FollowerRequest = EpochEndRequest | RecordsRequest | LogStartRequest


@dataclass(frozen=True, slots=True)
class FetchOutcome:
    """The leader's answer to a fetch, without the records themselves: those stay with the driver.

    Attributes:
        end_offset: exclusive, of the records that came; None when none did.
        high_watermark: the leader's; None when it tells none.
        log_start_offset: the leader's; None when it tells none.
        diverging: set when our log is no prefix of the leader's: the largest epoch not above our last that it knows,
            and where that ends. Nothing else counts then.
        last_leader_epoch: of the last record that came; None when none did.
    """

    end_offset: Offset | None = None
    high_watermark: Offset | None = None
    log_start_offset: Offset | None = None
    diverging: EpochEntry | None = None
    last_leader_epoch: LeaderEpoch | None = None


@dataclass(frozen=True, slots=True)
class Truncation:
    """Records to remove from the end of the log, and the leader epochs that start there or beyond (rule 10).

    It has to outlast a loss of power before anything is appended, and before the lineage without those epochs is on
    disk: else the removed records come back, under epochs that they are not of.

    A checkpoint of the high watermark that lies above the end goes back with it, before anything is appended: else what
    comes in the place of the removed records counts as committed after the next start.

    Attributes:
        end_offset: keep what is below. At the log end: only epochs go that no record here is of.
        starts_anew: nothing is kept, the lineage is forgotten, and the log starts at `end_offset`.
        below_high_watermark: what was thought committed, when less than that is kept; else None. To be reported: the
            leader came from an unclean election, or lost more than was promised to survive.
    """

    end_offset: Offset
    starts_anew: bool = False
    below_high_watermark: Offset | None = None


class Halt(NamedTuple):
    """What a follower refuses to truncate: see `truncation.belies_what_was_committed`. To be reported, loudly.

    Attributes:
        end_offset: what the leader would have it cut to.
        high_watermark: what is committed here, exclusive.
        last_epoch: of the last record here.
    """

    end_offset: Offset
    high_watermark: Offset
    last_epoch: LeaderEpoch | None


class FollowerReady(NamedTuple):
    """What the driver owes the world, in field order: report, ask ahead, persist, publish, send.

    Attributes:
        halt: why it asks for nothing any more in this leader epoch; once.
        truncation: to be done, then told by `on_truncated`.
        ahead: to be sent before the records are appended that `append` names: it acknowledges nothing.
        append: the number of the answer whose records are to be appended, told by `on_appended`.
        epochs: to be assigned to the lineage, in one write, in this order.
        log_start_offset: where the log shall start from now on; None when that has not moved.
        high_watermark: to be published.
        request: to be sent. There is none while the disk owes something.
    """

    halt: Halt | None
    truncation: Truncation | None
    ahead: RecordsRequest | None
    append: int | None
    epochs: tuple[EpochEntry, ...]
    log_start_offset: Offset | None
    high_watermark: Offset
    request: FollowerRequest | None
