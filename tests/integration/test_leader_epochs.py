"""Every restart of the only replica is an election: the leader epoch grows, is stamped, answered and checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.fixtures.log_files import partition_dir
from support.nodes.node import NodeProcess
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

TOPIC = "leader-epochs"
START_MS = 1_700_000_000_000


class Reign(NamedTuple):
    """One leader epoch, and the offsets that were written in it; the end is exclusive."""

    leader_epoch: int
    start_offset: int
    end_offset: int


class History(NamedTuple):
    node: NodeProcess
    reigns: list[Reign]


def leader_epoch_of(client: WireClient) -> int:
    return client.describe_topic(TOPIC).partitions[0].leader_epoch


@pytest.fixture(scope="module")
def history(start_node) -> Iterator[History]:  # type: ignore[no-untyped-def]
    """A topic written to in four epochs; in the third, nothing."""
    node: NodeProcess = start_node()
    with WireClient(node.port) as client:
        client.create_topic(TOPIC)
    reigns: list[Reign] = []
    offset = 0
    for number, how_it_ends in enumerate((node.stop, node.kill, node.stop, None)):
        with WireClient(node.port) as client:
            start_offset = offset
            for _ in range(0 if number == 2 else 3):
                batch = batch_of(b"a", b"b", timestamp_ms=START_MS + 1_000 * offset)
                assert client.produce(TOPIC, batch).base_offset == offset
                offset += 2
            reigns.append(Reign(leader_epoch_of(client), start_offset, offset))
        if how_it_ends is not None:
            how_it_ends()
            node.restart()
    yield History(node, reigns)
    node.close()


@pytest.fixture
def client(history: History) -> Iterator[WireClient]:
    with WireClient(history.node.port) as client:
        yield client


def test_the_leader_epoch_grows_at_every_restart(history: History) -> None:
    epochs = [reign.leader_epoch for reign in history.reigns]
    assert epochs == sorted(set(epochs))


def test_every_batch_bears_the_epoch_it_was_written_in(history: History, client: WireClient) -> None:
    expected = {
        offset: reign.leader_epoch for reign in history.reigns for offset in range(reign.start_offset, reign.end_offset)
    }
    assert {record.offset: record.leader_epoch for record in client.read_all(TOPIC)} == expected


def test_where_each_epoch_ends(history: History, client: WireClient) -> None:
    *past, now = history.reigns
    for reign in past:
        row = client.end_of_epoch(TOPIC, reign.leader_epoch)
        assert (row.error_code, row.end_offset) == (0, reign.end_offset)
        if reign.end_offset > reign.start_offset:
            assert row.leader_epoch == reign.leader_epoch
        else:
            assert row.leader_epoch <= reign.leader_epoch
    row = client.end_of_epoch(TOPIC, now.leader_epoch)
    assert (row.error_code, row.leader_epoch, row.end_offset) == (0, now.leader_epoch, now.end_offset)


def test_an_epoch_that_never_was_here(history: History, client: WireClient) -> None:
    row = client.end_of_epoch(TOPIC, history.reigns[-1].leader_epoch + 1)
    assert (row.error_code, row.leader_epoch, row.end_offset) == (0, -1, -1)


def test_the_current_leader_epoch_is_checked(history: History, client: WireClient) -> None:
    now = history.reigns[-1].leader_epoch
    for sent, expected in (
        (now, Code.NONE),
        (-1, Code.NONE),
        (now - 1, Code.FENCED_LEADER_EPOCH),
        (history.reigns[0].leader_epoch, Code.FENCED_LEADER_EPOCH),
        (now + 1, Code.UNKNOWN_LEADER_EPOCH),
    ):
        fetched = client.fetch(TOPIC, 0, leader_epoch=sent)
        assert Code(fetched.error_code) is expected
        assert bool(fetched.records) == (expected is Code.NONE)
        assert Code(client.list_offset(TOPIC, -1, leader_epoch=sent).error_code) is expected
        asked = client.end_of_epoch(TOPIC, now, current_leader_epoch=sent)
        assert Code(asked.error_code) is expected
        if expected is Code.FENCED_LEADER_EPOCH:
            assert fetched.current_leader is not None
            assert (fetched.current_leader.leader_id, fetched.current_leader.leader_epoch) == (1, now)
        if expected is not Code.NONE:
            assert (asked.leader_epoch, asked.end_offset) == (-1, -1), "nobody truncates by an answer that was fenced"


def test_a_fetch_of_an_old_version_has_no_epoch_to_check(client: WireClient) -> None:
    assert client.fetch(TOPIC, 0, version=8).records


def test_a_fenced_fetch_does_not_wait(history: History, client: WireClient) -> None:
    end_offset = history.reigns[-1].end_offset
    row = client.fetch(TOPIC, end_offset, leader_epoch=history.reigns[0].leader_epoch, wait_ms=15_000)
    assert Code(row.error_code) is Code.FENCED_LEADER_EPOCH


def test_a_fetcher_that_diverged_is_told_where(history: History, client: WireClient) -> None:
    first, second = history.reigns[0], history.reigns[1]
    row = client.fetch(TOPIC, first.end_offset + 1, last_fetched_epoch=first.leader_epoch, wait_ms=15_000)
    assert row.error_code == 0
    assert not row.records
    assert row.diverging_epoch is not None
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (first.leader_epoch, first.end_offset)
    for offset, leader_epoch in ((first.end_offset, first.leader_epoch), (second.end_offset, second.leader_epoch)):
        row = client.fetch(TOPIC, offset, last_fetched_epoch=leader_epoch)
        assert (row.error_code, row.diverging_epoch) == (0, None)
        assert row.records


def test_offsets_carry_the_epoch_of_what_was_found(history: History, client: WireClient) -> None:
    first, second, _, now = history.reigns
    assert client.list_offset(TOPIC, -2).leader_epoch == first.leader_epoch
    assert client.list_offset(TOPIC, -1).leader_epoch == now.leader_epoch
    row = client.list_offset(TOPIC, START_MS + 1_000 * second.start_offset)
    assert (row.offset, row.leader_epoch) == (second.start_offset, second.leader_epoch)
    row = client.list_offset(TOPIC, -3)
    assert (row.offset, row.leader_epoch) == (now.end_offset - 1, now.leader_epoch)


def test_the_checkpoint_is_in_the_format_of_kafkas_tools(history: History) -> None:
    lines = (partition_dir(history.node, TOPIC) / "leader-epoch-checkpoint").read_text().splitlines()
    entries = [tuple(map(int, line.split())) for line in lines[2:]]
    assert lines[:2] == ["0", str(len(entries))]
    written = [(reign.leader_epoch, reign.start_offset) for reign in history.reigns if reign[1] < reign[2]]
    assert set(written) <= set(entries)
    assert entries == sorted(entries)


def test_a_recreated_topic_has_another_id(client: WireClient) -> None:
    topic = "leader-epochs-recreated"
    client.create_topic(topic)
    client.produce(topic, batch_of(b"old"))
    before = client.describe_topic(topic)
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=5_000)
    client.ask(ApiKey.DELETE_TOPICS, 6, delete, DeleteTopicsResponse)
    client.create_topic(topic)
    after = client.describe_topic(topic)
    assert after.topic_id != before.topic_id
    assert client.log_end_offset(topic) == 0
    client.produce(topic, batch_of(b"new"))
    (record,) = client.read_all(topic)
    assert (record.offset, record.value) == (0, b"new")
