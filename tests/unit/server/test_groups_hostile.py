"""Any request that decodes is answered, or waits: none is a bug, and each answer fits the version that was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from support.clients.wire_samples import sample
from support.examples import examples
from support.fixtures.coordinated_consumers import partition, topic_id
from support.fixtures.led_offsets import Led
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import Code, KafkaError
from tidelog.io.executor import InlineExecutor
from tidelog.metadata.image import MetadataImage, TopicImage
from tidelog.security.authorizer import AllowEverything
from tidelog.server.api.apis import APIS
from tidelog.server.api.request_context import RequestContext
from tidelog.wire import ApiKey, RequestHeader, api, decode, encode
from tidelog.wire.messages.api_11_join_group import JoinGroupRequest
from tidelog.wire.messages.api_68_consumer_group_heartbeat import ConsumerGroupHeartbeatPartitions

KEYS = (
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.JOIN_GROUP,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_DELETE,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
)
TOPIC_ID = topic_id("t")
LONG = "ü" * 16_383  # as long as a string of a request may be, in bytes
SUBSCRIPTION = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0"
STEPS = 150


class Session:
    """A node's groups on one partition, and the ids and generations that its answers told."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.led = Led(self.disk)
        self.led.start()
        topic = TopicImage("t", TOPIC_ID, tuple(partition(1) for _ in range(3)))
        image = MetadataImage({"t": topic}, {TOPIC_ID: topic}, features={"group.version": 1, "share.version": 1})
        self.led.one.coordinator.consumer_groups.on_metadata(image, 1, ())
        self.node: Any = SimpleNamespace(
            authorizer=AllowEverything(),
            groups=SimpleNamespace(
                submit=lambda _, tell: self.led.one.submit(tell), submit_all=lambda tell: [self.led.one.submit(tell)]
            ),
            image=image,
            executor=InlineExecutor(),
        )
        self.members: list[tuple[str, int]] = [("", -1)]  # ids with their generations
        self.instances: dict[str, str | None] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def send(self, key: ApiKey, version: int, request: Any) -> None:
        connection: Any = SimpleNamespace(peer="127.0.0.1:1", listener_name="PLAINTEXT")
        context = RequestContext(RequestHeader(key, version, 1, "c", None), connection, "broker")
        handle: Callable[..., Any] = import_module(f"tidelog.server.api.handlers.{APIS[key].module}").handle
        instance_id = getattr(request, "group_instance_id", None)
        answer = handle(self.node, request, context)
        if hasattr(answer, "__await__"):
            self.tasks.append(asyncio.ensure_future(self._wait(key, version, answer, instance_id)))
        else:
            self._take(key, version, answer, instance_id)

    async def _wait(self, key: ApiKey, version: int, answer: Any, instance_id: str | None) -> None:
        self._take(key, version, await answer, instance_id)

    def _take(self, key: ApiKey, version: int, answer: Any, instance_id: str | None) -> None:
        assert type(answer) is api(key).response
        encode(answer, version)
        if key in (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT) and answer.member_id:
            self.members.append((answer.member_id, answer.member_epoch))
        if key == ApiKey.JOIN_GROUP and answer.member_id:
            self.members.append((answer.member_id, answer.generation_id))
            if instance_id is not None:
                self.instances[answer.member_id] = instance_id


