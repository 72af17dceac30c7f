"""Files that say who is to hold which partitions: what is written is read, and what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.base.errors import ConfigError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.cli.reassignment_plan import read_directories, read_plan, write_plan


def test_what_is_written_is_read(tmp_path: Path) -> None:
    plan = {TopicPartition("t", PartitionIndex(1)): (2, 3), TopicPartition("u", PartitionIndex(0)): (1,)}
    write_plan(str(tmp_path / "plan.json"), plan)
    assert read_plan(str(tmp_path / "plan.json")) == plan


def test_directories_that_are_named(tmp_path: Path) -> None:
    row = '{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/disks/2"]}'
    (tmp_path / "plan.json").write_text(f'{{"version": 1, "partitions": [{row}]}}')
    partition = TopicPartition("t", PartitionIndex(0))
    assert read_directories(str(tmp_path / "plan.json")) == ({partition: (1, 2)}, {(2, partition): "/disks/2"})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "cannot be read as a plan"),
        ("[]", "is no plan: it should say"),
        ('{"version": 2, "partitions": []}', "is no plan"),
        ('{"version": 1, "partitions": []}', "names no partitions"),
        ('{"version": 1, "partitions": [3]}', "entry 1: 3 is not an object"),
        ('{"version": 1, "partitions": [{"topic": 1}]}', "entry 1: topic is 1, not a name"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": true}]}', "partition is True"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', r"replicas is \[\]"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [-1]}]}', r"replicas is \[-1\]"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "twice in"),
        (
            '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}, '
            '{"topic": "t", "partition": 0, "replicas": [2]}]}',
            "entry 2: t-0 stands there twice",
        ),
        (
            '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["a", "b"]}]}',
            "not a list as long as replicas",
        ),
        (
            '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["data"]}]}',
            'each is "any" or an absolute path',
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(ConfigError, match=told):
        read_plan(str(tmp_path / "plan.json"))
