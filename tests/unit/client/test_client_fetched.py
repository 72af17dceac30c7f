"""What a Fetch brought, made ready: checked, cut to whole batches, without what a reader is not to see."""

from __future__ import annotations

import pytest

from tidelog.base.errors import Code, MalformedBatchError
from tidelog.client.core.fetched import Aborted, FetchedRange, read_fetched
from tidelog.records.batch import BatchBuilder


def batch(base_offset: int, count: int = 2, *, epoch: int = 0, producer_id: int = -1, kind: str = "plain") -> bytes:
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 and kind != "control" else -1,
        transactional=kind != "plain",
        control=kind == "control",
    )
    for index in range(1 if kind == "control" else count):
        builder.append(1_000, b"\0\0\0\1" if kind == "control" else None, b"%d" % (base_offset + index))
    return builder.build(base_offset, epoch)


def fetched(
    data: bytes, fetch_offset: int = 0, *, aborted: list[Aborted] | None = None, check_crcs: bool = True
) -> FetchedRange:
    return read_fetched(
        data,
        fetch_offset,
        aborted=aborted,
        check_crcs=check_crcs,
        high_watermark=100,
        last_stable_offset=100,
        log_start_offset=0,
    )


def shown(found: FetchedRange) -> list[int]:
    return [header.base_offset for _, header in found.batches]


def test_whole_batches_are_shown_and_a_partial_one_at_the_end_is_left_out() -> None:
    data = batch(0) + batch(2) + batch(4)[:-3]
    found = fetched(data)
    assert shown(found) == [0, 2]
    assert (found.fetch_offset, found.next_offset, found.is_cut_short) == (0, 4, False)


def test_nothing_whole_says_that_more_must_be_asked_for() -> None:
    found = fetched(batch(0)[:-1])
    assert found.is_cut_short
    assert (found.next_offset, found.batches) == (0, [])
    assert not fetched(b"").is_cut_short


def test_a_batch_that_begins_below_the_offset_is_kept_and_one_that_ends_there_is_not() -> None:
    found = fetched(batch(0, 2) + batch(2, 4), fetch_offset=3)
    assert shown(found) == [2]
    assert found.epochs == [(0, 3)]
    assert found.next_offset == 6


def test_a_flipped_bit_is_found_unless_nobody_looks() -> None:
    data = bytearray(batch(0) + batch(2))
    data[-1] ^= 1
    with pytest.raises(MalformedBatchError, match="the batch at offset 2 has CRC") as error:
        fetched(bytes(data))
    assert error.value.code is Code.CORRUPT_MESSAGE
    assert shown(fetched(bytes(data), check_crcs=False)) == [0, 2]


@pytest.mark.parametrize("bit", [0, 6])
def test_an_offset_that_rotted_hides_no_records(bit: int) -> None:
    """Offsets are not under the checksum: one is too low or too high, and then a batch goes back."""
    data = bytearray(batch(62) + batch(64) + batch(66))
    data[len(batch(62)) + 7] ^= 1 << bit
    with pytest.raises(MalformedBatchError, match="comes behind one that ends at"):
        fetched(bytes(data), 62)


def test_control_batches_move_the_position_and_are_not_shown() -> None:
    found = fetched(batch(0, producer_id=7, kind="transactional") + batch(2, producer_id=7, kind="control"))
    assert shown(found) == [0]
    assert found.next_offset == 3
    assert shown(fetched(batch(2, producer_id=7, kind="control"), 2)) == []


def test_committed_readers_do_not_see_aborted_transactions() -> None:
    data = (
        batch(0, producer_id=7, kind="transactional")  # aborted
        + batch(2, producer_id=8, kind="transactional")  # committed
        + batch(4)  # of no transaction
        + batch(6, producer_id=7, kind="transactional")  # aborted
        + batch(8, producer_id=7, kind="control")
        + batch(9, producer_id=7, kind="transactional")  # the next transaction of the same producer
        + batch(11, producer_id=8, kind="control")
    )
    assert shown(fetched(data, aborted=[Aborted(7, 0)])) == [2, 4, 9]
    assert shown(fetched(data, aborted=[])) == [0, 2, 4, 6, 9]
    assert shown(fetched(data, aborted=None)) == [0, 2, 4, 6, 9]
    assert shown(fetched(data, aborted=[Aborted(8, 2), Aborted(7, 0), Aborted(7, 9)])) == [4]


def test_epochs_are_told_where_they_begin_also_of_batches_that_are_hidden() -> None:
    data = batch(0, epoch=1) + batch(2, epoch=1) + batch(4, producer_id=7, kind="control", epoch=3) + batch(5, epoch=4)
    assert fetched(data).epochs == [(1, 0), (3, 4), (4, 5)]


def test_runs_are_the_stretches_that_can_be_handed_on_as_they_are() -> None:
    first, marker, second, third = batch(0), batch(2, producer_id=7, kind="control"), batch(3), batch(5)
    data = first + marker + second + third
    runs = fetched(data).runs(0)
    assert [(bytes(view), [header.base_offset for header in headers]) for view, headers in runs] == [
        (first, [0]),
        (second + third, [3, 5]),
    ]
    assert [bytes(view) for view, _ in fetched(data).runs(4)] == [second + third]
    assert [bytes(view) for view, _ in fetched(data).runs(5)] == [third]


def test_what_the_broker_has_no_batch_of_is_told_apart_from_what_is_hidden() -> None:
    data = batch(2) + batch(4, 1, producer_id=7, kind="control") + batch(5) + batch(9)
    found = fetched(data)
    assert shown(found) == [2, 5, 9]
    assert found.gaps == [(0, 2), (7, 9)]
    assert fetched(data, fetch_offset=3).gaps == [(7, 9)]
