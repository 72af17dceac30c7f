from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fixtures.checkpoints import WrittenCheckpoint
from support.fixtures.toy_cluster import IDS, Record, ToyCluster
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.client.core.positions import UNDEFINED_MS_MAX
from tidelog.spark.offsets import Json, Loss, ReadPosition, StreamOffset
from tidelog.spark.options import source_options
from tidelog.spark.plan import PlanError, Range
from tidelog.spark.planner import IDLE_WAIT_MS_MAX, StreamPlanner, batch_ranges
from tidelog.spark.pushdown import Numbers, Wanted
from tidelog.spark.returns import MISSING_MAX, still_missing
from tidelog.spark.truncation import CannotTellError, StreamTruncatedError

FIRST: Json = {"v": 1}
T0 = TopicPartition("t", PartitionIndex(0))


def planner_of(cluster: ToyCluster, **options: Any) -> StreamPlanner:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "startingOffsets": "earliest"}
    given |= {name.replace("_", "."): str(value) for name, value in options.items()}
    return StreamPlanner(source_options(given, streaming=True), cluster)


def spans(ranges: list[Range]) -> list[tuple[str, int, int]]:
    return [(str(piece.partition), piece.start_offset, piece.end_offset) for piece in ranges]


def test_the_start_is_pinned_by_the_first_offset() -> None:
    cluster = ToyCluster(t=1)
    cluster["t", 0].append(5)
    end = planner_of(cluster, startingOffsets="latest").next_offset(FIRST, None)
    assert StreamOffset.from_json(end).begin == StreamOffset.from_json(end).positions
    # The first batch is replayed by another life of the query, when there is more: it must stay as empty as it was.
    cluster["t", 0].append(5)
    again = planner_of(cluster, startingOffsets="latest")
    assert again.ranges(FIRST, end) == []
    after = again.next_offset(end, None)
    assert spans(again.ranges(end, after)) == [("t-0", 5, 10)]


def test_an_offset_is_returned_as_it_came_when_there_is_nothing_to_do() -> None:
    cluster = ToyCluster(t=2)
    cluster["t", 0].append(5)
    planner = planner_of(cluster)
    end = planner.next_offset(FIRST, None)
    assert planner.next_offset(end, None) is end
    assert cluster.time_ms == IDLE_WAIT_MS_MAX
    # An election alone is nothing to tell.
    cluster["t", 0].elect(0)
    assert planner.next_offset(end, None) is end


def test_an_idle_stream_takes_what_comes_while_it_waits() -> None:
    cluster = ToyCluster(t=1)
    planner = planner_of(cluster)
    first = planner.next_offset(FIRST, None)
    cluster.arriving = lambda: cluster["t", 0].append(3)
    assert spans(planner.ranges(first, planner.next_offset(first, None))) == [("t-0", 0, 3)]


def test_limits_hold_and_nothing_is_asked_while_leaders_stay() -> None:
    cluster = ToyCluster(t=2)
    cluster["t", 0].append(100)
    cluster["t", 1].append(300)
    planner = planner_of(cluster)
    first = planner.next_offset(FIRST, 40)
    assert spans(planner.ranges(FIRST, first)) == [("t-0", 0, 10), ("t-1", 0, 30)]
    asked = cluster.questions
    second = planner.next_offset(first, 40)
    assert spans(planner.ranges(first, second)) == [("t-0", 10, 20), ("t-1", 30, 60)]
    assert cluster.questions == asked


def test_a_new_partition_begins_at_its_start_whatever_the_options() -> None:
    cluster = ToyCluster(t=1)
    planner = planner_of(cluster, startingOffsets="latest")
    end = planner.next_offset(FIRST, None)
    cluster.create("u", 1)
    cluster["u", 0].append(3)
    after = planner.next_offset(end, None)
    assert spans(planner.ranges(end, after)) == [("u-0", 0, 3)]
    assert spans(planner_of(cluster).ranges(end, after)) == [("u-0", 0, 3)]


