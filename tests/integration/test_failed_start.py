"""A node that does not come to serve: it ends, with the reason, and it can be told to end meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.clients.wire_client import WireClient
from support.nodes.node import NodeProcess
from support.nodes.server_process import STOP_SECONDS_MAX, NodeFailedError
from tidelog.base.ids import CLUSTER_METADATA
from tidelog.io.disk import RealDisk
from tidelog.log import Log, LogConfig
from tidelog.metadata.records import PartitionChangeRecord, encode_record
from tidelog.records import BatchBuilder

STARTS_FOR_EVER = """
import asyncio, sys
from tidelog.server import node

async def start(self):
    print("starting", flush=True)
    await asyncio.Event().wait()

node.Node.start = start
sys.argv = ["tidelog", "server", sys.argv[1]]
from tidelog.cli import main
main()
"""


def test_a_broker_that_cannot_follow_its_metadata_ends_and_says_why(node: NodeProcess) -> None:
    with WireClient(node.port) as client:
        topic_id = client.create_topic("flights").topic_id
    node.stop()
    directory = str(node.data_dir / "node-1" / str(CLUSTER_METADATA))
    log = Log.open(RealDisk(), directory, CLUSTER_METADATA, LogConfig(), topic_id=None, clean_shutdown=True, now_ms=0)
    builder = BatchBuilder()
    builder.append(0, None, encode_record(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[7])))
    epoch = log.lineage.latest_leader_epoch
    assert epoch is not None
    log.append_as_leader(memoryview(bytearray(builder.build())), leader_epoch=epoch, now_ms=0, origin="controller")
    log.close()
    with pytest.raises(NodeFailedError, match="status 1 before it was ready"):
        node.start()
    assert "node 1 gives up: the committed metadata cannot be applied: flights-0" in node.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_a_node_that_is_still_starting(tmp_path: Path, number: signal.Signals) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:0\n"
        f"log.dirs={tmp_path / 'logs'}\n"
    )
    starting = subprocess.Popen([sys.executable, "-c", STARTS_FOR_EVER, str(settings)], stdout=subprocess.PIPE)
    try:
        assert starting.stdout is not None
        with starting.stdout as stdout:
            assert stdout.readline() == b"starting\n"
            starting.send_signal(number)
            assert starting.wait(STOP_SECONDS_MAX) == -number
    finally:
        starting.kill()
        starting.wait()
