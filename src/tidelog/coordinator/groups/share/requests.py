"""What a group coordinator asks share coordinators. Each state has a partition of its own, which the sender finds."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.base.errors import KafkaError
from tidelog.base.ids import Offset, PartitionIndex, TopicPartition
from tidelog.coordinator.groups.share.states import StateId
from tidelog.metadata.topic_names import SHARE_GROUP_STATE_TOPIC

STATES_ANYWHERE = TopicPartition(SHARE_GROUP_STATE_TOPIC, PartitionIndex(0))
"""The destination of these requests, for messages: it is another one for each state."""


@dataclass(frozen=True, slots=True)
class InitializeStates:
    """Begin states, or begin them anew.

    Attributes:
        state_epoch: fences who knows an older one.
        starts: where each begins; None: where `share.auto.offset.reset` says, which their leaders find out.
    """

    group_id: str
    state_epoch: int
    ids: tuple[StateId, ...]
    starts: tuple[Offset | None, ...]


@dataclass(frozen=True, slots=True)
class RaiseStates:
    """Give states a higher epoch, and leave all else: what was asked with a lower one is fenced if it comes yet."""

    group_id: str
    state_epoch: int
    ids: tuple[StateId, ...]


@dataclass(frozen=True, slots=True)
class DeleteStates:
    """Delete states, those too that are not there.

    Attributes:
        state_epoch: one that was begun since has a higher one, and stays.
    """

    group_id: str
    state_epoch: int
    ids: tuple[StateId, ...]


@dataclass(frozen=True, slots=True)
class LookForStates:
    """Say whether states are kept: INVALID_REQUEST of those that are not."""

    group_id: str
    ids: tuple[StateId, ...]


StateOutcomes = tuple[KafkaError | None, ...]
"""What such a request is answered: for each of its ids why it was not done, or None."""
