"""Append what clients sent at one time: each batch as if it had come alone, and all of them with one write.

    together     a   b   c'  d   e          c' needs a closer look: it may be a duplicate, or out of order
    written     (a   b) (c') (d  e)

Kafka: none; `UnifiedLog` appends the batches of one request.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from struct import Struct

from tidelog.base.errors import DiskError, KafkaError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.log.append import AppendResult, Checked
from tidelog.log.log import Log
from tidelog.log.placed import Placed
from tidelog.records.batch import stamp
from tidelog.records.header import LENGTH_END

_PLACE = Struct(">qii")  # base offset, length, leader epoch

Outcome = AppendResult | KafkaError | DiskError
"""Where a batch is, or why it is not there."""

# As the constructors of these tuples, at a third of their price; there is one of each for every batch.
_make_result = partial(tuple.__new__, AppendResult)
_make_placed = partial(tuple.__new__, Placed)


def append_together(log: Log, together: Sequence[Checked], *, leader_epoch: LeaderEpoch, now_ms: int) -> list[Outcome]:
    """Append batches that clients sent at one time, each as if `append_as_leader` were called for it, in order.

    Those that simply continue what is there are written with one call of the system. All before it are written when
    one is looked at more closely.

    Args:
        together: what the log's `rules` said of each: one batch in each.
        leader_epoch, now_ms: see `Log.append_as_leader`.

    Returns:
        The outcome of each.
    """
    outcomes: list[Outcome] = []
    run: list[Checked] = []
    sequences: dict[int, tuple[int, int]] = {}
    is_next = log.producers.is_next
    for checked in together:
        header = checked[2][0][1]
        if header.producer_id < 0 or is_next(header, sequences):
            run.append(checked)
            continue
        outcomes += _append_run(log, run, leader_epoch, now_ms)
        run, sequences = [], {}
        outcomes.append(_append_alone(log, checked, leader_epoch, now_ms))
    outcomes += _append_run(log, run, leader_epoch, now_ms)
    return outcomes


def _append_alone(log: Log, checked: Checked, leader_epoch: LeaderEpoch, now_ms: int) -> Outcome:
    try:
        return log.append_as_leader(
            checked.batches, leader_epoch=leader_epoch, now_ms=now_ms, verification_guard=None, checked=checked
        )
    except (KafkaError, DiskError) as error:
        return error


def _append_run(log: Log, run: list[Checked], leader_epoch: LeaderEpoch, now_ms: int) -> list[Outcome]:
    if not run or leader_epoch != log.lineage.latest_leader_epoch or log.segments.failure is not None:
        return [_append_alone(log, checked, leader_epoch, now_ms) for checked in run]
    view, placed = _stamp_together(run, log.log_end_offset, leader_epoch)
    try:
        log.segments.append(view, placed, now_ms)
    except DiskError as error:
        end_offset = log.log_end_offset  # a segment may have taken some of them before the next one could not be begun
        written = [batch for batch in placed if batch.last_offset < end_offset]
        outcomes: list[Outcome] = [error] * (len(run) - len(written))
        return _results(log, run, written) + outcomes
    return _results(log, run, placed)


def _stamp_together(
    run: list[Checked], first_offset: Offset, leader_epoch: LeaderEpoch
) -> tuple[memoryview, list[Placed]]:
    """Give batches that lie apart the offsets from `first_offset` on, and copy them, one after the other.

    Returns:
        The copies, and where in them each is.
    """
    views, placed = [], []
    offset: int = first_offset
    position = 0
    for _, view, accepted in run:
        _, header, max_timestamp, log_append_time, corrected_timestamp = accepted[0]
        if log_append_time is None and corrected_timestamp is None:
            _PLACE.pack_into(view, 0, offset, header[1] - LENGTH_END, leader_epoch)  # as `stamp`, without the call
        else:
            stamp(view, 0, offset, leader_epoch, log_append_time=log_append_time, max_timestamp=corrected_timestamp)
        last_offset = offset + header[6]
        placed.append(_make_placed((position, header, offset, last_offset, max_timestamp)))
        views.append(view)
        offset = last_offset + 1
        position += header[1]
    return views[0] if len(views) == 1 else memoryview(b"".join(views)), placed


def _results(log: Log, run: list[Checked], placed: list[Placed]) -> list[Outcome]:
    log_start_offset = log.log_start_offset
    return [
        _make_result((base_offset, last_offset, accepted[0][3], log_start_offset, False, 1, header[12], header[1]))
        for (_, _, accepted), (_, header, base_offset, last_offset, _) in zip(run, placed, strict=False)
    ]
