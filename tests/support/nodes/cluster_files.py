"""What the nodes of a cluster have on their disks, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from support.nodes.cluster import Cluster
from tidelog.records import read_records, split_whole_batches


class Kept(NamedTuple):
    """A record of a log."""

    offset: int
    leader_epoch: int
    value: bytes | None


def records_of(directory: Path) -> list[Kept]:
    """Every record in the segments of one replica, in their order."""
    found = []
    for segment in sorted(directory.glob("*.log")):
        data = segment.read_bytes()
        for position, header in split_whole_batches(data):
            batch = data[position : position + header.size_bytes]
            found += [Kept(one.offset, one.leader_epoch, one.value) for one in read_records(batch)]
    return found


def check_replicas_agree(cluster: Cluster, topic: str, partitions: int, *, count: int | None = None) -> None:
    """Every replica of every partition holds the same records, with the same leader epochs.

    To be asked when all replicas are in sync and nobody writes any more: what is in sync then has everything.

    Args:
        count: how many replicas a partition has; as many as there are nodes by default.

    Raises:
        AssertionError: says which replicas differ, and where first.
    """
    for partition in range(partitions):
        replicas = {
            node.node_id: records_of(replica)
            for node in cluster.nodes.values()
            for directory in node.directories
            if (replica := directory / f"{topic}-{partition}").is_dir()
        }
        assert len(replicas) == (count or len(cluster.nodes)), (
            f"{topic}-{partition} is only on nodes {sorted(replicas)}"
        )
        first, *others = sorted(replicas)
        for other in others:
            _compare(f"{topic}-{partition}", first, replicas[first], other, replicas[other])


def _compare(partition: str, first_id: int, first: list[Kept], second_id: int, second: list[Kept]) -> None:
    for one, other in zip(first, second, strict=False):
        assert one == other, f"{partition}: node {first_id} has {one}, node {second_id} has {other}"
    ends = (len(first), len(second))
    assert ends[0] == ends[1], f"{partition}: node {first_id} has {ends[0]} records, node {second_id} has {ends[1]}"
