"""Consumer groups of KIP-848 beside Apache Kafka: one member more among a hundred.

The members are raw requests from one thread. As clients do, each sends a heartbeat at the interval that both brokers
are set to, and at once when what it reads has changed. The rebalance is over when all members are in the same epoch
and every partition is assigned.
"""

from __future__ import annotations

import heapq
import time
from uuid import UUID

from beside_kafka import PEER, QUICK, Target, both_brokers, in_turns, need_kafka, topic_on
from harness import WireClient, cpu_seconds, figure, median, say

from support.load.consumer_member import ConsumerMember
from support.load.group_member import wait_for_coordinator
from tidelog.base.errors import Code

MEMBERS = 20 if QUICK else 100
PARTITIONS = 2 * MEMBERS
INTERVAL_MS = 200
SECONDS_MAX = 60.0
INTERVALS = {
    "group.consumer.min.heartbeat.interval.ms": str(INTERVAL_MS),
    "group.consumer.heartbeat.interval.ms": str(INTERVAL_MS),
    "group.consumer.assignment.interval.ms": "0",
}
TOPIC, GROUP = "bench-consumer-groups", "rebalance"


class Members:
    """The members of one group at one broker."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.members: list[ConsumerMember] = []
        self._due: list[tuple[float, int, ConsumerMember]] = []
        self._epoch = 0  # in which all was assigned last

    def join(self) -> None:
        """One more."""
        member = ConsumerMember(self.target.port, GROUP)
        code = member.join(TOPIC)
        assert code is Code.NONE, (code, member.message)
        self.members.append(member)
        self._heed(member, {})

    def leave(self) -> None:
        """The last one goes."""
        member = self.members.pop()
        assert member.leave() is Code.NONE, member.message
        member.close()

    def settle(self) -> None:
        """Send heartbeats until all is assigned as it is to be, in a newer epoch than it was before."""
        deadline = time.monotonic() + SECONDS_MAX
        while not self._is_settled():
            assert time.monotonic() < deadline, f"{self.target.name}: a rebalance takes more than {SECONDS_MAX} s"
            due, _, member = heapq.heappop(self._due)
            if member not in self.members:
                continue
            time.sleep(max(due - time.monotonic(), 0.0))
            before = dict(member.assigned)
            code = member.beat()
            assert code is Code.NONE, (code, member.message)
            self._heed(member, before)

    def close(self) -> None:
        for member in self.members:
            member.close()

    def _heed(self, member: ConsumerMember, before: dict[UUID, list[int]]) -> None:
        """What has changed is acknowledged at once; then it is an interval until the next heartbeat."""
        while member.assigned != before:
            before = dict(member.assigned)
            code = member.acknowledge()
            assert code is Code.NONE, (code, member.message)
        heapq.heappush(self._due, (time.monotonic() + INTERVAL_MS / 1_000, id(member), member))

    def _is_settled(self) -> bool:
        epochs = {member.epoch for member in self.members}
        if epochs == {self._epoch} or len(epochs) > 1:
            return False
        if sum(member.partition_count for member in self.members) != PARTITIONS:
            return False
        self._epoch = epochs.pop()
        return True


def main() -> None:
    need_kafka()
    with both_brokers(INTERVALS) as targets, topic_on(targets, TOPIC, PARTITIONS):
        groups = {target.name: Members(target) for target in targets}
        for group in groups.values():
            with WireClient(group.target.port) as client:
                wait_for_coordinator(client, GROUP)
            for _ in range(MEMBERS):
                group.join()
            group.settle()

        def rebalance(target: Target) -> tuple[float, float]:
            group, began, cpu = groups[target.name], time.perf_counter(), cpu_seconds(target.pid)
            group.join()
            group.settle()
            took, cpu = time.perf_counter() - began, cpu_seconds(target.pid) - cpu
            group.leave()
            group.settle()
            return took, cpu

        results = in_turns(targets, rebalance)
        for group in groups.values():
            group.close()
    node, peer = results["node"], results["peer"]
    say(f"seconds: {[round(took, 2) for took, _ in node]} beside {[round(took, 2) for took, _ in peer]}")
    name = f"rebalance of {MEMBERS} members of the new protocol"
    figure(
        name,
        median([took for took, _ in node]),
        "s",
        peer=PEER,
        peer_value=median([took for took, _ in peer]),
        at_most=1.0,
        of_ratio=True,
    )
    figure(
        f"{name}: CPU of the broker",
        median([cpu for _, cpu in node]) * 1_000,
        "ms",
        peer=PEER,
        peer_value=median([cpu for _, cpu in peer]) * 1_000,
        at_most=200,
    )


if __name__ == "__main__":
    main()
