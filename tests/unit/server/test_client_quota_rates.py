"""Quotas of clients: which one counts, and that the rate and the time held back are Kafka's."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.examples import examples
from tidelog.metadata.client_quotas import QuotaEntity, quota_entity
from tidelog.server.quotas import client_quotas
from tidelog.server.quotas.client_quotas import ClientQuotas
from tidelog.server.quotas.rates import RateMeter, TokenBucket, Windows

PRODUCE, REQUESTS, MUTATIONS = "producer_byte_rate", "request_percentage", "controller_mutation_rate"
CREATION = "connection_creation_rate"
WINDOWS = Windows(11, 1_000)

LEVELS: list[QuotaEntity] = [
    quota_entity(parts)
    for parts in (
        [("user", "u"), ("client-id", "c")],
        [("user", "u"), ("client-id", None)],
        [("user", "u")],
        [("user", None), ("client-id", "c")],
        [("user", None), ("client-id", None)],
        [("user", None)],
        [("client-id", "c")],
        [("client-id", None)],
    )
]
"""The first that is set counts, as Kafka's documentation of quotas has it."""


class Clock:
    now = 1_000_000

    def __call__(self) -> int:
        return self.now


def new_quotas(clock: Clock | None = None, **by_key: dict[QuotaEntity, float]) -> ClientQuotas:
    quotas = ClientQuotas(clock or Clock())
    entities: dict[QuotaEntity, dict[str, float]] = {}
    for key, limits in by_key.items():
        for entity, limit in limits.items():
            entities.setdefault(entity, {})[key] = limit
    quotas.set_quotas(entities)
    return quotas


@pytest.mark.parametrize("are_set", list(product([False, True], repeat=len(LEVELS))))
def test_the_first_of_the_eight_levels_counts(are_set: tuple[bool, ...]) -> None:
    limits = {entity: float(level) for level, entity in enumerate(LEVELS, start=1) if are_set[level - 1]}
    share = new_quotas(producer_byte_rate=limits).share(PRODUCE, "u", "c")
    assert (share and share.limit) == (min(limits.values()) if limits else None)


@pytest.mark.parametrize(
    ("entity", "same_user", "same_client"),
    [(LEVELS[1], False, False), (LEVELS[2], True, False), (LEVELS[4], False, False), (LEVELS[5], True, False)],
)
def test_who_shares_a_quota(entity: QuotaEntity, same_user: bool, same_client: bool) -> None:
    quotas = new_quotas(producer_byte_rate={entity: 1.0})
    one, with_other_client = quotas.share(PRODUCE, "u", "c"), quotas.share(PRODUCE, "u", "d")
    assert one is not None
    assert (one == with_other_client) is same_user
    assert (one == quotas.share(PRODUCE, "v", "c")) is same_client


def test_all_users_share_what_is_a_client_ids() -> None:
    for entity in LEVELS[6:]:
        quotas = new_quotas(producer_byte_rate={entity: 1.0})
        assert quotas.share(PRODUCE, "u", "c") == quotas.share(PRODUCE, "v", "c") is not None


def test_each_key_counts_on_its_own() -> None:
    quotas = new_quotas(producer_byte_rate={LEVELS[7]: 5.0}, request_percentage={LEVELS[0]: 1.0})
    share = quotas.share(PRODUCE, "u", "c")
    assert share is not None
    assert share.limit == 5.0
    assert quotas.share("consumer_byte_rate", "u", "c") is None


# The rate.


def rate_of_kafka(events: list[tuple[int, float]], windows: Windows, now_ms: int) -> tuple[float, float]:
    """(rate, time that it is over) by the rules of Kafka's Rate and SampledStat, written down anew over all events."""
    samples: list[tuple[int, int, float]] = []
    for at_ms, amount in events:
        if samples and at_ms - samples[-1][0] < windows.size_ms and at_ms - samples[-1][1] < windows.span_ms:
            begin, _, total = samples.pop()
            samples.append((begin, at_ms, total + amount))
        else:
            samples.append((at_ms, at_ms, amount))
    kept = [one for one in samples if now_ms - one[1] < windows.number * windows.size_ms]
    elapsed = now_ms - min((one[0] for one in kept), default=now_ms)
    full = elapsed // windows.size_ms
    elapsed += max(windows.number - 1 - full, 0) * windows.size_ms
    elapsed = max(elapsed, 1)
    return sum(one[2] for one in kept) / (elapsed / 1_000), elapsed


@settings(max_examples=examples(200))
@given(
    steps=st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 100_000)), max_size=40),
    wait_ms=st.integers(0, 20_000),
    windows=st.builds(Windows, st.integers(1, 12), st.sampled_from([1_000, 2_000])),
    limit=st.integers(1, 50_000),
)
def test_the_rate_and_the_time_held_back_are_kafkas(
    steps: list[tuple[int, int]], wait_ms: int, windows: Windows, limit: int
) -> None:
    meter, now_ms = RateMeter(), 0
    events: list[tuple[int, float]] = []
    for step_ms, amount in steps:
        now_ms += step_ms
        events.append((now_ms, amount))
        meter.record(amount, windows, now_ms)
    now_ms += wait_ms
    rate, elapsed_ms = rate_of_kafka(events, windows, now_ms)
    assert meter.rate(windows, now_ms) == pytest.approx(rate)
    expected = (rate - limit) / limit * elapsed_ms if rate > limit else 0
    assert meter.throttle_ms(limit, windows, now_ms) == pytest.approx(expected, abs=1)


