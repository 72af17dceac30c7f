"""Asks share coordinators as brokers do, about one group and one topic: Kafka's, or ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from support.clients.wire_client import WireClient
from tidelog.base.errors import Code
from tidelog.base.ids import uuid_text
from tidelog.wire import ApiKey
from tidelog.wire.messages import api_83_initialize_share_group_state as api_83
from tidelog.wire.messages import api_84_read_share_group_state as api_84
from tidelog.wire.messages import api_85_write_share_group_state as api_85
from tidelog.wire.messages import api_86_delete_share_group_state as api_86
from tidelog.wire.messages import api_87_read_share_group_state_summary as api_87
from tidelog.wire.messages.api_10_find_coordinator import (
    KEY_TYPE_SHARE,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)


class ShareStateClient:
    """Asks about one group and one topic, of which each partition stands for itself."""

    def __init__(self, wire: WireClient, topic_id: UUID, group_id: str = "group") -> None:
        self.wire = wire
        self.topic_id = topic_id
        self.group_id = group_id

    def find(self, *keys: str, version: int = 6) -> list[Coordinator]:
        request = FindCoordinatorRequest(coordinator_keys=list(keys), key_type=KEY_TYPE_SHARE)
        return self.wire.ask(ApiKey.FIND_COORDINATOR, version, request, FindCoordinatorResponse).coordinators

    def key(self, partition: int) -> str:
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{partition}"

    def initialize(self, *partitions: int, state_epoch: int = 1, start: int = 0) -> list[Code]:
        rows = [api_83.InitializeShareGroupStatePartition(one, state_epoch, start) for one in partitions]
        request = api_83.InitializeShareGroupStateRequest(
            group_id=self.group_id, topics=[api_83.InitializeShareGroupStateTopic(self.topic_id, rows)]
        )
        key = ApiKey.INITIALIZE_SHARE_GROUP_STATE
        answer = self.wire.ask(key, 0, request, api_83.InitializeShareGroupStateResponse)
        return self.codes(answer, partitions)

    def write(self, *rows: api_85.WriteShareGroupStatePartition) -> list[Code]:
        request = api_85.WriteShareGroupStateRequest(
            group_id=self.group_id, topics=[api_85.WriteShareGroupStateTopic(self.topic_id, list(rows))]
        )
        answer = self.wire.ask(ApiKey.WRITE_SHARE_GROUP_STATE, 1, request, api_85.WriteShareGroupStateResponse)
        return self.codes(answer, [one.partition for one in rows])

    def read(self, *partitions: int, leader_epoch: int = -1) -> list[api_84.ReadShareGroupStatePartitionResult]:
        rows = [api_84.ReadShareGroupStatePartition(one, leader_epoch) for one in partitions]
        request = api_84.ReadShareGroupStateRequest(
            group_id=self.group_id, topics=[api_84.ReadShareGroupStateTopic(self.topic_id, rows)]
        )
        answer = self.wire.ask(ApiKey.READ_SHARE_GROUP_STATE, 0, request, api_84.ReadShareGroupStateResponse)
        (topic,) = answer.results
        return topic.partitions

    def summarize(self, *partitions: int, version: int = 1) -> list[api_87.ReadShareGroupStateSummaryPartitionResult]:
        rows = [api_87.ReadShareGroupStateSummaryPartition(one, -1) for one in partitions]
        request = api_87.ReadShareGroupStateSummaryRequest(
            group_id=self.group_id, topics=[api_87.ReadShareGroupStateSummaryTopic(self.topic_id, rows)]
        )
        key = ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
        (topic,) = self.wire.ask(key, version, request, api_87.ReadShareGroupStateSummaryResponse).results
        return topic.partitions

    def delete(self, *partitions: int, state_epoch: int = -1) -> list[Code]:
        rows = [api_86.DeleteShareGroupStatePartition(one, state_epoch) for one in partitions]
        request = api_86.DeleteShareGroupStateRequest(
            group_id=self.group_id, topics=[api_86.DeleteShareGroupStateTopic(self.topic_id, rows)]
        )
        answer = self.wire.ask(ApiKey.DELETE_SHARE_GROUP_STATE, 0, request, api_86.DeleteShareGroupStateResponse)
        return self.codes(answer, partitions)

    def codes(self, answer: Any, partitions: Sequence[int]) -> list[Code]:
        """Those of the partitions as they were asked for; Kafka answers in an order of its own."""
        (topic,) = answer.results
        assert topic.topic_id == self.topic_id
        found = {one.partition: Code(one.error_code) for one in topic.partitions}
        assert found.keys() == set(partitions)
        return [found[one] for one in partitions]
