"""The books of the demo's ledger: any difference between what is in the files and what clients saw, or heard, shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidelog.client.admin.cluster_descriptions import EpochSpan
from tidelog.demo.balance import Balance, History, LostRange, balance, lost_between, without
from tidelog.demo.evidence import ReplicaLog, read_replica
from tidelog.demo.ledger_copy import losses_in
from tidelog.records import BatchBuilder

OLD = ReplicaLog((EpochSpan(0, 0, 2), EpochSpan(1, 2, 5)), dict(enumerate((10, 11, 12, 13, 14))))
STALE = ReplicaLog((EpochSpan(0, 0, 2),), dict(enumerate((10, 11))))
NEW = ReplicaLog((EpochSpan(0, 0, 2), EpochSpan(4, 2, 6)), dict(enumerate((10, 11, 20, 21, 22, 23))))
LOST = LostRange(0, 2, 5)
"""12, 13 and 14 were acknowledged at the offsets 2 to 4; others stand there now."""


def history(**changes: Any) -> History:
    told = History(
        acknowledged={
            **{number: (0, offset) for offset, number in enumerate((10, 11, 12, 13, 14))},
            **{number: (0, offset) for offset, number in enumerate((20, 21, 22, 23), start=2)},
        },
        refused=1,
        told_producer=(LostRange(0, None, 5),),
        told_reader=(LOST,),
        kept_by_reader={(0, offset): number for offset, number in NEW.numbers.items()},
        read_twice=0,
        told_query=(LOST,),
        kept_by_query={(0, offset): number for offset, number in NEW.numbers.items()},
        account=(LOST,),
    )
    return replace(told, **changes)


def balance_of(told: History, replicas: Mapping[int, list[ReplicaLog]] | None = None) -> Balance:
    after = replicas or {0: [NEW, NEW, NEW]}
    return balance(told, after, lost_between({0: [STALE, OLD, OLD]}, after), {0: 2})


def test_what_is_lost_and_told_is_counted() -> None:
    found = balance_of(history())
    assert found == Balance(
        acknowledged=9,
        truncated=3,
        told_readers=3,
        told_consumer=3,
        told_query=3,
        told_producer=3,
        unreported=0,
        unaccounted=0,
        duplicated=0,
        refused=1,
        consumer_differs=0,
        query_differs=0,
        differing_replicas=0,
        inexact=0,
    )
    assert found.is_clean


def test_a_loss_that_nobody_is_told_of_is_found() -> None:
    found = balance_of(history(told_producer=(), told_reader=(), told_query=()))
    assert (found.truncated, found.unreported) == (3, 3)
    assert not found.is_clean
    part = LostRange(0, 3, 5)
    found = balance_of(history(told_producer=(), told_reader=(part,), told_query=()))
    assert (found.told_readers, found.unreported, found.inexact) == (2, 1, 1)
    elsewhere = LostRange(1, 2, 5)
    assert balance_of(history(told_producer=(), told_reader=(elsewhere,), told_query=())).unreported == 3


def test_a_record_that_never_was_in_a_file_is_missing_too() -> None:
    acknowledged = {**history().acknowledged, 99: (1, 7), 98: (1, None)}
    found = balance_of(history(acknowledged=acknowledged), {0: [NEW], 1: [ReplicaLog()]})
    assert (found.truncated, found.unreported) == (5, 2)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"kept_by_reader": {(0, offset): number for offset, number in OLD.numbers.items()}}, "consumer_differs"),
        ({"kept_by_query": {(0, offset): number for offset, number in OLD.numbers.items()}}, "query_differs"),
        ({"kept_by_query": {}}, "query_differs"),
        ({"read_twice": 2}, "duplicated"),
        ({"told_query": (LostRange(0, 1, 5),)}, "inexact"),
        ({"account": (LostRange(0, 3, 5),)}, "unaccounted"),
        ({"account": ()}, "unaccounted"),
    ],
)
def test_who_keeps_what_is_gone_or_lacks_what_is_there_is_found(changes: dict[str, Any], fault: str) -> None:
    found = balance_of(history(**changes))
    assert getattr(found, fault) > 0
    assert not found.is_clean


def test_replicas_that_differ_and_numbers_that_are_there_twice_are_found() -> None:
    assert balance_of(history(), {0: [NEW, OLD, NEW]}).differing_replicas == 1
    twice = ReplicaLog(NEW.spans, {**NEW.numbers, 5: 20})
    assert balance_of(history(), {0: [twice]}).duplicated == 1


def test_undoing_takes_what_the_lost_records_left_and_no_more() -> None:
    kept = {(0, offset): number for offset, number in OLD.numbers.items()} | {(1, 3): 33}
    assert without(kept, LOST) == 3
    assert kept == {(0, 0): 10, (0, 1): 11, (1, 3): 33}
    assert str(LOST) == "partition 0, offsets 2 to 4"
    assert str(LostRange(0, None, 5)) == "partition 0, offsets up to 4"


def batch(base_offset: int, leader_epoch: int, *numbers: int) -> bytes:
    builder = BatchBuilder()
    for number in numbers:
        builder.append(0, None, b"%d" % number)
    return builder.build(base_offset, leader_epoch)


def test_the_files_are_read_as_they_lie(tmp_path: Path) -> None:
    first, second = batch(0, 0, 10, 11), batch(2, 1, 12)
    (tmp_path / "00000000000000000000.log").write_bytes(first + second)
    half = batch(4, 1, 14)[:-3]
    (tmp_path / "00000000000000000003.log").write_bytes(batch(3, 1, 13) + half)
    assert read_replica(tmp_path) == ReplicaLog(
        (EpochSpan(0, 0, 2), EpochSpan(1, 2, 4)), dict(enumerate((10, 11, 12, 13)))
    )


def test_what_the_query_says_is_read_from_its_error() -> None:
    said = (
        '[STREAM_FAILED] x [LOG_TRUNCATION]{"losses": [{"cause": "truncated", "divergentOffset": 2, "leaderEpoch": 1, '
        '"logStartOffset": 0, "offset": 5, "partition": 0, "topic": "ledger"}], "v": 1}\nledger-0 was truncated'
    )
    assert losses_in(said) == [LOST]
    assert losses_in("out of memory") == []
