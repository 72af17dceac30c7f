"""Transactions of our own producers on a real node, as consumers of ours read them, in both protocols."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from support.clients.wire_client import WireClient
from support.load.own_transactions import (
    aborted_is_not_read,
    another_takes_over,
    offsets_and_output_together,
    open_for_too_long,
    prepared_and_resumed,
    refused_and_gone_on,
)
from support.nodes.node import NodeProcess, StartNode
from tidelog import Admin, NewTopic
from tidelog.client.admin.cluster_descriptions import FeatureUpdate
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_10_find_coordinator import (
    KEY_TYPE_TRANSACTION,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.wire.messages.api_22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.api_25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


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


def test_a_group_is_added_before_anybody_asked_for_its_coordinator(older_node: NodeProcess) -> None:
    with Admin(older_node.bootstrap) as admin, WireClient(older_node.port) as client:
        assert "__consumer_offsets" not in {listing.name for listing in admin.list_topics()}
        find = FindCoordinatorRequest(coordinator_keys=["id"], key_type=KEY_TYPE_TRANSACTION)
        client.ask(ApiKey.FIND_COORDINATOR, 4, find, FindCoordinatorResponse)
        init = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
        producer = client.ask(ApiKey.INIT_PRODUCER_ID, 4, init, InitProducerIdResponse)
        add = AddOffsetsToTxnRequest(
            transactional_id="id",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            group_id="group",
        )
        assert client.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, add, AddOffsetsToTxnResponse).error_code == 0


def test_what_was_aborted_is_not_read_as_records_arrow_or_batches(bootstrap: str, topic: str) -> None:
    aborted_is_not_read(bootstrap, topic)


def test_offsets_are_committed_with_the_output_or_not_at_all(bootstrap: str, topic: str) -> None:
    offsets_and_output_together(bootstrap, topic)


def test_of_two_producers_with_one_id_the_older_is_fenced(bootstrap: str, topic: str) -> None:
    another_takes_over(bootstrap, topic)


def test_what_is_refused_aborts_its_transaction_and_no_other(bootstrap: str, topic: str) -> None:
    refused_and_gone_on(bootstrap, topic)


def test_what_is_open_for_too_long_is_aborted(bootstrap: str, topic: str) -> None:
    open_for_too_long(bootstrap, topic)


def test_what_one_prepared_another_commits_or_aborts(bootstrap: str, topic: str) -> None:
    asyncio.run(prepared_and_resumed(bootstrap, topic))
