"""The states of share groups, and their changes, as they are and as they are sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.server.share_state.share_coordinators import PORTION_BATCHES_MAX, first_portion
from tidelog.share.state import DeliveryState, ShareState, StateBatch, StateChange
from tidelog.share.summary import ShareSummary
from tidelog.wire.messages.api_84_read_share_group_state import (
    ReadShareGroupStateBatch,
    ReadShareGroupStatePartitionResult,
)
from tidelog.wire.messages.api_85_write_share_group_state import (
    WriteShareGroupStateBatch,
    WriteShareGroupStatePartition,
)
from tidelog.wire.messages.api_87_read_share_group_state_summary import ReadShareGroupStateSummaryPartitionResult

NOT_KNOWN = -1

KEPT_STATES = {one.value: one for one in DeliveryState if one is not DeliveryState.ACQUIRED}


def told_offset(offset: Offset | None) -> int:
    """-1 stands for None."""
    return NOT_KNOWN if offset is None else offset


def offset_of(told: int) -> Offset | None:
    """The inverse."""
    return None if told == NOT_KNOWN else Offset(told)


def told_change(partition: int, change: StateChange) -> WriteShareGroupStatePartition:
    """A change as it is sent."""
    return WriteShareGroupStatePartition(
        partition=partition,
        state_epoch=change.state_epoch,
        leader_epoch=change.leader_epoch,
        start_offset=told_offset(change.start),
        delivery_complete_count=change.delivery_complete_count,
        state_batches=[
            WriteShareGroupStateBatch(
                first_offset=one.first,
                last_offset=one.last,
                delivery_state=one.state,
                delivery_count=one.delivery_count,
                leader_epoch=one.leader_epoch,
            )
            for one in change.batches
        ],
        start_leader_epoch=change.start_leader_epoch,
        write_number=change.number,
    )


def portions_told(told: WriteShareGroupStatePartition) -> Iterator[StateChange]:
    """The inverse, in portions: there may be more batches than one step can look at.

    Raises:
        KafkaError: INVALID_REQUEST: something of this portion cannot be.
    """
    batches, start = told.state_batches, 0
    whole = StateChange(told.state_epoch, LeaderEpoch(told.leader_epoch), None, number=told.write_number)
    while start + PORTION_BATCHES_MAX < len(batches):
        part = batches[start : start + PORTION_BATCHES_MAX]
        yield first_portion(whole, tuple(map(_batch, part)))
        start += PORTION_BATCHES_MAX
    if told.start_offset < NOT_KNOWN:
        raise refusal(Code.INVALID_REQUEST, f"there is no start offset {told.start_offset}")
    yield replace(
        whole,
        start=offset_of(told.start_offset),
        start_leader_epoch=LeaderEpoch(told.start_leader_epoch),
        delivery_complete_count=told.delivery_complete_count,
        batches=tuple(map(_batch, batches[start:])),
    )


def told_state(partition: int, state: ShareState) -> ReadShareGroupStatePartitionResult:
    """A state as it is sent."""
    return ReadShareGroupStatePartitionResult(
        partition=partition,
        state_epoch=state.state_epoch,
        start_offset=told_offset(state.start),
        state_batches=[
            ReadShareGroupStateBatch(
                first_offset=one.first,
                last_offset=one.last,
                delivery_state=one.state,
                delivery_count=one.delivery_count,
                leader_epoch=one.leader_epoch,
            )
            for one in state.batches
        ],
        start_leader_epoch=state.start_leader_epoch,
    )


def state_told(told: ReadShareGroupStatePartitionResult) -> ShareState:
    """The inverse. Raises KafkaError: INVALID_REQUEST: something cannot be."""
    return ShareState(
        told.state_epoch,
        offset_of(told.start_offset),
        LeaderEpoch(told.start_leader_epoch),
        tuple(map(_batch, told.state_batches)),
    )


def told_summary(partition: int, summary: ShareSummary) -> ReadShareGroupStateSummaryPartitionResult:
    """A summary as it is sent."""
    return ReadShareGroupStateSummaryPartitionResult(
        partition=partition,
        state_epoch=summary.state_epoch,
        leader_epoch=summary.leader_epoch,
        start_offset=told_offset(summary.start),
        delivery_complete_count=summary.delivery_complete_count,
    )


def summary_told(told: ReadShareGroupStateSummaryPartitionResult) -> ShareSummary:
    """The inverse."""
    return ShareSummary(
        told.state_epoch, LeaderEpoch(told.leader_epoch), offset_of(told.start_offset), told.delivery_complete_count
    )


def batch_count(states: Sequence[object]) -> int:
    """Of those that are states."""
    return sum(len(one.batches) for one in states if isinstance(one, ShareState))


def _batch(told: WriteShareGroupStateBatch | ReadShareGroupStateBatch) -> StateBatch:
    first, last, state = told.first_offset, told.last_offset, KEPT_STATES.get(told.delivery_state)
    if state is None or not 0 <= first <= last or told.delivery_count < 0:
        raise refusal(
            Code.INVALID_REQUEST,
            f"offsets {first} to {last} in state {told.delivery_state}, delivered {told.delivery_count} times: that "
            "cannot be",
        )
    return StateBatch(Offset(first), Offset(last), state, told.delivery_count, LeaderEpoch(told.leader_epoch))
