"""Transactions of our own producers on a real node, as consumers of ours read them, in both protocols."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from support.load.own_transactions import (
    aborted_is_not_read,
    another_takes_over,
    offsets_and_output_together,
    prepared_and_resumed,
)
from support.nodes.node import NodeProcess, StartNode
from tidelog import Admin, NewTopic
from tidelog.client.admin.cluster_descriptions import FeatureUpdate


@pytest.fixture(scope="module")
def older_node(start_node: StartNode) -> Iterator[NodeProcess]:
    """Whose cluster speaks the protocol before KIP-890."""
    node = start_node()
    with Admin(node.bootstrap) as admin:
        admin.update_features({"transaction.version": FeatureUpdate(1, "safe downgrade")})
    yield node
    node.close()


@pytest.fixture(params=["shared_node", "older_node"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    node: NodeProcess = request.getfixturevalue(request.param)
    return node.bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest, bootstrap: str) -> str:
    name = re.sub("[^a-z-]+", "-", request.node.name).strip("-")
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2)])
    return name


def test_what_was_aborted_is_not_read_as_records_arrow_or_batches(bootstrap: str, topic: str) -> None:
    aborted_is_not_read(bootstrap, topic)


def test_offsets_are_committed_with_the_output_or_not_at_all(bootstrap: str, topic: str) -> None:
    offsets_and_output_together(bootstrap, topic)


def test_of_two_producers_with_one_id_the_older_is_fenced(bootstrap: str, topic: str) -> None:
    another_takes_over(bootstrap, topic)


def test_what_one_prepared_another_commits_or_aborts(bootstrap: str, topic: str) -> None:
    asyncio.run(prepared_and_resumed(bootstrap, topic))
