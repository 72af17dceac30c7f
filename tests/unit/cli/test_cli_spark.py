"""`tidelog spark offsets`: from the checkpoint of either connector to `startingOffsets`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.fixtures.checkpoints import WrittenCheckpoint
from tidelog.cli.app import run

OURS = {
    "topics": {
        "t": {
            "id": "AAAAAAAAAAAAAAAAAAAAAQ",
            "p": {"0": {"leaderEpoch": 3, "offset": 57}, "1": {"leaderEpoch": None, "offset": 0}},
        }
    },
    "v": 1,
}
KAFKA = {"u": {"0": 23}}


@pytest.fixture
def checkpoint(tmp_path: Path) -> WrittenCheckpoint:
    return WrittenCheckpoint(tmp_path / "checkpoint")


def rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_newest_committed_batch_counts(checkpoint: WrittenCheckpoint, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint.plan({"v": 1})
    checkpoint.plan(OURS, KAFKA, "12")
    checkpoint.plan({"v": 1}, KAFKA, "13", is_committed=False)
    place = str(checkpoint.path)
    assert run(["spark", "offsets", place]) == 0
    assert capsys.readouterr().out == (
        "source 0, of format tidelog: where batch 1 ends, the newest committed\n"
        "batch 2 is planned and not committed: a part of it may have reached the sink, and a new query reads it again\n"
        'startingOffsets={"t":{"0":57,"1":0}}\n'
        "TOPIC  PARTITION  OFFSET  LEADER EPOCH\n"
        "t              0      57             3\n"
        "t              1       0             -\n"
        "\n"
        "source 1, of Spark's Kafka connector: where batch 1 ends, the newest committed\n"
        "batch 2 is planned and not committed: a part of it may have reached the sink, and a new query reads it again\n"
        "it holds no leader epochs: whether the log was truncated below these offsets before now cannot be seen\n"
        'startingOffsets={"u":{"0":23}}\n'
        "TOPIC  PARTITION  OFFSET  LEADER EPOCH\n"
        "u              0      23  -\n"
    )
    assert run(["spark", "offsets", place, "--output", "value"]) == 0
    assert capsys.readouterr().out == '{"t":{"0":57,"1":0}}\n{"u":{"0":23}}\n'
    assert run(["spark", "offsets", place, "--output", "json"]) == 0
    ours, _, kafka = rows(capsys)
    assert ours == {
        "source": 0,
        "connector": "tidelog",
        "batch": 1,
        "pending_batch": 2,
        "has_epochs": True,
        "starting_offsets": {"t": {"0": 57, "1": 0}},
        "topic": "t",
        "partition": 0,
        "offset": 57,
        "leader_epoch": 3,
    }
    assert (kafka["connector"], kafka["has_epochs"], kafka["starting_offsets"]) == ("kafka", False, KAFKA)


def test_what_has_no_offsets_says_why(
    checkpoint: WrittenCheckpoint, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def refused(place: Path) -> str:
        assert run(["spark", "offsets", str(place)]) == 1
        return capsys.readouterr().err

    assert "there is no checkpoint at" in refused(tmp_path / "misspelt")
    assert "has no committed batch (none is planned either)" in refused(checkpoint.path)
    checkpoint.plan(OURS, is_committed=False)
    assert "has no committed batch (batch 0 is planned)" in refused(checkpoint.path)
    checkpoint.plan("12")
    assert "it has no offsets of a log" in refused(checkpoint.path)
    (checkpoint.path / "commits" / "9").write_text("v1\n{}")
    assert "commits/9 is there, and offsets/9 is not: it is damaged" in refused(checkpoint.path)
