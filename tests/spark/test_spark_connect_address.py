"""A server of Spark Connect that a command starts listens on the loopback; Spark would have it listen everywhere."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tidelog[spark-local]'")
pytest.importorskip("grpc", reason="Spark Connect is not installed: pip install 'tidelog[spark-connect]'")

SECONDS_MAX = 200
ANOTHER_ADDRESS = "127.0.0.2"  # Linux has it too; who listens on all addresses listens there
SCRIPT = f"""
import socket
from tidelog.cli.spark_audit import _session
_session(None, "local[1]", {{}})
from pyspark.sql.connect.client import DefaultChannelBuilder
port = DefaultChannelBuilder.default_port()
with socket.create_connection(("127.0.0.1", port), 10):
    pass
try:
    socket.create_connection(("{ANOTHER_ADDRESS}", port), 10)
except ConnectionRefusedError:
    print("on the loopback alone")
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have one loopback address")
@pytest.mark.timeout(2 * SECONDS_MAX)
def test_the_audit_starts_its_server_on_the_loopback() -> None:
    from tidelog.spark.session import java_environment

    environment = os.environ | java_environment() | {"SPARK_TESTING": "1"}  # a port of its own
    command = [sys.executable, "-c", SCRIPT]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert "on the loopback alone" in ran.stdout, ran.stderr[-4_000:]
    assert "Failed to set" not in ran.stderr
