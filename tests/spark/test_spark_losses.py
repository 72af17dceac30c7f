"""What a query is told when records are gone that it read or stood past: on a node of each test's own, to be ruined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess
from support.nodes.spark_query import NewQuery, NewTestTopic, Topic, lose_records
from tidelog import Admin, CommittedOffset
from tidelog.spark import CheckpointError, GroupCommitter, LossListener, QueryLoss, find_tag, lag, losses

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS_MAX = 30.0


def told_of(error: BaseException) -> dict[str, Any]:
    """What `[LOG_TRUNCATION]` says in the text of an error."""
    told: dict[str, Any] = json.loads(str(error).split("[LOG_TRUNCATION]")[1].splitlines()[0])
    return told


def said_of(topic: Topic, driver_log: Path) -> list[str]:
    """The lines of the driver's log about losses of a topic."""
    return [line for line in driver_log.read_text().splitlines() if "[LOG_TRUNCATION]" in line and topic.name in line]


def test_truncation_is_never_silent(
    spark: SparkSession, node: NodeProcess, new_topic: NewTestTopic, new_query: NewQuery, driver_log: Path
) -> None:
    topic = new_topic(node=node)
    for value in "abcde":
        topic.send(value)
    failing, healing = new_query(topic), new_query(topic, onTruncation="rewind")
    failing.run()
    healing.run()
    assert failing.values == list("abcde")

    lose_records(topic, 3)
    # The log is longer now than it was: an offset alone would look well.
    for value in "uvwxyz":
        topic.send(value)
    with pytest.raises(Exception, match=r"\[LOG_TRUNCATION\]") as error:
        failing.run()
    assert told_of(error.value) == {
        "losses": [
            {
                "cause": "truncated",
                "divergentOffset": 3,
                "leaderEpoch": 0,
                "logStartOffset": 0,
                "offset": 5,
                "partition": 0,
                "topic": topic.name,
                "topicId": failing.offset(0)["topics"][topic.name]["id"],
            }
        ],
        "v": 1,
    }
    # The one good line comes first, and no traceback before or after it.
    first, words, *rest = str(error.value).splitlines()
    assert first.partition("latestOffset: ")[2].startswith("tidelog.spark.truncation.StreamTruncatedError: [LOG_TRUNC")
    assert words.startswith(f"{topic.name}-0 was truncated")
    assert not any("Traceback" in line or 'File "' in line for line in rest)
    assert said_of(topic, driver_log) == []

    within: list[QueryLoss] = []
    healing.on_batch = lambda batch_id: within.extend(losses(str(healing.checkpoint), batch_id))
    healing.run()
    assert healing.batches[1] == [(0, 3 + number, value) for number, value in enumerate("uvwxyz")]
    offset = healing.offset(1)
    assert offset["begin"] == {topic.name: {"0": {"leaderEpoch": 0, "offset": 3}}}
    assert offset["truncatedFrom"][topic.name]["0"]["offset"] == 5
    position = offset["topics"][topic.name]["p"]["0"]
    assert position.pop("leaderEpoch") == position["lineage"][1][0] > 0
    assert position == {"lineage": [[0, 0], [position["lineage"][1][0], 3]], "offset": 9}
    healing.run()
    assert sorted(healing.batches) == [0, 1]

    # What went on is said once by the driver, and by the checkpoint: during the batch, and afterwards.
    (said,) = wait_until(lambda: said_of(topic, driver_log), "the driver's log has it")
    assert " WARN tidelog.spark: " in said
    assert f"{topic.name}-0 was truncated" in said
    assert "goes on at offset 3 (onTruncation=rewind): at most 2 offsets that it had read are gone" in said
    assert told_of(RuntimeError(said))["losses"][0]["resumedOffset"] == 3
    (loss,) = losses(str(healing.checkpoint))
    assert (loss.from_offset, loss.resumed_offset, loss.gone_count, loss.batch_id) == (5, 3, 2, 1)
    assert within == [loss]
    # Spark reads the checkpoint itself, where nobody else may.
    place = healing.checkpoint.as_uri()
    assert losses(place, spark=spark) == losses(place, 1, spark=spark) == [loss]
    with pytest.raises(CheckpointError, match=r"holds no batch 9 \(it holds 0 to 1\)"):
        losses(place, 9, spark=spark)
    with pytest.raises(CheckpointError, match="there is no checkpoint at"):
        losses(f"{place}/misspelt", spark=spark)
    assert losses(str(failing.checkpoint)) == []

    # A batch that is to run again, and has lost its end, fails just as well.
    assert failing.forget_commit() == 0
    with pytest.raises(Exception, match=r"\[LOG_TRUNCATION\]"):
        failing.run()


def test_what_is_lost_while_a_batch_runs_fails_its_task(
    node: NodeProcess, new_topic: NewTestTopic, new_query: NewQuery
) -> None:
    topic = new_topic(node=node)
    for value in "abcde":
        topic.send(value)
    query = new_query(topic)

    def lose(_: int) -> None:
        lose_records(topic, 3)
        topic.send("x", "y", "z")

    query.on_batch = lose
    with pytest.raises(Exception, match=r"\[LOG_TRUNCATION\]") as error:
        query.run()
    text = str(error.value)
    assert [loss["divergentOffset"] for loss in told_of(error.value)["losses"]] == [3]
    assert f"while {topic.name}-0 was read from 0 to 5" in text
    assert "reading.py" not in text  # the traceback is of Spark and of the batch's function