def test_a_minimum_is_waited_for() -> None:
    cluster = ToyCluster(t=1)
    cluster["t", 0].append(1)
    planner = planner_of(cluster, minOffsetsPerTrigger=10, maxTriggerDelay="60s")
    first = planner.next_offset(FIRST, None)
    cluster["t", 0].append(9)
    assert planner.next_offset(first, None) is first
    cluster.time_ms += 60_000
    second = planner.next_offset(first, None)
    assert spans(planner.ranges(first, second)) == [("t-0", 1, 10)]
    cluster["t", 0].append(10)
    assert planner.next_offset(second, None) is not second


def test_available_now_reads_what_is_there_now_and_no_more() -> None:
    cluster = ToyCluster(t=1)
    cluster["t", 0].append(7)
    planner = planner_of(cluster, minOffsetsPerTrigger=10)
    planner.prepare_available_now()
    cluster["t", 0].append(50)
    first = planner.next_offset(FIRST, 5)
    cluster.create("u", 1)
    second = planner.next_offset(first, 5)
    assert spans(planner.ranges(FIRST, first)) + spans(planner.ranges(first, second)) == [("t-0", 0, 5), ("t-0", 5, 7)]
    before = cluster.time_ms
    assert planner.next_offset(second, 5) is second
    assert cluster.time_ms == before


def test_passing_errors_pass() -> None:
    cluster = ToyCluster(t=1)
    cluster["t", 0].append(1)
    cluster.failures = [OSError("no route"), OSError("no route")]
    planner = planner_of(cluster)
    assert spans(planner.ranges(FIRST, planner.next_offset(FIRST, None))) == [("t-0", 0, 1)]


def test_lag_is_that_of_the_last_plan() -> None:
    cluster = ToyCluster(t=1)
    cluster["t", 0].append(10)
    planner = planner_of(cluster)
    assert planner.lag() is None
    planner.next_offset(FIRST, 4)
    lag = planner.lag()
    assert lag is not None
    assert lag["maxOffsetsBehindLatest"] == 6


@pytest.mark.parametrize("replay", [False, True])
def test_truncation_fails_the_query_where_it_is_found(replay: bool) -> None:
    cluster = ToyCluster(t=2)
    cluster["t", 0].append(10)
    cluster["t", 1].append(10)
    end = planner_of(cluster).next_offset(FIRST, None)
    cluster["t", 0].truncate(7)
    cluster["t", 0].append(100)
    planner = planner_of(cluster)
    with pytest.raises(StreamTruncatedError) as error:
        planner.ranges(FIRST, end) if replay else planner.next_offset(end, None)
    told = json.loads(str(error.value).split("[LOG_TRUNCATION]")[1].splitlines()[0])
    assert [(loss["partition"], loss["offset"], loss["divergentOffset"]) for loss in told["losses"]] == [(0, 10, 7)]


def test_a_reset_is_written_into_the_offset() -> None:
    cluster = ToyCluster(t=1)
    cluster["t", 0].append(10)
    end = planner_of(cluster).next_offset(FIRST, None)
    cluster["t", 0].truncate(7)
    cluster["t", 0].append(100)
    planner = planner_of(cluster, onTruncation="rewind")
    after = planner.next_offset(end, 20)
    assert json.loads(json.dumps(after)) == {
        "begin": {"t": {"0": {"leaderEpoch": 0, "offset": 7}}},
        "topics": {"t": {"id": IDS[0], "p": {"0": {"leaderEpoch": 1, "lineage": [[0, 0], [1, 7]], "offset": 27}}}},
        "truncatedFrom": {
            "t": {"0": {"cause": "truncated", "id": IDS[0], "leaderEpoch": 0, "offset": 10, "resumeOffset": 7}}
        },
        "v": 1,
    }
    assert spans(planner.ranges(end, after)) == spans(planner_of(cluster).ranges(end, after)) == [("t-0", 7, 27)]
    # It is told once.
    assert "truncatedFrom" not in planner.next_offset(after, 20)