@settings(max_examples=examples(100))
@given(sizes=st.lists(st.integers(200, 1_000), min_size=100, max_size=150), limit=st.integers(1_000, 5_000))
def test_whoever_is_held_back_as_told_stays_within_the_rate_but_for_a_burst(sizes: list[int], limit: int) -> None:
    clock = Clock()
    quotas = new_quotas(clock, producer_byte_rate={LEVELS[2]: float(limit)})
    began_ms = clock.now
    for size in sizes:
        clock.now += quotas.charge(PRODUCE, "u", "c", size)
    elapsed_seconds = (clock.now - began_ms) / 1_000
    burst = limit * WINDOWS.span_ms / 1_000
    assert sum(sizes) <= limit * elapsed_seconds + burst + max(sizes)


def test_requests_are_held_back_for_one_window_at_most() -> None:
    quotas = new_quotas(request_percentage={LEVELS[2]: 1.0})
    assert quotas.charge(REQUESTS, "u", "c", 50_000_000) == 0, "50 ms of ten seconds"
    assert quotas.charge(REQUESTS, "u", "c", 10_000_000_000) == 1_000


@pytest.mark.parametrize("limit", [5e-324, 1e-9])
def test_the_lowest_limit_holds_back_as_long_as_can_be_told(limit: float) -> None:
    quotas = new_quotas(producer_byte_rate={LEVELS[2]: limit}, controller_mutation_rate={LEVELS[2]: limit})
    longest = (1 << 31) - 1
    assert quotas.charge(PRODUCE, "u", "c", 1 << 40) == longest
    assert quotas.charge_mutations("u", "c", 1_000) == longest


# Partitions.


@settings(max_examples=examples(100))
@given(
    steps=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 60)), max_size=40),
    limit=st.floats(0.1, 20.0),
)
def test_the_bucket_of_partitions_is_kafkas(steps: list[tuple[int, int]], limit: float) -> None:
    bucket, now_ms = TokenBucket(), 0
    tokens = most = limit * 11
    for step_ms, amount in steps:
        now_ms += step_ms
        tokens = min(tokens + limit * step_ms / 1_000, most) - amount
        bucket.record(amount, limit, WINDOWS, now_ms)
        assert bucket.tokens(limit, WINDOWS, now_ms) == pytest.approx(tokens)
        assert bucket.throttle_ms(limit, WINDOWS, now_ms) == pytest.approx(max(-tokens, 0) / limit * 1_000, abs=1)


def test_whoever_is_in_debt_waits_until_it_is_paid() -> None:
    clock = Clock()
    quotas = new_quotas(clock, controller_mutation_rate={LEVELS[2]: 1.0})
    assert quotas.mutations_throttle_ms("u", "c") == 0
    assert quotas.charge_mutations("u", "c", 13) == 2_000
    clock.now += 1_999
    assert quotas.mutations_throttle_ms("u", "c") == 1
    clock.now += 1
    assert quotas.mutations_throttle_ms("u", "c") == 0


# Connections.


def test_connections_come_at_the_rate_of_their_address() -> None:
    clock = Clock()
    quotas = new_quotas(clock, connection_creation_rate={(("ip", "::1"),): 2.0, (("ip", None),): 1.0})
    assert [quotas.admits_connection("0::1") for _ in range(25)].count(True) == 20
    assert [quotas.admits_connection("10.0.0.1") for _ in range(25)].count(True) == 10
    assert [quotas.admits_connection("::ffff:10.0.0.1") for _ in range(5)].count(True) == 0
    clock.now += 12_000
    assert quotas.admits_connection("10.0.0.1")


def test_without_quotas_nothing_is_limited() -> None:
    quotas = new_quotas()
    assert not quotas.is_set
    assert not quotas.are_connections_limited
    assert quotas.charge(PRODUCE, "u", "c", 1 << 40) == 0
    assert quotas.admits_connection("10.0.0.1")


def test_client_ids_that_are_made_up_take_no_memory_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "METERS_MAX", 10)
    quotas = new_quotas(producer_byte_rate={LEVELS[7]: 100.0})
    quotas.charge(PRODUCE, "u", "busy", 50_000)
    for number in range(100):
        quotas.charge(PRODUCE, "u", f"c-{number}", 1)
        assert quotas.charge(PRODUCE, "u", "busy", 1) > 0, "who is here often is not forgotten"
    assert len(quotas._meters[PRODUCE]) == 10


def test_who_is_held_back_is_counted_by_quota_and_not_by_client() -> None:
    quotas = ClientQuotas(lambda: 0)
    quotas.set_quotas({(("user", None),): {"producer_byte_rate": 10.0}})
    for number in range(20):
        assert quotas.charge("producer_byte_rate", f"user-{number}", "", 1_000.0)
    assert quotas.charge("producer_byte_rate", "another", "", 1.0) == 0
    throttled = quotas.throttled["producer_byte_rate"]
    assert throttled.count == 20
    assert throttled.sum_ms > 0
    assert quotas.throttled["consumer_byte_rate"].count == 0
    assert quotas.entity_counts()["producer_byte_rate"] == 21
