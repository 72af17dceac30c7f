"""Kafka's own `config/server.properties`, with other ports and paths, is a node's as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.clients.wire_client import WireClient
from support.nodes.server_process import NodeFailedError, ServerProcess

STOCK = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:0,CONTROLLER://:0
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:0,CONTROLLER://localhost:0
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_a_node_serves_with_kafkas_stock_file(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, tmp_path / "kraft-combined-logs")
    server.settings = dict(line.split("=", 1) for line in STOCK.splitlines())
    server.settings["log.dirs"] = str(tmp_path / "kraft-combined-logs")
    server.start()
    try:
        with WireClient(server.port) as client:
            assert client.create_topic("stock").error_code == 0
    finally:
        assert server.end() == 0
    assert "ERROR" not in server.log
    (told,) = (line for line in server.log.splitlines() if "WARNING" in line and "do nothing here" in line)
    assert "num.io.threads" in told


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("authorizer.class.name", "a.b.Authorizer", "StandardAuthorizer"),
        ("super.users", "User:admin", "there is no authorizer"),
        ("remote.log.storage.system.enable", "true", "there is no tiered storage"),
    ],
)
def test_a_node_does_not_start_with_what_would_be_believed_of_it(
    tmp_path: Path, key: str, value: str, says: str
) -> None:
    server = ServerProcess(tmp_path, tmp_path / "logs")
    server.settings[key] = value
    with pytest.raises(NodeFailedError):
        server.start()
    assert f"{key}: " in server.log
    assert says in server.log
    assert "hunter2" not in server.log