def test_a_recreated_topic_is_not_the_old_one(spark: SparkSession, topic: Topic, new_query: NewQuery) -> None:
    topic.send("a")
    query = new_query(topic)
    query.run()
    read_id = query.offset(0)["topics"][topic.name]["id"]
    topic.delete()
    topic.create()
    topic.send("x", "y", "z")
    told: list[QueryLoss] = []
    listener = LossListener(told.append)
    spark.streams.addListener(listener)
    try:
        with pytest.raises(Exception, match="another topic of the same name") as error:
            query.run()
        assert [loss["cause"] for loss in told_of(error.value)["losses"]] == ["recreated"]
        query.run(failOnDataLoss="false")
        wait_until(lambda: len(told) == 2, lambda: f"the listener hears of both: {told}", seconds=SECONDS_MAX)
    finally:
        spark.streams.removeListener(listener)
    assert [(loss.topic_id, loss.gone_count, loss.resumed_offset) for loss in told] == [
        (read_id, 1, None),
        (read_id, 1, 0),
    ]
    assert losses(str(query.checkpoint)) == [told[1]]
    assert query.values == ["a", "x", "y", "z"]
    assert query.offset(1)["truncatedFrom"][topic.name]["0"]["cause"] == "recreated"


def test_a_topic_that_was_not_selected_for_a_while_is_not_read_again(
    new_topic: NewTestTopic, new_query: NewQuery, driver_log: Path
) -> None:
    topic, other = new_topic(), new_topic()
    topic.send("a")
    other.send("x", "y")
    query = new_query(topic, subscribe=f"{topic.name},{other.name}")
    query.run()
    query.run(subscribe=topic.name, failOnDataLoss="false")
    (loss,) = losses(str(query.checkpoint))
    assert (loss.cause, loss.topic, loss.from_offset, loss.resumed_offset) == ("missing", other.name, 2, None)
    other.send("z")
    query.run()
    assert sorted(query.values) == ["a", "x", "y", "z"]
    assert f"{other.name}-0 is there again; the query goes on at offset 2" in driver_log.read_text()
    assert losses(str(query.checkpoint)) == [loss]


def test_state_forbids_a_rewind_and_listeners_hear_of_it(
    spark: SparkSession, node: NodeProcess, new_topic: NewTestTopic, new_query: NewQuery, tmp_path: Path
) -> None:
    topic = new_topic(node=node)
    for value in "abcde":
        topic.send(value)
    told: list[QueryLoss] = []
    listener, committer = LossListener(told.append), GroupCommitter("copies", node.bootstrap, query="copy")
    spark.streams.addListener(listener)
    spark.streams.addListener(committer)
    checkpoint = str(tmp_path / "counts")

    def count() -> None:
        options = {**topic.options, "startingOffsets": "earliest", "onTruncation": "rewind", "checkpoint": checkpoint}
        counts = spark.readStream.format("tidelog").options(**options).load().groupBy("value").count()
        sink = counts.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)
        query = sink.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    copying = new_query(topic, failOnDataLoss="false")
    copying.name = "copy"
    try:
        count()
        copying.run()
        lose_records(topic, 3)
        topic.send("u", "v")
        with pytest.raises(Exception, match=r"It does not rewind, since .*: aggregate \(state/0\)") as error:
            count()
        tagged = find_tag(error.value, "LOG_TRUNCATION")
        assert tagged is not None
        assert tagged.details["operators"] == ["aggregate (state/0)"]
        running = copying.start()
        running.processAllAvailable()
        (behind,) = lag(running.lastProgress)
        running.stop()
        assert (behind.max_offsets_behind_latest, behind.query_name) == (0, "copy")
        wait_until(lambda: len(told) == 2, lambda: f"both are told: {told}", seconds=SECONDS_MAX)
        stopped, went_on = told
        assert (stopped.batch_id, stopped.from_offset, stopped.gone_count) == (None, 5, 2)
        assert (went_on.batch_id, went_on.resumed_offset, went_on.query_name) == (1, 3, "copy")
        position = copying.offset(1)["topics"][topic.name]["p"]["0"]
        stands = CommittedOffset(5, position["leaderEpoch"])
        with Admin(node.bootstrap) as admin:
            wait_until(
                lambda: list(admin.list_group_offsets("copies").values()) == [stands],
                "where the query stands is committed, with the epoch of the new records",
                seconds=SECONDS_MAX,
            )
    finally:
        spark.streams.removeListener(listener)
        spark.streams.removeListener(committer)
        committer.close()


def test_a_query_lives_through_the_death_of_the_broker(
    node: NodeProcess, new_topic: NewTestTopic, new_query: NewQuery
) -> None:
    topic = new_topic(node=node)
    topic.send("a", "b")
    query = new_query(topic)
    running = query.start()
    try:
        running.processAllAvailable()
        node.kill()
        node.start()
        topic.send("c")

        def went_on() -> bool:
            assert running.isActive, running.exception()
            running.processAllAvailable()
            return query.values == ["a", "b", "c"]

        wait_until(went_on, lambda: f"what came later is read too, not only {query.values}", seconds=SECONDS_MAX)
    finally:
        running.stop()
