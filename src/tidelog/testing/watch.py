"""What tests ask a cluster, and wait for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tidelog.base.errors import KafkaError, NetworkError, TidelogError, TimedOutError, UnknownTopicError
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.descriptions import PartitionDescription
from tidelog.testing.errors import ClusterFailedError, ClusterUsageError
from tidelog.testing.links import CLIENTS, Links
from tidelog.testing.node import Node

T = TypeVar("T")

SETTLE_SECONDS_MAX = 60.0
ASK_MS_MAX = 5_000
PAUSE_SECONDS = 0.02


class ClusterWatch:
    """Asks the nodes that can answer. A node that was cut off knows little, so each is asked.

    Args:
        nodes: by number.
    """

    def __init__(self, nodes: Mapping[int, Node], links: Links) -> None:
        self._nodes = nodes
        self._links = links

    def admin(self) -> Admin:
        """To all nodes that can answer. Raises ClusterUsageError: none can."""
        return _admin(*self._able())

    def partitions(self, topic: str) -> list[PartitionDescription]:
        """Of a topic, in order; each as the node knows it that has heard of the newest leader epoch.

        Raises:
            ClusterUsageError: there is no such topic, or no node can answer.
            KafkaError, NetworkError: nobody can say now.
        """
        newest: dict[int, PartitionDescription] = {}
        for view in self._views(topic):
            for one in view:
                known = newest.get(one.partition)
                if known is None or (one.leader_epoch or 0) > (known.leader_epoch or 0):
                    newest[one.partition] = one
        return [newest[index] for index in sorted(newest)]

    def partition(self, topic: str, partition: int) -> PartitionDescription:
        """One of them. Raises as `partitions`."""
        found = self.partitions(topic)
        if not 0 <= partition < len(found):
            raise ClusterUsageError(f"there is no {topic}-{partition}: the topic has 0 to {len(found) - 1}")
        return found[partition]

    def wait_until_in_sync(self, topic: str) -> None:
        """Until all replicas of a topic are, as all nodes know. Raises as `wait` and `partitions`."""

        def are_in_sync() -> bool:
            views = self._views(topic)
            return len(views) == len(self._able()) and all(
                one.leader is not None and set(one.isr) == set(one.replicas) for view in views for one in view
            )

        self.wait(are_in_sync, f"all replicas of {topic} are in sync")

    def _able(self) -> list[Node]:
        able = [
            node
            for node in self._nodes.values()
            if node.is_running
            and not node.is_paused
            and not self._links.is_cut(CLIENTS, node.node_id)
            and not self._links.is_cut(node.node_id, CLIENTS)
        ]
        if not able:
            raise ClusterUsageError("no node of the cluster can answer: start, resume or heal one first")
        return able

    def _views(self, topic: str) -> list[Sequence[PartitionDescription]]:
        """What each node knows that can say. Raises as `partitions`."""
        views: list[Sequence[PartitionDescription]] = []
        failure: TidelogError | None = None
        for node in self._able():
            try:
                with _admin(node) as admin:
                    views.append(admin.describe_topics([topic])[topic].partitions)
            except (KafkaError, NetworkError, TimedOutError) as error:
                failure = error
        if not views and isinstance(failure, UnknownTopicError):
            raise ClusterUsageError(
                f"there is no topic {topic}: create it first, with cluster.create_topic({topic!r})"
            ) from failure
        if not views and failure is not None:
            raise failure
        return views

    def wait(self, is_so: Callable[[], T | None], what: str) -> T:
        """Ask until it is so; returns the first answer that is true. What fails meanwhile is asked again.

        Args:
            what: is waited for, as a clause.

        Raises:
            ClusterFailedError: it is not so within a minute; shows the end of the logs.
        """
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        last: Exception | None = None
        while True:
            try:
                answer = is_so()
            except (KafkaError, NetworkError, TimedOutError) as error:
                last = error
            else:
                if answer:
                    return answer
            if time.monotonic() > deadline:
                said = "" if last is None else f" (the last error: {last})"
                first = next(iter(self._nodes.values()))
                raise ClusterFailedError(
                    f"it is not so after {SETTLE_SECONDS_MAX:.0f} s that {what}{said}\n{self.logs()}", first.log_path
                )
            time.sleep(PAUSE_SECONDS)

    def logs(self, *, characters_max: int = 1_500) -> str:
        """The end of what each node logged."""
        return "\n".join(f"== {node}: {node.log_path}\n{node.log[-characters_max:]}" for node in self._nodes.values())


def _admin(*nodes: Node) -> Admin:
    return Admin(",".join(node.bootstrap_servers for node in nodes), default_api_timeout_ms=ASK_MS_MAX)
