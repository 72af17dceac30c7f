"""How long it takes until a loss in every one of thousands of partitions is in the account, on three nodes.

Node 1 leads all partitions of a topic with two replicas, and writes alone at last; it is killed, node 2 is elected in
each of them without its last record, and node 1 comes back. The time runs from the moment when clients are told of it
until no entry is open: it compares its logs with those of node 2, keeps and notes what it cuts off, and tells.

python bench/bench_losses.py [--quick] [--partitions N]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from harness import figure, say

from tidelog import Admin, NewTopic, Producer
from tidelog.testing import Cluster

_parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
_parser.add_argument("--quick", action="store_true", help="500 partitions")
_parser.add_argument("--partitions", type=int, default=5_000, help="so many, in topics of about a thousand")
OPTIONS = _parser.parse_known_args()[0]
WANTED: int = 500 if OPTIONS.quick else OPTIONS.partitions
TOPICS = max(WANTED // 1_000, 1)
PARTITIONS = WANTED // TOPICS * TOPICS
CONFIGS = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
SECONDS_MAX = max(300.0, 0.06 * PARTITIONS)


def wait(is_so: Callable[[], bool], what: str) -> float:
    """How long it took."""
    began = time.monotonic()
    while not is_so():
        if time.monotonic() > began + SECONDS_MAX:
            sys.exit(f"within {SECONDS_MAX:.0f} s it did not come about that {what}")
        time.sleep(0.1)
    return time.monotonic() - began


def write(cluster: Cluster, topics: list[str]) -> None:
    """A record into each partition."""
    with Producer(cluster.bootstrap_servers, acks="all") as producer:
        futures = [
            producer.send(topic, b"value", partition=index) for topic in topics for index in range(PARTITIONS // TOPICS)
        ]
        for future in futures:
            future.result()


def main() -> None:
    topics = [f"lost-{number}" for number in range(TOPICS)]
    config = {"broker.session.timeout.ms": "30000", "replica.lag.time.max.ms": "3000"}
    with Cluster(3, config=config) as cluster, Admin(cluster.bootstrap_servers) as admin:
        for topic in topics:
            replicas = {index: [1, 2] for index in range(PARTITIONS // TOPICS)}
            admin.create_topics([NewTopic(topic, replica_assignments=replicas, configs=CONFIGS)])

        def isr_is(*expected: int) -> bool:
            found = admin.describe_topics(topics)
            return all(set(one.isr) == set(expected) for each in found.values() for one in each.partitions)

        write(cluster, topics)
        wait(lambda: isr_is(1, 2), "all are in sync")
        say(f"{PARTITIONS:,} partitions are written")
        cluster.nodes[2].kill()
        wait(lambda: isr_is(1), "node 1 is in sync alone")
        write(cluster, topics)
        quorum = admin.describe_quorum().leader_epoch
        cluster.nodes[1].kill()
        cluster.nodes[2].start()
        wait(lambda: admin.describe_losses().open_count == PARTITIONS, "an entry is open for each partition")
        say("each has lost its leader; node 1 comes back")
        cluster.nodes[1].start_soon()
        wait(lambda: 1 in {each.broker_id for each in admin.describe_cluster().brokers}, "node 1 serves")
        seconds = wait(lambda: admin.describe_losses(["none"]).open_count == 0, "no entry is open")
        account = admin.describe_losses()
        lost = sum(loss.lost_offsets is not None for loss in account.losses)
        elections = admin.describe_quorum().leader_epoch - quorum
        say(f"{lost:,} of {PARTITIONS:,} entries name what is lost; {elections} elections of the quorum since the kill")
        figure(f"losses in {PARTITIONS} partitions: accounted within", seconds, "s", at_most=10)


if __name__ == "__main__":
    main()
