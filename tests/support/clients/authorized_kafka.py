"""A broker of Apache Kafka with an authorizer, whose clients on the listener PLAINTEXT are nobody in particular."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.clients.kafka_peer import TOOL_FLAGS, KafkaPeer
from tidelog.cli.ports import free_ports

PASSWORD = "broker-secret"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class AuthorizedKafka:
    """One broker. Its nodes are `User:broker`, who may do everything, and there are no rules for anybody else.

    Args:
        directory: of all files.

    Attributes:
        peer: the broker; `peer.port` is that of the listener where clients are `User:ANONYMOUS`.
        internal_port: of the listener where a client has to be `User:broker`.
    """

    def __init__(self, directory: Path) -> None:
        self.peer = KafkaPeer(directory, flags=TOOL_FLAGS)
        (self.internal_port,) = free_ports("127.0.0.1", [None])
        listeners = {
            "PLAINTEXT": self.peer.port,
            "INTERNAL": self.internal_port,
            "CONTROLLER": self.peer.controller_port,
        }
        login = f'{_LOGIN} username="broker" password="{PASSWORD}" user_broker="{PASSWORD}";'
        self.peer.config = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
            "listener.security.protocol.map": ("PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"),
            "inter.broker.listener.name": "INTERNAL",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.internal.plain.sasl.jaas.config": login,
            "listener.name.controller.plain.sasl.jaas.config": login,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:broker",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
        }

    @property
    def trusted(self) -> dict[str, Any]:
        """What a client is given that may do everything."""
        return {
            "bootstrap_servers": f"127.0.0.1:{self.internal_port}",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "broker",
            "sasl_password": PASSWORD,
        }

    def tool_arguments(self, directory: Path) -> list[str]:
        """What Kafka's tools are given that may do everything."""
        properties = directory / "trusted.properties"
        properties.write_text(
            "security.protocol=SASL_PLAINTEXT\n"
            "sasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={_LOGIN} username="broker" password="{PASSWORD}";\n'
        )
        return ["--bootstrap-server", f"127.0.0.1:{self.internal_port}", "--command-config", str(properties)]
