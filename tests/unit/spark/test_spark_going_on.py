"""A query that goes on after a loss says so once, in the driver's log and to the cluster. If it must not, it stops."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from support.fixtures.checkpoints import WrittenCheckpoint
from support.fixtures.toy_cluster import ToyCluster
from tidelog.base.errors import ConfigError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.spark import CheckpointError, find_tag
from tidelog.spark.offsets import Json, StreamOffset
from tidelog.spark.options import source_options
from tidelog.spark.planner import StreamPlanner, batch_ranges
from tidelog.spark.query_losses import losses_of_offset
from tidelog.spark.truncation import StatefulRewindError, StreamTruncatedError

FIRST: Json = {"v": 1}
T0 = TopicPartition("t", PartitionIndex(0))


def planner_of(cluster: ToyCluster, **options: str) -> StreamPlanner:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "startingOffsets": "earliest", **options}
    return StreamPlanner(source_options(given, streaming=True), cluster)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    """What the driver's log would say: the words, and the JSON behind them."""
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    found = []
    for line in said:
        tagged = find_tag(line)
        if tagged is not None:
            assert "\n" not in line
            assert json.loads(line.partition(f"[{tagged.tag}]")[2]) == tagged.details
            found.append((line.partition(f" [{tagged.tag}]")[0], tagged.details))
    return found


@pytest.fixture
def cluster() -> ToyCluster:
    """Ten records, of which a query will have read all."""
    cluster = ToyCluster(t=2)
    cluster["t", 0].append(10)
    return cluster


def truncate(cluster: ToyCluster) -> None:
    cluster["t", 0].truncate(7)
    cluster["t", 0].append(100)


def test_a_rewind_is_said_once(cluster: ToyCluster, caplog: pytest.LogCaptureFixture) -> None:
    planner = planner_of(cluster, onTruncation="rewind")
    end = planner.next_offset(FIRST, None)
    truncate(cluster)
    cluster.failures = [OSError("no route")]  # what is planned again is not said again
    after = planner.next_offset(end, None)
    assert planner.next_offset(end, None) == after
    planner.next_offset(after, None)
    ((words, told),) = lines(caplog)
    assert words == (
        "t-0 was truncated, and records that this query stood past are gone; the query stood at offset 10 and goes on "
        "at offset 7 (onTruncation=rewind): at most 3 offsets that it had read are gone, and its results may still "
        "count them. Its state was not checked (option checkpoint): aggregates, joins and deduplications count up to 3 "
        "records too many."
    )
    assert told == {
        "losses": [
            {
                "cause": "truncated",
                "divergentOffset": 7,
                "goneCount": 3,
                "leaderEpoch": 0,
                "logStartOffset": 0,
                "offset": 10,
                "partition": 0,
                "readAgainCount": 0,
                "resumedOffset": 7,
                "skippedCount": 0,
                "topic": "t",
                "topicId": cluster.topic_ids["t"],
            }
        ],
        "onTruncation": "rewind",
        "operators": None,
        "v": 1,
    }
    ((key, resumed, policy),) = cluster.reported
    assert (key, resumed.offset, resumed.loss.position.offset, policy) == (T0, 7, 10, "rewind")


@pytest.mark.parametrize(
    ("policy", "resumed", "counts"),
    [("earliest", 0, (3, 7, 0)), ("latest", 107, (3, 0, 100))],
)
def test_other_policies_say_what_they_do_to_the_results(
    cluster: ToyCluster,
    caplog: pytest.LogCaptureFixture,
    policy: str,
    resumed: int,
    counts: tuple[int, int, int],
) -> None:
    planner = planner_of(cluster, onTruncation=policy)
    end = planner.next_offset(FIRST, None)
    truncate(cluster)
    planner.next_offset(end, None)
    ((words, told),) = lines(caplog)
    (loss,) = told["losses"]
    assert tuple(loss[f"{name}Count"] for name in ("gone", "readAgain", "skipped")) == counts
    assert loss["resumedOffset"] == resumed
    assert f"(onTruncation={policy}): at most {counts[0]} offsets that it had read are gone" in words
    assert f"count up to {counts[0] + counts[1]} records too many" in words


def test_what_is_skipped_of_a_topic_that_was_created_again_is_counted(
    cluster: ToyCluster, caplog: pytest.LogCaptureFixture
) -> None:
    planner = planner_of(cluster, onTruncation="latest")
    end = planner.next_offset(FIRST, None)
    cluster.delete("t")
    cluster.create("t", 2)
    cluster["t", 0].append(7)
    after = StreamOffset.from_json(planner.next_offset(end, None))
    (words, told), _ = lines(caplog)
    (loss,) = told["losses"]
    assert (loss["cause"], loss["resumedOffset"], loss["skippedCount"]) == ("recreated", 7, 7)
    assert "at most 7 offsets are skipped" in words
    assert [one.skipped_count for one in losses_of_offset(after, 1, 0)] == [7, 0]


