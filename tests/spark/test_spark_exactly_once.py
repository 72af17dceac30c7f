"""The exactly-once sink on a node, and on Apache Kafka: what becomes of a batch whose writer dies, step by step.

Most of it is played without Spark: a task is a call, and so is the driver's commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from support.clients.kafka_peer import KafkaPeer, missing_peers, shared_peer
from support.fixtures.waiting import wait_until
from support.nodes.cluster import PROMPT, Cluster
from support.nodes.node import NodeProcess, StartNode
from tidelog import Admin, ConfigResource, Consumer, NewTopic, Producer, TopicPartition
from tidelog.cli.app import run
from tidelog.client.admin.cluster_descriptions import FeatureUpdate

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tidelog[spark-local]'")

from tidelog.spark import decision_log as decision_logs  # noqa: E402 - pyspark is there
from tidelog.spark import exactly_once  # noqa: E402
from tidelog.spark.decision_log import TOPIC, DecisionLog, decision_log  # noqa: E402
from tidelog.spark.large_records import RecordTooLargeError, told_sizes  # noqa: E402
from tidelog.spark.options import SinkOptions, sink_options  # noqa: E402
from tidelog.spark.sink import ExactlyOnceBatchWriter, _Rows, write_rows  # noqa: E402
from tidelog.spark.sink_decisions import (  # noqa: E402
    Committable,
    SinkAheadError,
    SinkCommitExpiredError,
    SinkFencedError,
    SinkNotPreparedError,
    SinkOtherQueryError,
    SinkState,
    SinkStateError,
    Writing,
    decided,
    transactional_id,
)
from tidelog.spark.tags import find_tag  # noqa: E402

_numbers = count(1)


class Sink:
    """A sink with a topic of its own, and the queries that write to it."""

    def __init__(self, bootstrap: str) -> None:
        number = next(_numbers)
        self.bootstrap = bootstrap
        self.topic = f"exactly-once-{number}"
        self.sink_id = f"sink-{number}"

    def options(self, **more: str) -> SinkOptions:
        return sink_options(
            {
                "kafka.bootstrap.servers": self.bootstrap,
                "topic": self.topic,
                "delivery": "exactly-once",
                "sinkId": self.sink_id,
                **{name.replace("_", "."): value for name, value in more.items()},
            },
            streaming=True,
        )

    @property
    def plain_options(self) -> dict[str, str]:
        """Of a sink that writes at least once."""
        return {"kafka.bootstrap.servers": self.bootstrap, "topic": self.topic}

    def task(
        self, writing: Writing, values: Sequence[str], *, partition: int = 0, attempt: int = 0, **more: str
    ) -> exactly_once.Prepared:
        """What a task attempt does."""

        def send(producer: Any, batch: Any) -> int:
            producer.send_arrow(self.topic, batch)
            return int(batch.num_rows)

        rows = [pa.record_batch([pa.array([value.encode()])], names=["value"]) for value in values]
        return exactly_once.write(
            iter(rows), self.options(**more), exactly_once.Task(writing, partition, attempt), send
        )

    def commit(self, *messages: exactly_once.Prepared, **more: str) -> None:
        exactly_once.commit(messages, self.options(**more))

    def abort(self, *messages: exactly_once.Prepared) -> None:
        exactly_once.abort([None, *messages], self.options())

    def decide(self, *messages: exactly_once.Prepared) -> SinkState:
        """The first step of a commit, after which the driver dies."""
        committables = [message.committable for message in messages if message.committable is not None]
        state = self.log.change(self.sink_id, lambda state: decided(state, messages[0].writing, committables))
        assert state is not None
        return state

    @property
    def log(self) -> DecisionLog:
        return decision_log(self.options().client)

    def read(self) -> list[str]:
        """What readers of committed records see, up to the end of the log: an open transaction would hold them up."""
        with Consumer(self.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
            partition = TopicPartition(self.topic, 0)
            consumer.assign([partition])
            found = []
            end = consumer.end_offsets([partition])[partition].offset
            while consumer.position(partition).offset < end:
                found += [(record.value or b"").decode() for record in consumer.poll(timeout_ms=500)]
        return sorted(found)

    def open_transactions(self) -> list[str]:
        with Admin(self.bootstrap) as admin:
            return [
                listing.transactional_id
                for listing in admin.list_transactions(["Ongoing"])
                if listing.transactional_id.startswith(self.sink_id)
            ]


@pytest.fixture(scope="module")
def kafka_peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    """A broker of Apache Kafka, running."""
    if (reason := missing_peers()) is not None:
        pytest.skip(reason)
    with shared_peer(tmp_path_factory.mktemp("kafka")) as peer:
        yield peer


@pytest.fixture(scope="module")
def older_node(start_node: StartNode) -> Iterator[NodeProcess]:
    """Whose cluster speaks the protocol of transactions before KIP-890."""
    node = start_node()
    with Admin(node.bootstrap) as admin:
        admin.update_features({"transaction.version": FeatureUpdate(1, "safe downgrade")})
    yield node
    node.close()


@pytest.fixture(params=["shared_node", "older_node", pytest.param("kafka_peer", marks=pytest.mark.slow)])
def sink(request: pytest.FixtureRequest) -> Sink:
    return Sink(request.getfixturevalue(request.param).bootstrap)


@pytest.fixture(scope="module", autouse=True)
def disconnected() -> Iterator[None]:
    """What this process keeps from task to task would look for its nodes when they are gone."""
    yield
    for log in decision_logs._kept.values():
        log.close()
    decision_logs._kept.clear()


def batch(number: int, run: str = "run-1", query: str = "q") -> Writing:
    return Writing(query, run, number)


def test_nothing_is_visible_before_the_commit_and_all_of_it_after(sink: Sink) -> None:
    left, right = sink.task(batch(0), ["a", "b"]), sink.task(batch(0), ["c"], partition=1)
    empty = sink.task(batch(0), [], partition=2)
    assert (left.records, right.records, empty.committable) == (2, 1, None)
    assert sink.read() == []
    sink.commit(left, right, empty)
    assert sink.read() == ["a", "b", "c"]
    sink.commit(left, right, empty)  # Spark asks again
    sink.commit(sink.task(batch(1), ["d"]))
    assert sink.read() == ["a", "b", "c", "d"]
    assert sink.open_transactions() == []


def test_a_driver_that_dies_before_it_decided_has_written_nothing(sink: Sink) -> None:
    sink.commit(sink.task(batch(0), ["a"]))
    sink.task(batch(1), ["lost", "lost too"])
    sink.task(batch(1), ["lost"], partition=1)
    again = sink.task(batch(1, "run-2"), ["b"])
    assert sink.open_transactions() == [f"{sink.sink_id}/run-2/0/0"]
    sink.commit(again)
    assert sink.read() == ["a", "b"]


@pytest.mark.parametrize("committed_before", [0, 1, 2])
def test_a_driver_that_dies_once_it_decided_has_written_all(sink: Sink, committed_before: int) -> None:
    left, right = sink.task(batch(0), ["a", "b"]), sink.task(batch(0), ["c"], partition=1)
    state = sink.decide(left, right)
    for one in state.committables[:committed_before]:
        assert sink.log.commit(sink.sink_id, SinkState("q", ("run-1",), 0, "run-1", (one,))) == []
    again = sink.task(batch(0, "run-2"), ["not", "written"])
    assert again.was_decided
    assert again.records == 0
    sink.commit(again, sink.task(batch(0, "run-2"), ["nor this"], partition=1))
    assert sink.read() == ["a", "b", "c"]
    sink.commit(sink.task(batch(1, "run-2"), ["d"]))
    assert sink.read() == ["a", "b", "c", "d"]
    assert sink.open_transactions() == []


def test_attempts_that_do_not_count_end_with_the_batch(sink: Sink) -> None:
    dead = sink.task(batch(0), ["written by an executor that died"])
    assert dead.committable is not None
    sink.commit(sink.task(batch(0), ["a"], attempt=1))
    assert sink.open_transactions() == []
    assert sink.read() == ["a"]


def test_the_older_of_two_drivers_is_fenced(sink: Sink) -> None:
    older = sink.task(batch(0), ["of the older"])
    newer = sink.task(batch(0, "run-2"), ["a"])
    with pytest.raises(SinkFencedError, match=r"^\[SINK_FENCED\]"):
        sink.commit(older)
    sink.abort(older)
    with pytest.raises(SinkFencedError):
        sink.task(batch(1), ["of the older"])
    sink.commit(newer)
    assert sink.read() == ["a"]


def test_a_failed_commit_that_is_aborted_stays_decided(sink: Sink) -> None:
    left = sink.task(batch(0), ["a"])
    sink.decide(left)
    sink.abort(left)
    sink.commit(sink.task(batch(0, "run-2"), ["not written"]))
    undecided = sink.task(batch(1, "run-2"), ["b"])
    sink.abort(undecided)
    assert sink.open_transactions() == []
    assert sink.read() == ["a"]


def test_a_checkpoint_that_was_deleted_is_refused_until_the_old_one_is_given_up(sink: Sink) -> None:
    sink.commit(sink.task(batch(0), ["a"]))
    sink.decide(sink.task(batch(1), ["b"]))
    anew = batch(0, "run-9", "another")
    with pytest.raises(SinkOtherQueryError, match=r"^\[SINK_OTHER_QUERY\].*sinkReset=q"):
        sink.task(anew, ["a"])
    prepared = sink.task(anew, ["a again"], sinkReset="q")
    assert sink.read()[:2] == ["a", "b"], "what the other query had decided counts"
    sink.commit(prepared, sinkReset="q")
    assert sink.read() == ["a", "a again", "b"]


def test_a_commit_is_repeated_though_the_epoch_has_moved_on(sink: Sink) -> None:
    left = sink.task(batch(0), ["a"])
    sink.commit(left)
    assert left.committable is not None
    state = SinkState("q", ("run-1",), 0, "run-1", (left.committable,))
    assert sink.log.commit(sink.sink_id, state) == []
    # An epoch that has rolled over goes with another producer id; an answer can be lost in that moment too.
    moved = Committable(0, 0, left.committable.producer_id + 1_000, 0)
    assert sink.log.commit(sink.sink_id, SinkState("q", ("run-1",), 0, "run-1", (moved,))) == []
    assert sink.read() == ["a"]


def test_what_the_brokers_aborted_after_the_decision_is_told(start_node: StartNode) -> None:
    node = start_node(config={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "20"})
    sink = Sink(node.bootstrap)
    left = sink.task(batch(0), ["a"])
    right = sink.task(batch(0), ["b"], partition=1, kafka_transaction_timeout_ms="1500")
    sink.decide(left, right)
    wait_until(lambda: len(sink.open_transactions()) == 1, "a transaction has expired")
    again = sink.task(batch(0, "run-2"), ["a", "b"])
    with pytest.raises(SinkCommitExpiredError, match=r"^\[SINK_COMMIT_EXPIRED\]\{.*sinkReset=run-1") as expired:
        sink.commit(again)
    assert '"partition": 1' in str(expired.value)
    assert "1 of its 2 transactions" in str(expired.value)
    assert sink.read() == ["a"]
    with pytest.raises(SinkCommitExpiredError):
        sink.commit(sink.task(batch(0, "run-3"), ["a", "b"]))
    sink.commit(sink.task(batch(0, "run-4"), ["a", "b"], sinkReset="run-1"))
    assert sink.read() == ["a", "a", "b"]


def test_a_change_waits_for_what_another_sink_left_open_before_the_latest_state(start_node: StartNode) -> None:
    node = start_node(config={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "20"})
    sink = Sink(node.bootstrap)
    sink.commit(sink.task(batch(0), ["a"]))
    with Producer(node.bootstrap, transactional_id="another/decisions", transaction_timeout_ms=3_000) as dying:
        dying.init_transactions()
        dying.begin_transaction()
        dying.send(TOPIC, SinkState("another", ("run",)).to_json(), "another", partition=0)
        assert dying.prepare_transaction() is not None
    # Readers of what is committed see nothing of this decision until the brokers end the other sink's transaction.
    sink.commit(sink.task(batch(1), ["b"]))
    again = sink.task(batch(1, "run-2"), ["b"])
    assert again.was_decided
    sink.commit(again)
    sink.commit(sink.task(batch(2, "run-2"), ["c"]))
    assert sink.read() == ["a", "b", "c"]


def test_a_batch_whose_transactions_are_over_is_not_decided(sink: Sink) -> None:
    left, right = sink.task(batch(0), ["a"]), sink.task(batch(0), ["b"], partition=1)
    with Admin(sink.bootstrap) as admin:
        admin.fence_producers([f"{sink.sink_id}/run-1/1/0"])  # as the brokers do when its time is over
    with pytest.raises(SinkNotPreparedError, match=r"^\[SINK_NOT_PREPARED\]\{.*1 of its 2.*Nothing of the batch is"):
        sink.commit(left, right)
    sink.abort(left, right)
    sink.commit(sink.task(batch(0, "run-2"), ["a"]), sink.task(batch(0, "run-2"), ["b"], partition=1))
    assert sink.read() == ["a", "b"]


def test_an_attempt_that_was_overtaken_by_its_own_like_is_not_decided(sink: Sink) -> None:
    accepted = sink.task(batch(0), ["a"])
    sink.task(batch(0), ["of the attempt with the same number, of the stage that was retried"])
    with pytest.raises(SinkNotPreparedError):
        sink.commit(accepted)
    sink.abort(accepted)
    sink.commit(sink.task(batch(0, "run-2"), ["a"]))
    assert sink.read() == ["a"]


def test_a_checkpoint_that_is_behind_the_sink_is_refused(sink: Sink) -> None:
    for number, value in enumerate("abc"):
        sink.commit(sink.task(batch(number), [value]))
    with pytest.raises(SinkAheadError, match=r"^\[SINK_AHEAD\].*batch 1 .*batch 2"):
        sink.task(batch(1, "run-2"), ["b", "planned anew"])
    assert sink.read() == ["a", "b", "c"]


def test_what_others_wrote_to_the_topic_of_decisions_is_theirs(sink: Sink) -> None:
    sink.commit(sink.task(batch(0), ["a"]))
    with Producer(sink.bootstrap) as producer:
        producer.send(TOPIC, '{"v":2}', f"{sink.sink_id}-of-a-later-version", partition=0).result()
    sink.commit(sink.task(batch(1), ["b"]))
    assert sink.read() == ["a", "b"]


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_of_decisions_that_forgets_is_refused(start_node: StartNode, policy: str) -> None:
    node = start_node()
    with Admin(node.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 1, configs={"cleanup.policy": policy})])
    sink, writing = Sink(node.bootstrap), Writing("query", "run", 0)
    told = rf"^\[SINK_DECISIONS_NOT_KEPT\] topic {TOPIC} has cleanup\.policy={policy},"
    with pytest.raises(SinkStateError, match=told) as error:
        sink.task(writing, ["a"])
    command = re.findall(r"`tidelog ([^`]*)`", str(error.value))[0]
    assert run([*command.split(), "--bootstrap", node.bootstrap]) == 0
    sink.commit(sink.task(writing, ["a"]))
    assert sink.read() == ["a"]


def test_a_batch_that_a_topic_takes_not_for_its_size_says_so(sink: Sink) -> None:
    with Admin(sink.bootstrap) as admin:
        admin.create_topics([NewTopic(sink.topic, 1, 1, configs={"max.message.bytes": "2000"})])
    small, large = [b"x" * 100] * 100, [b"x" * 3_000]
    for values, remedy in ((small, "Lower kafka.batch.size below 2000"), (large, "Raise the limit")):
        rows = pa.record_batch([pa.array(values)], names=["value"])
        once, plain = sink.options(), sink_options(sink.plain_options, streaming=True)

        def write_once(rows: Any = rows, options: SinkOptions = once) -> None:
            sent, task = _Rows(options), exactly_once.Task(Writing("query", f"run-{next(_numbers)}", 0), 0, 0)
            with told_sizes(options, sent.largest):
                exactly_once.write(iter([rows]), options, task, sent.send)

        for write in (write_once, lambda rows=rows, options=plain: write_rows(iter([rows]), options)):
            with pytest.raises(RecordTooLargeError) as error:
                write()
            told = find_tag(error.value, "SINK_RECORD_TOO_LARGE")
            assert told is not None
            assert told.details == {
                "largestRowBytes": len(values[0]), "limitBytes": 2000, "partition": 0, "topic": sink.topic, "v": 1
            }  # fmt: skip
            assert str(error.value).startswith("[SINK_RECORD_TOO_LARGE]{")
            assert remedy in str(error.value)
            assert len(str(error.value).splitlines()) == 1


def test_an_attempt_of_a_fenced_run_that_came_late_is_aborted_with_its_batch(sink: Sink) -> None:
    newer = sink.task(batch(0, "run-2"), ["a"])
    name = transactional_id(sink.sink_id, "run-1", 0, 0)
    with Producer(sink.bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(sink.topic, b"of the older")
        late = producer.prepare_transaction()
    assert late is not None
    sink.commit(newer)
    sink.abort(exactly_once.Prepared(batch(0), 1, Committable(0, 0, late.producer_id, late.producer_epoch)))
    assert sink.open_transactions() == []
    sink.abort(newer)
    assert sink.read() == ["a"]


def test_a_leftover_that_cannot_be_aborted_does_not_stop_the_sink(start_node: StartNode) -> None:
    # Admin's request to abort has a timeout of its own, which this broker refuses.
    sink = Sink(start_node(config={"transaction.max.timeout.ms": "20000"}).bootstrap)
    sink.task(batch(0), ["written by an executor that died"], kafka_transaction_timeout_ms="20000")
    sink.commit(sink.task(batch(0), ["a"], attempt=1, kafka_transaction_timeout_ms="20000"))
    assert sink.open_transactions() == [f"{sink.sink_id}/run-1/0/0"]


def test_a_task_without_a_message_is_not_committed(sink: Sink) -> None:
    prepared = sink.task(batch(0), ["a"])
    with pytest.raises(exactly_once.SparkVersionError, match=r"commits 2 tasks, and hands over what 1 of them wrote"):
        exactly_once.commit([None, prepared], sink.options())
    sink.abort(prepared)
    assert sink.open_transactions() == []


def test_a_task_of_which_every_row_is_dropped_has_nothing_to_commit(sink: Sink) -> None:
    options = sink.options(onBadRow="drop")
    rows = _Rows(options)
    bad = pa.record_batch({"value": pa.array([b"bad"]), "partition": pa.array([-1], pa.int32())})
    dropped = exactly_once.write(iter([bad]), options, exactly_once.Task(batch(0), 0, 0), rows.send)
    assert (dropped.records, dropped.committable) == (0, None)
    assert rows.bad == {"its partition is below 0": 1}
    sink.commit(dropped, sink.task(batch(0), ["a"], partition=1))
    assert sink.read() == ["a"]
    assert sink.open_transactions() == []


def test_a_second_write_of_a_name_says_that_it_wrote_nothing(
    shared_node: NodeProcess, caplog: pytest.LogCaptureFixture
) -> None:
    from pyspark.sql.types import BinaryType, StructField, StructType

    sink = Sink(shared_node.bootstrap)
    given = {"kafka.bootstrap.servers": sink.bootstrap, "topic": sink.topic, "delivery": "exactly-once"}
    options = sink_options({**given, "sinkId": sink.sink_id, "txnId": "monday"})

    def write(value: bytes) -> None:
        writer = ExactlyOnceBatchWriter(options, StructType([StructField("value", BinaryType())]), overwrite=False)
        rows = iter([pa.record_batch({"value": pa.array([value])})])
        task = exactly_once.Task(writer.writing, 0, 0)
        writer.commit([exactly_once.write(rows, options, task, _Rows(options).send)])

    write(b"a")
    assert not caplog.records
    write(b"of tuesday")
    assert [record.getMessage() for record in caplog.records] == [
        "txnId=monday was written before, so nothing is written now: other rows need another txnId"
    ]
    assert sink.read() == ["a"]


def test_what_is_decided_has_a_leader_when_a_broker_is_gone(tmp_path: Path) -> None:
    # By default a topic has one replica here, as Apache Kafka's brokers have it.
    cluster = Cluster(tmp_path, config={**PROMPT, "default.replication.factor": "1", "min.insync.replicas": "1"})
    try:
        cluster.start()
        sink = Sink(cluster.bootstrap)
        cluster.create_topic(sink.topic)
        sink.commit(sink.task(batch(0), ["a"]))
        (decisions,) = cluster.describe(TOPIC)
        assert len(decisions.replicas) == 3
        with Admin(cluster.bootstrap) as admin:
            resource = ConfigResource("topic", TOPIC)
            assert admin.describe_configs([resource])[resource]["min.insync.replicas"].value == "2"
        cluster.leader_of(TOPIC).kill()
        sink.commit(sink.task(batch(1), ["b"]))
        assert sink.read() == ["a", "b"]
    finally:
        cluster.close()
