"""The account of losses on a cluster: what an unclean election took is in it, from the election to the last replica."""

from __future__ import annotations

import json

import pytest

from support.fixtures.waiting import wait_until
from support.nodes.cluster import Cluster, ClusterNode
from support.nodes.forked_command import run_command
from tidelog import Admin, Consumer, LogTruncatedError, Producer, RecordsLostError, TopicPartition
from tidelog.base.ids import BrokerId
from tidelog.base.losses import Loss, LossCause, ReplicaFate
from tidelog.client.admin.loss_administration import ReaderResumption
from tidelog.client.core.loss_standings import Standing


def produce(cluster: Cluster, topic: str, count: int) -> None:
    with Producer(cluster.bootstrap) as producer:
        for future in [producer.send(topic, b"%d" % number, partition=0) for number in range(count)]:
            future.result()


def losses(cluster: Cluster, topic: str) -> list[Loss]:
    with Admin(cluster.bootstrap) as admin:
        return list(admin.describe_losses([topic]).losses)


@pytest.mark.timeout(180)
def test_what_an_unclean_election_took_is_in_the_account(cluster: Cluster, topic: str) -> None:
    """Two replicas, one of which is enough. The leader writes alone and dies; the other one comes back, and leads."""
    cluster.create_topic(topic, replication_factor=2, min_insync_replicas="1", unclean_leader_election_enable="true")
    produce(cluster, topic, 10)
    leader, follower = cluster.leader_of(topic), cluster.follower_of(topic)
    cluster.wait_until_in_sync(topic)
    follower.kill()
    cluster.wait_until_in_sync(topic, without=[follower.node_id])
    produce(cluster, topic, 10)
    leader.kill()
    follower.start()

    def told(by: ClusterNode) -> list[Loss]:
        return [loss for loss in losses(cluster, topic) if by.node_id not in loss.awaited]

    (loss,) = wait_until(lambda: told(follower), "the new leader tells the account")
    assert (loss.cause, loss.leader) == (LossCause.BY_SETTING, follower.node_id)
    assert loss.is_open
    assert loss.awaited == (leader.node_id,)
    led = loss.replica(BrokerId(follower.node_id))
    assert led is not None
    assert (led.fate, led.end_offset) == (ReplicaFate.LED, 10)

    produce(cluster, topic, 5)
    leader.start()
    (loss,) = wait_until(lambda: told(leader), "the old leader tells the account")
    assert not loss.is_open
    assert loss.lost_offsets == (10, 20)
    cut = loss.replica(BrokerId(leader.node_id))
    assert cut is not None
    assert (cut.fate, cut.cut_count, cut.producer_count) == (ReplicaFate.CUT, 10, 1)
    assert cut.kept_size_bytes > 0
    assert cut.last_epoch is not None
    assert cut.last_epoch < loss.leader_epoch

    described = run_command(
        ["losses", "describe", loss.name, "--bootstrap", cluster.bootstrap, "--output", "json"], timeout=60
    )
    assert described.returncode == 0, described.stderr
    rows = [json.loads(line) for line in described.stdout.splitlines()]
    assert {(row["loss"], row["first_lost_offset"], row["last_lost_offset"]) for row in rows} == {(loss.name, 10, 19)}
    assert {row["broker"]: row["fate"] for row in rows} == {leader.node_id: "was cut", follower.node_id: "led"}
    said = run_command(
        ["losses", "acknowledge", "--all", "--note", "replayed", "--bootstrap", cluster.bootstrap], timeout=60
    )
    assert said.returncode == 0, said.stderr
    (loss,) = losses(cluster, topic)
    assert loss.note == "replayed"
    listed = run_command(["losses", "list", "--open", "--topic", topic, "--bootstrap", cluster.bootstrap], timeout=60)
    assert listed.stdout == "no replica is awaited\n"


@pytest.mark.timeout(180)
def test_a_replica_that_comes_back_empty_says_so(cluster: Cluster, topic: str) -> None:
    """What the leader held alone went with its disk. Nobody can tell what it was, and the entry says just that."""
    cluster.create_topic(topic, replication_factor=2, min_insync_replicas="1", unclean_leader_election_enable="true")
    produce(cluster, topic, 10)
    leader, follower = cluster.leader_of(topic), cluster.follower_of(topic)
    cluster.wait_until_in_sync(topic)
    follower.kill()
    cluster.wait_until_in_sync(topic, without=[follower.node_id])
    produce(cluster, topic, 10)
    leader.kill()
    leader.lose_disk()
    follower.start()
    cluster.wait_until_led_by_another(topic, leader)
    leader.start()

    def closed() -> list[Loss]:
        return [loss for loss in losses(cluster, topic) if not loss.is_open]

    (loss,) = wait_until(closed, "both replicas tell")
    gone = loss.replica(BrokerId(leader.node_id))
    assert gone is not None
    assert gone.fate is ReplicaFate.EMPTY
    assert loss.lost_offsets is None


