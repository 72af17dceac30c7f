"""What happens to disks: they fill up, get slow, turn read-only, are torn away. Each node has two log directories.

The first has the metadata log and partitions, the second partitions alone, each on a disk of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from weakref import WeakKeyDictionary

from chaos.disks import NodeDisk, why_no_disks, why_no_throttle
from chaos.fault import Fault, Hurt, Stage
from chaos.leftovers import note_undoing
from chaos.nodes import ChaosCluster
from support.fixtures.waiting import wait_until
from support.nodes.cluster import ClusterNode
from tidelog.base.ids import BrokerId
from tidelog.cli.node_directories import format_directory, owner_of

SLOW_BYTES_PER_SECOND = (4_000, 20_000, 100_000, 1_000_000)
"""The slowest stalls whatever is synced for seconds, the fastest holds up what is written in bulk."""
FAILS_SECONDS_MAX = 30.0
RESTARTED_WITHOUT = 0.5  # how often a node is started once more before its disk is mended
FIRST, SECOND = 0, 1
FAILED = ("CRITICAL tidelog.server.log_files: log directory", "gives up: log directory")
"""What a node says of a directory that failed."""

_disks: WeakKeyDictionary[ChaosCluster, dict[int, tuple[NodeDisk, NodeDisk]]] = WeakKeyDictionary()


def put_on_disks(cluster: ChaosCluster) -> None:
    """Two log directories for each node, each on a disk of its own, formatted, before it starts."""
    _disks[cluster] = {}
    for node_id, node in cluster.nodes.items():
        owner = owner_of(str(node.directory))
        assert owner is not None
        shutil.rmtree(node.directory)
        disks = (_disk(cluster, f"disk-{node_id}-1"), _disk(cluster, f"disk-{node_id}-2"))
        _disks[cluster][node_id] = disks
        for disk in disks:
            format_directory(str(disk.path), BrokerId(node_id), owner.cluster_id)
        node.directory = disks[FIRST].path
        node.settings["log.dirs"] = ",".join(str(disk.path) for disk in disks)


def _disk(cluster: ChaosCluster, name: str) -> NodeDisk:
    note_undoing(cluster.home, "umount", "-l", str(cluster.home / name))
    disk = NodeDisk(cluster.home, name)
    cluster.at_close.callback(disk.close)
    command = disk.speed_command
    if command is not None:
        note_undoing(cluster.home, *command)
    return disk


def fill(stage: Stage) -> Iterator[str]:
    """One disk has no room for a while. With the metadata log the whole node may end, and is started again."""
    node, which, disk = _victim(stage)
    disk.fill()
    try:
        yield f"{node}, {which}"
    finally:
        disk.free()
    _start_if_ended(node)


def fill_both(stage: Stage) -> Iterator[str]:
    """Neither disk of a node has room for a while."""
    node = stage.victim()
    disks = _disks[stage.cluster][node.node_id]
    for disk in disks:
        disk.fill()
    try:
        yield str(node)
    finally:
        for disk in disks:
            disk.free()
    _start_if_ended(node)


def slow(stage: Stage) -> Iterator[str]:
    """Little can be written to one disk: syncs take seconds."""
    node, which, disk = _victim(stage)
    speed = stage.dice.choice(SLOW_BYTES_PER_SECOND)
    disk.slow(speed)
    try:
        yield f"{node}, {which}, {speed} bytes/s"
    finally:
        disk.restore_speed()
    _start_if_ended(node)


def turn_read_only(stage: Stage) -> Iterator[str]:
    """The directory with partitions alone, as the system does it when a file system is damaged: EROFS."""
    return _fail(stage, SECOND, NodeDisk.fail_to_read_only)


def tear_away(stage: Stage) -> Iterator[str]:
    """The directory with partitions alone: EIO. It comes back without what was not synced."""
    return _fail(stage, SECOND, NodeDisk.tear_away)


def tear_away_metadata(stage: Stage) -> Iterator[str]:
    """The directory with the metadata log: EIO, or EROFS. The node ends itself."""
    return _fail(stage, FIRST, stage.dice.choice([NodeDisk.tear_away, NodeDisk.fail_to_read_only]))


def _fail(stage: Stage, place: int, fail: Callable[[NodeDisk], None]) -> Iterator[str]:
    """The others go on without it; then the disk is mended, and the node is started with it."""
    node = stage.victim()
    disk = _disks[stage.cluster][node.node_id][place]
    fail(disk)
    yield f"{node}, {fail.__name__.replace('_', ' ')}"
    stage.go_on()
    if place == FIRST:
        wait_until(lambda: not node.is_running, lambda: f"{node} ends: {node.log[-1_000:]}", seconds=FAILS_SECONDS_MAX)
        node.close()
    else:
        if stage.dice.random() < RESTARTED_WITHOUT:
            _end(stage, node)
            node.start()
            yield f"{node} is started without it"
            stage.go_on()
        _end(stage, node)
    disk.mend()
    node.start()


def _end(stage: Stage, node: ClusterNode) -> None:
    """Cleanly, or not."""
    stage.dice.choice([node.stop, node.kill])()


def _victim(stage: Stage) -> tuple[ClusterNode, str, NodeDisk]:
    node = stage.victim()
    place = stage.dice.choice([FIRST, SECOND])
    return node, f"disk {place + 1}", _disks[stage.cluster][node.node_id][place]


def _start_if_ended(node: ClusterNode) -> None:
    if not node.is_running:
        node.close()
        node.start()


FAULTS = tuple(
    Fault(
        kind=kind,
        strike=strike,
        hurts=Hurt.DISK,
        seconds=seconds,
        prepare=put_on_disks,
        is_mixed=False,
        says=FAILED,
        needs=needs,
    )
    for kind, strike, seconds, needs in (
        ("full disk", fill, (1.0, 15.0), why_no_disks),
        ("all disks of a node full", fill_both, (1.0, 15.0), why_no_disks),
        ("slow disk", slow, (2.0, 15.0), why_no_throttle),
        ("log directory read-only", turn_read_only, (1.0, 8.0), why_no_disks),
        ("log directory torn away", tear_away, (1.0, 8.0), why_no_disks),
        ("metadata directory torn away", tear_away_metadata, (1.0, 8.0), why_no_disks),
    )
)
