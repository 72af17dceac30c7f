"""Users and quotas in a cluster: any broker is asked, all of them know, and replication is not held back."""

from __future__ import annotations

from support.clients.wire_client import batch_of
from support.fixtures.waiting import wait_until
from support.nodes.cluster import Cluster
from tidelog import Admin
from tidelog.client.admin.quota_descriptions import ClientQuotaEntity, QuotaName
from tidelog.client.admin.user_descriptions import UserScramCredentialUpsertion
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

EVERY_USER = ClientQuotaEntity(user=QuotaName.DEFAULT)


def test_any_broker_passes_changes_on_and_all_brokers_know(cluster: Cluster) -> None:
    controller = cluster.active_controller()
    other = cluster.another(controller.node_id)
    with Admin(f"{other.host}:{other.port}") as admin:
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", "secret")])
        admin.alter_client_quotas({EVERY_USER: {"request_percentage": 90.0}})
    for node in cluster.running:
        with Admin(f"{node.host}:{node.port}") as admin:

            def is_known(admin: Admin = admin) -> bool:
                return bool(admin.describe_user_scram_credentials()) and bool(admin.describe_client_quotas())

            wait_until(is_known, "the users and the quotas are known")
            admin.alter_client_quotas({EVERY_USER: {"request_percentage": 90.0}})
    with Admin(cluster.bootstrap) as admin:
        admin.alter_client_quotas({EVERY_USER: {"request_percentage": None}})


def test_followers_are_not_held_back_by_quotas_of_clients(cluster: Cluster, topic: str) -> None:
    """Nodes and clients share the listener here, and are the same user."""
    cluster.create_topic(topic)
    with Admin(cluster.bootstrap) as admin:
        admin.alter_client_quotas({EVERY_USER: {"consumer_byte_rate": 10.0}})
        leader = cluster.leader_of(topic)
        with leader.ask(leader.port) as client:
            for _ in range(5):
                assert client.produce(topic, batch_of(b"x" * 50_000), acks=-1).error_code == 0
        cluster.wait_until_in_sync(topic)
        admin.alter_client_quotas({EVERY_USER: {"consumer_byte_rate": None}})


def test_a_broker_counts_the_partitions_that_it_has_the_controller_make(cluster: Cluster) -> None:
    other = cluster.another(cluster.active_controller().node_id)
    with Admin(cluster.bootstrap) as admin:
        admin.alter_client_quotas({EVERY_USER: {"controller_mutation_rate": 1.0}})

        def is_held_back() -> bool:
            request = CreateTopicsRequest(
                topics=[CreatableTopic(f"counted-{len(admin.list_topics())}", 30, 1)], timeout_ms=10_000
            )
            with other.ask(other.port) as client:
                return client.ask(ApiKey.CREATE_TOPICS, 7, request, CreateTopicsResponse).throttle_time_ms > 0

        wait_until(is_held_back, "the client is held back")
        admin.alter_client_quotas({EVERY_USER: {"controller_mutation_rate": None}})