@pytest.mark.parametrize(("policy", "begins"), [("rewind", 3), ("earliest", 3), ("latest", 9)])
def test_policies_for_what_retention_removed(policy: str, begins: int) -> None:
    cluster = ToyCluster(t=1)
    cluster["t", 0].append(2)
    end = planner_of(cluster).next_offset(FIRST, None)
    cluster["t", 0].append(7)
    cluster["t", 0].retain_from(3)
    with pytest.raises(StreamTruncatedError, match="retention"):
        planner_of(cluster).next_offset(end, None)
    after = StreamOffset.from_json(planner_of(cluster, onTruncation=policy).next_offset(end, None))
    assert [position.offset for position in after.begin.values()] == [begins]
    assert [loss.cause for loss in after.losses.values()] == ["retention"]


def test_what_retention_removed_of_a_batch_that_runs_again_has_the_topic_s_id() -> None:
    cluster = ToyCluster(t=1)
    cluster["t", 0].append(9)
    end = planner_of(cluster).next_offset(FIRST, None)
    cluster["t", 0].retain_from(3)
    planner = planner_of(cluster, onTruncation="rewind")
    assert spans(planner.ranges(FIRST, end)) == [("t-0", 3, 9)]
    after = StreamOffset.from_json(planner.next_offset(end, None))
    assert [(loss.cause, loss.topic_id) for loss in after.losses.values()] == [("retention", IDS[0])]


def test_a_recreated_topic_is_not_taken_for_the_old_one() -> None:
    cluster = ToyCluster(t=1)
    cluster["t", 0].append(5)
    end = planner_of(cluster).next_offset(FIRST, None)
    cluster.delete("t")
    cluster.create("t", 1)
    cluster["t", 0].append(50)
    with pytest.raises(
        StreamTruncatedError, match=r"another topic of the same name.*\. If kafka\.bootstrap\.servers names"
    ):
        planner_of(cluster).next_offset(end, None)
    with pytest.raises(StreamTruncatedError, match="another topic of the same name"):
        planner_of(cluster).ranges(FIRST, end)
    planner = planner_of(cluster, failOnDataLoss="false")
    assert planner.ranges(FIRST, end) == []
    after = planner.next_offset(end, None)
    assert spans(planner.ranges(end, after)) == [("t-0", 0, 50)]
    assert StreamOffset.from_json(after).topic_ids == {"t": IDS[1]}
    assert [loss.topic_id for loss in StreamOffset.from_json(after).losses.values()] == [IDS[0]]


def test_a_topic_that_is_gone_is_a_loss_and_may_come_back() -> None:
    cluster = ToyCluster(t=1, u=1)
    cluster["t", 0].append(5)
    end = planner_of(cluster).next_offset(FIRST, None)
    cluster.delete("t")
    with pytest.raises(StreamTruncatedError, match=r"does not exist any more.*\. If the options name other topics"):
        planner_of(cluster).next_offset(end, None)
    planner = planner_of(cluster, onTruncation="latest")
    gone = planner.next_offset(end, None)
    assert planner.ranges(end, gone) == []
    assert [loss.cause for loss in StreamOffset.from_json(gone).losses.values()] == ["missing"]
    assert planner.next_offset(gone, None) is gone
    cluster.create("t", 1)
    cluster["t", 0].append(2)
    back = planner.next_offset(gone, None)
    assert spans(planner.ranges(gone, back)) == [("t-0", 0, 2)]


