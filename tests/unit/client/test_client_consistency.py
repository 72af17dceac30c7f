"""Consistency contexts: the later one wins, and clusters are not mixed (KIP-1243)."""

from __future__ import annotations

import pickle
import re
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import (
    Admin,
    ConfigError,
    ConsistencyContext,
    ConsistencyContextError,
    ConsistencyContextStore,
    Consumer,
    Factory,
    KafkaError,
    Producer,
    aio,
)
from tidelog.base.errors import Code
from tidelog.client.consistency import TOKEN_MAX
from tidelog.records.crc32c import crc32c
from tidelog.wire import NO_TOKEN_YET, ConsistencyState

UNKNOWN = ConsistencyContext(None, None)


def test_the_later_of_two_contexts_is_the_one_with_the_larger_token() -> None:
    early, late = ConsistencyContext("c", 3), ConsistencyContext("c", 4)
    assert early.later(late) is late
    assert late.later(early) is late
    assert late.later(UNKNOWN) is late
    assert UNKNOWN.later(late) is late
    assert UNKNOWN.is_unknown


def test_contexts_of_two_clusters_cannot_be_compared() -> None:
    with pytest.raises(KafkaError, match="clients of different clusters cannot share one") as error:
        ConsistencyContext("c", 3).later(ConsistencyContext("d", 9))
    assert error.value.code is Code.INCONSISTENT_CLUSTER_ID


def test_a_store_keeps_the_latest_and_says_whether_it_changed() -> None:
    store = ConsistencyContextStore()
    assert store.state() == NO_TOKEN_YET
    assert store.store_latest(ConsistencyContext("c", 3))
    assert not store.store_latest(ConsistencyContext("c", 3))
    assert not store.store_latest(ConsistencyContext("c", 2))
    store.on_state(ConsistencyState("c", 8))
    store.on_state(ConsistencyState("c", 5))
    store.on_state(ConsistencyState(None, None))
    assert store.read() == ConsistencyContext("c", 8)
    assert store.state() == ConsistencyState("c", 8)
    with pytest.raises(KafkaError):
        store.on_state(ConsistencyState("d", 9))
    assert store.read() == ConsistencyContext("c", 8)


def test_a_store_that_is_eventually_consistent_sends_and_keeps_nothing() -> None:
    store = ConsistencyContextStore.eventually_consistent()
    assert store.state() is None
    assert not store.store_latest(ConsistencyContext("c", 3))
    store.on_state(ConsistencyState("c", 8))
    store.on_state(ConsistencyState("d", 9))
    assert store.read() == UNKNOWN


contexts = st.builds(
    ConsistencyContext,
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60),
    st.integers(0, TOKEN_MAX),
) | st.just(UNKNOWN)


@given(contexts)
def test_a_context_carries_over_to_another_process(seen: ConsistencyContext) -> None:
    assert ConsistencyContext.from_bytes(seen.to_bytes()) == seen
    assert ConsistencyContext.from_json(seen.to_json()) == seen
    assert pickle.loads(pickle.dumps(seen)) == seen


def test_the_forms_stay_readable_by_other_versions() -> None:
    context = ConsistencyContext("Some-Cluster-Id", 4711)
    assert context.to_json() == '{"version": 1, "cluster_id": "Some-Cluster-Id", "token": 4711}'
    assert context.to_bytes().hex() == "010000000000001267000f" + b"Some-Cluster-Id".hex() + "7879026c"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "this is no JSON"),
        ("nothing", "this is no JSON"),
        (b"\xff\xfe\xff", "this is no JSON"),
        ("[" * 100_000, "this is no JSON"),
        ("[]", "not a list"),
        ("4711", "not a int"),
        ("{}", "has the keys cluster_id, token, version, and this one none"),
        ('{"version": 1, "cluster_id": "c", "token": 1, "more": 1}', "and this one cluster_id, more, token, version"),
        ('{"version": 2, "state": []}', "format version 2; this version of Tidelog reads 1"),
        ('{"version": true, "cluster_id": "c", "token": 1}', "format version True"),
        ('{"version": 1.0, "cluster_id": "c", "token": 1}', "format version 1.0"),
        ('{"version": 1, "cluster_id": 7, "token": 1}', "cluster_id=7: text of 1 to 255 bytes"),
        ('{"version": 1, "cluster_id": "", "token": 1}', "cluster_id='': text of 1 to 255 bytes"),
        ('{"version": 1, "cluster_id": "\\ud800", "token": 1}', "text of 1 to 255 bytes of UTF-8"),
        ('{"version": 1, "cluster_id": "c", "token": "1"}', "token='1': an offset of the metadata log"),
        ('{"version": 1, "cluster_id": "c", "token": true}', "token=True: an offset"),
        ('{"version": 1, "cluster_id": "c", "token": 1.5}', "token=1.5: an offset"),
        ('{"version": 1, "cluster_id": "c", "token": -1}', "token=-1: an offset"),
        ('{"version": 1, "cluster_id": "c", "token": 9223372036854775808}', "from 0 to 9223372036854775807"),
        ('{"version": 1, "cluster_id": "c", "token": null}', "both are expected, or neither"),
        ('{"version": 1, "cluster_id": null, "token": 1}', "both are expected, or neither"),
        (None, "text is expected, as to_json returns it"),
        ({"version": 1}, "text is expected, as to_json returns it"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_json_that_is_no_context_is_refused_with_what_is_wrong(text: Any, expected: str) -> None:
    with pytest.raises(ConsistencyContextError, match=re.escape(expected)):
        ConsistencyContext.from_json(text)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "0 bytes are no consistency context: one has at least 15"),
        (b"\0" * 15, "format version 0; this version of Tidelog reads 1"),
        (b"\2" + bytes(40), "format version 2"),
        (b"\1" + bytes(40), "the checksum differs"),
        (ConsistencyContext("c", 1).to_bytes() + b"\0", "the checksum differs"),
        (ConsistencyContext("cluster", 1).to_bytes()[:-1], "the checksum differs"),
        ("text", "bytes are expected, as to_bytes returns them"),
        (None, "bytes are expected"),
    ],
)
def test_bytes_that_are_no_context_are_refused_with_what_is_wrong(data: Any, expected: str) -> None:
    with pytest.raises(ConsistencyContextError, match=re.escape(expected)):
        ConsistencyContext.from_bytes(data)


