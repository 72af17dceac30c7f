"""What Spark reports of progress, as text or as objects: lag, losses, and what is committed to a group."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from support.fixtures.toy_cluster import IDS
from tidelog import CommittedOffset
from tidelog.base.errors import NetworkError
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.spark import lag, with_lag
from tidelog.spark.offsets import Json, Loss, ReadPosition, StreamOffset
from tidelog.spark.progress import losses_of

T0 = TopicPartition("t", PartitionIndex(0))
T1 = TopicPartition("t", PartitionIndex(1))


def at(offset: int, *, unread: bool = False) -> ReadPosition:
    return ReadPosition(Offset(offset), LeaderEpoch(3), unread=unread)


BEFORE = StreamOffset({"t": IDS[0]}, {T0: at(20), T1: at(4)}).to_json()
AFTER = StreamOffset(
    {"t": IDS[0]},
    {T0: at(30), T1: at(4, unread=True)},
    {T0: at(15)},
    {T0: Loss("truncated", at(20), Offset(15), IDS[0])},
).to_json()
LAG = {"minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 9, "avgOffsetsBehindLatest": 4.5, "topics": {}, "v": 1}


def progress(
    start: Json | None, end: Json, *, batch_id: int = 1, as_text: bool = True, name: str | None = "copy"
) -> dict[str, Any]:
    kafka = {
        "startOffset": '{"k":{"0":1}}',
        "endOffset": '{"k":{"0":5}}',
        "latestOffset": '{"k":{"0":9}}',
        "metrics": {
            "minOffsetsBehindLatest": "4",
            "maxOffsetsBehindLatest": "4",
            "avgOffsetsBehindLatest": "4.0",
        },
    }
    offsets = {"startOffset": start, "endOffset": end, "latestOffset": LAG}
    ours = {**{key: json.dumps(one) if as_text else one for key, one in offsets.items()}, "metrics": {}}
    rate = {"startOffset": "None", "endOffset": "12", "latestOffset": "None"}
    return {"id": "a-query", "name": name, "batchId": batch_id, "sources": [kafka, ours, rate]}


@pytest.mark.parametrize("as_text", [True, False])
def test_lag_is_that_of_either_connector(as_text: bool) -> None:
    kafka, ours = lag(progress(BEFORE, AFTER, as_text=as_text))
    assert (kafka.min_offsets_behind_latest, kafka.max_offsets_behind_latest, kafka.source) == (4, 4, 0)
    assert (ours.min_offsets_behind_latest, ours.max_offsets_behind_latest) == (0, 9)
    assert (ours.avg_offsets_behind_latest, ours.batch_id, ours.source) == (4.5, 1, 1)
    assert (ours.query_id, ours.query_name) == ("a-query", "copy")
    assert lag(None) == []


def test_lag_can_be_put_where_spark_s_connector_has_it() -> None:
    sources = with_lag(progress(BEFORE, AFTER))["sources"]
    assert sources[1]["metrics"] == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "9",
        "avgOffsetsBehindLatest": "4.5",
    }
    assert sources[0]["metrics"]["maxOffsetsBehindLatest"] == "4"
    assert "metrics" not in sources[2]


@pytest.mark.parametrize("as_text", [True, False])
def test_a_loss_is_that_of_the_batch_that_made_up_for_it(as_text: bool) -> None:
    (loss,) = losses_of(progress(BEFORE, AFTER, as_text=as_text))
    assert (loss.topic, loss.partition, loss.from_offset, loss.resumed_offset) == ("t", 0, 20, 15)
    assert (loss.batch_id, loss.source, loss.query_id, loss.query_name) == (1, 1, "a-query", "copy")
    assert list(losses_of(progress(AFTER, AFTER, as_text=as_text))) == []  # nothing new was found
    assert list(losses_of(progress(AFTER, BEFORE, as_text=as_text))) == []
    assert len(list(losses_of(progress(None, AFTER, as_text=as_text)))) == 1
    # With its only topic, the end of the batch says of no partition any more where it stands.
    nothing_left = StreamOffset(losses={T0: Loss("missing", at(20), None, IDS[0])}).to_json()
    (loss,) = losses_of(progress(BEFORE, nothing_left, as_text=as_text))
    assert (loss.cause, loss.topic_id, loss.gone_count) == ("missing", IDS[0], 20)


class TestListeners:
    """Spark's events as they are, without Spark."""

    @pytest.fixture(autouse=True)
    def _needs_pyspark(self) -> None:
        pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tidelog[spark-local]'")

    def test_losses_are_passed_on(self, caplog: pytest.LogCaptureFixture) -> None:
        from tidelog.spark import LossListener

        told: list[Any] = []
        lags: list[Any] = []
        listener: Any = LossListener(told.append, on_lag=lags.append)
        listener.onQueryStarted(SimpleNamespace(id="a-query", name="copy"))
        listener.onQueryProgress(SimpleNamespace(progress=progress(BEFORE, AFTER)))
        listener.onQueryProgress(SimpleNamespace(progress=progress(AFTER, AFTER)))
        assert [loss.batch_id for loss in told] == [1]
        assert len(lags) == 4
        said = '… latestOffset: [LOG_TRUNCATION]{"losses": [{"cause": "truncated", "divergentOffset": 15, ' + (
            '"leaderEpoch": 3, "logStartOffset": 0, "offset": 20, "partition": 0, "topic": "t"}], "v": 1}\nmore'
        )
        listener.onQueryTerminated(SimpleNamespace(id="a-query", exception=said))
        stopped = told[-1]
        assert (stopped.batch_id, stopped.resumed_offset, stopped.gone_count) == (None, None, 5)
        assert (stopped.query_id, stopped.query_name) == ("a-query", "copy")
        # What another topic of the name took away is all that was read, and of the topic that was read.
        other = ', "offset": 20, "partition": 0, "topic": "t", "topicId": "AAAAAAAAAAAAAAAAAAAAAQ"}'
        causes = [f'{{"cause": "{cause}"' + other for cause in ("recreated", "missing", "truncated", "retention")]
        said = f'[LOG_TRUNCATION]{{"losses": [{", ".join(causes)}], "v": 1}}'
        listener.onQueryTerminated(SimpleNamespace(id="a-query", exception=said))
        assert [loss.gone_count for loss in told[-4:]] == [20, 20, 20, 0]
        assert {loss.topic_id for loss in told[-4:]} == {"AAAAAAAAAAAAAAAAAAAAAQ"}
        stopped = told[-1]
        listener.onQueryTerminated(SimpleNamespace(id="a-query", exception=None))
        listener.onQueryTerminated(SimpleNamespace(id="a-query", exception="[LOG_TRUNCATION]{}"))
        listener.onQueryTerminated(SimpleNamespace(id="a-query", exception='[LOG_TRUNCATION]{"losses": [{}]}'))
        assert told[-1] is stopped

    def test_a_callback_that_fails_is_said_and_forgiven(self, caplog: pytest.LogCaptureFixture) -> None:
        from tidelog.spark import LossListener

        def fail(_: object) -> None:
            raise RuntimeError("no pager")

        listener: Any = LossListener(fail)
        with caplog.at_level(logging.ERROR):
            listener.onQueryProgress(SimpleNamespace(progress=progress(BEFORE, AFTER)))
        assert "a listener's callback failed with QueryLoss(topic='t'" in caplog.text
        assert "no pager" in caplog.text

    def test_where_a_query_stands_is_committed(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tidelog.spark import GroupCommitter

        commits: list[Any] = []
        failures = [NetworkError("no route"), None, None]

        class ToyAdmin:
            def __init__(self, **options: Any) -> None:
                assert options["bootstrap_servers"] == "h:1"

            def alter_group_offsets(self, group: str, offsets: Any) -> None:
                if (failure := failures.pop(0)) is not None:
                    raise failure
                commits.append((group, offsets))

            def close(self) -> None:
                commits.append("closed")

        monkeypatch.setattr("tidelog.Admin", ToyAdmin)
        committer: Any = GroupCommitter("copy-group", "h:1", query="copy")
        committer.onQueryProgress(SimpleNamespace(progress=progress(None, BEFORE)))
        assert "group copy-group: the offsets of batch 1 were not committed: no route" in caplog.text
        committer.onQueryProgress(SimpleNamespace(progress=progress(None, BEFORE, name="another")))
        committer.onQueryProgress(SimpleNamespace(progress=progress(None, BEFORE)))
        committer.onQueryProgress(SimpleNamespace(progress=progress(BEFORE, BEFORE)))  # nothing new
        committer.onQueryProgress(SimpleNamespace(progress=progress(BEFORE, AFTER)))
        committer.close()
        assert commits == [
            ("copy-group", {T0: CommittedOffset(20, 3), T1: CommittedOffset(4, 3)}),
            # Of a record that nobody has read, there is no epoch to hold against the log.
            ("copy-group", {T0: CommittedOffset(30, 3), T1: CommittedOffset(4, None)}),
            "closed",
        ]
