"""Which readers a broker remembers to have told: bounded, and a stranger crowds out nobody but himself."""

from __future__ import annotations

from uuid import UUID

from tidelog.base.ids import LeaderEpoch, Offset, ProducerId, TopicId, TopicPartition
from tidelog.server.api.told_readers import (
    CLIENT_ID_LENGTH_MAX,
    POLICY_LENGTH_MAX,
    READERS_MAX,
    READERS_PER_HOST_MAX,
    ReaderName,
    Resumption,
    ToldReaders,
)

FLIGHTS, TOPIC = TopicPartition("flights", 0), TopicId(UUID(int=7))
AT_30 = LeaderEpoch(3), Offset(30)


def told(readers: ToldReaders, client_id: str, host: str = "10.0.0.1", now_ms: int = 0) -> None:
    readers.note(FLIGHTS, TOPIC, ReaderName(client_id, host), AT_30, now_ms)


def test_a_reader_is_one_row_however_often_it_is_told() -> None:
    readers = ToldReaders()
    told(readers, "one", now_ms=5)
    told(readers, "two", now_ms=6)
    told(readers, "one", now_ms=7)
    assert [(row.client_id, row.count, row.first_ms, row.last_ms) for row in readers] == [
        ("two", 1, 6, 6),
        ("one", 2, 5, 7),
    ]


def test_a_producer_is_another_row_than_a_reader_of_its_name() -> None:
    readers = ToldReaders()
    told(readers, "one")
    for producer_id in (4, 5, 4):
        readers.note(FLIGHTS, TOPIC, ReaderName("one", "10.0.0.1"), AT_30, 1, producer_id=ProducerId(producer_id))
    assert [(row.client_id, row.producer_id, row.count) for row in readers] == [
        ("one", None, 1),
        ("one", 5, 1),
        ("one", 4, 2),
    ]


def test_a_flood_of_producer_ids_from_one_host_leaves_the_others() -> None:
    readers = ToldReaders()
    told(readers, "ours", host="10.0.0.2")
    for number in range(3 * READERS_PER_HOST_MAX):
        readers.note(FLIGHTS, TOPIC, ReaderName("x", "10.0.0.1"), AT_30, 1, producer_id=ProducerId(number))
    rows = list(readers)
    assert len(rows) == READERS_PER_HOST_MAX + 1
    assert rows[0].client_id == "ours"


def test_a_flood_from_one_host_leaves_the_others() -> None:
    readers = ToldReaders()
    told(readers, "ours", host="10.0.0.2")
    for number in range(3 * READERS_PER_HOST_MAX):
        told(readers, f"{number}-{'x' * 10_000}")
    rows = list(readers)
    assert len(rows) == READERS_PER_HOST_MAX + 1
    assert rows[0].client_id == "ours"
    assert max(len(row.client_id) for row in rows) == CLIENT_ID_LENGTH_MAX


def test_of_too_many_the_oldest_go() -> None:
    readers = ToldReaders()
    for number in range(READERS_MAX + 10):
        told(readers, "one", host=f"host-{number}")
    rows = list(readers)
    assert len(rows) == READERS_MAX
    assert rows[0].host == "host-10"


def test_a_reader_says_where_it_goes_on() -> None:
    readers = ToldReaders()
    told(readers, "one", now_ms=5)
    reader = ReaderName("one", "10.0.0.1")
    resumption = Resumption(Offset(60), Offset(30), "rewind")
    own_words = LeaderEpoch(9), Offset(31)
    readers.note_resumption(FLIGHTS, TOPIC, reader, own_words, resumption, now_ms=6)
    readers.note_resumption(
        FLIGHTS, TOPIC, reader._replace(client_id="two"), own_words, resumption._replace(policy="x" * 999), now_ms=7
    )
    one, two = readers
    # What this broker told it itself is not overwritten.
    assert (one.count, one.leader_epoch, one.end_offset, one.last_ms) == (1, 3, 30, 6)
    assert one.resumption == resumption
    assert (two.count, two.leader_epoch, two.end_offset, two.has_compared) == (0, 9, 31, True)
    assert two.resumption is not None
    assert len(two.resumption.policy) == POLICY_LENGTH_MAX
    told(readers, "one", now_ms=8)
    assert [row.resumption for row in readers if row.client_id == "one"] == [resumption]


def test_a_flood_of_resumptions_is_bounded_likewise() -> None:
    readers = ToldReaders()
    for number in range(3 * READERS_PER_HOST_MAX):
        reader = ReaderName(str(number), "10.0.0.1")
        readers.note_resumption(FLIGHTS, TOPIC, reader, AT_30, Resumption(Offset(9), Offset(9), "latest"), now_ms=0)
    assert len(list(readers)) == READERS_PER_HOST_MAX
