"""How far groups lag: what is counted and since when, which pairs have a name, and what is asked no more often."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from support.clients.wire_client import batch_of
from support.fixtures.led_offsets import SetClock
from support.fixtures.memory_disk import MemoryDisk
from support.load.group_member import commit_request
from tidelog.base.errors import Code
from tidelog.base.ids import Offset
from tidelog.controller import TopicToDelete
from tidelog.server.api.handlers import api_00_produce, api_08_offset_commit, api_42_delete_groups
from tidelog.server.groups.group_lags import COST_INVERSE, ENDS_MAX, INTERVAL_SECONDS, EndsOverTime, GroupLags, TopicLag
from tidelog.server.node import Node
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.messages.api_42_delete_groups import DeleteGroupsRequest
from unit.server.test_several_directories import context, create, run, started

TOPIC, OTHER = "read", "read-too"
FIRST_MS, NOW_MS = 1_699_999_990_000, SetClock().wall_ms()


async def reading() -> Node:
    """A node with two topics. In partition 0 of the first there are three batches of two records, a second apart."""
    node = await started(MemoryDisk(), "a")
    await create(node, TOPIC, 2)
    await create(node, OTHER, 1)
    for number in range(3):
        await produce(node, TOPIC, batch_of(b"v", b"w", timestamp_ms=FIRST_MS + 1_000 * number))
    await node.groups.create_topic()
    return node


async def produce(node: Node, topic: str, batch: bytes) -> None:
    data = PartitionProduceData(index=0, records=memoryview(bytearray(batch)))
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
    answer = api_00_produce.handle(node, request, context(ApiKey.PRODUCE, 9))
    response = await answer if isinstance(answer, Awaitable) else answer
    assert response is not None
    assert response.responses[0].partition_responses[0].error_code == 0


async def commit(node: Node, group: str, offsets: dict[tuple[str, int], int]) -> None:
    """Once its coordinator serves."""
    while True:
        request = commit_request(group, offsets)
        answer = api_08_offset_commit.handle(node, request, context(ApiKey.OFFSET_COMMIT, 8))
        response = await answer if isinstance(answer, Awaitable) else answer
        (code,) = {one.error_code for topic in response.topics for one in topic.partitions}
        if code == 0:
            return
        assert Code(code) in (Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR)
        await asyncio.sleep(0.001)


def lags_of(node: Node, pairs_max: int = 10) -> GroupLags:
    return GroupLags(node.groups, node.broker, SetClock(), pairs_max)


async def measured_anew(lags: GroupLags) -> None:
    lags._due_at = 0
    await lags.measure()


def age(time_ms: int) -> float:
    return (NOW_MS - time_ms) / 1000


def test_a_lag_is_what_was_not_read_and_how_old_the_next_of_it_is() -> None:
    async def scenario() -> None:
        node = await reading()
        await commit(node, "begins", {(TOPIC, 0): 0, (TOPIC, 1): 0})
        await commit(node, "goes-on", {(TOPIC, 0): 4})
        await commit(node, "within-a-batch", {(TOPIC, 0): 3})
        await commit(node, "is-done", {(TOPIC, 0): 6, (OTHER, 0): 0})
        lags = lags_of(node)
        await lags.measure()
        assert lags.measured.by_topic == {
            ("begins", TOPIC): TopicLag(6, age(FIRST_MS)),
            ("goes-on", TOPIC): TopicLag(2, age(FIRST_MS + 2_000)),
            ("within-a-batch", TOPIC): TopicLag(3, age(FIRST_MS + 1_000)),
            ("is-done", TOPIC): TopicLag(0, 0),
            ("is-done", OTHER): TopicLag(0, 0),
        }
        await node.stop()

    run(scenario)


def test_where_retention_took_the_next_record_the_first_that_is_left_counts() -> None:
    async def scenario() -> None:
        node = await reading()
        await commit(node, "late", {(TOPIC, 0): 0})
        node.broker.partition(TOPIC, 0).delete_records(4)
        lags = lags_of(node)
        await lags.measure()
        assert lags.measured.by_topic["late", TOPIC] == TopicLag(6, age(FIRST_MS + 2_000))
        await node.stop()

    run(scenario)


def test_a_record_without_a_time_leaves_the_seconds_out_and_is_counted() -> None:
    async def scenario() -> None:
        node = await reading()
        await produce(node, OTHER, batch_of(b"v", timestamp_ms=-1))
        await commit(node, "timeless", {(OTHER, 0): 0})
        lags = lags_of(node)
        await lags.measure()
        assert lags.measured.by_topic == {("timeless", OTHER): TopicLag(1, None)}
        assert (lags.measured.unknown_records, lags.measured.unknown_seconds) == (0, 1)
        await node.stop()

    run(scenario)


def test_the_first_pairs_keep_their_names_until_they_are_gone_and_the_rest_are_counted() -> None:
    async def scenario() -> None:
        node = await reading()
        await commit(node, "first", {(TOPIC, 0): 6})
        lags = lags_of(node, pairs_max=1)
        await lags.measure()
        await commit(node, "a-later", {(TOPIC, 0): 2})
        await commit(node, "b-later", {(TOPIC, 0): 5})
        await measured_anew(lags)
        measured = lags.measured
        assert measured.by_topic == {("first", TOPIC): TopicLag(0, 0)}
        assert (measured.others_count, measured.others_records) == (2, 5)
        assert measured.others_seconds == age(FIRST_MS + 1_000)
        answer = api_42_delete_groups.handle(
            node, DeleteGroupsRequest(groups_names=["first"]), context(ApiKey.DELETE_GROUPS, 2)
        )
        response = await answer if isinstance(answer, Awaitable) else answer
        assert response.results[0].error_code == 0
        await measured_anew(lags)
        await measured_anew(lags)
        assert len(lags.measured.by_topic) == 1
        assert ("first", TOPIC) not in lags.measured.by_topic
        assert lags.measured.others_count == 1
        await node.stop()

    run(scenario)


def test_the_lag_of_a_topic_ends_with_it() -> None:
    async def scenario() -> None:
        node = await reading()
        await commit(node, "late", {(TOPIC, 0): 0})
        (code,) = await node.controller.request(lambda state: state.decide_delete_topics([TopicToDelete(TOPIC)]))
        assert code.code == 0
        await node.caught_up()
        lags = lags_of(node)
        await lags.measure()
        assert lags.measured.by_topic == {}
        await node.stop()

    run(scenario)


def test_measuring_rests_for_long() -> None:
    """However often somebody asks; and longer, the longer it takes."""

    async def scenario() -> None:
        node = await reading()
        await commit(node, "late", {(TOPIC, 0): 0})
        loop, lags = asyncio.get_running_loop(), lags_of(node)
        await lags.measure()
        before = lags.measured
        assert lags._due_at >= loop.time() + INTERVAL_SECONDS - 1
        await lags.measure()
        assert lags.measured is before
        assert COST_INVERSE >= 100
        await node.stop()

    run(scenario)


def test_what_others_say_of_their_ends_tells_since_when_a_record_waits() -> None:
    ends = EndsOverTime()
    for time_ms, end in ((1_000, 10), (2_000, 10), (3_000, 15), (4_000, 20)):
        ends.note(Offset(end), time_ms)
    assert ends.latest == 20
    assert ends.made_after_ms(19) == 3_000, "when the log ended at 15 it was not there"
    assert ends.made_after_ms(15) == 3_000
    assert ends.made_after_ms(12) == 2_000, "the latest time at which it was not there"
    assert ends.made_after_ms(5) == 1_000, "it was there before anybody looked"
    ends.note(Offset(14), 5_000)
    assert (ends.latest, ends.made_after_ms(13)) == (14, 2_000), "what was truncated is forgotten"
    ends.note(Offset(10), 6_000)
    ends.note(Offset(10), 7_000)
    assert ends.made_after_ms(5) == 1_000, "however long nothing is written"
    ends.note(Offset(3), 8_000)
    assert ends.made_after_ms(2) == 8_000, "that may be another record"


def test_what_is_remembered_of_an_end_is_bounded_and_never_makes_a_record_younger() -> None:
    ends = EndsOverTime()
    for second in range(1_000):
        ends.note(Offset(10 * second), 1_000 * second)
        assert len(ends._ends) == len(ends._times_ms) <= ENDS_MAX
    assert ends.made_after_ms(9_985) == 998_000
    for second in range(1_000):
        assert ends.made_after_ms(10 * second + 5) <= 1_000 * second
