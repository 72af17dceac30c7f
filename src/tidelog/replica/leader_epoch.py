"""Whether the sender of a request and this broker speak of the same period of leadership (KIP-320).

Kafka: `Partition.checkCurrentLeaderEpoch`.
"""

from __future__ import annotations

from tidelog.base.errors import FencedLeaderEpochError, UnknownLeaderEpochError
from tidelog.base.ids import LeaderEpoch, TopicPartition


def check_leader_epoch(partition: TopicPartition, *, sent: LeaderEpoch | None, leader_epoch: LeaderEpoch) -> None:
    """Refuse a sender whose leader epoch differs from ours, whether or not we lead.

    This check comes before the one for leadership: where the epochs differ, the epoch error is the one that helps the
    sender, NOT_LEADER_OR_FOLLOWER is not.

    Args:
        sent: what the request carries; None (-1 on the wire, or an old version without the field) is not checked.
        leader_epoch: the one that this broker knows of.

    Raises:
        FencedLeaderEpochError: the sender missed an election and has to refresh its metadata.
        UnknownLeaderEpochError: this broker did; the sender tries again.
    """
    if sent is None:
        return
    if sent < leader_epoch:
        raise FencedLeaderEpochError(str(partition), sent_epoch=sent, leader_epoch=leader_epoch)
    if sent > leader_epoch:
        raise UnknownLeaderEpochError(str(partition), sent_epoch=sent, leader_epoch=leader_epoch)
