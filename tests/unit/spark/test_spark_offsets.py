from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.spark.offsets import CheckpointError, Loss, ReadPosition, StreamOffset

ID = "AAAAAAAAAAAAAAAAAAAAAQ"
T0 = TopicPartition("t", PartitionIndex(0))

numbers = st.integers(0, 2**62)
positions = st.builds(
    ReadPosition,
    numbers.map(Offset),
    st.none() | st.integers(0, 1000).map(LeaderEpoch),
    st.booleans(),
    st.lists(st.tuples(numbers.map(LeaderEpoch), numbers.map(Offset)), max_size=3).map(tuple),
)
partitions = st.builds(TopicPartition, st.sampled_from(["t", "u.v-w_1"]), st.integers(0, 120).map(PartitionIndex))
losses = st.builds(
    Loss,
    st.sampled_from(["truncated", "retention", "recreated", "missing"]),
    positions,
    st.none() | numbers.map(Offset),
    st.none() | st.just(ID),
)


@st.composite
def stream_offsets(draw: st.DrawFn) -> StreamOffset:
    where = draw(st.dictionaries(partitions, positions, max_size=12))
    return StreamOffset(
        {key.topic: draw(st.none() | st.just(ID)) for key in where},
        where,
        draw(st.dictionaries(partitions, positions, max_size=3)),
        draw(st.dictionaries(partitions, losses, max_size=3)),
    )


@given(stream_offsets())
def test_what_is_written_is_read_back(offset: StreamOffset) -> None:
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


@given(stream_offsets())
def test_the_text_is_canonical(offset: StreamOffset) -> None:
    written = offset.to_json()
    assert json.dumps(written) == json.dumps(written, sort_keys=True)


def test_the_text_is_the_documented_one() -> None:
    offset = StreamOffset({"t": ID}, {T0: ReadPosition(Offset(57), LeaderEpoch(3))})
    assert json.dumps(offset.to_json()) == (
        '{"topics": {"t": {"id": "' + ID + '", "p": {"0": {"leaderEpoch": 3, "offset": 57}}}}, "v": 1}'
    )
    assert StreamOffset().to_json() == {"v": 1}


@pytest.mark.parametrize(
    ("offset", "says"),
    [
        ({"t": {"0": 23}}, "Kafka connector"),
        ({"v": 2}, "version 2"),
        ([1], "expected"),
        ({"v": 1, "topics": {"t": {"id": ID}}}, "'p'"),
        ({"v": 1, "topics": {"t": {"id": "no id", "p": {}}}}, "not a Kafka id"),
        ({"v": 1, "topics": {"t": {"id": ID, "p": {"x": {"offset": 1, "leaderEpoch": 1}}}}}, "invalid literal"),
        ({"v": 1, "topics": {"t": {"id": ID, "p": {"0": {"offset": -1, "leaderEpoch": 1}}}}}, "number from 0"),
        ({"v": 1, "topics": {"t": {"id": ID, "p": {"0": 5}}}}, "an object is expected"),
        ({"v": 1, "begin": {"t": {"0": {"offset": True, "leaderEpoch": 1}}}}, "number from 0"),
    ],
)
def test_what_is_not_ours_is_refused(offset: Any, says: str) -> None:
    with pytest.raises(CheckpointError, match=says) as error:
        StreamOffset.from_json(offset)
    assert "checkpoint" in str(error.value)
