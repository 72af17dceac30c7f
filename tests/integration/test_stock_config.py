"""Kafka's own `config/server.properties`, with other ports and paths, is a node's as it stands."""

from __future__ import annotations

from pathlib import Path

from support.server_process import ServerProcess
from support.wire_client import WireClient

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
