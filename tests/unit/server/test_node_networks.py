"""Settings of TLS that cannot be, while a node runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tidelog.base.certificates import Certificates
from tidelog.metadata.configs import BrokerSettings
from tidelog.server.settings.config import NodeConfig
from tidelog.server.transport.node_networks import NodeNetworks


class Plain:
    """Every network over TLS is this one."""

    def __init__(self) -> None:
        self.renewed: list[Certificates] = []

    def over_tls(self, certificates: Certificates, *, listens: bool) -> Plain:
        return self

    def renew(self, certificates: Certificates) -> None:
        self.renewed.append(certificates)


class Settings:
    def __init__(self, broker: BrokerSettings) -> None:
        self.broker = broker


def test_what_cannot_be_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": "SSL://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@localhost:9093",
        "security.inter.broker.protocol": "SSL",
        "log.dirs": "/srv/log",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "node.pem"),
    }
    networks = NodeNetworks(NodeConfig.from_properties(file), cast(Any, Plain()))
    networks.of_listener("SSL")
    wrong = BrokerSettings(file, {"listener.name.ssl.ssl.keystore.type": "JKS"}, {})
    networks.on_settings(None, cast(Any, Settings(wrong)))
    told = len(caplog.records)
    assert 1 <= told <= 2
    for _ in range(3):
        networks.look()
    assert len(caplog.records) == told
