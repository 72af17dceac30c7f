"""Share sessions as such: how many there may be, what is due, and how little is done at a time."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from support.fixtures.loop_steps import Steps
from support.fixtures.sharing import Member, SharingNode, sharing_node
from support.fixtures.waiting import WAIT_SECONDS_MAX, until
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import TopicId
from tidelog.metadata.features import SHARE_VERSION, SUPPORTED_FEATURES
from tidelog.server.api.share_reading import PARTITIONS_AT_ONCE_MAX
from tidelog.server.replication.partition import Partition
from tidelog.server.replication.partition_listeners import PartitionListener, PartitionListeners
from tidelog.server.share_fetching.share_sessions import LET_GO_AT_ONCE_MAX, ShareSessions
from tidelog.server.transport.turns import TURN_SIZE

T = UUID(int=1)
MANY = 3_000


def new_sessions(count_max: int = 10, partitions_max: int = 5_000) -> ShareSessions:
    sessions = ShareSessions(partitions_max)
    sessions.count_max = count_max
    return sessions


def test_epochs_go_round() -> None:
    sessions = new_sessions()
    session = sessions.begin("g", "m", 0)
    assert session.epoch == 1
    session.epoch = 0x7FFF_FFFF
    assert sessions.begin("g", "m", 0x7FFF_FFFF) is session
    assert session.epoch == 1
    assert sessions.begin("g", "m", -1) is session


def test_all_sessions_together_have_no_more_partitions_than_may_be() -> None:
    sessions = new_sessions(partitions_max=5)
    first, second = sessions.begin("g", "1", 0), sessions.begin("g", "2", 0)
    sessions.add(first, T, range(3))
    sessions.add(first, T, range(3))
    assert sessions.partition_count == 3
    with pytest.raises(KafkaError) as refused:
        sessions.add(second, T, range(3))
    assert refused.value.code == Code.SHARE_SESSION_LIMIT_REACHED
    assert sessions.partition_count == 5
    sessions.forget(first, T, [0, 7])
    sessions.remove(second)
    assert sessions.partition_count == 2
    with pytest.raises(KafkaError) as refused:
        sessions.add(second, T, [1])
    assert refused.value.code == Code.SHARE_SESSION_NOT_FOUND
    sessions.forget(second, T, [0])
    assert sessions.partition_count == 2


def test_a_session_that_ended_watches_nothing_after_some_turns() -> None:
    sessions = new_sessions()
    session = sessions.begin("g", "m", 0)
    listeners: PartitionListeners[PartitionListener] = PartitionListeners()
    sessions.add(session, T, range(LET_GO_AT_ONCE_MAX + 1))
    for one in list(session.partitions.values()):
        one.watch(listeners)
    assert not session.due
    sessions.remove(session)
    assert not sessions.remove(session)
    assert sessions.let_go()
    assert len(listeners.waiting) == 1
    assert not sessions.let_go()
    assert not listeners.waiting
    assert not sessions.let_go()


def test_what_is_watched_is_due_once_something_changes() -> None:
    sessions = new_sessions()
    session = sessions.begin("g", "m", 0)
    sessions.add(session, T, [0, 1])
    one, other = session.partitions.values()
    first: PartitionListeners[PartitionListener] = PartitionListeners()
    second: PartitionListeners[PartitionListener] = PartitionListeners()
    one.watch(first, second)
    assert list(session.due) == [other]
    second.notify()
    assert list(session.due) == [other, one]
    one.watch(first, second)
    first.notify()
    second.notify()
    assert list(session.due) == [other, one]
    sessions.forget(session, T, [0])
    first.notify()
    assert list(session.due) == [other]


def test_a_request_about_very_many_partitions_is_answered_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUPPORTED_FEATURES, SHARE_VERSION, (0, 1))

    async def scenario() -> None:
        node: SharingNode = sharing_node()
        await node.begin()
        steps, find = Steps(), node.broker.partition_by_id

        def counted(topic_id: TopicId, index: int) -> Partition:
            steps.count()
            return find(topic_id, index)

        monkeypatch.setattr(node.broker, "partition_by_id", counted)
        member = Member(node, "m")
        answer = await member.fetch(partitions=range(1, MANY + 1), max_wait_ms=60_000)
        rows = answer.responses[0].partitions
        assert {row.error_code for row in rows} == {Code.UNKNOWN_TOPIC_OR_PARTITION}
        assert len(rows) <= PARTITIONS_AT_ONCE_MAX  # the others come with the next fetches
        assert node.share_fetching.sessions.partition_count == MANY
        steps.counts.clear()
        acknowledged = {index: [(0, 0, [1])] for index in range(1, MANY + 1)}
        told = await member.acknowledge(acknowledged)
        assert len(told.responses[0].partitions) == MANY
        assert len(steps.counts) > MANY / TURN_SIZE
        assert max(steps.counts) <= TURN_SIZE
        await member.hang_up()
        await until(lambda: not node.share_fetching.sessions.partition_count)
        await node.stop()

    asyncio.run(asyncio.wait_for(scenario(), WAIT_SECONDS_MAX))
