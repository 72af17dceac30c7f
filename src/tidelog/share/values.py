"""What goes into and comes out of a share partition (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import CorrelationId, LeaderEpoch, Offset
from tidelog.share.state import StateChange


class AcknowledgeType(IntEnum):
    """What a member says became of a record. The numbers are those of Kafka's protocol."""

    GAP = 0
    """There is no record at the offset."""
    ACCEPT = 1
    RELEASE = 2
    """Deliver it again, to whomever."""
    REJECT = 3
    RENEW = 4
    """It is still being processed (KIP-1222)."""


class LogBatch(NamedTuple):
    """A batch that was read from the log.

    Attributes:
        first: its base offset.
        last: inclusive.
        is_delivered: False of a batch that readers are not shown: markers, and records of aborted transactions.
    """

    first: int
    last: int
    is_delivered: bool = True


class AcquiredRecords(NamedTuple):
    """Consecutive records that are a member's for a while.

    Attributes:
        first: the first of them.
        last: the last of them, inclusive.
        delivery_count: how often they were delivered, this time included.
    """

    first: int
    last: int
    delivery_count: int


class AcknowledgedRecords(NamedTuple):
    """What a member says became of consecutive records.

    Attributes:
        first: the first of them.
        last: the last of them, inclusive.
        types: one for each record, or one for all.
    """

    first: int
    last: int
    types: Sequence[int]

    def runs(self) -> Sequence[tuple[int, int, int]]:
        """(first, last, type) of the longest runs of one type."""
        types, first = self.types, self.first
        if types.count(types[0]) == len(types):
            return ((first, self.last, types[0]),)
        runs, begin = [], 0
        for index in range(1, len(types) + 1):
            if index == len(types) or types[index] != types[begin]:
                runs.append((first + begin, first + index - 1, types[begin]))
                begin = index
        return runs


def check_acknowledged(batches: Sequence[AcknowledgedRecords], *, is_renewal_allowed: bool) -> None:
    """Return if what a member sent can be understood, whatever it is about.

    Args:
        is_renewal_allowed: whether the request says that it lengthens the time of some (KIP-1222).

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    end = 0
    most = AcknowledgeType.RENEW if is_renewal_allowed else AcknowledgeType.REJECT
    for first, last, types in batches:
        if first > last or first < end:
            raise refusal(
                Code.INVALID_REQUEST, f"offsets {first} to {last} are acknowledged; batches go up, and do not overlap"
            )
        if len(types) != 1 and len(types) != last - first + 1:
            raise refusal(
                Code.INVALID_REQUEST,
                f"offsets {first} to {last} are acknowledged with {len(types)} types; one is expected, or one for each",
            )
        if not 0 <= min(types) <= max(types) <= most:
            raise refusal(Code.INVALID_REQUEST, f"offsets {first} to {last}: a type of acknowledgement is not known")
        end = last + 1


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """How the records of a group are delivered.

    Attributes:
        delivery_count_max: a record that was delivered so often, and is not done, is archived.
        lock_ms: for how long a record is acquired.
        records_max: so many records that are not done may be in flight. What is read makes the last batch whole.
    """

    delivery_count_max: int = 5
    lock_ms: int = 30_000
    records_max: int = 2_000


class ForgottenRecords(NamedTuple):
    """What was kept of consecutive records is forgotten: a truncation took them back.

    Attributes:
        first: the first of them.
        last: the last of them, inclusive.
        leader_epoch: of the records that were taken back.
        leader_epoch_here: of those that have their offsets now; None of offsets beyond the log end.
    """

    first: Offset
    last: Offset
    leader_epoch: LeaderEpoch
    leader_epoch_here: LeaderEpoch | None


class AcknowledgeReply(NamedTuple):
    """The answer to a request with acknowledgements. NONE: they are kept, and stand whoever leads next."""

    correlation_id: CorrelationId
    code: Code


class ShareReady(NamedTuple):
    """What the driver owes the world, in field order: keep, answer, deliver.

    Attributes:
        change: to be written by the share coordinator; the machine has one written at a time.
        has_released: records can be acquired that could not be before.
    """

    change: StateChange | None
    answers: tuple[AcknowledgeReply, ...]
    has_released: bool


class Bounds(NamedTuple):
    """Where the leader's log stands. See `LogBounds` of replicas."""

    log_start_offset: Offset
    log_end_offset: Offset