def test_a_topic_that_was_missing_goes_on_where_the_query_stood(caplog: pytest.LogCaptureFixture) -> None:
    cluster = ToyCluster(t=1, u=1)
    cluster["t", 0].append(5)
    end = planner_of(cluster).next_offset(FIRST, None)
    planner = planner_of(cluster, failOnDataLoss="false")
    cluster.hidden = {T0}
    gone = planner.next_offset(end, None)
    cluster["u", 0].append(1)
    other = planner.next_offset(gone, None)
    assert "truncatedFrom" not in other
    cluster.hidden = set()
    cluster["t", 0].append(3)
    for again in (planner, planner_of(cluster), planner_of(cluster, onTruncation="latest")):
        back = again.next_offset(other, None)
        assert spans(again.ranges(other, back)) == [("t-0", 5, 8)]
        assert "truncatedFrom" not in back
        assert "missing" not in back
        assert again.next_offset(back, None) is back
    assert caplog.text.count("t-0 is there again; the query goes on at offset 5, where it stood") == 3

    # What it lost meanwhile is told as such.
    cluster["t", 0].truncate(4)
    cluster["t", 0].append(5)
    with pytest.raises(StreamTruncatedError, match="t-0 was truncated"):
        planner_of(cluster).next_offset(other, None)
    back = planner.next_offset(other, None)
    assert spans(planner.ranges(other, back)) == [("t-0", 4, 9)]
    assert [loss.cause for loss in StreamOffset.from_json(back).losses.values()] == ["truncated"]


def test_a_topic_that_was_missing_in_a_replay_is_read_from_where_the_batch_began() -> None:
    cluster = ToyCluster(t=1, u=1)
    cluster["t", 0].append(5)
    planner = planner_of(cluster, failOnDataLoss="false")
    first = planner.next_offset(FIRST, None)
    cluster["t", 0].append(4)
    end = planner.next_offset(first, None)
    for is_still_missing in (False, True):
        again = planner_of(cluster, failOnDataLoss="false")
        cluster.hidden = {T0}
        assert again.ranges(first, end) == []
        after = again.next_offset(end, None) if is_still_missing else end
        cluster.hidden = set()
        back = again.next_offset(after, None)
        assert spans(again.ranges(after, back)) == [("t-0", 5, 9)]
        assert "truncatedFrom" not in back


def test_partitions_that_stay_missing_are_forgotten_the_oldest_first() -> None:
    keys = [TopicPartition("t", PartitionIndex(number)) for number in range(1200)]
    end = StreamOffset()
    for first in (0, 300, 600, 900):
        gone = {key: Loss("missing", ReadPosition(Offset(5)), None, IDS[0]) for key in keys[first : first + 300]}
        end = StreamOffset(missing=still_missing(end, (), gone))
        end = StreamOffset.from_json(json.loads(json.dumps(end.to_json())))
    assert list(end.missing) == keys[-MISSING_MAX:]
    assert list(still_missing(end, keys[:1100], {})) == keys[1100:]


def test_batches() -> None:
    cluster = ToyCluster(t=2)
    cluster["t", 0].append(10)
    cluster["t", 1].append(20)

    def planned(wanted: Wanted | None = None, **options: Any) -> list[tuple[str, int, int]]:
        given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
        return spans(batch_ranges(source_options({**given, **options}, streaming=False), cluster, wanted))

    assert planned() == [("t-0", 0, 10), ("t-1", 0, 20)]
    assert planned(startingOffsets='{"t":{"0":4,"1":-2}}', endingOffsets='{"t":{"0":-1,"1":5}}') == [
        ("t-0", 4, 10),
        ("t-1", 0, 5),
    ]
    assert planned(startingTimestamp="3", endingTimestamp="15") == [("t-0", 3, 10), ("t-1", 3, 15)]
    assert planned(minPartitions="3") == [("t-0", 0, 10), ("t-1", 0, 10), ("t-1", 10, 20)]
    with pytest.raises(PlanError, match="t-0 holds no record"):
        planned(startingTimestamp="12")
    late = Wanted(from_ms=15, offsets=Numbers(end=18))  # no record of t-0 is so late, which is no error
    assert planned(late) == [("t-1", 15, 18)]
    assert planned(Wanted(partitions=Numbers(only=frozenset({0}))), startingTimestamp="3") == [("t-0", 3, 10)]
    with pytest.raises(PlanError, match="t-1: startingOffsets means offset 9, which lies after 5"):
        planned(startingOffsets='{"t":{"0":4,"1":9}}', endingOffsets='{"t":{"0":-1,"1":5}}')


