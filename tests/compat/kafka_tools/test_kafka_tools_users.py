"""kafka-configs against the SCRAM users of a node: set, described and removed; and its dump of what is kept."""

from __future__ import annotations

import re

from support.clients.kafka_tools import KafkaTools
from support.nodes.node import NodeProcess
from tidelog import Admin
from tidelog.client.admin.user_descriptions import UserScramCredentialUpsertion


def test_users(tools: KafkaTools, node: NodeProcess) -> None:
    at = ("--bootstrap-server", node.bootstrap, "--entity-type", "users")

    def configs(*arguments: str, status: int = 0) -> str:
        ran = tools.run("kafka-configs", *at, *arguments, status=status)
        return ran.output + ran.errors

    alice = ("--entity-name", "alice")
    configs(*alice, "--alter", "--add-config", "SCRAM-SHA-256=[password=secret]")
    configs(*alice, "--alter", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=secret]")
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
