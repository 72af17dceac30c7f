"""Idempotent producers: duplicates are answered with their offsets, gaps refused; over restarts and kills too."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.nodes.node import NodeProcess
from tidelog.base.errors import Code

SEQUENCE_MAX = 2**31 - 1


class Sender:
    """One producer on one partition, which numbers its batches as it is told to."""

    def __init__(self, client: WireClient, topic: str, *, producer: tuple[int, int] | None = None) -> None:
        self.client = client
        self.topic = topic
        self.producer = producer or client.new_producer_id()

    def send(self, base_sequence: int, count: int = 2, *, epoch: int | None = None) -> tuple[Code, int]:
        """(code, base offset) of the answer."""
        producer = self.producer if epoch is None else (self.producer[0], epoch)
        values = [b"%d" % (base_sequence + i) for i in range(count)]
        row = self.client.produce(self.topic, batch_of(*values, producer=producer, base_sequence=base_sequence))
        return Code(row.error_code), row.base_offset


@pytest.fixture
def client(shared_node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(shared_node.port) as client:
        yield client


@pytest.fixture
def sender(client: WireClient, request: pytest.FixtureRequest) -> Sender:
    topic = request.node.name.replace("_", "-")[:60]
    client.create_topic(topic)
    return Sender(client, topic)


def test_a_duplicate_is_answered_with_its_offsets(client: WireClient, sender: Sender) -> None:
    assert [sender.send(sequence) for sequence in (0, 2, 4)] == [(Code.NONE, offset) for offset in (0, 2, 4)]
    for sequence in (4, 2, 0, 4):
        assert sender.send(sequence) == (Code.NONE, sequence)
    assert client.log_end_offset(sender.topic) == 6
    assert sender.send(6) == (Code.NONE, 6)


def test_a_gap_is_refused(client: WireClient, sender: Sender) -> None:
    assert sender.send(0) == (Code.NONE, 0)
    assert sender.send(4) == (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert sender.send(1) == (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)  # overlaps: not a batch that was sent before
    assert sender.send(0, 1)[0] is Code.OUT_OF_ORDER_SEQUENCE_NUMBER  # half of one
    assert client.log_end_offset(sender.topic) == 2
    assert sender.send(2) == (Code.NONE, 2)


def test_a_duplicate_older_than_what_is_remembered(client: WireClient, sender: Sender) -> None:
    for sequence in range(0, 14, 2):
        assert sender.send(sequence) == (Code.NONE, sequence)
    assert sender.send(4) == (Code.NONE, 4)  # the fifth from the end
    assert sender.send(0)[0] in {Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.DUPLICATE_SEQUENCE_NUMBER}
    assert client.log_end_offset(sender.topic) == 14


def test_an_old_epoch_is_fenced_and_a_new_one_starts_at_0(client: WireClient, sender: Sender) -> None:
    assert sender.send(0) == (Code.NONE, 0)
    assert sender.send(2, epoch=1)[0] is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert sender.send(0, epoch=1) == (Code.NONE, 2)
    assert sender.send(2, epoch=0)[0] is Code.INVALID_PRODUCER_EPOCH
    assert sender.send(0, epoch=0)[0] is Code.INVALID_PRODUCER_EPOCH
    assert sender.send(2, epoch=1) == (Code.NONE, 4)
    assert client.log_end_offset(sender.topic) == 6


def test_sequences_wrap(client: WireClient, sender: Sender) -> None:
    assert sender.send(SEQUENCE_MAX - 1, 2) == (Code.NONE, 0)  # a producer that is not known here
    assert sender.send(0, 2) == (Code.NONE, 2)
    assert sender.send(SEQUENCE_MAX - 1, 2) == (Code.NONE, 0)


def test_producers_and_partitions_do_not_mix(client: WireClient, sender: Sender) -> None:
    other = Sender(client, sender.topic)
    assert other.producer[0] != sender.producer[0]
    assert sender.send(0) == (Code.NONE, 0)
    assert other.send(0) == (Code.NONE, 2)
    client.create_topic(sender.topic + "-too")
    elsewhere = Sender(client, sender.topic + "-too", producer=sender.producer)
    assert elsewhere.send(0) == (Code.NONE, 0)
    assert sender.send(2) == (Code.NONE, 4)


@pytest.mark.parametrize("configs", [{}, {"segment.bytes": "300"}], ids=["one segment", "many segments"])
def test_sequences_survive_restarts_and_kills(start_node: Callable[..., NodeProcess], configs: dict[str, str]) -> None:
    node = start_node()
    topic = "sequences"
    with WireClient(node.port) as client:
        assert client.create_topic(topic, configs=configs).error_code == 0
        producer = client.new_producer_id()
        known = {producer[0]}
    sequence = 0
    for how_it_ends in (node.stop, node.kill, node.kill, node.stop, None):
        with WireClient(node.port) as client:
            sender = Sender(client, topic, producer=producer)
            if sequence:
                assert sender.send(sequence - 2) == (Code.NONE, sequence - 2), "the last batch is known as a duplicate"
                assert sender.send(sequence + 2)[0] is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
            for _ in range(3):
                assert sender.send(sequence) == (Code.NONE, sequence)
                sequence += 2
            assert client.log_end_offset(topic) == sequence
            fresh = client.new_producer_id()[0]
            assert fresh not in known, "an id was given twice"
            known.add(fresh)
        if how_it_ends is not None:
            how_it_ends()
            node.restart()
    with WireClient(node.port) as client:
        assert [record.value for record in client.read_all(topic)] == [b"%d" % i for i in range(sequence)]
    node.close()
