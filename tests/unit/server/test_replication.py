"""Brokers that replicate, as they do in production; what the controller decides reaches them at once."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from support.fixtures.replicated_brokers import TOPIC, ReplicatedBroker, ReplicatedCluster, run, until, values_of
from tidelog.base.errors import Code
from tidelog.controller import ConfigChange, ConfigsToAlter, TopicToDelete
from tidelog.metadata import ResourceKey, ResourceType
from tidelog.metadata.configs import BrokerSettings
from tidelog.server.broker.cleaner import Cleaner
from tidelog.server.replication.follower_driver import FollowerDriver
from tidelog.server.settings.in_force import SettingsInForce


def test_records_replicate_and_are_committed_when_all_in_sync_have_them() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        answer = await cluster.produce("a", "b")
        assert (answer.error_code, answer.base_offset) == (Code.NONE, 0)
        assert [broker.values() for broker in cluster.brokers.values()] == [[b"a", b"b"]] * 3
        assert cluster.leader.partition().high_watermark == 2
        await until(lambda: all(each.partition().high_watermark == 2 for each in cluster.followers))
        read = await cluster.fetch(0)
        assert (values_of(read.records), read.high_watermark) == ([b"a", b"b"], 2)

    run(story)


def test_acks_all_waits_for_everyone_in_sync() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        await cluster.produce("a")
        absent = cluster.followers[0]
        absent.kill()
        waiting = asyncio.ensure_future(cluster.produce("b"))
        await until(lambda: cluster.leader.partition().log.log_end_offset == 2)
        alone = await cluster.produce("c", acks=1)
        assert (alone.error_code, alone.base_offset) == (Code.NONE, 2)
        await asyncio.sleep(2)
        assert not waiting.done()
        assert cluster.leader.partition().high_watermark == 1
        cluster.controller.fence(absent.broker_id)
        assert (await waiting).error_code == Code.NONE
        assert cluster.leader.partition().high_watermark == 3

    run(story)


def test_who_waits_longer_than_it_allows_is_told_so() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        cluster.followers[0].kill()
        started_ms = cluster.world.loop.now_us // 1000
        answer = await cluster.produce("a", timeout_ms=700)
        assert (answer.error_code, answer.base_offset) == (Code.REQUEST_TIMED_OUT, -1)
        assert 700 <= cluster.world.loop.now_us // 1000 - started_ms < 800

    run(story)


def test_without_enough_in_sync_nothing_is_taken_or_nothing_is_committed() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create(min_insync_replicas="2")
        one, two = cluster.followers
        one.kill()
        two.kill()
        waiting = asyncio.ensure_future(cluster.produce("a"))
        await until(lambda: cluster.leader.partition().log.log_end_offset == 1)
        cluster.controller.fence(one.broker_id)
        cluster.controller.fence(two.broker_id)
        await cluster.caught_up()
        assert (await cluster.produce("b")).error_code == Code.NOT_ENOUGH_REPLICAS
        assert (await cluster.produce("c", acks=1)).error_code == Code.NONE
        assert cluster.leader.partition().high_watermark == 0
        await two.start()
        assert (await waiting).error_code == Code.NONE
        assert set(cluster.state().isr) == {cluster.leader.broker_id, two.broker_id}
        assert two.values() == [b"a", b"c"]

    run(story)


def test_a_smaller_isr_commits_nothing_by_the_setting_that_went_before_it() -> None:
    """Both come in one step: who left the ISR is eligible, and lacks what only the leader has."""

    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        await cluster.produce("a")
        leader = cluster.leader
        for other in cluster.followers:
            cluster.world.network.block(other.machine.name, leader.machine.name)
        assert (await cluster.produce("b", acks=1)).error_code == Code.NONE
        leader.is_deaf = True
        topic = ResourceKey(ResourceType.TOPIC, TOPIC)
        change = ConfigsToAlter(topic, [ConfigChange("min.insync.replicas", 0, "2")])
        told = len(cluster.controller.history)
        cluster.controller.decide(lambda state: state.decide_alter_configs([change]))
        for other in cluster.followers:
            cluster.controller.fence(other.broker_id)
        assert set(cluster.state().isr) == {leader.broker_id}
        leader.is_deaf = False
        at_once = cluster.controller.history[told:]
        leader.tell(tuple(record for records, _ in at_once for record in records), at_once[-1][1])
        await cluster.caught_up()
        assert leader.partition().high_watermark == 1

    run(story)


def test_what_only_the_old_leader_had_goes_when_it_follows_the_new_one() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        await cluster.produce("a")
        old = cluster.leader
        for other in cluster.followers:
            cluster.world.network.block(old.machine.name, other.machine.name)
            cluster.world.network.block(other.machine.name, old.machine.name)
        assert (await cluster.produce("lost", acks=1)).error_code == Code.NONE
        old.is_deaf = True
        cluster.controller.fence(old.broker_id)
        await cluster.caught_up()
        assert cluster.leader is not old
        assert (await cluster.produce("b")).error_code == Code.NONE
        assert old.values() == [b"a", b"lost"]
        cluster.world.network.heal()
        old.is_deaf = False
        old.hear()
        await until(lambda: old.values() == [b"a", b"b"])
        cluster.controller.unfence(old.broker_id)
        await cluster.in_sync(1, 2, 3)
        assert old.partition().log.lineage.entries == cluster.leader.partition().log.lineage.entries

    run(story)


def test_who_lags_leaves_the_isr_and_joins_again_when_it_has_caught_up() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create(min_insync_replicas="2")
        leader, slow = cluster.leader, cluster.followers[0]
        cluster.world.network.block(slow.machine.name, leader.machine.name)
        assert (await cluster.produce("a")).error_code == Code.NONE  # once the ISR is smaller
        assert set(cluster.state().isr) == {1, 2, 3} - {slow.broker_id}
        assert slow.values() == []
        cluster.world.network.heal()
        await cluster.in_sync(1, 2, 3)
        assert slow.values() == [b"a"]

    run(story, properties={"replica.lag.time.max.ms": "3000"})


def test_a_leader_that_is_killed_comes_back_as_a_follower() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create(min_insync_replicas="2")
        await cluster.produce("a")
        old = cluster.leader
        old.kill()
        cluster.controller.fence(old.broker_id)
        await cluster.caught_up()
        await cluster.produce("b")
        await old.start()
        await cluster.in_sync(1, 2, 3)
        await cluster.alike()
        assert old.values() == [b"a", b"b"]
        assert old.partition().replica is None

    run(story)


def test_idle_followers_stay_in_sync_and_the_next_record_finds_them_there() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        await cluster.produce("a")
        state = cluster.state()
        await asyncio.sleep(100)
        await cluster.produce("b")
        assert cluster.state() == state

    run(story, properties={"replica.lag.time.max.ms": "3000"})


RACK_AWARE = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


def test_a_consumer_is_sent_to_the_replica_in_its_rack_and_reads_there_what_is_committed() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        await cluster.produce("a", "b")
        leader, near = cluster.leader, cluster.followers[1]
        rack = near.config.rack
        assert rack is not None
        sent = await cluster.fetch(1, rack=rack)
        assert (sent.preferred_read_replica, sent.records, sent.high_watermark) == (near.broker_id, b"", 2)
        at_home = await cluster.fetch(1, rack=leader.config.rack or "")
        assert (at_home.preferred_read_replica, values_of(at_home.records)) == (-1, [b"a", b"b"])
        await until(lambda: near.partition().high_watermark == 2)
        read = await cluster.fetch(1, rack=rack, broker=near.broker_id, epoch=cluster.state().leader_epoch)
        assert (read.error_code, values_of(read.records), read.preferred_read_replica) == (0, [b"a", b"b"], -1)
        assert (await cluster.fetch(3, broker=near.broker_id)).error_code == Code.OFFSET_OUT_OF_RANGE
        of_old = await cluster.fetch(1, broker=near.broker_id, version=10)
        assert of_old.error_code == Code.NOT_LEADER_OR_FOLLOWER

    run(story, properties=RACK_AWARE, racks=("a", "b", "c"))


def test_a_follower_tells_a_reader_where_it_diverged_and_nothing_of_what_it_lacks_itself() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        await cluster.produce("a", "b")
        first_epoch = cluster.state().leader_epoch
        cluster.controller.fence(cluster.leader.broker_id)
        await cluster.caught_up()
        await cluster.produce("c")
        leader_epoch = cluster.state().leader_epoch
        follower = next(each for each in cluster.followers if each.broker_id in cluster.state().isr)
        await until(lambda: follower.partition().high_watermark == 3)
        number = follower.broker_id
        for offset in (3, 9):
            told = await cluster.fetch(offset, broker=number, epoch=leader_epoch, last_epoch=first_epoch)
            assert told.error_code == Code.NONE
            assert told.diverging_epoch is not None
            assert (told.diverging_epoch.epoch, told.diverging_epoch.end_offset) == (first_epoch, 2)
        for offset, last_epoch in ((9, leader_epoch), (9, leader_epoch + 1), (9, -1), (2, leader_epoch + 1)):
            told = await cluster.fetch(offset, broker=number, epoch=leader_epoch, last_epoch=last_epoch)
            assert told.error_code == Code.OFFSET_OUT_OF_RANGE, "the leader may have more: it is to be asked"
        read = await cluster.fetch(2, broker=number, epoch=leader_epoch, last_epoch=first_epoch)
        assert (read.error_code, values_of(read.records)) == (Code.NONE, [b"c"])

    run(story)


def test_a_follower_serves_nobody_before_the_leader_of_the_epoch_has_accepted_a_fetch() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        await cluster.produce("a")
        follower = cluster.followers[0]
        await until(lambda: follower.partition().high_watermark == 1)
        for other in cluster.brokers.values():
            if other is not follower:
                cluster.world.network.block(follower.machine.name, other.machine.name)
        cluster.controller.fence(cluster.leader.broker_id)
        await cluster.caught_up()
        if cluster.leader is follower:
            cluster.controller.fence(follower.broker_id)
            await cluster.caught_up()
        epoch = cluster.state().leader_epoch
        assert (await cluster.fetch(0, broker=follower.broker_id, epoch=epoch)).error_code == (
            Code.NOT_LEADER_OR_FOLLOWER
        )
        assert (await cluster.fetch(0, broker=follower.broker_id, epoch=epoch - 1)).error_code == (
            Code.FENCED_LEADER_EPOCH
        )
        cluster.world.network.heal()
        await until(lambda: isinstance(follower.partition().role, FollowerDriver))
        following = follower.partition().role
        assert isinstance(following, FollowerDriver)
        await until(lambda: following.replica.is_reconciled)
        assert values_of((await cluster.fetch(0, broker=follower.broker_id, epoch=epoch)).records) == [b"a"]

    run(story)


def test_who_begins_to_follow_does_not_wait_for_a_fetch_that_is_held_back() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create(topic="other")
        await cluster.create()
        await asyncio.sleep(3)  # fetches are held back by now
        await cluster.create(topic="third", partitions=9)
        started_ms = cluster.world.loop.now_us // 1000
        for index in range(9):
            leader = cluster.state(index, "third").leader
            await cluster.produce("a", topic="third", index=index, broker=leader)
        assert cluster.world.loop.now_us // 1000 - started_ms < 400

    run(story, properties={"replica.fetch.wait.max.ms": "20000"})


def test_a_topic_that_is_made_again_begins_with_nothing_of_the_old_one() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        await cluster.produce("old")
        deaf = cluster.followers[0]
        deaf.is_deaf = True
        cluster.controller.decide(lambda state: state.decide_delete_topics([TopicToDelete(name=TOPIC)]))
        await cluster.create()
        waiting = asyncio.ensure_future(cluster.produce("new"))
        await asyncio.sleep(2)
        assert deaf.values() == [b"old"]
        deaf.is_deaf = False
        deaf.hear()
        assert (await waiting).error_code == Code.NONE
        assert [broker.values() for broker in cluster.brokers.values()] == [[b"new"]] * 3

    run(story)


def test_what_a_leader_lost_with_the_power_it_gets_back_from_those_in_sync() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create(min_insync_replicas="2")
        for number in range(20):
            await cluster.produce(f"r{number}")
        old = cluster.leader
        old.lose_power()
        cluster.controller.fence(old.broker_id)
        await cluster.caught_up()
        await cluster.produce("later")
        await old.start()
        await cluster.in_sync(1, 2, 3)
        await cluster.alike()
        assert old.values() == [*(b"r%d" % number for number in range(20)), b"later"]

    for seed in range(1, 6):
        run(story, seed=seed)


def test_followers_delete_what_their_leader_deleted_and_their_segments_with_it() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create(segment_bytes="1048576", retention_bytes="1048576")
        for number in range(40):
            await cluster.produce(f"{number}" * 100_000)
        await until(lambda: all(each.partition().log.log_start_offset > 0 for each in cluster.brokers.values()))
        await until(lambda: len({each.partition().log.segments.base_offsets for each in cluster.brokers.values()}) == 1)
        assert cluster.leader.partition().log.segments.base_offsets[0] > 0

    run(story, properties={"log.retention.check.interval.ms": "1000"})


def test_every_replica_compacts_its_own_log() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        cleaning = [
            broker.machine.do(
                Cleaner(
                    broker.broker,
                    BrokerSettings.of(broker.config.static),
                    disk=broker.machine.disk,
                    clock=broker.machine.clock,
                    executor=broker.machine.executor,
                ).run
            )
            for broker in cluster.brokers.values()
        ]
        await cluster.create(
            cleanup_policy="compact", segment_bytes="1048576", min_cleanable_dirty_ratio="0.01", flush_messages="1"
        )
        for number in range(30):
            await cluster.produce(f"{number:02}" * 50_000)
        await until(lambda: all(len(each.values()) < 15 for each in cluster.brokers.values()))
        assert {each.values()[-1] for each in cluster.brokers.values()} == {b"29" * 50_000}
        assert not any(one.done() for one in cleaning)

    run(story, properties={"log.cleaner.backoff.ms": "500"})


def test_a_partition_that_comes_while_strays_are_looked_for_is_none() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        node = cluster.leader
        node.machine.executor.faults.wait_ms_max = 20_000
        looking = asyncio.ensure_future(node.machine.do(node.broker.set_strays_aside))
        await asyncio.sleep(0)
        node.machine.executor.faults.wait_ms_max = 1
        await cluster.create(topic="another")
        await looking
        assert [name for name in node.machine.disk.list("logs") if name.endswith("-stray")] == []
        assert node.partition(topic="another").log.log_end_offset == 0

    run(story)


def test_partitions_are_spread_over_several_fetchers() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create(partitions=24)
        for index in range(24):
            answer = await cluster.produce("a", index=index, broker=cluster.state(index).leader)
            assert answer.error_code == Code.NONE
        assert [len(broker.fetch_sessions) for broker in cluster.brokers.values()] == [6, 6, 6]

    run(story, properties={"num.replica.fetchers": "3"})


@pytest.mark.parametrize("fetchers", [1, 5])
def test_another_number_of_fetchers_loses_nothing_that_is_under_way(fetchers: int) -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        async def resize(broker: ReplicatedBroker, turn: int) -> None:
            settings = BrokerSettings.of({"num.replica.fetchers": str(fetchers + turn)})
            broker.broker.replication.on_settings(None, SettingsInForce(settings, {}))

        await cluster.create(partitions=24, min_insync_replicas="3")
        for turn in range(3):
            leaders = [cluster.state(index).leader for index in range(24)]
            writing = [
                asyncio.ensure_future(cluster.produce(f"{turn}", index=index, broker=leader))
                for index, leader in enumerate(leaders)
            ]
            await asyncio.sleep(0.002 * turn)
            if turn:
                for broker in cluster.brokers.values():
                    await broker.machine.do(partial(resize, broker, turn))
            assert [(await one).error_code for one in writing] == [Code.NONE] * 24
        assert {frozenset(cluster.state(index).isr) for index in range(24)} == {frozenset(cluster.brokers)}

    run(story, properties={"num.replica.fetchers": "3"})


def test_what_a_topic_asks_to_be_synced_is_synced_before_the_leader_hears_that_it_is_there() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create(flush_messages="1", min_insync_replicas="3")
        for number in range(5):
            assert (await cluster.produce(f"{number}")).error_code == Code.NONE
        assert [each.partition().log.recovery_point for each in cluster.brokers.values()] == [5, 5, 5]

    run(story)


def test_who_is_to_lead_with_a_full_disk_leads_when_there_is_room() -> None:
    """It cannot note where its epoch starts. Nothing of its log is lost by that, nor of any other."""

    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create(min_insync_replicas="2")
        await cluster.produce("a")
        old = cluster.leader
        for each in cluster.followers:
            each.machine.disk.free_write_bytes = 0
        old.kill()
        cluster.controller.fence(old.broker_id)
        new = cluster.leader
        await asyncio.sleep(3)
        assert new.broker.offline_partitions == []
        assert new.partition().replica is None
        assert [each.evidence.failed_logs for each in new.files.directories] == [set()]
        for each in [*cluster.followers, new]:
            each.machine.disk.free_write_bytes = None
        await until(lambda: new.partition().replica is not None)
        assert (await cluster.produce("b")).error_code == Code.NONE
        assert new.values() == [b"a", b"b"]

    run(story)


def test_a_node_with_a_full_disk_serves_on_and_catches_up_when_there_is_room() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create(min_insync_replicas="2")
        full = cluster.followers[0]
        full.machine.disk.free_write_bytes = 0
        assert (await cluster.produce("a")).error_code == Code.NONE  # once it has left the ISR
        assert full.broker.offline_partitions == []
        full.machine.disk.free_write_bytes = None
        await cluster.in_sync(1, 2, 3)
        assert full.values() == [b"a"]

    run(story, properties={"replica.lag.time.max.ms": "2000"})
