"""What a query is told when records are gone that it read or stood past: on a node of each test's own, to be ruined."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess
from support.nodes.spark_query import NewQuery, NewTestTopic, Topic, lose_records

SECONDS_MAX = 30.0


def told_of(error: BaseException) -> dict[str, Any]:
    """What `[LOG_TRUNCATION]` says in the text of an error."""
    told: dict[str, Any] = json.loads(str(error).split("[LOG_TRUNCATION]")[1].splitlines()[0])
    return told


def test_truncation_is_never_silent(node: NodeProcess, new_topic: NewTestTopic, new_query: NewQuery) -> None:
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
            }
        ],
        "v": 1,
    }
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

    # A batch that is to run again, and has lost its end, fails just as well.
    assert failing.forget_commit() == 0
    with pytest.raises(Exception, match=r"\[LOG_TRUNCATION\]"):
        failing.run()


def test_a_recreated_topic_is_not_the_old_one(topic: Topic, new_query: NewQuery) -> None:
    topic.send("a")
    query = new_query(topic)
    query.run()
    topic.delete()
    topic.create()
    topic.send("x", "y", "z")
    with pytest.raises(Exception, match="another topic of the same name") as error:
        query.run()
    assert [loss["cause"] for loss in told_of(error.value)["losses"]] == ["recreated"]
    query.run(failOnDataLoss="false")
    assert query.values == ["a", "x", "y", "z"]
    assert query.offset(1)["truncatedFrom"][topic.name]["0"]["cause"] == "recreated"


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
