"""The requests that ask share coordinators on other brokers. Loaded when the first is sent.

Kafka: `PersisterStateManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import PartitionIndex, TopicId
from tidelog.server.share_state.state_messages import state_told, summary_told, told_change, told_offset
from tidelog.share.key import ShareKey
from tidelog.wire.messages import api_83_initialize_share_group_state as api_83
from tidelog.wire.messages import api_84_read_share_group_state as api_84
from tidelog.wire.messages import api_85_write_share_group_state as api_85
from tidelog.wire.messages import api_86_delete_share_group_state as api_86
from tidelog.wire.messages import api_87_read_share_group_state_summary as api_87


class StateRequest(NamedTuple):
    """How one of them is made and read.

    Attributes:
        whole, topic, response: classes of messages.
        row: of a partition, by what is asked.
        answer: in the row of a response that has no error.
    """

    whole: Callable[..., object]
    topic: Callable[..., object]
    row: Callable[[int, Any], object]
    response: type[Any]
    answer: Callable[[Any], object]

    def request(self, group_id: str, asked: Sequence[tuple[ShareKey, Any]]) -> object:
        """Of a group and what is asked of it."""
        rows: dict[TopicId, list[object]] = {}
        for key, what in asked:
            rows.setdefault(key.topic_id, []).append(self.row(key.partition, what))
        topics = [self.topic(topic_id=topic_id, partitions=its) for topic_id, its in rows.items()]
        return self.whole(group_id=group_id, topics=topics)

    def answers(self, group_id: str, response: Any) -> dict[ShareKey, object]:
        """By key: an answer, or the `KafkaError` that refuses it."""
        return {
            ShareKey(group_id, TopicId(topic.topic_id), PartitionIndex(row.partition)): self._answer(row)
            for topic in response.results
            for row in topic.partitions
        }

    def _answer(self, row: Any) -> object:
        if row.error_code:
            return refusal(Code(row.error_code), row.error_message or "")
        try:
            return self.answer(row)
        except KafkaError as error:
            return error


def _nothing(row: object) -> object:
    return Code.NONE


REQUESTS = {
    "InitializeShareGroupState": StateRequest(
        api_83.InitializeShareGroupStateRequest,
        api_83.InitializeShareGroupStateTopic,
        lambda partition, state: api_83.InitializeShareGroupStatePartition(
            partition=partition, state_epoch=state.state_epoch, start_offset=told_offset(state.start)
        ),
        api_83.InitializeShareGroupStateResponse,
        _nothing,
    ),
    "ReadShareGroupState": StateRequest(
        api_84.ReadShareGroupStateRequest,
        api_84.ReadShareGroupStateTopic,
        lambda partition, leader_epoch: api_84.ReadShareGroupStatePartition(
            partition=partition, leader_epoch=leader_epoch
        ),
        api_84.ReadShareGroupStateResponse,
        state_told,
    ),
    "WriteShareGroupState": StateRequest(
        api_85.WriteShareGroupStateRequest,
        api_85.WriteShareGroupStateTopic,
        told_change,
        api_85.WriteShareGroupStateResponse,
        _nothing,
    ),
    "DeleteShareGroupState": StateRequest(
        api_86.DeleteShareGroupStateRequest,
        api_86.DeleteShareGroupStateTopic,
        lambda partition, state_epoch: api_86.DeleteShareGroupStatePartition(
            partition=partition, state_epoch=state_epoch
        ),
        api_86.DeleteShareGroupStateResponse,
        _nothing,
    ),
    "ReadShareGroupStateSummary": StateRequest(
        api_87.ReadShareGroupStateSummaryRequest,
        api_87.ReadShareGroupStateSummaryTopic,
        lambda partition, _: api_87.ReadShareGroupStateSummaryPartition(partition=partition, leader_epoch=-1),
        api_87.ReadShareGroupStateSummaryResponse,
        summary_told,
    ),
}
"""By the name of the API."""
