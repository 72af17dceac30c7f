"""Groups of the new protocols that are there, with members and sessions: what requests about them work on."""

from __future__ import annotations

from uuid import UUID

from support.clients.wire_client import WireClient, batch_of
from support.fixtures.waiting import wait_until
from support.load.group_member import LOADING, wait_for_coordinator
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.api_19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.api_68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.wire.messages.api_76_share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tidelog.wire.messages.api_78_share_fetch import (
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)

MEMBER = "slow"
SHARE_GROUP, CONSUMER_GROUP, EMPTY_SHARE_GROUP = "shared", "consumed", "altered"
GROUP_COUNT = 100
TOPICS_OF_A_GROUP = 10
RECORDS = 2_000
"""That a member acquires: as many as may be in flight."""
CREATED_AT_ONCE = 200


class ManyGroups:
    """Makes topics and groups at a node.

    Attributes:
        topics: the names and ids.
        epochs: of the member of the largest group of each kind, by the key of its heartbeats.
        acquired_from: the first record that the member with a session has.
    """

    def __init__(self, port: int, largest_topic: str, topic_count: int) -> None:
        self.topics: list[tuple[str, UUID]] = []
        self.epochs: dict[ApiKey, int] = {}
        self.acquired_from = 0
        self._port = port
        with WireClient(port) as client:
            self._create_topics(client, largest_topic, topic_count)
            for group_id in (SHARE_GROUP, CONSUMER_GROUP, EMPTY_SHARE_GROUP):
                wait_for_coordinator(client, group_id)
            names = [name for name, _ in self.topics]
            for number in range(GROUP_COUNT + 1):
                some = names[number : number + TOPICS_OF_A_GROUP] if number else names
                self._make_groups(client, number, some)

    def _make_groups(self, client: WireClient, number: int, names: list[str]) -> None:
        consumed, shared = self.group(CONSUMER_GROUP, number), self.group(SHARE_GROUP, number)
        wait_until(lambda: self._beat_of_consumer(client, consumed, names), f"{consumed} is assigned its topics")
        wait_until(lambda: self._beat_of_sharer(client, shared, names), f"{shared} is assigned its topics")

    @staticmethod
    def group(kind: str, number: int) -> str:
        """A group that is there."""
        return f"{kind}-{number}" if 0 < number <= GROUP_COUNT else kind

    def _create_topics(self, client: WireClient, largest: str, count: int) -> None:
        names = [f"{largest}-{number:05d}" for number in range(count)]
        for start in range(0, count, CREATED_AT_ONCE):
            some = names[start : start + CREATED_AT_ONCE]
            topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in some]
            request = CreateTopicsRequest(topics=topics, timeout_ms=60_000)
            client.ask(ApiKey.CREATE_TOPICS, 7, request, CreateTopicsResponse)
            rows = [MetadataRequestTopic(name=name) for name in some]
            found = client.ask(ApiKey.METADATA, 12, MetadataRequest(topics=rows), MetadataResponse).topics
            assert all(not one.error_code for one in found)
            self.topics += [(one.name or "", one.topic_id) for one in found]
        described = client.describe_topic(largest)
        self.topics.insert(0, (largest, described.topic_id))

    def _beat_of_consumer(self, client: WireClient, group_id: str, names: list[str]) -> bool:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=MEMBER,
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=names,
            topic_partitions=[],
        )
        answer = client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request, ConsumerGroupHeartbeatResponse)
        if answer.error_code in LOADING:
            return False
        assert not answer.error_code, answer
        if group_id == CONSUMER_GROUP:
            self.epochs[ApiKey.CONSUMER_GROUP_HEARTBEAT] = answer.member_epoch
        return answer.assignment is not None

    def _beat_of_sharer(self, client: WireClient, group_id: str, names: list[str]) -> bool:
        request = ShareGroupHeartbeatRequest(
            group_id=group_id, member_id=MEMBER, member_epoch=0, subscribed_topic_names=names
        )
        answer = client.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, request, ShareGroupHeartbeatResponse)
        if answer.error_code in LOADING:
            return False
        assert not answer.error_code, answer
        if group_id == SHARE_GROUP:
            self.epochs[ApiKey.SHARE_GROUP_HEARTBEAT] = answer.member_epoch
        return answer.assignment is not None and len(answer.assignment.topic_partitions) == len(names)

    def open_session(self) -> WireClient:
        """A connection with a share session of the member, whose next epoch is 2, and which has records."""
        client = WireClient(self._port)
        name, topic_id = self.topics[1]

        def fetch(epoch: int) -> bool:
            request = ShareFetchRequest(
                group_id=SHARE_GROUP,
                member_id=MEMBER,
                share_session_epoch=epoch,
                max_wait_ms=100,
                min_bytes=0,
                max_records=RECORDS,
                batch_size=RECORDS,
                topics=[ShareFetchTopic(topic_id, [ShareFetchPartition(0)])],
            )
            answer = client.ask(ApiKey.SHARE_FETCH, 2, request, ShareFetchResponse)
            assert answer.error_code == Code.NONE, answer
            for topic in answer.responses:
                for one in topic.partitions:
                    if one.acquired_records:
                        self.acquired_from = one.acquired_records[0].first_offset
                        return True
            return False

        if not fetch(0):
            client.produce(name, batch_of(*[b"v"] * RECORDS))
            fetch(1)
        else:
            fetch(1)
        return client