def test_retention_and_topics_that_are_no_more_are_said_too(
    cluster: ToyCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create("u", 1)
    planner = planner_of(cluster, failOnDataLoss="false")
    end = planner.next_offset(FIRST, None)
    cluster["t", 0].append(10)
    cluster["t", 0].retain_from(15)
    cluster.delete("u")
    planner.next_offset(end, None)
    of_retention, of_missing = lines(caplog)
    assert of_retention[0] == (
        "t-0 lost records to retention before this query read them; the query stood at offset 10 and goes on at offset "
        "15 (onTruncation=rewind): at most 5 offsets are skipped."
    )
    assert of_missing[0] == (
        "u-0 does not exist any more, or is not selected any more; the query stood at offset 0 and leaves it out from "
        "here on (onTruncation=rewind)."
    )
    assert of_missing[1]["losses"][0]["resumedOffset"] is None
    assert cluster.reported == []  # the account is of truncations


def test_a_partition_that_was_emptied_before_it_was_found_is_a_loss(
    cluster: ToyCluster, caplog: pytest.LogCaptureFixture
) -> None:
    end = planner_of(cluster).next_offset(FIRST, None)
    added = TopicPartition("t", PartitionIndex(2))
    cluster.partitions[added] = ToyCluster(x=1)["x", 0]
    cluster.partitions[added].append(8)
    cluster.partitions[added].retain_from(5)
    with pytest.raises(
        StreamTruncatedError, match=r"t-2 lost records to retention .* goes on at offset 5, where the log"
    ):
        planner_of(cluster).next_offset(end, None)
    after = StreamOffset.from_json(planner_of(cluster, onTruncation="rewind").next_offset(end, None))
    assert after.begin[added].offset == 5
    ((words, _),) = lines(caplog)
    assert "the query stood at offset 0 and goes on at offset 5" in words
    # Whoever adds a partition to `assign` knows that it was not read.
    partitions = json.dumps({"t": [0, 1, 2]})
    chosen = {"kafka.bootstrap.servers": "h:1", "assign": partitions}
    after = StreamOffset.from_json(
        StreamPlanner(source_options(chosen, streaming=True), cluster).next_offset(end, None)
    )
    assert (after.losses, after.begin[added].offset) == ({}, 5)


def test_what_a_replay_could_not_read_is_said_by_the_batch_after_it(
    cluster: ToyCluster, caplog: pytest.LogCaptureFixture
) -> None:
    end = planner_of(cluster).next_offset(FIRST, None)
    cluster["t", 0].retain_from(4)
    planner = planner_of(cluster, onTruncation="rewind")
    assert [(piece.start_offset, piece.end_offset) for piece in planner.ranges(FIRST, end)] == [(4, 10)]
    assert lines(caplog) == []
    after = planner.next_offset(end, None)
    ((words, told),) = lines(caplog)
    assert "the query stood at offset 0 and goes on at offset 4 (onTruncation=rewind): at most 4 offsets are" in words
    assert told["losses"][0]["skippedCount"] == 4
    # The batch that says so reads nothing twice, and none after it says so again.
    assert planner.ranges(end, after) == []
    assert planner.next_offset(after, None) is after


def test_an_offset_that_is_moved_into_the_log_is_said(cluster: ToyCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster["t", 0].retain_from(4)
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "failOnDataLoss": "false"}
    asked = {"startingOffsets": '{"t":{"0":1,"1":-2}}', "endingOffsets": '{"t":{"0":50,"1":-1}}'}
    batch_ranges(source_options({**given, **asked}, streaming=False), cluster)
    (start, told), (end, _) = lines(caplog)
    assert start == (
        "startingOffsets: offset 1 of t-0 lies outside what there is, [4, 10]; 4 is taken in its place "
        "(failOnDataLoss=false)."
    )
    assert end.startswith("endingOffsets: offset 50 of t-0 lies outside")
    assert (told["asked"], told["taken"], told["logStartOffset"]) == (1, 4, 4)


def test_where_the_log_parts_from_what_was_read_may_not_be_known(
    cluster: ToyCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster["t", 0].leader_epoch = 5
    cluster["t", 0].append(10)
    # A position of one epoch, as of a query that began at its start.
    position = {"leaderEpoch": 5, "offset": 20}
    end: Json = {"topics": {"t": {"id": cluster.topic_ids["t"], "p": {"0": position}}}, "v": 1}
    cluster["t", 0].truncate(6)
    planner_of(cluster, onTruncation="rewind").next_offset(end, None)
    ((words, told),) = lines(caplog)
    assert told["losses"][0]["divergentOffset"] is None
    assert "at most 20 offsets that it had read are gone" in words
    assert "at most 20 offsets that it had read are read again" in words
    assert "count up to 20 records too many" in words


class TestState:
    """What a query has counted, it cannot uncount."""

    @pytest.fixture
    def checkpoint(self, tmp_path: Path) -> WrittenCheckpoint:
        return WrittenCheckpoint(tmp_path / "checkpoint")

    @pytest.fixture
    def end(self, cluster: ToyCluster, checkpoint: WrittenCheckpoint) -> Json:
        end = planner_of(cluster).next_offset(FIRST, None)
        checkpoint.plan(end)
        truncate(cluster)
        return end

    def test_a_rewind_is_refused_where_there_is_state(
        self, cluster: ToyCluster, checkpoint: WrittenCheckpoint, end: Json, caplog: pytest.LogCaptureFixture
    ) -> None:
        checkpoint.add_operator(0, "stateStoreSave")
        planner = planner_of(cluster, onTruncation="rewind", checkpoint=str(checkpoint.path))
        with pytest.raises(StatefulRewindError) as error:
            planner.next_offset(end, None)
        tagged = find_tag(error.value, "LOG_TRUNCATION")
        assert tagged is not None
        assert tagged.details["operators"] == ["aggregate (state/0)"]
        words = str(error.value).splitlines()[1]
        assert f"It does not rewind, since {checkpoint.path} has state that counted them: aggregate (state/0)." in words
        assert "a new checkpointLocation" in words
        assert (lines(caplog), cluster.reported) == ([], [])

    def test_a_query_without_state_is_rewound(
        self, cluster: ToyCluster, checkpoint: WrittenCheckpoint, end: Json, caplog: pytest.LogCaptureFixture
    ) -> None:
        planner = planner_of(cluster, onTruncation="rewind", checkpoint=f"file:{checkpoint.path}")
        assert StreamOffset.from_json(planner.next_offset(end, None)).begin[T0].offset == 7
        ((words, told),) = lines(caplog)
        assert words.endswith("It keeps no state.")
        assert told["operators"] == []

    def test_fail_on_data_loss_false_never_refuses(
        self, cluster: ToyCluster, checkpoint: WrittenCheckpoint, end: Json, caplog: pytest.LogCaptureFixture
    ) -> None:
        checkpoint.add_operator(0, "dedupe")
        given = {"failOnDataLoss": "false", "checkpoint": str(checkpoint.path)}
        planner_of(cluster, **given).next_offset(end, None)
        planner_of(cluster, **{**given, "checkpoint": "/nowhere"}).next_offset(end, None)
        (known, _), (unknown, _) = lines(caplog)
        assert known.endswith("Its state counts up to 3 records too many: deduplication (state/0).")
        assert "Its state was not checked" in unknown

    def test_retention_leaves_state_right(
        self, cluster: ToyCluster, checkpoint: WrittenCheckpoint, caplog: pytest.LogCaptureFixture
    ) -> None:
        end = planner_of(cluster).next_offset(FIRST, None)
        checkpoint.plan(end)
        checkpoint.add_operator(0, "stateStoreSave")
        cluster["t", 0].append(10)
        cluster["t", 0].retain_from(15)
        planner_of(cluster, onTruncation="rewind", checkpoint=str(checkpoint.path)).next_offset(end, None)
        assert len(lines(caplog)) == 1

    def test_another_checkpoint_is_not_believed(
        self, cluster: ToyCluster, checkpoint: WrittenCheckpoint, end: Json, tmp_path: Path
    ) -> None:
        other = WrittenCheckpoint(tmp_path / "other")
        other.plan(FIRST)
        with pytest.raises(CheckpointError, match="other is of another query"):
            planner_of(cluster, onTruncation="rewind", checkpoint=str(other.path)).next_offset(end, None)
        with pytest.raises(CheckpointError, match="there is no checkpoint at"):
            planner_of(cluster, onTruncation="rewind", checkpoint=str(tmp_path / "misspelt")).next_offset(FIRST, None)

    def test_the_option_is_for_a_rewind_only(self) -> None:
        with pytest.raises(ConfigError, match="option checkpoint is for onTruncation=rewind, and it is fail"):
            planner_of(ToyCluster(), checkpoint="/x")
        with pytest.raises(ConfigError, match="and it is latest"):
            planner_of(ToyCluster(), checkpoint="/x", onTruncation="latest")