class Query:
    """A query under `rewind`, as Spark runs one, with a sink that withdraws what the offsets say is gone."""

    def __init__(self, cluster: ToyCluster, options: Mapping[str, Any], folder: Path) -> None:
        self.cluster = cluster
        self.checkpoint = WrittenCheckpoint(folder)
        self.options = options
        self.wal: list[Json] = [FIRST]
        self.batches: list[dict[TopicPartition, dict[int, Record]]] = []
        self.planner = planner_of(cluster, **options)

    def plan(self) -> bool:
        """Write down the end of the next batch, if there is one and the last has run."""
        if len(self.batches) < len(self.wal) - 1:
            return False
        end = json.loads(json.dumps(self.planner.next_offset(self.wal[-1], 7)))
        if end == self.wal[-1]:
            return False
        self.wal.append(end)
        self.checkpoint.plan(end, is_committed=False)
        return True

    def run(self) -> None:
        """Run, or run again, the last batch that is written down."""
        if len(self.wal) < 2:
            return
        rows: dict[TopicPartition, dict[int, Record]] = {}
        for piece in self.planner.ranges(self.wal[-2], self.wal[-1]):
            log = self.cluster.partitions[piece.partition].log
            records = {offset: log[offset] for offset in range(piece.start_offset, piece.end_offset)}
            epochs = [record.leader_epoch for record in records.values()]
            assert piece.leader_epoch_min is None or min(epochs) >= piece.leader_epoch_min
            assert piece.leader_epoch_max is None or max(epochs) <= piece.leader_epoch_max
            rows.setdefault(piece.partition, {}).update(records)
        self.batches[len(self.wal) - 2 :] = [rows]

    def restart(self) -> None:
        """The driver died before the last batch was done."""
        self.planner = planner_of(self.cluster, **self.options)
        self.run()

    def restart_after_commit(self) -> None:
        """The driver died after the last batch was done, and before it planned another one."""
        if len(self.batches) == len(self.wal) - 1:
            self.planner = planner_of(self.cluster, **self.options)

    def table(self) -> dict[TopicPartition, dict[int, Record]]:
        table: dict[TopicPartition, dict[int, Record]] = {}
        for end, rows in zip(self.wal[1:], self.batches, strict=True):
            offset = StreamOffset.from_json(end)
            for key in offset.losses.keys() & offset.begin.keys():
                begin = offset.begin[key].offset
                table[key] = {at: record for at, record in table.get(key, {}).items() if at < begin}
            for key, records in rows.items():
                assert not table.get(key, {}).keys() & records.keys(), "a record was read twice and not withdrawn"
                table.setdefault(key, {}).update(records)
        return table


STEPS = st.sampled_from(
    [
        "append",
        "append",
        "replicate",
        "elect the other",
        "elect the leader",
        "truncate",
        "plan",
        "plan",
        "run",
        "restart",
        "restart after commit",
        "hide",
        "show",
    ]
)


@given(st.lists(st.tuples(STEPS, st.integers(0, 1), st.integers(0, 9)), max_size=40), st.sampled_from([None, 3]))
def test_whatever_happens_the_healed_table_is_the_log(
    steps: list[tuple[str, int, int]], records_max: int | None
) -> None:
    """Unclean elections, truncations, crashes at every step: once healed, no record is missing and none too many."""
    with TemporaryDirectory() as folder:
        _check_healed_table(steps, records_max, folder)


