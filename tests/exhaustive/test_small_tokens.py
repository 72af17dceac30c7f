"""Consistency tokens in small worlds, to the last state: brokers that lag, a controller that was deposed (KIP-1243)."""

from __future__ import annotations

import pytest

from support.exhaustive.small_token_world import TOPIC, TokenBounds, TokenWorld
from support.exhaustive.small_world_search import explore
from support.old_rules.token_rules import OLD_TOKEN_RULES
from tidelog.server.api.apis import DENIALS
from tidelog.server.api.gated_apis import AreDenied
from tidelog.wire.api import ApiKey


@pytest.mark.parametrize("bounds", [TokenBounds(brokers=2), TokenBounds(changes=3)], ids=lambda bounds: bounds.text)
def test_todays_rules_break_nothing(bounds: TokenBounds) -> None:
    explored = explore(TokenWorld(bounds))
    assert not explored.broken, explored.steps
    assert explored.states > 500


@pytest.mark.parametrize(
    ("rule", "invariant"),
    [
        ("without-tokens", "MetadataNeverGoesBack"),
        ("monotonic-reads-only", "MetadataNeverGoesBack"),
        ("ten-reads-only", "OwnWritesSeen"),
    ],
)
def test_rules_that_were_replaced_are_refuted(rule: str, invariant: str) -> None:
    explored = explore(TokenWorld(TokenBounds(brokers=2), OLD_TOKEN_RULES[rule]), is_traced=True)
    assert explored.broken.startswith(f"{invariant}:"), explored
    assert len(explored.steps) <= 3


def test_a_broker_cannot_tell_what_a_deposed_controller_will_refuse() -> None:
    """It has heard neither of a topic nor that it was deleted; whom it asks has heard the one, and not the other."""
    by_its_image: dict[int, AreDenied] = {
        **DENIALS,
        ApiKey.CREATE_TOPICS: lambda node, request: iter([node.image.topic(TOPIC) is not None]),
        ApiKey.DELETE_TOPICS: lambda node, request: iter([node.image.topic(TOPIC) is None]),
    }
    explored = explore(TokenWorld(TokenBounds(brokers=2), denials=by_its_image), is_traced=True)
    assert explored.broken.startswith("OwnWritesSeen: the client was answered by a controller")
    assert [action for action, _ in explored.steps] == [
        ("another changes it",),
        ("depose",),
        ("DELETE_TOPICS", 0),
        ("CREATE_TOPICS", 1, "deposed"),
    ]