@pytest.mark.timeout(180)
def test_the_account_says_who_read_what_was_lost(cluster: Cluster, topic: str) -> None:
    """One group read all and committed, one read a half, one goes on reading and is told."""
    cluster.create_topic(topic, replication_factor=2, min_insync_replicas="1", unclean_leader_election_enable="true")
    produce(cluster, topic, 10)
    partition = TopicPartition(topic, 0)
    groups = {name: f"{topic}-{name}" for name in ("early", "late")}
    leader, follower = cluster.leader_of(topic), cluster.follower_of(topic)
    cluster.wait_until_in_sync(topic)

    def read(count: int, consumer: Consumer[bytes | None, bytes | None]) -> None:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        seen = 0
        while seen < count:
            seen += len(consumer.poll(1000))
        consumer.commit({partition: consumer.position(partition)})

    with Consumer(cluster.bootstrap, group_id=groups["early"]) as early:
        read(10, early)
    follower.kill()
    cluster.wait_until_in_sync(topic, without=[follower.node_id])
    produce(cluster, topic, 10)
    with Consumer(cluster.bootstrap, group_id=groups["late"], client_id="late-1", auto_offset_reset="none") as late:
        read(20, late)
        leader.kill()
        follower.start()
        cluster.wait_until_led_by_another(topic, leader)
        with pytest.raises(LogTruncatedError):
            next(iter(late))
    leader.start()
    (loss,) = wait_until(lambda: [loss for loss in losses(cluster, topic) if not loss.is_open], "the entry closes")
    with Admin(cluster.bootstrap) as admin:
        readers = admin.describe_loss_readers([loss])[loss.id]
    standings = {each.group_id: each.standing for each in readers.groups}
    assert standings[groups["early"]] is Standing.NOT_AFFECTED
    assert standings[groups["late"]] is Standing.ON_LOST_BRANCH
    assert [(each.client_id, each.end_offset, each.has_compared) for each in readers.told] == [("late-1", 10, True)]
    assert [(each.times_told > 0, each.resumed_offset) for each in readers.told] == [(True, None)]

    # A reader that goes on says so, to the broker that told it.
    resumption = ReaderResumption(
        partition, loss.topic_id, position=20, leader_epoch=0, divergent_offset=10, resumed_offset=10, policy="rewind"
    )
    with Admin(cluster.bootstrap, client_id="late-1") as admin:
        admin.report_resumptions([resumption])
        (told,) = admin.describe_loss_readers([loss])[loss.id].told
    assert (told.client_id, told.position, told.resumed_offset, told.policy) == ("late-1", 20, 10, "rewind")
    described = run_command(
        ["losses", "describe", loss.name, "--bootstrap", cluster.bootstrap, "--output", "json"], timeout=60
    )
    said = [row for line in described.stdout.splitlines() if "went_on_at" in (row := json.loads(line))]
    assert [(row["client"], row["stood_at"], row["went_on_at"], row["policy"]) for row in said] == [
        ("late-1", 20, 10, "rewind")
    ]


@pytest.mark.timeout(180)
def test_a_producer_whose_sequence_proved_the_loss_is_noted(cluster: Cluster, topic: str) -> None:
    """It writes on through the election. One that begins after it is not."""
    cluster.create_topic(topic, replication_factor=2, min_insync_replicas="1", unclean_leader_election_enable="true")
    leader, follower = cluster.leader_of(topic), cluster.follower_of(topic)
    cluster.wait_until_in_sync(topic)
    with Producer(cluster.bootstrap, client_id="writer") as producer:

        def write(count: int) -> None:
            for future in [producer.send(topic, b"%d" % number, partition=0) for number in range(count)]:
                future.result()

        write(10)
        follower.kill()
        cluster.wait_until_in_sync(topic, without=[follower.node_id])
        write(10)
        leader.kill()
        follower.start()
        cluster.wait_until_led_by_another(topic, leader)
        with pytest.raises(RecordsLostError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
            write(1)
    produce(cluster, topic, 5)
    leader.start()
    (loss,) = wait_until(lambda: [loss for loss in losses(cluster, topic) if not loss.is_open], "the entry closes")
    cut = loss.replica(BrokerId(leader.node_id))
    assert cut is not None
    with Admin(cluster.bootstrap) as admin:
        readers = admin.describe_loss_readers([loss])[loss.id]
    assert [(each.client_id, each.producer_id, each.end_offset) for each in readers.told] == [
        ("writer", *cut.producer_ids, 10)
    ]
    described = run_command(
        ["losses", "describe", loss.name, "--bootstrap", cluster.bootstrap, "--output", "table"], timeout=60
    )
    assert "its sequence was refused" in described.stdout, described
