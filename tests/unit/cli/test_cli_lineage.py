"""`tidelog log lineage` on directories: side by side, and where they part."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidelog.base.ids import BrokerId, ClusterId
from tidelog.cli import app
from tidelog.cli.command import USAGE
from tidelog.cli.node_directories import format_directory
from tidelog.records.batch import BatchBuilder


def write_log(data: Path, node_id: int, *spans: tuple[int, int, int]) -> Path:
    """The log of t-0 at a node, with records of these (epoch, start, end)."""
    directory = data / f"node-{node_id}"
    format_directory(str(directory), BrokerId(node_id), ClusterId("c"))
    log = directory / "t-0"
    log.mkdir()
    lines = ["0", str(len(spans)), *(f"{epoch} {start}" for epoch, start, _ in spans)]
    (log / "leader-epoch-checkpoint").write_text("\n".join(lines) + "\n")
    with (log / f"{0:020}.log").open("wb") as segment:
        for epoch, start, end in spans:
            if end > start:
                builder = BatchBuilder()
                for _ in range(start, end):
                    builder.append(0, None, b"x")
                segment.write(builder.build(start, epoch))
    return log


def lineage(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert app.run(["log", "lineage", "t", *arguments]) == 0
    return capsys.readouterr().out


def test_replicas_stand_side_by_side_with_the_offset_where_they_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path, 1, (0, 0, 4), (1, 4, 9))
    write_log(tmp_path, 2, (0, 0, 4), (1, 4, 7), (2, 7, 12))
    write_log(tmp_path, 3, (0, 0, 4), (1, 4, 7), (2, 7, 10))
    said = lineage(capsys, "--data", str(tmp_path))
    assert said.splitlines() == [
        "t-0",
        "node 1 differs from node 2 from offset 7 on",
        "LEADER EPOCH  NODE 1  NODE 2  NODE 3  DIFFERS",
        "           0  0-4     0-4     0-4     -",
        "           1  4-9     4-7     4-7     node 1 from 7",
        "           2  -       7-12    7-10    -",
    ]
    rows = [json.loads(line) for line in lineage(capsys, "--data", str(tmp_path), "-o", "json").splitlines()]
    assert [row["leader_epoch"] for row in rows] == [0, 1, 2]
    assert rows[2]["replicas"] == {
        "2": {"start_offset": 7, "end_offset": 12},
        "3": {"start_offset": 7, "end_offset": 10},
    }


def test_directories_of_nodes_are_named_one_by_one_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(tmp_path, 1, (0, 0, 4))
    write_log(tmp_path, 2)
    said = lineage(capsys, "--data", str(tmp_path / "node-1"), "--data", str(tmp_path / "node-2"), "--partition", "0")
    assert "           0  0-4     -       -" in said.splitlines()


def test_a_replica_whose_files_cannot_be_read_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(tmp_path, 1, (0, 0, 4))
    (write_log(tmp_path, 2, (0, 0, 4)) / "leader-epoch-checkpoint").write_text("nonsense")
    said = lineage(capsys, "--data", str(tmp_path))
    assert "node 2 does not tell: " in said
    assert "leader-epoch-checkpoint" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere"], "--data nowhere: there is no such directory"),
        (["--data", "."], "meta.properties is missing"),
        (["--data", "node-1", "--partition", "7"], "no log of t is there"),
    ],
)
def test_what_is_no_log_directory_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if arguments[1] == "node-1":
        write_log(tmp_path, 1, (0, 0, 4))
    assert app.run(["log", "lineage", "t", *arguments]) == USAGE
    assert message in capsys.readouterr().err
