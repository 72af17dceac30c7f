"""The files of a stopped node, and ways to damage them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support.node import NodeProcess
from tidelog.records import BatchHeader, split_whole_batches


def partition_dir(node: NodeProcess, topic: str, partition: int = 0) -> Path:
    return node.data_dir / "node-1" / f"{topic}-{partition}"


def segments(node: NodeProcess, topic: str, partition: int = 0) -> list[Path]:
    """The `.log` files, oldest first."""
    return sorted(partition_dir(node, topic, partition).glob("*.log"))


def last_segment(node: NodeProcess, topic: str, partition: int = 0) -> Path:
    return segments(node, topic, partition)[-1]


def batches(log: Path) -> list[tuple[int, BatchHeader]]:
    """Position and header of each whole batch in a segment."""
    return split_whole_batches(log.read_bytes())


def cut(path: Path, size_bytes: int) -> None:
    """Make a file shorter, or longer by zeros."""
    with path.open("r+b") as file:
        file.truncate(size_bytes)


def change(path: Path, position: int, how: Callable[[int], int]) -> None:
    """Replace one byte."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([how(byte) & 0xFF]))


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
