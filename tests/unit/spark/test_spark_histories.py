"""Random histories of topics and of a query: each record of the log is in the healed table, or told as lost."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.fixtures.toy_cluster import Record, ToyCluster, ToyPartition
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.spark.offsets import Json, StreamOffset
from tidelog.spark.withdrawal import Withdrawal, events_of, withdrawal_of
from unit.spark.test_spark_planner import Query, planner_of

Place = tuple[str | None, int]
Rows = dict[tuple[str | None, int, int], Record]

STEPS = st.sampled_from(
    ["append"] * 4
    + ["replicate", "elect the other", "elect the leader", "truncate", "retain", "hide", "show", "show"]
    + ["recreate", "add", "plan", "plan", "plan", "run", "run", "restart", "restart", "restart after commit"]
    + ["available now", "continuously"]
)
NUMBERS = st.integers(0, 9)


class ToldLosses(logging.Handler):
    """The losses that the driver's log tells."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        _, tag, details = record.getMessage().partition("[LOG_TRUNCATION]")
        if tag:
            self.losses += json.loads(details)["losses"]


class WholeQuery(Query):
    """A query of which AvailableNow may be the trigger, with batches of any size."""

    is_available_now = False
    record_limit: int | None = None

    def plan(self) -> bool:
        if len(self.batches) < len(self.wal) - 1:
            return False
        end: Json = json.loads(json.dumps(self.planner.next_offset(self.wal[-1], self.record_limit)))
        if end == self.wal[-1]:
            return False
        self.wal.append(end)
        self.checkpoint.plan(end, is_committed=False)
        return True

    def start_again(self) -> None:
        self.planner = planner_of(self.cluster, **self.options)
        if self.is_available_now:
            self.planner.prepare_available_now()

    def healed(self) -> Rows:
        rows: Rows = {}
        for end, read in zip(map(StreamOffset.from_json, self.wal[1:]), self.batches, strict=True):
            for event in events_of(end):
                withdrawn = withdrawal_of(event, with_deleted_topics=False)
                if withdrawn is not None:
                    rows = {place: record for place, record in rows.items() if not takes(withdrawn, *place)}
            for (topic, partition), records in read.items():
                new = {(end.topic_ids[topic], int(partition), offset): record for offset, record in records.items()}
                assert not rows.keys() & new.keys(), "a record was read twice and not withdrawn"
                rows |= new
        return rows


def takes(withdrawal: Withdrawal, topic_id: str | None, partition: int, offset: int) -> bool:
    of_it = (withdrawal.topic_id, withdrawal.partition) == (topic_id, partition)
    return of_it and offset >= (withdrawal.from_offset or 0)


def do(step: str, query: WholeQuery, key: TopicPartition, size: int) -> None:
    cluster, partition = query.cluster, query.cluster.partitions[key]
    last_is_done = len(query.batches) == len(query.wal) - 1
    count = sum(other.topic == key.topic for other in cluster.partitions)
    if step == "append":
        partition.append(size)
    elif step == "replicate":
        partition.replicate()
    elif step == "elect the other":
        partition.elect(1 - partition.leader)
    elif step == "elect the leader":
        partition.elect(partition.leader)
    elif step == "truncate":
        partition.truncate(max(partition.log_start_offset, len(partition.log) - size))
    elif step == "retain":
        partition.retain_from(partition.log_start_offset + size)
    elif step == "hide" and len(query.wal) > 1:
        cluster.hidden.add(key)
    elif step == "show":
        cluster.hidden.clear()
    elif step == "recreate" and size < 3 and cluster.created < 3:  # that is how many ids there are
        cluster.delete(key.topic)
        cluster.create(key.topic, count)
    elif step == "add" and size < 3:
        cluster.partitions[TopicPartition(key.topic, PartitionIndex(count))] = ToyPartition()
        cluster[key.topic, count].append(0)
    elif step == "plan":
        query.record_limit = size or None
        query.plan()
    elif step == "run":
        query.run()
    elif step == "restart":
        query.start_again()
        query.run()
    elif step == "restart after commit" and last_is_done:
        query.start_again()
    elif step in ("available now", "continuously") and last_is_done:
        query.is_available_now = step == "available now"
        query.start_again()


def told(query: WholeQuery, logged: ToldLosses) -> dict[Place, set[int]]:
    """The offsets that were never read, and of which somebody was told, by topic id and partition."""
    offsets: dict[Place, set[int]] = {}
    for end in map(StreamOffset.from_json, query.wal[1:]):
        for key, loss in end.losses.items():
            first = loss.position.offset if loss.cause == "retention" else loss.resume_offset
            place = loss.topic_id, int(key.partition)
            offsets.setdefault(place, set()).update(range(first or 0, end.resumed(key) or 0))
        for key, begin in end.begin.items():
            if key not in end.losses or end.losses[key].topic_id != end.topic_ids[key.topic]:
                # Where a topic begins that is new to the query.
                place = end.topic_ids[key.topic], int(key.partition)
                if place not in offsets:
                    offsets[place] = set(range(begin.offset))
    for told_loss in logged.losses:
        first = told_loss["offset"] if told_loss["cause"] == "retention" else told_loss["divergentOffset"]
        place = told_loss["topicId"], told_loss["partition"]
        offsets.setdefault(place, set()).update(range(first or 0, told_loss["resumedOffset"] or 0))
    return offsets


@given(st.lists(st.tuples(STEPS, NUMBERS, NUMBERS), max_size=60))
def test_each_record_is_in_the_table_or_told_as_lost(steps: list[tuple[str, int, int]]) -> None:
    logged, logger = ToldLosses(), logging.getLogger("tidelog.spark")
    logger.addHandler(logged)
    try:
        with TemporaryDirectory() as folder:
            cluster = ToyCluster(t=2, u=1)
            options = {"onTruncation": "rewind", "subscribe": "t,u", "checkpoint": folder}
            query = WholeQuery(cluster, options, Path(folder))
            for step, number, size in steps:
                keys = sorted(cluster.partitions)
                do(step, query, keys[number % len(keys)], size)
            cluster.hidden.clear()
            query.is_available_now, query.record_limit = False, None
            query.start_again()
            query.run()
            while query.plan():
                query.run()
            check(query, told(query, logged))
    finally:
        logger.removeHandler(logged)


def check(query: WholeQuery, lost: dict[Place, set[int]]) -> None:
    rows = query.healed()
    for key, partition in query.cluster.partitions.items():
        place = query.cluster.topic_ids[key.topic], int(key.partition)
        there = {offset: record for (*of, offset), record in rows.items() if tuple(of) == place}
        expected = dict(enumerate(partition.log))
        start = partition.log_start_offset
        # Below, rows stay: where they parted from the log, the log does not know any more.
        assert {offset for offset in there if offset >= start} == {offset for offset in expected if offset >= start}
        assert all(expected[offset] == record for offset, record in there.items() if offset >= start)
        unread = {offset for offset in expected if offset < start} - there.keys()
        assert unread <= lost.get(place, set()), f"{key}: {unread} were skipped, and nobody was told"
