"""Hurt a real cluster under load: `python tests/fuzz/fuzz_cluster.py SECONDS [SEED]`.

Three nodes, one process each, a load that remembers, and a group that commits. Nodes are killed, stopped, paused and
restarted by what they are at that moment: one, two or all of them; some come back with an empty directory. After each
blow the cluster has to heal. In the end every acknowledged record is there once and in order, readers missed nothing,
no acknowledged commit is gone, the replicas are alike on disk, and no node reports a bug of its own.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.load.verifying import VerifyingLoad, verifying_load
from support.load.verifying_groups import verifying_group
from support.nodes.cluster import PROMPT, Cluster, ClusterNode
from support.nodes.cluster_files import check_replicas_agree

TOPIC = "verified"
GROUP = "verifiers"
PARTITIONS = 3
RECORDS_MAX = 300  # of each producer, between one event and the next


class Blows:
    """What is done to the cluster, as the dice say; every blow ends with all nodes running."""

    def __init__(self, cluster: Cluster, load: VerifyingLoad, rng: random.Random) -> None:
        self._cluster, self._load, self._rng = cluster, load, rng
        self._kinds: tuple[Callable[[ClusterNode], None], ...] = (
            self.kill, self.kill, self.kill_two, self.kill_all, self.stop, self.pause, self.empty, self.restart_in_turn,
        )  # fmt: skip
        self._roles: tuple[Callable[[], ClusterNode], ...] = (
            lambda: cluster.leader_of(TOPIC, rng.randrange(PARTITIONS)),
            lambda: cluster.follower_of(TOPIC, rng.randrange(PARTITIONS)),
            cluster.active_controller,
            lambda: cluster.coordinator_of(GROUP),
        )

    def strike(self) -> str:
        """Any of them. Returns what it was."""
        kind, node = self._rng.choice(self._kinds), self._rng.choice(self._roles)()
        kind(node)
        return f"{kind.__name__.replace('_', ' ')}, {node} first"

    def go_on(self) -> None:
        """Some more records are acknowledged."""
        self._load.until_acknowledged(self._rng.randrange(1, RECORDS_MAX))

    def kill(self, node: ClusterNode) -> None:
        node.kill()
        if self._rng.random() < 0.7:
            self.go_on()
        node.start()

    def kill_two(self, node: ClusterNode) -> None:
        """There is no majority until one of them is back."""
        other = self._rng.choice([one for one in self._cluster.nodes.values() if one is not node])
        node.kill()
        other.kill()
        other.start()
        node.start()

    def kill_all(self, _: ClusterNode) -> None:
        self._cluster.kill()
        self._cluster.start()

    def stop(self, node: ClusterNode) -> None:
        node.stop()
        self.go_on()
        node.start()

    def pause(self, node: ClusterNode) -> None:
        """Until the others go on without it: at once where it leads nothing, else when its session is over."""
        node.pause()
        try:
            self.go_on()
        finally:
            node.resume()

    def empty(self, node: ClusterNode) -> None:
        """Its disk is lost. The others have to know it before it comes back: a voter forgets whom it voted for."""
        node.kill()
        node.lose_disk()
        self.go_on()
        node.start()

    def restart_in_turn(self, _: ClusterNode) -> None:
        for node in self._cluster.nodes.values():
            node.restart()


def run(seconds: float, seed: int) -> None:
    """Raises AssertionError, or what a client failed with, if anything is wrong."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="tidelog-fuzz-") as home:
        cluster = Cluster(Path(home) / "cluster", config=PROMPT)
        try:
            _hurt(cluster, seconds, rng)
            cluster.check_logs()
        except BaseException:
            print(cluster.logs(), file=sys.stderr)
            raise
        finally:
            cluster.close()


def _hurt(cluster: Cluster, seconds: float, rng: random.Random) -> None:
    cluster.start()
    cluster.create_topic(TOPIC, PARTITIONS)
    with (
        verifying_load(cluster.bootstrap, TOPIC, PARTITIONS) as load,
        verifying_group(cluster.bootstrap, GROUP, TOPIC) as group,
    ):
        blows, began, count = Blows(cluster, load, rng), time.monotonic(), 0
        while time.monotonic() < began + seconds:
            blows.go_on()
            print(f"{time.monotonic() - began:6.1f} s: {blows.strike()}", flush=True)
            cluster.wait_until_in_sync(TOPIC)
            count += 1
            cluster.create_topic(f"more-{count}", 2)
        history = load.finish()
        history.check()
        assert not history.failed, history.failed_lines()
        assert not history.reported, history.reported
        group.check(history, PARTITIONS)
    for number in range(1, count + 1):
        cluster.wait_until_in_sync(f"more-{number}")
    cluster.stop()
    check_replicas_agree(cluster, TOPIC, PARTITIONS)
    print(f"{count} blows; {len(history.acknowledged)} records and {group.commits} commits acknowledged, none lost")


if __name__ == "__main__":
    run(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1_000_000))
