"""The share coordinator, as far as a leader of partitions needs it: it keeps what share groups have done.

Kafka: `Persister`.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.base.errors import Code
from tidelog.base.ids import LeaderEpoch, PartitionIndex, TopicId
from tidelog.share import ShareState, StateChange

FENCED = frozenset(
    {
        Code.FENCED_LEADER_EPOCH,
        Code.FENCED_STATE_EPOCH,
        Code.GROUP_ID_NOT_FOUND,
        Code.INVALID_REQUEST,  # there is no state any more
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_ID,
    }
)
"""After one of these, nothing else that a leader writes of this state will be kept."""
UNREACHED = frozenset(
    {
        Code.NOT_COORDINATOR,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.REQUEST_TIMED_OUT,
        Code.NETWORK_EXCEPTION,
    }
)


def code_for_members(code: Code) -> Code:
    """What a member is told where the coordinator answered the leader with an error. As Kafka's `SharePartition` does.

    A member knows nothing of share coordinators: it asks the leader again, or looks for another.
    """
    if code in UNREACHED:
        return Code.COORDINATOR_NOT_AVAILABLE
    if code in (Code.FENCED_LEADER_EPOCH, Code.FENCED_STATE_EPOCH):
        return Code.NOT_LEADER_OR_FOLLOWER
    if code in (
        Code.INVALID_REQUEST,
        Code.MESSAGE_TOO_LARGE,
    ):  # no state, or no room in it: the member's request is well
        return Code.UNKNOWN_SERVER_ERROR
    return code


class KeepsShareStates(Protocol):
    """Reads and writes states. Of one state, a leader writes one change at a time."""

    async def read(
        self, group_id: str, topic_id: TopicId, partition: PartitionIndex, leader_epoch: LeaderEpoch
    ) -> ShareState:
        """What is kept; from then on, leaders of older epochs are fenced.

        Args:
            leader_epoch: of the partition's leader, which asks.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH, COORDINATOR_NOT_AVAILABLE and the like.
        """
        ...

    async def write(self, group_id: str, topic_id: TopicId, partition: PartitionIndex, change: StateChange) -> None:
        """Return once the change is kept, and will be read by whoever leads next.

        Raises:
            KafkaError: as `read`, and FENCED_STATE_EPOCH. It is not kept; or, where no answer came, it may be.
        """
        ...
