"""What a broker is to a partition of which it has a replica: its leader, a follower of its leader, or neither.

Kafka: `Partition`, whose leader and follower states are one class.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicPartition
from tidelog.metadata import PartitionImage
from tidelog.replica import LeaderReplica, ReplicationSettings, check_leader_epoch

if TYPE_CHECKING:
    from tidelog.server.replication.leader_driver import LeaderDriver

T = TypeVar("T")


def done(outcome: T) -> asyncio.Future[T]:
    """What is known at once, for a caller that awaits it."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(outcome)
    return future


class PartitionRole:
    """Neither leader nor follower: the broker is not registered yet, or was told to stop. It serves nobody.

    `LeaderDriver` and `FollowerDriver` are the other two, and override what they do. A partition has one role at a
    time. The role owns the high watermark and hands it to the next.

    Attributes:
        leader_epoch: of this role, or the newest that the metadata told of; None before it told of any.
        is_active: whether the broker leads or follows.
    """

    __slots__ = ("_high_watermark", "leader_epoch", "topic_partition")

    is_active = False

    def __init__(
        self, topic_partition: TopicPartition, high_watermark: Offset, leader_epoch: LeaderEpoch | None
    ) -> None:
        """It does not know the partition: one that was deleted is freed with the last reference to it."""
        self.topic_partition = topic_partition
        self.leader_epoch = leader_epoch
        self._high_watermark = high_watermark

    def stop(self) -> None:
        """End this role: whoever waits for it is answered."""

    @property
    def leader_replica(self) -> LeaderReplica | None:
        """The leader's machine; None where this broker does not lead."""
        return None

    @property
    def high_watermark(self) -> Offset:
        """Exclusive: below it all is committed, as far as this broker knows."""
        return self._high_watermark

    # What happens.

    def on_state(self, state: PartitionImage) -> None:
        """The metadata has something newer about the partition, within the leader epoch."""

    def on_brokers(self, active: Mapping[BrokerId, BrokerEpoch]) -> None:
        """These brokers are neither fenced nor shutting down, each in this incarnation."""

    def on_settings(self, settings: ReplicationSettings) -> None:
        """The settings of the topic changed."""

    def on_log_start_moved(self) -> None:
        """Retention or DeleteRecords removed records from the start of the log."""

    def on_follower_changed(self, follower: BrokerId, is_silent: bool, now_ms: int) -> None:
        """A broker has fetched nothing from here for a session, whatever it follows; or it does again."""

    # What clients and followers ask.

    def may_lead_soon(self, sent_leader_epoch: int) -> bool:
        """Whether the sender may know more than this broker: that it leads in an epoch which has yet to begin here."""
        known = self.leader_epoch
        return sent_leader_epoch >= 0 and (
            known is None or sent_leader_epoch > known or (sent_leader_epoch == known and not self.is_active)
        )

    def leading(self, sent_leader_epoch: int = -1) -> LeaderDriver:
        """The leader's role, if this is it and the sender agrees about the epoch. See `Partition.leader`."""
        known = self.leader_epoch
        topic_partition = self.topic_partition
        if known is not None and 0 <= sent_leader_epoch != known:
            check_leader_epoch(topic_partition, sent=LeaderEpoch(sent_leader_epoch), leader_epoch=known)
        raise refusal(Code.NOT_LEADER_OR_FOLLOWER, f"{topic_partition}: this broker is not its leader")

    def check_serves(self, sent_leader_epoch: int) -> None:
        """See `Partition.check_serves`."""
        self.leading(sent_leader_epoch)

    def diverging(self, last_fetched_epoch: LeaderEpoch, fetch_offset: int) -> tuple[LeaderEpoch, Offset] | None:
        """See `Partition.diverging`."""
        self.check_serves(-1)
        return None

    def committed(self, end_offset: int, timeout_ms: int) -> asyncio.Future[Code]:
        """See `Partition.committed`."""
        return done(Code.NOT_LEADER_OR_FOLLOWER)

    def deleted(self, offset: int) -> asyncio.Future[bool]:
        """See `Partition.deleted`."""
        return done(False)