def _check_healed_table(steps: list[tuple[str, int, int]], records_max: int | None, checkpoint: str) -> None:
    cluster = ToyCluster(t=2)
    options: dict[str, Any] = {"onTruncation": "rewind", "checkpoint": checkpoint}
    if records_max is not None:
        options["maxRecordsPerPartition"] = records_max
    query = Query(cluster, options, Path(checkpoint))
    for step, number, size in steps:
        partition = cluster["t", number]
        if step == "append":
            partition.append(size)
        elif step == "replicate":
            partition.replicate()
        elif step == "elect the other":
            partition.elect(1 - partition.leader)
        elif step == "elect the leader":
            partition.elect(partition.leader)
        elif step == "truncate":
            partition.truncate(max(0, len(partition.log) - size))
        elif step == "plan":
            query.plan()
        elif step == "run":
            query.run()
        elif step == "restart after commit":
            query.restart_after_commit()
        elif step == "hide" and len(query.wal) > 1:
            cluster.hidden.add(TopicPartition("t", PartitionIndex(number)))
        elif step in ("hide", "show"):
            cluster.hidden.discard(TopicPartition("t", PartitionIndex(number)))
        else:
            query.restart()
    query.run()
    cluster.hidden.clear()
    while query.plan():
        query.run()
    expected = {key: dict(enumerate(partition.log)) for key, partition in cluster.partitions.items()}
    assert {key: rows for key, rows in query.table().items() if rows} == {key: e for key, e in expected.items() if e}


def test_a_leader_older_than_what_was_read_is_believed_only_after_a_while() -> None:
    cluster = ToyCluster(t=1)
    partition = cluster["t", 0]
    partition.append(5)
    partition.leader_epoch = 4
    partition.append(5)
    planner = planner_of(cluster, onTruncation="rewind")
    end = planner.next_offset(FIRST, None)
    lineage, partition.lineages[0] = partition.lineages[0], partition.lineages[0].clone()
    partition.leader_epoch = 3  # one that was replaced, and goes on believing that it leads
    partition.lineages[0].assign(LeaderEpoch(3), Offset(5))
    assert all(waits(planner, end) for _ in range(3))
    partition.leader_epoch, partition.lineages[0] = 4, lineage
    assert planner.next_offset(end, None) is end
    partition.leader_epoch = 3
    partition.lineages[0].assign(LeaderEpoch(3), Offset(5))
    assert waits(planner, end)
    cluster.time_ms += UNDEFINED_MS_MAX
    after = StreamOffset.from_json(planner.next_offset(end, None))
    assert {loss.cause for loss in after.losses.values()} == {"truncated"}


def waits(planner: StreamPlanner, end: Json) -> bool:
    with pytest.raises(CannotTellError, match="the leader is of epoch 3, and what was read of epoch 4"):
        planner.next_offset(end, None)
    return True


def came_back(query: Query) -> None:
    """A batch of seven records is planned; three of them are lost, and are back when the batch after it is planned."""
    partition = query.cluster["t", 0]
    partition.append(4)
    partition.replicate()
    partition.append(3)
    assert query.plan()
    partition.elect(1 - partition.leader)
    query.restart()
    assert len(query.batches[-1][T0]) == 4
    query.restart_after_commit()
    partition.elect(1 - partition.leader)


def test_what_a_batch_could_not_read_is_read_by_the_next_one_in_another_process(tmp_path: Path) -> None:
    query = Query(ToyCluster(t=1), {"onTruncation": "rewind", "checkpoint": str(tmp_path)}, tmp_path)
    came_back(query)
    assert query.plan()
    query.run()
    assert StreamOffset.from_json(query.wal[-1]).losses[T0].resume_offset == 4
    assert query.table()[T0] == dict(enumerate(query.cluster["t", 0].log))
    assert not query.plan()


def test_what_a_batch_reads_when_it_runs_a_third_time_is_not_read_twice(tmp_path: Path) -> None:
    """Its second run was cut short, and did not come to its end."""
    query = Query(ToyCluster(t=1), {"onTruncation": "rewind", "checkpoint": str(tmp_path)}, tmp_path)
    came_back(query)
    query.restart()
    assert len(query.batches[-1][T0]) == 7
    query.restart_after_commit()
    assert not query.plan()


def test_where_no_note_can_be_written_the_log_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    query = Query(ToyCluster(t=1), {"failOnDataLoss": "false", "checkpoint": str(tmp_path / "gone")}, tmp_path)
    came_back(query)
    assert "is known to this process alone, since its note cannot be written" in caplog.text
