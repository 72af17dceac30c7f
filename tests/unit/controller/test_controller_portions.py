"""Which decisions are too large for one batch, and in which portions they are appended (KIP-868)."""

from __future__ import annotations

import pytest

from tidelog.controller import ControllerSettings, in_portions
from tidelog.controller.portions import PORTIONS_IN_BATCH_MAX
from tidelog.journal import Decision
from tidelog.metadata import MetadataImage
from tidelog.metadata.draft import MetadataDraft
from tidelog.metadata.records import FeatureLevelRecord

SIZE = 2
LARGEST = SIZE * PORTIONS_IN_BATCH_MAX


def portions_of(count: int, *, level: int = 27) -> list[object] | None:
    metadata = MetadataDraft(MetadataImage.empty())
    metadata.apply(FeatureLevelRecord(name="metadata.version", feature_level=level))
    settings = ControllerSettings(partition_changes_max=SIZE)
    long = in_portions(metadata, settings, Decision(tuple(range(count)), "reply"))
    if long is None:
        return None
    assert long.reply == "reply"
    return list(long.portions)


@pytest.mark.parametrize("count", [0, LARGEST])
def test_what_is_not_too_large_is_one_batch(count: int) -> None:
    assert portions_of(count) is None


def test_what_is_too_large_is_divided_and_nothing_is_left_out() -> None:
    assert portions_of(LARGEST + 1) == [*((at, at + 1) for at in range(0, LARGEST, SIZE)), (LARGEST,)]


def test_below_the_level_of_transactions_everything_is_one_batch() -> None:
    assert portions_of(LARGEST + 1, level=12) is None
