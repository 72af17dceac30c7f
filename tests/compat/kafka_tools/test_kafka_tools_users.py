"""kafka-configs against the users and quotas of a node, and what Kafka reads of what is kept of passwords."""

from __future__ import annotations

import re

from support.clients.kafka_tools import KafkaTools
from support.nodes.node import NodeProcess
from tidelog import Admin
from tidelog.client.admin.quota_descriptions import ClientQuotaEntity, QuotaName
from tidelog.client.admin.user_descriptions import UserScramCredentialUpsertion


def test_users(tools: KafkaTools, node: NodeProcess) -> None:
    at = ("--bootstrap-server", node.bootstrap, "--entity-type", "users")

    def configs(*arguments: str, status: int = 0) -> str:
        ran = tools.run("kafka-configs", *at, *arguments, status=status)
        return ran.output + ran.errors

    alice = ("--entity-name", "alice")
    configs(*alice, "--alter", "--add-config", "SCRAM-SHA-256=[password=secret]")
    configs(*alice, "--alter", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=secret]")
    described = configs(*alice, "--describe")
    assert "SCRAM-SHA-256=iterations=4096" in described
    assert "SCRAM-SHA-512=iterations=8192" in described
    configs(*alice, "--alter", "--delete-config", "SCRAM-SHA-512")
    with Admin(node.bootstrap) as admin:
        assert admin.describe_user_scram_credentials() == {"alice": {"SCRAM-SHA-256": 4096}}
        assert "has no credential for SCRAM-SHA-512" in configs(
            *alice, "--alter", "--delete-config", "SCRAM-SHA-512", status=1
        )


def test_kafka_reads_what_is_kept(tools: KafkaTools, node: NodeProcess) -> None:
    with Admin(node.bootstrap) as admin:
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", "secret")])
    (segment,) = (node.data_dir / "node-1" / "__cluster_metadata-0").glob("*.log")
    dumped = tools.run("kafka-dump-log", "--cluster-metadata-decoder", "--files", str(segment)).output
    (line,) = (line for line in dumped.splitlines() if "USER_SCRAM_CREDENTIAL_RECORD" in line and '"bob"' in line)
    assert re.search(r'"mechanism":1,"salt":"[^"]+","storedKey":"[^"]+","serverKey":"[^"]+","iterations":4096', line)


def test_quotas(tools: KafkaTools, node: NodeProcess) -> None:
    at = ("--bootstrap-server", node.bootstrap)

    def configs(*arguments: str) -> str:
        return tools.run("kafka-configs", *at, *arguments).output

    user, client = ("--entity-type", "users"), ("--entity-type", "clients")
    rates = "producer_byte_rate=1024,consumer_byte_rate=2048,request_percentage=12.5"
    configs("--alter", "--add-config", rates, *user, "--entity-name", "carol", *client, "--entity-default")
    configs("--alter", "--add-config", "controller_mutation_rate=3", *client, "--entity-name", "app")
    configs(
        "--alter", "--add-config", "connection_creation_rate=7", "--entity-type", "ips", "--entity-name", "10.0.0.1"
    )
    carol, default = ClientQuotaEntity("carol", QuotaName.DEFAULT), ClientQuotaEntity(client_id="app")
    with Admin(node.bootstrap) as admin:
        assert admin.describe_client_quotas() == {
            carol: {"producer_byte_rate": 1024.0, "consumer_byte_rate": 2048.0, "request_percentage": 12.5},
            default: {"controller_mutation_rate": 3.0},
            ClientQuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 7.0},
        }
    told = configs("--describe", *user, "--entity-name", "carol", *client, "--entity-default")
    assert "producer_byte_rate=1024.0" in told
    assert "connection_creation_rate=7.0" in configs("--describe", "--entity-type", "ips")
    configs("--alter", "--delete-config", "controller_mutation_rate", *client, "--entity-name", "app")
    with Admin(node.bootstrap) as admin:
        assert default not in admin.describe_client_quotas()
