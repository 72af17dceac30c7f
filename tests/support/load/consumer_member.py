"""A member of a consumer group (KIP-848) as raw requests, that does what a test says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID, uuid4

from support.clients.wire_client import WireClient
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatPartitions,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.wire.messages.api_69_consumer_group_describe import (
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)

Parts = Mapping[UUID, Iterable[int]]


class ConsumerMember:
    """One, on a connection of its own.

    Attributes:
        epoch: as the last answer said.
        assigned: the partitions of each topic's id, likewise.
        message: the text of the last refusal.
        interval_ms: between heartbeats, as the last answer said.
    """

    def __init__(self, port: int, group: str, *, member_id: str | None = None, instance_id: str | None = None) -> None:
        self.client = WireClient(port)
        self.group = group
        self.member_id = str(uuid4()) if member_id is None else member_id
        self.instance_id = instance_id
        self.epoch = 0
        self.assigned: dict[UUID, list[int]] = {}
        self.message: str | None = None
        self.interval_ms = 0

    def close(self) -> None:
        self.client.close()

    def join(
        self,
        *topics: str,
        pattern: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = 60_000,
        version: int = 1,
    ) -> Code:
        """Say all that there is to say, for the first time."""
        self.assigned = {}
        return self.send(
            0,
            version=version,
            subscribed_topic_names=list(topics) or (None if pattern else []),
            subscribed_topic_regex=pattern,
            server_assignor=assignor,
            rebalance_timeout_ms=rebalance_ms,
            topic_partitions=[],
        )

    def beat(self, owned: Parts | None = None, **options: object) -> Code:
        """Say that it is there, and, if so, what it reads."""
        rows = None
        if owned is not None:
            rows = [ConsumerGroupHeartbeatPartitions(topic, list(one)) for topic, one in owned.items() if list(one)]
        return self.send(self.epoch, topic_partitions=rows, **options)  # type: ignore[arg-type]

    def acknowledge(self) -> Code:
        """Say that it reads what it was told to, and nothing else."""
        return self.beat(self.assigned)

    def leave(self, epoch: int = -1) -> Code:
        """Go; -2 for a static member that comes back."""
        return self.send(epoch)

    def send(self, epoch: int, *, version: int = 1, **options: object) -> Code:
        """One heartbeat, with whatever is in it."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            **options,  # type: ignore[arg-type]
        )
        answer = self.client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, request, ConsumerGroupHeartbeatResponse)
        self.message = answer.error_message
        code = Code(answer.error_code)
        if code is Code.NONE:
            self.epoch = answer.member_epoch
            self.member_id = answer.member_id or self.member_id
            self.interval_ms = answer.heartbeat_interval_ms
            if answer.assignment is not None:
                self.assigned = {one.topic_id: sorted(one.partitions) for one in answer.assignment.topic_partitions}
        return code

    @property
    def partition_count(self) -> int:
        """How many partitions it may read."""
        return sum(map(len, self.assigned.values()))


def consumer_group(
    client: WireClient, group: str, *, version: int = 1, asks_operations: bool = False
) -> ConsumerGroupDescribeGroup:
    """The group, as ConsumerGroupDescribe shows it."""
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=asks_operations)
    answer = client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, version, request, ConsumerGroupDescribeResponse)
    return answer.groups[0]
