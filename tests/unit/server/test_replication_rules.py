"""What a leader takes a follower's fetch for, and what a follower does with its log, between brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from support.fixtures.logs import make_batch
from support.fixtures.replicated_brokers import PARTITION, PORT, TOPIC, ReplicatedCluster, run, until
from tidelog.base.errors import Code
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.controller import ElectionType
from tidelog.server.replication.follower_driver import FollowerDriver
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.messages.api_01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from tidelog.wire.messages.api_21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)


async def fetch_as(
    cluster: ReplicatedCluster,
    follower: int,
    offset: int,
    *,
    broker_epoch: int | None = None,
    leader_epoch: int | None = None,
    last_epoch: int = -1,
) -> PartitionData:
    """What the leader answers to a follower, at once."""
    topic = cluster.controller.image.topics_by_name[TOPIC]
    wanted = FetchPartition(
        partition=0,
        current_leader_epoch=cluster.state().leader_epoch if leader_epoch is None else leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=1 << 20,
    )
    known = cluster.controller.image.brokers.get(follower)  # type: ignore[call-overload]
    epoch = broker_epoch if broker_epoch is not None else -1 if known is None else known.broker_epoch
    request = FetchRequest(
        replica_state=ReplicaState(follower, epoch),
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchTopic(topic_id=topic.topic_id, partitions=[wanted])],
    )
    answer = await cluster.ask(cluster.leader.broker_id, request, FetchResponse, version=17)
    return answer.responses[0].partitions[0]


def test_only_an_accepted_fetch_proves_anything() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create(replicas=2)
        cluster.controller.fence(cluster.leader.broker_id)  # so that there is an older leader epoch
        await cluster.caught_up()
        for each in cluster.state().replicas:
            cluster.controller.unfence(each)
        await cluster.in_sync(*cluster.state().replicas)
        await cluster.produce("a")
        follower = cluster.followers[0]
        outsider = next(each for each in cluster.brokers if each not in cluster.state().replicas)
        follower.kill()
        await cluster.produce("b", acks=1)
        epoch = cluster.controller.image.brokers[follower.broker_id].broker_epoch
        leader_epoch = cluster.state().leader_epoch
        number = follower.broker_id
        for code, fetch in (
            (Code.FENCED_LEADER_EPOCH, fetch_as(cluster, number, 2, leader_epoch=leader_epoch - 1)),
            (Code.UNKNOWN_LEADER_EPOCH, fetch_as(cluster, number, 2, leader_epoch=leader_epoch + 1)),
            (Code.NOT_LEADER_OR_FOLLOWER, fetch_as(cluster, number, 2, broker_epoch=epoch - 1)),
            (Code.UNKNOWN_LEADER_EPOCH, fetch_as(cluster, outsider, 2)),
            (Code.NOT_LEADER_OR_FOLLOWER, fetch_as(cluster, outsider, 2, leader_epoch=-1)),
            (Code.OFFSET_OUT_OF_RANGE, fetch_as(cluster, number, 3)),
        ):
            assert (await fetch).error_code == code
        assert cluster.leader.partition().high_watermark == 1
        accepted = await fetch_as(cluster, number, 2)
        assert (accepted.error_code, accepted.high_watermark) == (Code.NONE, 2)

    run(story)


def test_a_follower_whose_log_is_no_prefix_is_told_where_it_ends() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create(replicas=2)
        await cluster.produce("a", "b")
        number = cluster.followers[0].broker_id
        told = await fetch_as(cluster, number, 7, last_epoch=cluster.state().leader_epoch)
        assert told.diverging_epoch is not None
        assert (told.diverging_epoch.epoch, told.diverging_epoch.end_offset) == (cluster.state().leader_epoch, 2)

    run(story)


def test_a_member_of_the_isr_that_lost_what_is_committed_leaves_at_once() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create(replicas=2)
        await cluster.produce("a", "b")
        follower = cluster.followers[0]
        follower.kill()
        await fetch_as(cluster, follower.broker_id, 0)
        await cluster.in_sync(cluster.leader.broker_id)

    run(story)


def test_what_an_unclean_election_lost_is_reported_by_those_that_had_it(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create(replicas=2)
        await cluster.produce("a")
        first, second = cluster.leader, cluster.followers[0]
        second.kill()
        cluster.controller.fence(second.broker_id)
        await cluster.caught_up()
        await cluster.produce("lost", "lost too")
        await asyncio.sleep(6)  # high watermarks are written meanwhile
        first.kill()
        cluster.controller.fence(first.broker_id)
        await second.start()
        assert cluster.state().leader is None
        assert isinstance(second.partition().role, FollowerDriver)
        cluster.controller.decide(lambda state: state.decide_elect_leaders(ElectionType.UNCLEAN, [PARTITION]))
        await cluster.caught_up()
        await cluster.produce("b")
        await first.start()
        await until(lambda: first.values() == [b"a", b"b"])
        (election,) = (line for line in caplog.messages if "UNCLEAN ELECTION" in line)
        assert "offsets 0 to 1 (exclusive)" in election
        assert f"in leader epoch {cluster.state().unclean_epoch}" in election
        (loss,) = (line for line in caplog.messages if "COMMITTED RECORDS ARE LOST" in line)
        assert "offsets 1 to 2 " in loss
        assert first.broker.replication.truncated == (2, 0, 0)
        directory = first.files.directory_of(PARTITION)
        assert directory is not None
        assert (directory.checkpoints.high_watermark(PARTITION) or 0) <= 2

    run(story)


def test_a_replica_that_comes_back_empty_answers_as_its_leader_does_before_it_joins() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        for number in range(3):
            await cluster.produce(f"of {number}")
            leader = cluster.leader
            cluster.controller.fence(leader.broker_id)
            await cluster.caught_up()
            cluster.controller.unfence(leader.broker_id)
            await cluster.in_sync(1, 2, 3)
        await cluster.produce("last")
        empty = cluster.followers[0]
        empty.lose_power()
        cluster.controller.fence(empty.broker_id)
        empty.machine.disk.remove_tree("logs")
        empty.machine.disk.make_dirs("logs")
        await empty.start()
        await cluster.in_sync(1, 2, 3)
        ours, theirs = empty.partition().log, cluster.leader.partition().log
        assert len(theirs.lineage.entries) >= 4
        assert [ours.lineage.end_offset_for(LeaderEpoch(e), Offset(4)) for e in range(9)] == [
            theirs.lineage.end_offset_for(LeaderEpoch(e), Offset(4)) for e in range(9)
        ]

    run(story)


def test_a_duplicate_is_acknowledged_when_its_original_is_committed() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        absent = cluster.followers[0]
        absent.kill()
        of_producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        first = await cluster.produce("a", timeout_ms=500, batch=of_producer)
        assert first.error_code == Code.REQUEST_TIMED_OUT
        again = asyncio.ensure_future(cluster.produce("a", batch=of_producer))
        await asyncio.sleep(2)
        assert not again.done()
        cluster.controller.fence(absent.broker_id)
        answer = await again
        assert (answer.error_code, answer.base_offset) == (Code.NONE, 0)
        assert cluster.leader.values() == [b"a"]

    run(story)


def test_a_follower_remembers_producers_so_the_next_leader_knows_a_duplicate() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        of_producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        await cluster.produce("a", batch=of_producer)
        old = cluster.leader
        cluster.controller.fence(old.broker_id)
        await cluster.caught_up()
        assert cluster.leader is not old
        answer = await cluster.produce("a", batch=of_producer)
        assert (answer.error_code, answer.base_offset) == (Code.NONE, 0)
        assert cluster.leader.values() == [b"a"]

    run(story)


def test_in_a_fetch_session_only_what_changed_is_named() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create(partitions=60)
        await asyncio.sleep(2)
        leader = cluster.leader
        sessions = leader.fetch_sessions
        led = sum(cluster.state(index).leader == leader.broker_id for index in range(60))
        assert len(sessions) == 2
        assert sessions.partition_count == 2 * led
        looked_at = 0
        partition = leader.partition()
        on_fetched = partition.on_fetched.__func__  # type: ignore[attr-defined]

        def counting(self: object, fetch: object) -> object:
            nonlocal looked_at
            looked_at += 1
            return on_fetched(self, fetch)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(partition), "on_fetched", counting)
            for number in range(10):
                await cluster.produce(f"{number}")
            await asyncio.sleep(3)
        assert looked_at < 200, "sixty partitions are not looked at for each record of one"

    run(story)


def test_deleted_records_are_gone_from_every_replica_that_is_up_when_that_is_answered() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        for number in range(4):
            await cluster.produce(f"{number}")
        await asyncio.sleep(3)
        answer = await delete_before(cluster, 3)
        assert (answer.error_code, answer.low_watermark) == (Code.NONE, 3)
        assert [each.partition().log.log_start_offset for each in cluster.brokers.values()] == [3, 3, 3]
        absent = cluster.followers[0]
        absent.kill()
        late = await delete_before(cluster, 4, timeout_ms=300)
        assert late.error_code == Code.REQUEST_TIMED_OUT
        waiting = asyncio.ensure_future(delete_before(cluster, 4))
        await asyncio.sleep(1)
        assert not waiting.done()
        cluster.controller.fence(absent.broker_id)
        assert (await waiting).low_watermark == 4

    run(story, properties={"replica.fetch.wait.max.ms": "20000"})


def test_a_follower_that_hears_of_its_leader_first_waits_until_the_leader_hears_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was refused again and again. After the death of a broker with thousands of partitions all of them were."""
    refused: list[Code] = []
    monkeypatch.setattr(FollowerDriver, "on_refused", _noting(refused, FollowerDriver.on_refused))

    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create(partitions=300)
        first = cluster.leader
        await asyncio.sleep(2)
        first.kill()
        second = next(each for each in cluster.state().replicas if each != first.broker_id)
        cluster.brokers[second].is_deaf = True
        refused.clear()
        cluster.controller.fence(first.broker_id)
        assert cluster.leader.broker_id == second
        await asyncio.sleep(5)
        cluster.brokers[second].is_deaf = False
        cluster.brokers[second].hear()
        assert (await cluster.produce("b")).error_code == Code.NONE
        assert not refused

    run(story)


