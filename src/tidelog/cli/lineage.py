"""`tidelog log lineage`: the leader epochs of every replica of a partition, side by side."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.base.errors import CorruptLogError, TidelogError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.cli.command import (
    UsageError,
    WholeNumber,
    argument,
    bootstrap_option,
    log_level_option,
    open_admin,
    option,
    output_option,
    timeout_option,
)
from tidelog.cli.output import Row, Rows, Section, Sections

if TYPE_CHECKING:
    from tidelog.client.admin.cluster_descriptions import EpochSpan, PartitionLineages, ReplicaLineage


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowLineage:
    """Show which leader epochs the log of each replica of TOPIC holds, and from which offset on they differ.

    A log's epochs are its history: two replicas hold the same records as far as their epochs are the same. A replica
    that differs was written to by a leader whose records were not kept; it cuts them off when it next follows.
    `0-12` are the offsets 0 to 11; the last of each column is where that log ends.

    Asks every replica; or, with --data, reads the directories, and nothing need run. Followers of Apache Kafka do not
    answer: read their directories.

    Examples:

        tidelog log lineage flights --partition 3
        tidelog log lineage flights --data tidelog-data
    """

    topic: str = argument(metavar="TOPIC")
    partition: tuple[int, ...] = option(
        "--partition", type=WholeNumber(), multiple=True, metavar="N", help="Only this one. May be repeated."
    )
    data: tuple[str, ...] = option(
        "--data",
        "-d",
        multiple=True,
        metavar="DIR",
        help="A node's log directory, or that of `tidelog up` with all its nodes. May be repeated.",
    )
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Sections:
        found = self._on_disk() if self.data else self._asked()
        return Sections([_section(partition, lineages) for partition, lineages in found.items()])

    def _asked(self) -> dict[TopicPartition, PartitionLineages]:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            indexes = self.partition
            if not indexes:
                indexes = tuple(each.partition for each in admin.describe_topics([self.topic])[self.topic].partitions)
            wanted = [TopicPartition(self.topic, PartitionIndex(index)) for index in indexes]
            return admin.describe_lineages(wanted)

    def _on_disk(self) -> dict[TopicPartition, PartitionLineages]:
        from tidelog.client.admin.cluster_descriptions import PartitionLineages

        logs: dict[int, dict[int, str]] = {}
        for directory in self.data:
            for node_id, path in _node_directories(directory):
                for index in _partitions_in(path, self.topic):
                    if not self.partition or index in self.partition:
                        logs.setdefault(index, {})[node_id] = f"{path}/{self.topic}-{index}"
        if not logs:
            raise UsageError(f"--data {', '.join(self.data)}: no log of {self.topic} is there")
        return {
            TopicPartition(self.topic, PartitionIndex(index)): PartitionLineages(
                None, None, (), {node_id: _read(node_id, path) for node_id, path in sorted(replicas.items())}
            )
            for index, replicas in sorted(logs.items())
        }


def _section(partition: TopicPartition, lineages: PartitionLineages) -> Section:
    replicas = lineages.replicas
    title = str(partition)
    if lineages.isr:
        leader = "no leader" if lineages.leader_id is None else f"leader {lineages.leader_id}"
        title += f" ({leader} in epoch {lineages.leader_epoch}, in sync {','.join(map(str, lineages.isr))})"
    reference = _reference(lineages)
    differences = {} if reference is None else _differences(reference, replicas)
    for node_id, difference in differences.items():
        title += f"\nnode {node_id} differs from node {reference} from offset {difference} on"
    for node_id, each in replicas.items():
        if each.error is not None:
            title += f"\nnode {node_id} does not tell: {each.error}"
    columns = ["leader_epoch", *(f"node_{node_id}" for node_id in replicas), "differs"]
    return Section(
        title,
        {"topic": partition.topic, "partition": partition.partition},
        Rows(_rows(replicas, differences), columns=tuple(columns), nothing="no records"),
    )


def _reference(lineages: PartitionLineages) -> int | None:
    """Who the others are compared with: the leader, or else the one with the newest epoch, and the most of it."""
    told = {node_id: each for node_id, each in lineages.replicas.items() if each.spans}
    if lineages.leader_id in told:
        return lineages.leader_id
    return max(told, key=lambda node_id: (told[node_id].spans[-1][0], told[node_id].spans[-1][2]), default=None)


def _differences(reference: int, replicas: Mapping[int, ReplicaLineage]) -> dict[int, int]:
    """From which offset on each replica differs; those that do not are left out."""
    from tidelog.client.admin.cluster_descriptions import first_difference

    found = {
        node_id: first_difference(replicas[reference].spans, each.spans)
        for node_id, each in replicas.items()
        if node_id != reference
    }
    return {node_id: offset for node_id, offset in found.items() if offset is not None}


def _rows(replicas: Mapping[int, ReplicaLineage], differences: Mapping[int, int]) -> list[Row]:
    by_epoch: dict[int, dict[int, EpochSpan]] = {}
    for node_id, each in replicas.items():
        for span in each.spans:
            by_epoch.setdefault(span.leader_epoch, {})[node_id] = span
    rows: list[Row] = []
    for leader_epoch, spans in sorted(by_epoch.items()):
        row: dict[str, object] = {"leader_epoch": leader_epoch}
        for node_id in replicas:
            row[f"node_{node_id}"] = f"{spans[node_id][1]}-{spans[node_id][2]}" if node_id in spans else None
        row["differs"] = [
            f"node {node_id} from {offset}"
            for node_id, offset in differences.items()
            if node_id in spans and spans[node_id][1] <= offset < spans[node_id][2]
        ] or None
        row["replicas"] = {
            str(node_id): {"start_offset": span.start_offset, "end_offset": span.end_offset}
            for node_id, span in spans.items()
        }
        rows.append(row)
    return rows


def _node_directories(directory: str) -> list[tuple[int, str]]:
    """The log directories that are meant, with their nodes."""
    from tidelog.cli.node_directories import owner_of

    path = directory.rstrip("/") or "/"
    if not os.path.isdir(path):
        raise UsageError(f"--data {directory}: there is no such directory")
    inner = sorted(name for name in os.listdir(path) if re.fullmatch(r"node-[0-9]+(\.disk-[0-9]+)?", name))
    candidates = [path, *(f"{path}/{name}" for name in inner)]
    owners = [(owner_of(each), each) for each in candidates]
    found = [(int(owner.node_id), each) for owner, each in owners if owner is not None]
    if not found:
        raise UsageError(f"--data {directory}: no node's log directory: meta.properties is missing")
    return found


def _partitions_in(path: str, topic: str) -> list[int]:
    pattern = re.compile(re.escape(topic) + r"-([0-9]+)")
    matches = (pattern.fullmatch(name) for name in os.listdir(path))
    return sorted(int(match[1]) for match in matches if match is not None)


def _read(node_id: int, path: str) -> ReplicaLineage:
    """The lineage that lies in the directory of a partition."""
    from tidelog.client.admin.cluster_descriptions import ReplicaLineage, epoch_spans
    from tidelog.io.disk import RealDisk
    from tidelog.log.files.lineage_file import read_lineage

    try:
        return ReplicaLineage(node_id, epoch_spans(read_lineage(RealDisk(), path).entries, _log_end_offset(path)))
    except TidelogError as error:
        return ReplicaLineage(node_id, (), error)


def _log_end_offset(path: str) -> int:
    """Where the last whole batch of the last segment ends."""
    from tidelog.io.disk import RealDisk
    from tidelog.log.dump import dump
    from tidelog.log.segment import LOG_SUFFIX, parse_file_name

    disk = RealDisk()
    segments = {parse_file_name(name, LOG_SUFFIX): name for name in os.listdir(path)}
    last = max((base for base in segments if base is not None), default=None)
    if last is None:
        raise CorruptLogError(f"{path}: no segment is there")
    end = int(last)
    for file in dump(disk, f"{path}/{segments[last]}"):
        for row in file.rows:
            last_offset = row.get("last_offset")
            if isinstance(last_offset, int):
                end = last_offset + 1
    return end
