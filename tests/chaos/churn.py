"""Topics that come and go between faults: each is deleted just before one, and made while another is still healing."""

from __future__ import annotations

from contextlib import suppress

from chaos.nodes import ChaosCluster
from support.fixtures.waiting import wait_until
from support.nodes.cluster import ASK_SECONDS_MAX
from tidelog.base.errors import TidelogError, TopicAlreadyExistsError, UnknownTopicError
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.descriptions import NewTopic

PARTITIONS = 2


class Churn:
    """See the module. At most one topic is there at a time."""

    def __init__(self, cluster: ChaosCluster, replication_factor: int) -> None:
        self._cluster = cluster
        self._replication_factor = replication_factor
        self._made = 0
        self._deleted = 0

    def make(self) -> None:
        """One more, as soon as somebody decides. Raises AssertionError if nobody does."""
        topic = NewTopic(_name(self._made + 1), PARTITIONS, self._replication_factor)

        def is_made() -> bool:
            with suppress(TidelogError), self._admin() as admin:
                with suppress(TopicAlreadyExistsError):  # an answer that was lost
                    admin.create_topics([topic])
                return True
            return False

        wait_until(is_made, lambda: f"{topic.name} is made\n{self._cluster.logs()}")
        self._made += 1

    def delete(self) -> None:
        """The one that is there. Brokers hear of it while whatever comes next is going on."""
        if self._deleted == self._made:
            return
        name = _name(self._made)

        def is_deleted() -> bool:
            with suppress(TidelogError), self._admin() as admin:
                with suppress(UnknownTopicError):
                    admin.delete_topics([name])
                return True
            return False

        wait_until(is_deleted, lambda: f"{name} is deleted\n{self._cluster.logs()}")
        self._deleted = self._made

    def check(self) -> None:
        """What is there is in sync; of what was deleted no node has a log any more, but for one that is to go.

        Raises:
            AssertionError: it does not come to that.
        """
        for number in range(self._deleted + 1, self._made + 1):
            self._cluster.wait_until_in_sync(_name(number))
        gone = {
            f"{_name(number)}-{partition}" for number in range(1, self._deleted + 1) for partition in range(PARTITIONS)
        }

        def left() -> list[str]:
            return [
                str(directory / name)
                for node in self._cluster.nodes.values()
                for directory in node.directories
                for name in gone
                if (directory / name).exists()
            ]

        wait_until(lambda: not left(), lambda: f"deleted, and still there: {left()}\n{self._cluster.logs()}")

    def _admin(self) -> Admin:
        return Admin(self._cluster.bootstrap, default_api_timeout_ms=int(ASK_SECONDS_MAX * 1_000))


def _name(number: int) -> str:
    return f"made-{number}"
