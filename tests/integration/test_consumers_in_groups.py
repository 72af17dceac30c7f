"""Tidelog's own consumers in groups, on a real node: partitions, positions, and what each caller is told."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess, StartNode
from tidelog import (
    Admin,
    CommitFailedError,
    CommittedOffset,
    Consumer,
    ConsumerRecord,
    KafkaError,
    LogTruncatedError,
    NewTopic,
    Position,
    Producer,
    TidelogError,
    TopicAlreadyExistsError,
    TopicPartition,
    TransactionAbortableError,
    UnknownTopicError,
    WakeupError,
    aio,
)
from tidelog.base.errors import ConfigError

PARTITIONS, RECORDS = 4, 20
PROTOCOLS: list[dict[str, Any]] = [
    {"group_protocol": "classic", "partition_assignment_strategy": ["range"]},
    {"group_protocol": "classic", "partition_assignment_strategy": ["cooperative-sticky"]},
    {"group_protocol": "consumer"},
]
NAMES = ["eager", "cooperative", "consumer"]
QUICK: dict[str, Any] = {
    "auto_offset_reset": "none",
    "heartbeat_interval_ms": 50,
    "fetch_max_wait_ms": 50,
    "retry_backoff_ms": 10,
}


@pytest.fixture(scope="module")
def group_node(start_node: StartNode) -> NodeProcess:
    """One whose groups do not wait long."""
    return start_node(
        config={
            "group.consumer.min.heartbeat.interval.ms": "50",
            "group.consumer.heartbeat.interval.ms": "50",
            "group.consumer.assignment.interval.ms": "50",
        }
    )


@pytest.fixture
def topic(group_node: NodeProcess) -> str:
    """A topic with twenty records in each partition; also the name of its group."""
    name = f"t{uuid4().hex[:8]}"
    fill(group_node, name)
    return name


def fill(node: NodeProcess, topic: str) -> None:
    """Twenty records in each partition of a topic, which is made if it is not there."""
    with Admin(node.bootstrap) as admin, Producer(node.bootstrap) as producer:
        with suppress(TopicAlreadyExistsError):
            admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS)])
        for number in range(RECORDS):
            for partition in range(PARTITIONS):
                producer.send(topic, b"%d-%d" % (partition, number), partition=partition)


def at(topic: str, index: int) -> TopicPartition:
    return TopicPartition(topic, index)


@dataclass
class Member:
    """A consumer, with what it was told and what it read."""

    consumer: Consumer
    read: list[ConsumerRecord] = field(default_factory=list)
    told: list[tuple[str, list[int]]] = field(default_factory=list)

    def listeners(self) -> dict[str, Callable[[list[TopicPartition]], None]]:
        return {f"on_{what}": partial(self._is_told, what) for what in ("assigned", "revoked", "lost")}

    def _is_told(self, what: str, partitions: list[TopicPartition]) -> None:
        self.told.append((what, [int(one.partition) for one in partitions]))

    def poll(self) -> None:
        self.read += self.consumer.poll(20)


class Members:
    """Consumers that take turns on one thread, until something is so."""

    def __init__(self, node: NodeProcess, topic: str, stack: ExitStack) -> None:
        self._node, self._topic, self._stack = node, topic, stack

    def join(self, **options: Any) -> Member:
        settings = {**QUICK, "group_id": self._topic, **options}
        member = Member(self._stack.enter_context(Consumer(self._node.bootstrap, **settings)))
        member.consumer.subscribe([self._topic], start="earliest", **member.listeners())
        return member


def poll_until(condition: Callable[[], object], *members: Member) -> None:
    def turn() -> object:
        for member in members:
            member.poll()
        return condition()

    wait_until(turn, "")


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=NAMES)
def test_members_share_a_topic_and_take_over_where_another_came_to(
    group_node: NodeProcess, topic: str, protocol: Mapping[str, Any]
) -> None:
    with ExitStack() as stack:
        members = Members(group_node, topic, stack)
        first = members.join(**protocol)
        poll_until(lambda: len(first.read) >= RECORDS, first)
        second = members.join(**protocol)
        poll_until(lambda: len(second.consumer.assignment()) == PARTITIONS // 2, first, second)
        poll_until(lambda: len(first.read) + len(second.read) == PARTITIONS * RECORDS, first, second)
        places = [(one.partition, one.offset) for one in first.read + second.read]
        assert len(set(places)) == PARTITIONS * RECORDS, "each record once: no member was lost"
        gone = first.consumer.assignment()
        first.consumer.close()
        assert first.told[-1] == ("revoked", [one.partition for one in gone])
        poll_until(lambda: len(second.consumer.assignment()) == PARTITIONS, second)
        committed = second.consumer.committed()
        assert committed == {at(topic, index): (RECORDS, 0, "") for index in range(PARTITIONS)}
        assert [what for what, _ in second.told if what == "lost"] == []


def test_a_failing_body_leaves_its_record_and_those_behind_it_uncommitted(group_node: NodeProcess, topic: str) -> None:
    settings = {**QUICK, "group_id": topic, "auto_commit_interval_ms": 20}
    taken: list[ConsumerRecord] = []

    def read() -> None:
        with Consumer(group_node.bootstrap, **settings) as consumer:
            consumer.subscribe(topic, start="earliest")
            for record in consumer:
                taken.append(record)
                if len(taken) == 7:
                    wait_until(lambda: sum(found(group_node, topic).values()) == 6, "the six before are committed")
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read()
    assert sum(found(group_node, topic).values()) == 6
    last = taken[-1]
    assert found(group_node, topic)[last.partition] == last.offset


def test_a_loop_that_is_left_may_have_failed_at_its_last_record_unless_it_came_to_the_end(
    group_node: NodeProcess, topic: str
) -> None:
    with Consumer(group_node.bootstrap, group_id=topic, **QUICK) as consumer:
        consumer.subscribe(topic, start="earliest")
        for count, _ in enumerate(consumer, 1):
            if count == 7:
                break
    assert sum(found(group_node, topic).values()) == 6
    with Consumer(group_node.bootstrap, group_id=topic, **QUICK) as consumer:
        consumer.subscribe(topic, start="earliest")
        assert len(list(consumer.until_end())) == PARTITIONS * RECORDS - 6
    assert sum(found(group_node, topic).values()) == PARTITIONS * RECORDS


def test_a_group_does_not_wait_until_a_loop_has_taken_all_that_it_was_given(
    group_node: NodeProcess, topic: str
) -> None:
    with ExitStack() as stack:
        members = Members(group_node, topic, stack)
        first = members.join(group_protocol="consumer")
        for taken, _ in enumerate(first.consumer, 1):  # it was given all eighty at once, and takes its time
            if taken == 3:
                second = members.join(group_protocol="consumer")
                wait_until(first.consumer._async._polling.is_interrupted, "partitions are to be given up")
            if taken == 4:
                break
        assert [what for what, _ in first.told] == ["assigned", "revoked"]
        poll_until(lambda: len(first.read) + len(second.read) == PARTITIONS * RECORDS - 4, first, second)


def test_what_a_poll_gave_is_done_once_the_caller_comes_back(group_node: NodeProcess, topic: str) -> None:
    consumer = Consumer(group_node.bootstrap, group_id=topic, auto_commit_interval_ms=20, **QUICK)
    consumer.subscribe(topic, start="earliest")
    while not consumer.poll(100, max_records=5):
        pass
    while not consumer.poll(100, max_records=6):
        pass
    wait_until(lambda: sum(found(group_node, topic).values()) == 5, "the first poll's are committed")
    closing = threading.Thread(target=consumer.close)  # of another thread, while this one works
    closing.start()
    closing.join()
    assert sum(found(group_node, topic).values()) == 5


@pytest.mark.parametrize("take", ["batches", "arrow"])
def test_what_is_taken_in_one_piece_is_not_done_before_the_caller_comes_back(
    group_node: NodeProcess, topic: str, take: str
) -> None:
    with Consumer(group_node.bootstrap, group_id=topic, auto_commit_interval_ms=10, **QUICK) as consumer:
        consumer.subscribe(topic, start="earliest")
        read = consumer.poll_batches if take == "batches" else consumer.poll_arrow
        while not len(read(100)):
            pass
        for _ in range(5):
            consumer.commit({at(topic, 0): 0})  # in turn with the commits of its own
        assert sum(found(group_node, topic).values()) == 0


def test_a_poll_that_fails_after_a_loop_was_left_commits_what_the_loop_took(
    group_node: NodeProcess, topic: str
) -> None:
    with Consumer(group_node.bootstrap, group_id=topic, auto_commit_interval_ms=10, **QUICK) as consumer:
        consumer.subscribe(topic, start="earliest")
        for _ in consumer:
            break
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(100)
        wait_until(lambda: sum(found(group_node, topic).values()), "the one is committed")
    assert sum(found(group_node, topic).values()) == 1


def test_a_loop_left_for_batches_commits_no_more_than_both_took(group_node: NodeProcess, topic: str) -> None:
    async def work() -> None:
        settings = {**QUICK, "group_id": topic, "auto_commit_interval_ms": 10}
        async with aio.Consumer(group_node.bootstrap, **settings) as consumer:
            consumer.subscribe(topic, start="earliest")
            async for _ in consumer:
                break
            while not await consumer.poll_batches(100):
                pass
            for _ in range(5):
                await consumer.commit({at(topic, 0): 0})

    asyncio.run(work())
    assert sum(found(group_node, topic).values()) <= 1


def found(node: NodeProcess, group: str) -> dict[int, int]:
    """What the group has committed, by partition."""
    with Admin(node.bootstrap) as admin:
        return {one.partition: committed.offset for one, committed in admin.list_group_offsets(group).items()}


def test_commits_say_how_far_and_of_which_epoch(group_node: NodeProcess, topic: str) -> None:
    outcomes: list[tuple[Any, Any]] = []
    settings = {**QUICK, "group_id": topic, "enable_auto_commit": False}
    settings["on_commit"] = lambda offsets, error: outcomes.append((offsets, error))
    p0, p1 = at(topic, 0), at(topic, 1)
    with Consumer(group_node.bootstrap, **settings) as consumer:
        consumer.subscribe([topic], start="earliest")
        while not (records := consumer.poll(100, max_records=5)):
            pass
        consumer.commit(records[2])
        only = at(topic, records[2].partition)
        assert consumer.committed([only, p0, p1])[only] == (3, 0, "")
        consumer.commit(records)
        assert consumer.committed([only])[only] == (5, 0, "")
        consumer.commit({p0: 1, p1: Position(2, 0)})
        assert consumer.committed([p0, p1]) == {p0: (1, None, ""), p1: (2, 0, "")}
        consumer.commit({p0: CommittedOffset(4, 0, "noted")})
        assert consumer.committed([p0]) == {p0: (4, 0, "noted")}
        consumer.commit()
        assert consumer.committed([only])[only] == (5, 0, "")
        assert outcomes == []
        consumer.commit({p1: 9}, wait=False)
        wait_until(lambda: outcomes == [({p1: CommittedOffset(9)}, None)], "the commit is told of")
        for wrong in ([records[0]], {p0: "1"}, {p0: True}):
            with pytest.raises(TypeError, match="commit"):
                consumer.commit(wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="negative"):
            consumer.commit({p0: -1})
    assert found(group_node, topic)[1] == 9, "without auto-commit nothing is committed at the end"


@pytest.mark.parametrize("protocol", PROTOCOLS[1:], ids=NAMES[1:])
def test_a_committed_position_that_the_log_does_not_have_is_told(
    group_node: NodeProcess, topic: str, protocol: Mapping[str, Any]
) -> None:
    p0 = at(topic, 0)
    with Admin(group_node.bootstrap) as admin:
        admin.alter_group_offsets(topic, {p0: CommittedOffset(RECORDS + 30, 0)})
    with Consumer(group_node.bootstrap, group_id=topic, **QUICK, **protocol) as consumer:
        consumer.subscribe([topic], start="earliest")
        with pytest.raises(LogTruncatedError) as lost:
            poll_until(lambda: False, Member(consumer))
        assert (lost.value.partition, lost.value.seek_to) == (p0, Position(RECORDS, 0))
        consumer.seek(p0, lost.value.seek_to)
        consumer.commit()
        assert consumer.committed([p0]) == {p0: (RECORDS, 0, "")}


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=NAMES)
def test_who_does_not_come_back_in_time_loses_all_is_told_and_joins_again(
    group_node: NodeProcess, topic: str, protocol: Mapping[str, Any]
) -> None:
    with ExitStack() as stack:
        members = Members(group_node, topic, stack)
        slow = members.join(**protocol, max_poll_interval_ms=300, enable_auto_commit=False)
        poll_until(lambda: slow.read, slow)
        wait_until(lambda: not members_of(group_node, topic), "it left")
        with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
            slow.consumer.commit()
        with pytest.raises(CommitFailedError):
            slow.consumer.group_metadata()
        del slow.told[:]
        poll_until(lambda: len(slow.told) == 2, slow)
        assert slow.told == [("lost", [0, 1, 2, 3]), ("assigned", [0, 1, 2, 3])]


def members_of(node: NodeProcess, group: str) -> int:
    with Admin(node.bootstrap) as admin:
        return len(admin.describe_groups([group])[group].members)


@pytest.mark.parametrize("protocol", [PROTOCOLS[1], PROTOCOLS[2]], ids=NAMES[1:])
def test_a_static_member_that_comes_again_has_what_it_had(
    group_node: NodeProcess, topic: str, protocol: Mapping[str, Any]
) -> None:
    with ExitStack() as stack:
        members = Members(group_node, topic, stack)
        stays = members.join(**protocol, group_instance_id="stays")
        goes = members.join(**protocol, group_instance_id="goes")
        poll_until(lambda: len(goes.consumer.assignment()) == 2 == len(stays.consumer.assignment()), stays, goes)
        had = goes.consumer.assignment()
        goes.consumer.close()
        again = members.join(**protocol, group_instance_id="goes")
        poll_until(again.consumer.assignment, again)
        assert again.consumer.assignment() == had
        told = list(stays.told)
        fill(group_node, topic)
        poll_until(lambda: len(again.read) >= 2 * RECORDS, stays, again)
        assert stays.told == told


@pytest.mark.parametrize("protocol", [PROTOCOLS[0], PROTOCOLS[2]], ids=["classic", "consumer"])
def test_a_pattern_finds_topics_that_come_later(
    group_node: NodeProcess, topic: str, protocol: Mapping[str, Any]
) -> None:
    settings = {**QUICK, **protocol, "group_id": topic, "metadata_max_age_ms": 200}
    with Consumer(group_node.bootstrap, **settings) as consumer:
        consumer.subscribe(re.compile(f"{topic}(-later)?"), start="earliest")
        member = Member(consumer)
        poll_until(lambda: len(consumer.assignment()) == PARTITIONS, member)
        assert consumer.subscription() == [topic]
        fill(group_node, f"{topic}-later")
        fill(group_node, f"{topic}-other")
        poll_until(lambda: len(member.read) == 2 * PARTITIONS * RECORDS, member)
        assert consumer.subscription() == [topic, f"{topic}-later"]


def test_a_listener_may_seek_and_commit_and_what_it_raises_is_the_callers(group_node: NodeProcess, topic: str) -> None:
    p0 = at(topic, 0)
    with Consumer(group_node.bootstrap, group_id=topic, enable_auto_commit=False, **QUICK) as consumer:
        member = Member(consumer)

        def assigned(partitions: list[TopicPartition]) -> None:
            assert threading.current_thread() is threading.main_thread()
            for partition in partitions:
                consumer.seek(partition, 15)
            with pytest.raises(TidelogError, match="a rebalance listener asked for records"):
                consumer.poll()

        def revoked(partitions: list[TopicPartition]) -> None:
            consumer.commit({partition: consumer.position(partition) for partition in partitions})
            raise ZeroDivisionError

        def fails(partitions: list[TopicPartition]) -> None:
            raise ZeroDivisionError

        consumer.subscribe([topic], on_assigned=fails)
        for _ in range(2):  # it has not sought yet: it is told again
            with pytest.raises(ZeroDivisionError):
                poll_until(lambda: False, member)
        consumer.subscribe([topic], on_assigned=assigned, on_revoked=revoked)
        poll_until(lambda: len(member.read) == PARTITIONS * 5, member)
        with pytest.raises(ZeroDivisionError):
            consumer.unsubscribe()
        assert consumer.assignment() == []
        assert consumer.committed([p0]) == {p0: (RECORDS, 0, "")}


def test_a_consumer_that_waits_is_woken_from_another_thread(group_node: NodeProcess, topic: str) -> None:
    with Consumer(group_node.bootstrap, group_id=topic, **QUICK) as consumer:
        consumer.subscribe([topic], start="latest")
        threading.Timer(0.1, consumer.wakeup).start()
        with pytest.raises(WakeupError):
            consumer.poll(60_000)
        consumer.poll(0)


def test_a_topic_that_is_not_there_is_told_and_reading_goes_on(group_node: NodeProcess, topic: str) -> None:
    settings = {**QUICK, "group_id": topic, "default_api_timeout_ms": 300}
    with Consumer(group_node.bootstrap, **settings) as consumer:
        consumer.subscribe([topic, f"{topic}-not"], start="earliest")
        member = Member(consumer)
        with pytest.raises(UnknownTopicError, match="create it, or subscribe to others"):
            poll_until(lambda: False, member)
        poll_until(lambda: len(member.read) == PARTITIONS * RECORDS, member)


def test_what_makes_no_sense_is_refused_with_advice(group_node: NodeProcess, topic: str) -> None:
    with Consumer(group_node.bootstrap, group_id=topic, **QUICK) as consumer:
        with pytest.raises(TidelogError, match="no topics are named"):
            consumer.subscribe([])
        with pytest.raises(ConfigError, match="start='first'"):
            consumer.subscribe([topic], start="first")  # type: ignore[arg-type]
        consumer.assign([at(topic, 0)], start="earliest")
        with pytest.raises(TidelogError, match=r"assign\(\[\]\) first"):
            consumer.subscribe([topic])
        consumer.assign([])
        consumer.subscribe([topic])
        with pytest.raises(TidelogError, match="call unsubscribe first"):
            consumer.assign([at(topic, 0)])
        with pytest.raises(TidelogError, match="the group has not given it"):
            consumer.seek(at(topic, 99), 0)
    with Consumer(group_node.bootstrap, **QUICK) as alone:
        for call in (lambda: alone.subscribe([topic]), alone.commit, alone.committed, alone.group_metadata):
            with pytest.raises(ConfigError, match="group_id"):
                call()
    with Consumer(group_node.bootstrap, group_id=topic, session_timeout_ms=1, **QUICK) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(KafkaError, match=r"group\.min\.session\.timeout\.ms"):
            consumer.poll(5_000)


def test_partitions_taken_by_hand_start_where_the_group_committed(group_node: NodeProcess, topic: str) -> None:
    p0, p1 = at(topic, 0), at(topic, 1)
    with Admin(group_node.bootstrap) as admin:
        admin.alter_group_offsets(topic, {p0: CommittedOffset(17, 0)})
    with Consumer(group_node.bootstrap, group_id=topic, **QUICK) as consumer:
        consumer.assign([p0, p1], start="earliest")
        member = Member(consumer)
        poll_until(lambda: len(member.read) == 3 + RECORDS, member)
        assert {(one.partition, one.offset) for one in member.read if one.partition == 0} == {(0, 17), (0, 18), (0, 19)}
        consumer.poll(0)  # it has come back from them
    assert found(group_node, topic) == {0: RECORDS, 1: RECORDS}


def test_a_commit_for_a_topic_that_is_gone_says_so_and_the_others_are_done(group_node: NodeProcess, topic: str) -> None:
    gone = f"{topic}-gone"
    fill(group_node, gone)
    settings = {**QUICK, "group_id": topic, "enable_auto_commit": False, "default_api_timeout_ms": 600_000}
    with Consumer(group_node.bootstrap, **settings) as consumer, Admin(group_node.bootstrap) as admin:
        consumer.assign([at(topic, 0), at(gone, 0)], start="earliest")
        consumer.commit({at(gone, 0): 1})
        admin.delete_topics([gone])
        with pytest.raises(UnknownTopicError) as error:
            consumer.commit({at(topic, 0): 1, at(gone, 0): 2})
        assert error.value.partition == at(gone, 0)
        assert consumer.committed([at(topic, 0)]) == {at(topic, 0): (1, None, "")}


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=NAMES)
def test_a_transaction_takes_the_offsets_of_a_member_along_and_of_no_one_who_is_out(
    group_node: NodeProcess, topic: str, protocol: Mapping[str, Any]
) -> None:
    settings = {**QUICK, **protocol, "group_id": topic, "enable_auto_commit": False}
    with (
        Consumer(group_node.bootstrap, **settings) as consumer,
        Producer(group_node.bootstrap, transactional_id=topic) as producer,
    ):
        consumer.subscribe([topic], start="earliest")
        while not (records := consumer.poll(100)):
            pass
        producer.init_transactions()
        member = consumer.group_metadata()
        with producer.transaction() as transaction:
            transaction.send(f"{topic}-copies", b"copy")
            transaction.send_offsets(records.next_offsets(), member)
        assert consumer.committed(records.next_offsets()) == {
            key: CommittedOffset(*position) for key, position in records.next_offsets().items()
        }
        consumer.unsubscribe()

        def commits_for_who_is_out() -> None:
            with producer.transaction() as transaction:
                transaction.send(f"{topic}-copies", b"another")
                transaction.send_offsets({at(topic, 0): Position(0, None)}, member)

        with pytest.raises(TransactionAbortableError):
            commits_for_who_is_out()


def test_on_an_event_loop_listeners_may_be_coroutines(group_node: NodeProcess, topic: str) -> None:
    async def work() -> None:
        told: list[str] = []
        async with aio.Consumer(group_node.bootstrap, group_id=topic, **QUICK) as consumer:

            async def assigned(partitions: list[TopicPartition]) -> None:
                await asyncio.sleep(0)
                assert await consumer.position(partitions[0]) == (0, None)
                told.append(f"{len(partitions)} come")

            async def revoked(partitions: list[TopicPartition]) -> None:
                await consumer.commit()
                told.append(f"{len(partitions)} go")

            consumer.subscribe([topic], start="earliest", on_assigned=assigned, on_revoked=revoked)
            count = 0
            async for _ in consumer:
                count += 1
                if count == PARTITIONS * RECORDS:
                    break
        assert told == ["4 come", "4 go"]

    asyncio.run(work())
    assert sum(found(group_node, topic).values()) == PARTITIONS * RECORDS