def likely(random: Random, session: Session, request: Any) -> Any:
    """Give a request groups, members and topics that there may be; now and then, what there cannot be."""

    def one_of(usual: list[Any], odd: list[Any]) -> Any:
        return random.choice(odd if random.random() < 0.04 else usual)

    member_id, generation_id = one_of(session.members[-3:], session.members)
    if isinstance(request, JoinGroupRequest) and random.random() < 0.3:
        member_id = ""
    for name, usual, odd in (
        ("group_id", ["g"], ["h", "", LONG]),
        ("member_id", [member_id], ["", LONG]),
        ("member_epoch", [generation_id, 0], [-1, -2, -3, 1 << 30]),
        ("instance_id", [None, None, session.instances.get(member_id)], ["static", "", LONG]),
        ("subscribed_topic_names", [["t"], None], [[], ["t", "t"], [LONG]]),
        ("subscribed_topic_regex", [None, "t.*"], ["(", "", LONG, "(a{30}){30}"]),
        ("server_assignor", [None, "range"], ["none", "", LONG]),
        ("topic_partitions", [[], None], [[ConsumerGroupHeartbeatPartitions(TOPIC_ID, [0, -1, 1 << 30])]]),
        ("generation_id", [generation_id], [-1, 0, 1, 1 << 30]),
        ("generation_id_or_member_epoch", [generation_id, -1], [0, 1, 1 << 30]),
        ("session_timeout_ms", [10_000], [-5, 0, 1 << 30]),
        ("rebalance_timeout_ms", [10_000], [0, -1, -5]),
        ("group_instance_id", [None, None, session.instances.get(member_id)], ["static", "other", "", LONG]),
        ("protocol_type", ["consumer"], ["connect", "", None, LONG]),
        ("protocol_name", ["range"], ["sticky", None, ""]),
        ("retention_time_ms", [-1, 5], [0, -(1 << 63), (1 << 63) - 1]),
    ):
        if hasattr(request, name):
            setattr(request, name, one_of(usual, odd))
    for protocol in getattr(request, "protocols", ()):
        protocol.name = one_of(["range", "sticky"], [LONG, ""])
        protocol.metadata = one_of([b"", SUBSCRIPTION], [b"\0", SUBSCRIPTION[:-1]])
    for member in getattr(request, "members", ()):
        member.member_id = one_of([member_id], ["", LONG])
        member.group_instance_id = one_of([session.instances.get(member_id)], ["static", LONG])
    for assignment in getattr(request, "assignments", ()):
        assignment.member_id = random.choice(session.members)[0]
    for topic in getattr(request, "topics", ()) or ():
        for name in ("name", "topic_name"):
            if hasattr(topic, name):
                setattr(topic, name, one_of(["t"], ["u", LONG]))
        if hasattr(topic, "topic_id"):
            topic.topic_id = one_of([TOPIC_ID], [UUID(int=9)])
        for one in getattr(topic, "partitions", ()):
            one.partition_index = one_of([0, 1, 2], [3, -1])
            if hasattr(one, "committed_metadata"):
                one.committed_metadata = one_of([None, "", "m"], [LONG])
    for group in getattr(request, "groups", ()):
        if hasattr(group, "group_id"):
            group.group_id = one_of(["g", "h"], ["", LONG])
            group.topics = random.choice([None, [], group.topics])
    for names in ("groups", "groups_names", "group_ids"):
        if getattr(request, names, None) and isinstance(getattr(request, names)[0], str):
            setattr(request, names, [one_of(["g", "h"], ["", LONG]) for _ in range(3)])
    for names in ("states_filter", "types_filter"):
        if hasattr(request, names):
            setattr(request, names, [])
    return request


@pytest.mark.parametrize("seed", range(examples(40)))
def test_whatever_decodes_is_answered(seed: int) -> None:
    random = Random(seed)

    async def run() -> None:
        session = Session()
        for _ in range(STEPS):
            key = random.choice(KEYS)
            known = api(key)
            version = random.randint(known.min_version, known.max_version)
            request = likely(random, session, sample(known.request, version))
            try:
                sent = encode(request, version)
            except (ValueError, KafkaError):
                continue  # this version cannot say that
            session.send(key, version, decode(known.request, sent, version))
            await asyncio.sleep(0)
            if random.random() < 0.02:
                for task in session.tasks:
                    task.cancel()
            session.led.clock.time_ms += random.choice([0] * 30 + [1, 3_000, 6_000, 10_000, 400_000])
            session.led.one.on_timer()
            assert session.led.troubles == []
        session.led.one.stop()
        for outcome in await asyncio.gather(*session.tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, asyncio.CancelledError)
        again = Led(session.disk, leader_epoch=1)
        again.start()
        while again.one.refusal is not None and again.one.refusal.code == Code.COORDINATOR_LOAD_IN_PROGRESS:
            await asyncio.sleep(0)
        assert again.one.refusal is None  # what was written can be read

    asyncio.run(run())