def _noting(refused: list[Code], on_refused: Callable[[FollowerDriver, int, Code], None]) -> object:
    def noting(self: FollowerDriver, number: int, code: Code) -> None:
        refused.append(code)
        on_refused(self, number, code)

    return noting


async def delete_before(
    cluster: ReplicatedCluster, offset: int, *, timeout_ms: int = 30_000
) -> DeleteRecordsPartitionResult:
    """As an operator asks the leader to."""
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(TOPIC, [partition])], timeout_ms=timeout_ms)
    answer = await cluster.ask(cluster.leader.broker_id, request, DeleteRecordsResponse, version=2)
    return answer.topics[0].partitions[0]


def test_who_asks_the_wrong_broker_is_told_where_the_leader_is() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        wrong, leader = cluster.followers[0], cluster.leader
        partition = PartitionProduceData(index=0, records=memoryview(make_batch("a")))
        produce = ProduceRequest(
            acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[partition])]
        )
        refused = await cluster.ask(wrong.broker_id, produce, ProduceResponse, version=10)
        row = refused.responses[0].partition_responses[0]
        assert row.error_code == Code.NOT_LEADER_OR_FOLLOWER
        assert row.current_leader is not None
        assert row.current_leader.leader_id == leader.broker_id
        (endpoint,) = refused.node_endpoints
        assert (endpoint.node_id, endpoint.host, endpoint.port) == (leader.broker_id, leader.machine.name, PORT)
        wanted = FetchPartition(
            partition=0, fetch_offset=0, current_leader_epoch=cluster.state().leader_epoch, partition_max_bytes=1
        )
        topic_id = cluster.controller.image.topics_by_name[TOPIC].topic_id
        fetch = FetchRequest(
            replica_state=ReplicaState(7, 1),
            max_wait_ms=0,
            min_bytes=0,
            topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])],
        )
        told = await cluster.ask(wrong.broker_id, fetch, FetchResponse, version=16)
        leads = told.responses[0].partitions[0].current_leader
        assert leads is not None
        assert leads.leader_id == leader.broker_id
        assert [each.node_id for each in told.node_endpoints] == [leader.broker_id]

    run(story)


