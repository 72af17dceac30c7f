"""Leader epochs over the wire: stamped, bumped by every restart, checked, and told (KIP-101, KIP-320)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from support.node import NodeProcess
from support.wire_client import WireClient, batch_of
from tidelog.base.errors import Code
from tidelog.base.ports import Buffer
from tidelog.records import split_whole_batches

TOPIC = "epochs"
LATEST, EARLIEST = -1, -2
FIRST_TIMESTAMP_MS = 1_700_000_000_000


class Story(NamedTuple):
    """A log of three epochs: two records in each, but for the second, in which none was written."""

    client: WireClient
    epochs: tuple[int, int, int]


def epochs_of(data: Buffer) -> list[int]:
    return [header.leader_epoch for _, header in split_whole_batches(data) for _ in range(header.record_count)]


@pytest.fixture(scope="module")
def story(start_node: Callable[..., NodeProcess]) -> Iterator[Story]:
    node = start_node()
    epochs: list[int] = []
    for end in (node.kill, node.stop, None):
        with WireClient(node.port) as client:
            if not epochs:
                client.create_topic(TOPIC)
            epochs.append(client.describe_topic(TOPIC).partitions[0].leader_epoch)
            if len(epochs) != 2:
                now = FIRST_TIMESTAMP_MS + 1_000 * len(epochs)
                assert client.produce(TOPIC, batch_of(b"a", b"b", timestamp_ms=now)).error_code == 0
        if end is not None:
            end()
            node.restart()
    with WireClient(node.port) as client:
        yield Story(client, (epochs[0], epochs[1], epochs[2]))
    node.close()


def test_every_restart_of_the_sole_leader_bumps_the_epoch(story: Story) -> None:
    first, second, third = story.epochs
    assert first < second < third


def test_batches_carry_the_epoch_in_which_they_were_written(story: Story) -> None:
    records = story.client.fetch(TOPIC, 0).records
    assert isinstance(records, memoryview)
    first, _, third = story.epochs
    assert epochs_of(records) == [first, first, third, third]


def test_an_epoch_ends_where_the_next_one_starts(story: Story) -> None:
    first, second, third = story.epochs
    for asked, answer in [
        (first, (first, 2)),
        (second, (first, 2)),  # nothing was written in it: the largest epoch that is known and not newer
        (third, (third, 4)),
        (third + 1, (-1, -1)),  # nobody has heard of it
    ]:
        row = story.client.end_of_epoch(TOPIC, asked)
        assert (row.error_code, row.leader_epoch, row.end_offset) == (0, *answer), asked


def test_an_epoch_that_is_not_the_leaders_is_refused_wherever_it_is_sent(story: Story) -> None:
    current = story.epochs[2]
    for sent, code in [
        (current - 1, Code.FENCED_LEADER_EPOCH),
        (current + 1, Code.UNKNOWN_LEADER_EPOCH),
        (current, Code.NONE),
        (-1, Code.NONE),
    ]:
        assert Code(story.client.fetch(TOPIC, 0, leader_epoch=sent).error_code) is code
        assert Code(story.client.list_offset(TOPIC, LATEST, leader_epoch=sent).error_code) is code
        assert Code(story.client.end_of_epoch(TOPIC, current, current_leader_epoch=sent).error_code) is code


def test_a_version_without_the_field_is_not_checked(story: Story) -> None:
    assert story.client.fetch(TOPIC, 0, version=8).error_code == 0
    assert story.client.list_offset(TOPIC, LATEST, version=3).error_code == 0


def test_offsets_come_with_their_epoch(story: Story) -> None:
    first, _, third = story.epochs
    for timestamp, answer in [
        (EARLIEST, (0, first)),
        (FIRST_TIMESTAMP_MS + 1_001, (1, first)),
        (FIRST_TIMESTAMP_MS + 1_500, (2, third)),
        (LATEST, (4, third)),
    ]:
        row = story.client.list_offset(TOPIC, timestamp)
        assert (row.error_code, row.offset, row.leader_epoch) == (0, *answer), timestamp


def test_whoever_says_what_it_fetched_last_is_told_where_the_logs_part(story: Story) -> None:
    first, second, _ = story.epochs
    agreed = story.client.fetch(TOPIC, 2, last_fetched_epoch=first)
    assert (agreed.error_code, agreed.diverging_epoch) == (0, None)
    beyond = story.client.fetch(TOPIC, 4, last_fetched_epoch=second)
    assert beyond.diverging_epoch is not None
    assert (beyond.diverging_epoch.epoch, beyond.diverging_epoch.end_offset) == (first, 2)
    assert not beyond.records
