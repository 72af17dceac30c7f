"""What becomes of what a batch that ran again could not read, when more than that happens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.fixtures.toy_cluster import IDS, ToyCluster
from tidelog.base.ids import Offset
from tidelog.spark.checkpoint_files import LocalFiles
from tidelog.spark.offsets import CheckpointError, Loss, ReadPosition, StreamOffset
from tidelog.spark.replay_notes import ReplayNotes
from tidelog.spark.truncation import StreamTruncatedError
from tidelog.spark.withdrawal import events_of
from unit.spark.test_spark_planner import FIRST, T0, Query, came_back, planner_of


def run_on(query: Query, record_limit: int) -> int:
    """Plan and run batches until there is nothing to do; how many there were."""
    count = 0
    while True:
        end = json.loads(json.dumps(query.planner.next_offset(query.wal[-1], record_limit)))
        if end == query.wal[-1]:
            return count
        query.wal.append(end)
        query.checkpoint.plan(end, is_committed=False)
        query.run()
        count += 1


@pytest.mark.parametrize("is_missing", [True, False])
def test_what_was_made_up_for_is_not_made_up_for_again(is_missing: bool, tmp_path: Path) -> None:
    """Two batches later the query may stand at the very offset again at which the one ended that ran again."""
    query = Query(ToyCluster(t=1), {"onTruncation": "rewind", "checkpoint": str(tmp_path)}, tmp_path)
    partition = query.cluster["t", 0]
    partition.append(1)
    partition.replicate()
    assert query.plan()
    query.run()
    partition.append(4)
    assert query.plan()
    if is_missing:
        query.cluster.hidden = {T0}
    else:
        partition.elect(1)
    query.restart()
    query.cluster.hidden = set()
    partition.elect(0)
    cut_short = query.wal[-1]
    assert run_on(query, 2) == 2
    assert query.wal[-1] == cut_short
    query.restart_after_commit()
    assert run_on(query, 2) == 0


@pytest.mark.parametrize("has_died", [True, False])
def test_a_batch_that_makes_up_for_another_may_be_cut_short_as_well(has_died: bool, tmp_path: Path) -> None:
    """Both read the same range; equal offsets would tell Spark that there is nothing to do."""
    query = Query(ToyCluster(t=1), {"onTruncation": "rewind", "checkpoint": str(tmp_path)}, tmp_path)
    came_back(query)
    assert query.plan()
    query.cluster["t", 0].elect(1)
    query.restart()
    if has_died:
        query.restart_after_commit()
    query.cluster["t", 0].elect(0)
    assert run_on(query, 7) == 1
    assert query.table()[T0] == dict(enumerate(query.cluster["t", 0].log))


def test_a_loss_to_retention_is_told_if_the_partition_is_missing_afterwards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(ToyCluster(t=1, u=1), {"failOnDataLoss": "false", "checkpoint": str(tmp_path)}, tmp_path)
    query.cluster["t", 0].append(7)
    assert query.plan()
    query.cluster["t", 0].retain_from(3)
    query.restart()
    query.cluster.hidden = {T0}
    assert query.plan()
    assert StreamOffset.from_json(query.wal[-1]).losses[T0].cause == "missing"
    assert "t-0 lost records to retention" in caplog.text
    assert "goes on at offset 3 (onTruncation=rewind): at most 3 offsets are skipped" in caplog.text


def test_what_retention_removed_is_told_from_the_beginning_of_the_batch_that_ran_again(tmp_path: Path) -> None:
    """The driver was down for so long that nothing of the batch is left, and more is gone."""
    query = Query(ToyCluster(t=1), {"onTruncation": "rewind", "checkpoint": str(tmp_path)}, tmp_path)
    partition = query.cluster["t", 0]
    partition.append(2)
    assert query.plan()
    query.run()
    partition.append(3)
    assert query.plan()
    partition.append(5)
    partition.retain_from(8)
    with pytest.raises(StreamTruncatedError) as caught:
        planner_of(query.cluster).ranges(query.wal[-2], query.wal[-1])
    assert caught.value.position == 2
    query.restart()
    assert query.batches[-1] == {}
    assert query.plan()
    end = StreamOffset.from_json(query.wal[-1])
    assert end.losses[T0].position.offset == 2
    assert end.resumed(T0) == 8
    [event] = [event for event in events_of(end) if event.cause == "retention"]
    assert (event.from_offset, event.to_offset, event.read_from) == (2, 8, 8)
    query.run()
    assert sorted(query.batches[-1][T0]) == [8, 9]


def test_a_batch_that_runs_again_may_have_lost_both_its_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    query = Query(ToyCluster(t=1), {"onTruncation": "rewind", "checkpoint": str(tmp_path)}, tmp_path)
    partition = query.cluster["t", 0]
    partition.append(7)
    assert query.plan()
    partition.truncate(5)
    partition.append(4)
    partition.retain_from(3)
    query.restart()
    assert sorted(query.batches[-1][T0]) == [3, 4]
    assert "goes on at offset 3 (onTruncation=rewind): at most 3 offsets are skipped" in caplog.text
    while query.plan():
        query.run()
    assert sorted(query.table()[T0]) == [3, 4, 5, 6, 7, 8]


def test_the_log_tells_each_time_that_a_partition_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    cluster = ToyCluster(t=1, u=1)
    cluster["t", 0].append(5)
    planner = planner_of(cluster, failOnDataLoss="false")
    end = planner.next_offset(FIRST, None)
    for times in (1, 2):
        cluster.hidden = {T0}
        end = planner.next_offset(end, None)
        cluster.hidden = set()
        end = planner.next_offset(end, None)
        assert caplog.text.count("t-0 does not exist any more") == times


def test_the_log_tells_which_missing_partitions_are_forgotten(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tidelog.spark.returns.MISSING_MAX", 2)
    cluster = ToyCluster(t=3, u=1)
    planner = planner_of(cluster, failOnDataLoss="false")
    end = planner.next_offset(FIRST, None)
    cluster.hidden = {T0}
    end = planner.next_offset(end, None)
    assert "forgotten" not in caplog.text
    cluster.delete("t")
    end = planner.next_offset(end, None)
    assert "it is forgotten where the query stood in t-0: if they come back" in caplog.text
    cluster["u", 0].append(1)
    planner.next_offset(end, None)
    assert caplog.text.count("forgotten") == 1


def test_storage_that_cannot_be_written_ends_no_query_that_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(files: LocalFiles, path: str) -> None:
        raise PermissionError(f"no right to remove {path}")

    notes = ReplayNotes(str(tmp_path))
    unread = {T0: (ReadPosition(Offset(7)), Loss("missing", ReadPosition(Offset(4)), None, IDS[0]))}
    notes.write({"v": 1, "replans": 1}, unread)
    monkeypatch.setattr(LocalFiles, "remove", refuse)
    notes.remove(FIRST)
    with pytest.raises(CheckpointError, match="no right to remove"):  # it would be believed later
        notes.remove({"v": 1, "replans": 1})
