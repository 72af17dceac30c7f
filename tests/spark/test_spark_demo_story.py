"""The demo's second act on real nodes: what an unclean election takes back is told to all who had it, to the record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.fixtures.waiting import wait_until
from tidelog import Admin, NewTopic
from tidelog.demo import ledger
from tidelog.demo.balance import LostRange, Place, balance, lost_between
from tidelog.demo.ledger import Ledger
from tidelog.demo.ledger_copy import LedgerCopy
from tidelog.demo.nodes import DemoCluster
from tidelog.demo.unclean_election import UncleanElectionAct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Listener:
    """Keeps what the demo says."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.timeout(400)
def test_a_stale_replica_is_elected_and_everybody_is_told(spark: SparkSession, tmp_path: Path) -> None:
    listener = Listener()
    cluster = DemoCluster(tmp_path / "cluster", 0)
    try:
        cluster.start()
        with Admin(cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(ledger.TOPIC, replica_assignments=ledger.REPLICAS, configs=ledger.CONFIGS)])
            numbers = Ledger(cluster.bootstrap)
            copy = LedgerCopy(spark, cluster.bootstrap, tmp_path / "checkpoint", tmp_path / "ledger")
            act = UncleanElectionAct(cluster, admin, numbers, copy, listener)
            numbers.start()
            try:
                wait_until(
                    lambda: all(map(numbers.acknowledged_in, ledger.REPLICAS)), "every partition holds something"
                )
                numbers.hold()
                stages = act.play()
                history = numbers.stop()
            finally:
                numbers.abandon()
            told = act.read_again()
            account = act.read_account()
            losses = admin.describe_losses([ledger.TOPIC]).losses
            readers = [one for found in admin.describe_loss_readers(losses).values() for one in found.told]
            after = act.look_at_the_end()
            report = copy.audit()
    finally:
        cluster.close()
    parts_at = stages.parts_at()
    assert parts_at is not None
    partition = stages.cast.partition
    lost: dict[Place, int] = {}
    for logs in stages.replicas.values():
        lost |= lost_between({partition: list(logs.values())}, after)
    history = replace(history, told_query=tuple(told), kept_by_query=copy.rows(), account=tuple(account))
    books = balance(history, after, lost, {partition: parts_at})
    assert books.is_clean, (books, listener.said)
    assert books.truncated == books.told_query == books.told_consumer == books.told_producer > 0
    assert (report.differences, report.unverifiable, report.matching) == (0, 0, len(copy.rows()))
    assert copy.withdrawn_count() == books.truncated
    # The table has the leader epochs of the log, each where it is.
    assert copy.as_log(partition).spans == after[partition][0].spans
    assert [one.partition for one in told] == [partition]
    assert told == [LostRange(partition, parts_at, parts_at + books.truncated)]
    # The query went on then, and the account knows: from where, to where, and by which policy.
    assert {
        (one.client_id, one.topic_partition.partition, one.resumed_offset, one.policy)
        for one in readers
        if one.resumed_offset is not None
    } == {("spark-tidelog-source", partition, parts_at, "rewind")}
    assert any(text.startswith("the operator types: tidelog elect --type unclean") for text in listener.said)
