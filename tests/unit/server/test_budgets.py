"""Budgets of peers: what is spent, what comes back, whom they are for, and how much memory they take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.server.quotas import budgets, failed_logins
from tidelog.server.quotas.budgets import Budgets, network_of
from tidelog.server.quotas.failed_logins import FailedLogins, claimed_user


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms


def test_a_budget_is_spent_and_comes_back() -> None:
    clock = Clock()
    each = Budgets[str](10, 1_000, clock.now_ms)
    assert (each.left("a"), len(each)) == (10, 0)
    each.spend("a", 10)
    assert (each.left("a"), each.left("b")) == (0, 10)
    clock.ms += 500
    assert each.left("a") == 5
    clock.ms += 10_000
    assert each.left("a") == 10


def test_nobody_is_in_debt() -> None:
    clock = Clock()
    each = Budgets[str](10, 1_000, clock.now_ms)
    each.spend("a", 1_000)
    clock.ms += 1_000
    assert each.left("a") == 10


def test_what_came_to_nothing_is_given_back() -> None:
    each = Budgets[str](10, 1_000, lambda: 0)
    each.spend("a", 6)
    each.give_back("a", 4)
    each.give_back("b", 100)
    assert (each.left("a"), each.left("b")) == (8, 10)
    each.give_back("a", 100)
    assert each.left("a") == 10


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 20))))
def test_never_more_is_spent_than_came_in(steps: list[tuple[int, int]]) -> None:
    clock, spent = Clock(), 0
    each = Budgets[str](10, 1_000, clock.now_ms)
    for waited_ms, wanted in steps:
        clock.ms += waited_ms
        count = min(wanted, each.left("a"))
        each.spend("a", count)
        spent += count
    assert spent <= 10 + clock.ms * 10 / 1_000


def test_a_larger_limit_counts_at_once() -> None:
    each = Budgets[str](1, 1_000, lambda: 0)
    each.spend("a")
    each.count_max = 5
    each.spend("b")
    assert each.left("b") == 4


def test_those_who_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "OWNERS_MAX", 3)
    each = Budgets[str](10, 1_000, lambda: 0)
    for owner in ("a", "b", "c", "a", "d"):
        each.spend(owner)
    assert len(each) == 3
    assert [each.left(owner) for owner in ("a", "b", "c", "d")] == [8, 10, 9, 9]


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("?", "?"),
    ],
)
def test_whoever_has_an_ipv6_network_is_one_peer(host: str, network: str) -> None:
    assert network_of(host) == network


def test_a_known_user_is_counted_apart_and_not_without_limit() -> None:
    logins = FailedLogins(3, lambda: 0)
    logins.on_succeeded("h", "alice")
    for _ in range(3):
        logins.on_failed("h", "mallory")
    assert [logins.admits("h", "mallory"), logins.admits("h", "bob"), logins.admits("h", "alice")] == [
        False,
        False,
        True,
    ]
    for _ in range(3):
        logins.on_failed("h", "alice")
    assert not logins.admits("h", "alice")
    assert logins.admits("another", "alice")
    assert logins.budgets.refused == 3


def test_known_users_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_logins, "OWNERS_MAX", 2)
    logins = FailedLogins(1, lambda: 0)
    for user in ("alice", "bob", "carol"):
        logins.on_succeeded("h", user)
    logins.on_failed("h", "mallory")
    assert [logins.admits("h", user) for user in ("alice", "bob", "carol")] == [False, True, True]
    logins.on_succeeded("h", "x" * 1_000)
    assert not logins.admits("h", "x" * 1_000)


@pytest.mark.parametrize(
    ("message", "user"),
    [
        (b"\0alice\0secret", "alice"),
        (b"n,,n=al=2Cice,r=abc", "al,ice"),
        (b"n,a=bob,n=alice,r=abc", "alice"),
        (b"n,,auth=Bearer abc", ""),
        (b"", ""),
        (b"\0\xff\0x", "\ufffd"),
    ],
)
def test_who_a_message_is_said_to_be_from(message: bytes, user: str) -> None:
    assert claimed_user(message) == user
