"""Setting quotas of clients: what is refused, and that each entity stands for itself."""

from __future__ import annotations

from math import inf, nan

import pytest

from tidelog.base.errors import Code
from tidelog.controller import ControllerSettings, ControllerState
from tidelog.controller.client_quotas import AlteredQuotas, QuotasToAlter

Parts = tuple[tuple[str, str | None], ...]
Changes = tuple[tuple[str, float | None], ...]

ALICE: Parts = (("user", "alice"),)
RATE = "producer_byte_rate"
CREATION = "connection_creation_rate"


def alter(
    state: ControllerState, *entries: tuple[Parts, Changes], validate_only: bool = False
) -> tuple[AlteredQuotas, ...]:
    decision = state.decide_alter_client_quotas([QuotasToAlter(*one) for one in entries], validate_only=validate_only)
    for record in decision.records:
        state.apply(record)
    return decision.reply


def new_state() -> ControllerState:
    return ControllerState(ControllerSettings())


def test_a_quota_is_set_changed_and_taken_back() -> None:
    state = new_state()
    for value in (1024.0, 2048.0):
        assert [one.code for one in alter(state, (ALICE, ((RATE, value),)))] == [Code.NONE]
        assert state.metadata.client_quotas == {ALICE: {RATE: value}}
    alter(state, (ALICE, ((RATE, None),)))
    assert state.metadata.client_quotas == {}


def test_what_is_so_already_takes_no_record() -> None:
    state = new_state()
    alter(state, (ALICE, ((RATE, 1.0),)))
    same = [QuotasToAlter(ALICE, ((RATE, 1.0), ("request_percentage", None)))]
    assert state.decide_alter_client_quotas(same).records == ()


def test_an_entity_is_one_in_whatever_order_its_parts_come() -> None:
    state = new_state()
    alter(state, ((("user", "a"), ("client-id", None)), ((RATE, 1.0),)))
    alter(state, ((("client-id", None), ("user", "a")), ((RATE, 2.0),)))
    assert state.metadata.client_quotas == {(("client-id", None), ("user", "a")): {RATE: 2.0}}


def test_validating_changes_nothing() -> None:
    state = new_state()
    good, bad = (ALICE, ((RATE, 1.0),)), ((("user", ""),), ((RATE, 1.0),))
    altered = alter(state, good, bad, validate_only=True)
    assert [one.code for one in altered] == [Code.NONE, Code.INVALID_REQUEST]
    assert state.metadata.client_quotas == {}


def test_each_entity_stands_for_itself_and_nothing_of_a_refused_one_is_changed() -> None:
    state = new_state()
    altered = alter(state, (ALICE, ((RATE, 1.0), ("nonsense", 2.0))), ((("ip", None),), ((CREATION, 5.0),)))
    assert [one.code for one in altered] == [Code.INVALID_REQUEST, Code.NONE]
    assert "nonsense" in (altered[0].message or "")
    assert state.metadata.client_quotas == {(("ip", None),): {CREATION: 5.0}}


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ((), "empty"),
        ((("group", "g"),), "'group' is no type"),
        ((("user", ""),), "empty name"),
        ((("user", "a"), ("user", "b")), "more than one user"),
        ((("ip", "10.0.0.1"), ("user", "a")), "cannot be combined"),
        ((("client-id", "a"), ("ip", "10.0.0.1")), "cannot be combined"),
        ((("ip", "10.0.0.999"),), "no IP address"),
        ((("user", "x" * 40_000),), "longer than"),
    ],
)
def test_an_entity_that_cannot_be_is_refused(parts: Parts, says: str) -> None:
    (altered,) = alter(new_state(), (parts, ((RATE, 1.0),)))
    assert altered.code == Code.INVALID_REQUEST
    assert says in (altered.message or "")
    assert altered.parts == parts


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (RATE, 0.0, "above 0"),
        (RATE, -1.0, "above 0"),
        (RATE, nan, "above 0"),
        (RATE, inf, "above 0"),
        (RATE, 1.5, "whole number"),
        (RATE, 1e19, "the highest is"),
        ("request_percentage", nan, "above 0"),
        ("controller_mutation_rate", -inf, "above 0"),
        (CREATION, 5.0, "has no quota"),
        ("", 5.0, "has no quota"),
    ],
)
def test_a_value_that_cannot_be_is_refused(key: str, value: float, says: str) -> None:
    (altered,) = alter(new_state(), (ALICE, ((key, value),)))
    assert altered.code == Code.INVALID_REQUEST
    assert says in (altered.message or "")


def test_fractions_are_taken_where_they_mean_something() -> None:
    assert alter(new_state(), (ALICE, (("request_percentage", 12.5), ("controller_mutation_rate", 0.5))))[0].code == 0


def test_what_is_named_twice_is_refused() -> None:
    state = new_state()
    (key_twice,) = alter(state, (ALICE, ((RATE, 1.0), (RATE, None))))
    twice = alter(state, (ALICE, ((RATE, 1.0),)), (ALICE, ((RATE, 2.0),)))
    assert [one.code for one in (key_twice, *twice)] == [Code.INVALID_REQUEST] * 3
    assert state.metadata.client_quotas == {}


@pytest.mark.parametrize("spelt", ["::1", "0:0:0:0:0:0:0:1", "0000::0001"])
def test_an_address_is_one_however_it_is_spelt(spelt: str) -> None:
    state = new_state()
    alter(state, ((("ip", "::1"),), ((CREATION, 1.0),)))
    (altered,) = alter(state, ((("ip", spelt),), ((CREATION, 2.0),)))
    assert altered.parts == (("ip", spelt),)
    assert state.metadata.client_quotas == {(("ip", "::1"),): {CREATION: 2.0}}
    twice = alter(state, ((("ip", "::1"),), ((CREATION, 3.0),)), ((("ip", "0::1"),), ((CREATION, 4.0),)))
    assert [one.code for one in twice] == [Code.INVALID_REQUEST] * 2


def test_an_ipv4_address_within_ipv6_is_that_address() -> None:
    state = new_state()
    alter(state, ((("ip", "::ffff:10.0.0.1"),), ((CREATION, 1.0),)))
    assert state.metadata.client_quotas == {(("ip", "10.0.0.1"),): {CREATION: 1.0}}