def test_a_new_replica_of_a_log_that_starts_within_a_batch_comes_to_be_in_sync() -> None:
    """A leader sends whole batches: the first records of this one were deleted, and stay so."""

    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        late = cluster.followers[0]
        late.kill()
        cluster.controller.fence(late.broker_id)
        await cluster.caught_up()
        late.machine.disk.remove_tree("logs")
        late.machine.disk.make_dirs("logs")
        late.previous_epoch = None
        await cluster.produce("a", "b", "c", "d")
        await cluster.produce("e")
        cluster.leader.partition().delete_records(2)
        await late.start()
        await cluster.in_sync(1, 2, 3)
        log, of_leader = late.partition().log, cluster.leader.partition().log
        assert (log.log_start_offset, log.log_end_offset) == (2, 5)
        assert log.lineage.entries == of_leader.lineage.entries
        assert (await cluster.fetch(2)).records

    run(story)


# A leader that is cut off from its followers.


def test_a_leader_that_is_cut_off_refuses_and_takes_what_is_sent_again_once() -> None:
    """It writes nothing more, points nobody to itself, and knows what it has of an idempotent producer."""

    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        leader = cluster.leader

        async def produce(sequence: int) -> PartitionProduceResponse:
            numbers = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            return await cluster.produce(f"m{sequence}", batch=numbers, timeout_ms=60_000, version=10)

        assert (await produce(0)).error_code == Code.NONE
        for follower in cluster.followers:
            follower.kill()
        for sequence in (1, 1, 2):
            refused = await produce(sequence)
            assert refused.error_code == Code.NOT_LEADER_OR_FOLLOWER
            assert refused.current_leader is None
        assert leader.values() == [b"m0", b"m1"]
        assert leader.partition().leader().silence.is_cut_off
        assert (await cluster.produce("x", acks=1)).error_code == Code.NONE, "who asks for less is not refused"
        await cluster.followers[0].start()
        await until(lambda: not leader.partition().leader().silence.is_cut_off)
        answers = [await produce(sequence) for sequence in (1, 2)]
        assert [(answer.error_code, answer.base_offset) for answer in answers] == [(Code.NONE, 1), (Code.NONE, 3)]
        await cluster.followers[1].start()
        await cluster.alike()

    run(story, properties={"broker.session.timeout.ms": "1000", "min.insync.replicas": "2"})
