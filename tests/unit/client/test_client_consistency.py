"""Consistency contexts: the later one wins, and clusters are not mixed (KIP-1243)."""

from __future__ import annotations

import pytest

from tidelog import ConsistencyContext, ConsistencyContextStore, KafkaError
from tidelog.base.errors import Code
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


def test_a_context_carries_over_to_another_process() -> None:
    seen = ConsistencyContextStore(ConsistencyContext("c", 8)).read()
    assert ConsistencyContextStore(ConsistencyContext(seen.cluster_id, seen.token)).state() == ConsistencyState("c", 8)