def test_well_formed_bytes_with_values_that_cannot_be_are_refused() -> None:
    def sealed(token: int, cluster_id: bytes) -> bytes:
        data = struct.pack(">bqh", 1, token, len(cluster_id)) + cluster_id
        return data + struct.pack(">I", crc32c(data))

    assert ConsistencyContext.from_bytes(memoryview(sealed(5, b"c"))) == ConsistencyContext("c", 5)
    for data, expected in (
        (sealed(-2, b"c"), "token=-2"),
        (sealed(5, b""), "both are expected, or neither"),
        (sealed(5, b"c" * 256), "text of 1 to 255 bytes"),
        (sealed(5, b"\xff"), "is not UTF-8"),
    ):
        with pytest.raises(ConsistencyContextError, match=expected):
            ConsistencyContext.from_bytes(data)


@given(contexts, st.integers(0, 10_000), st.integers(1, 255))
def test_a_context_with_a_damaged_byte_is_refused(seen: ConsistencyContext, at: int, change: int) -> None:
    data = bytearray(seen.to_bytes())
    data[at % len(data)] ^= change
    with pytest.raises(ConsistencyContextError):
        ConsistencyContext.from_bytes(data)


@given(st.binary(max_size=80))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(ConsistencyContextError):
        ConsistencyContext.from_bytes(data)
    with pytest.raises(ConsistencyContextError):
        ConsistencyContext.from_json(data)


def test_many_threads_share_a_store_and_it_never_goes_back() -> None:
    store = ConsistencyContextStore()
    read: list[list[int]] = [[] for _ in range(8)]

    def work(number: int) -> None:
        for token in range(number, 4_000, 7):
            store.on_state(ConsistencyState("c", token))
            read[number].append(store.read().token or 0)
            assert read[number][-1] >= token

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert all(tokens == sorted(tokens) for tokens in read)
    assert store.read() == ConsistencyContext("c", 3_999)


def test_a_store_may_be_kept_elsewhere() -> None:
    class Elsewhere(ConsistencyContextStore):
        """In a place that another program writes to as well."""

        def __init__(self) -> None:
            super().__init__()
            self.place = UNKNOWN

        def read(self) -> ConsistencyContext:
            return self.place

        def store_latest(self, context: ConsistencyContext) -> bool:
            before, self.place = self.place, self.place.later(context)
            return self.place is not before

    store = Elsewhere()
    store.on_state(ConsistencyState("c", 8))
    assert store.state() == ConsistencyState("c", 8)
    store.place = ConsistencyContext("c", 11)
    assert store.state() == ConsistencyState("c", 11)


@pytest.mark.parametrize("client", [Producer, Consumer, Admin, aio.Producer, aio.Consumer, aio.Admin])
def test_what_is_no_store_is_refused_by_every_client(client: Any) -> None:
    with pytest.raises(ConfigError, match="a ConsistencyContextStore, or None, is expected"):
        client("127.0.0.1:1", consistency_context_store=ConsistencyContext("c", 1))


@pytest.mark.parametrize("make", ["producer", "consumer", "admin"])
@pytest.mark.parametrize("factory", [Factory, aio.Factory])
def test_a_factorys_clients_have_its_store_and_no_other(factory: Any, make: str) -> None:
    with pytest.raises(ConfigError, match="the clients of a Factory share its own store"):
        getattr(factory("127.0.0.1:1"), make)(consistency_context_store=ConsistencyContextStore())


def test_what_a_store_starts_with_is_a_context() -> None:
    with pytest.raises(ConsistencyContextError, match="a ConsistencyContext is expected"):
        ConsistencyContextStore(("c", 8))  # type: ignore[arg-type]
