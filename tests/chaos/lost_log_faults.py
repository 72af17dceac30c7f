"""Logs that are gone when a node comes back: a partition's directory, its records alone, or all partitions of the node.

One node at a time loses something, which `min.insync.replicas` of two covers: nothing acknowledged is lost.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from chaos.fault import Fault, Hurt, Stage
from support.nodes.cluster import ClusterNode
from tidelog.base.ids import CLUSTER_METADATA
from tidelog.log.directory import DELETE_SUFFIX

ALL_AT_ONCE = 0.5  # how often every node is down when one loses its logs
EPOCHS_FILE = "leader-epoch-checkpoint"
"""Every log has one."""
WHILE_RUNNING = 0.3  # how often the logs go before the process does

Choose = Callable[[Stage, Sequence[Path]], Sequence[Path]]


def lose(stage: Stage, *, choose: Choose, remove: Callable[[Path], None]) -> Iterator[str]:
    """What is chosen of a node's partitions is gone before it starts again, among the first of the nodes."""
    cluster, node = stage.cluster, stage.victim()
    intact = stage.another(node)
    chosen = choose(stage, _partitions(node))
    is_all = stage.dice.random() < ALL_AT_ONCE
    if stage.dice.random() < WHILE_RUNNING:
        for directory in chosen:
            remove(directory)
    end = stage.dice.choice([ClusterNode.kill, ClusterNode.stop])
    for each in list(cluster.nodes.values()) if is_all else [node]:
        # What lost its files under its feet need not stop cleanly.
        ClusterNode.kill(each) if each is node else end(each)
    for directory in chosen:
        remove(directory)
    yield f"{node}{', all are down' if is_all else ''}: {', '.join(each.name for each in chosen)}"
    down = [each for each in (node, intact, *cluster.nodes.values()) if not each.is_running]
    order = list(dict.fromkeys(down))
    majority = len(cluster.nodes) // 2 + 1  # fewer cannot serve
    for each in order[:majority]:
        each.start_soon()
    for each in order[:majority]:
        each.wait_until_serving()
    for each in order[majority:]:
        if not each.is_running:
            each.start()


def _partitions(node: ClusterNode) -> list[Path]:
    return [
        path
        for directory in node.directories
        for path in sorted(directory.iterdir())
        if path.is_dir()
        and (path / EPOCHS_FILE).exists()
        and not path.name.startswith(CLUSTER_METADATA[0])
        and not path.name.endswith(DELETE_SUFFIX)  # nobody would miss it
    ]


def _one(stage: Stage, found: Sequence[Path]) -> Sequence[Path]:
    return [stage.dice.choice(found)]


def _all(_: Stage, found: Sequence[Path]) -> Sequence[Path]:
    return found


def _directory(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


def _records(path: Path) -> None:
    for file in path.glob("*.log"):
        file.unlink()


FAULTS = tuple(
    Fault(
        kind=kind,
        strike=partial(lose, choose=choose, remove=remove),
        hurts=Hurt.DISK,
        seconds=(0.0, 3.0),
        is_alone=True,
        is_restart=True,
    )
    for kind, choose, remove in (
        ("partition's directory lost", _one, _directory),
        ("partition's records lost", _one, _records),
        ("all partitions of a node lost", _all, _directory),
    )
)
