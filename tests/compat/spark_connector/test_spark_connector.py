"""Spark's own Kafka connector against a node: batch write, streaming with a checkpoint, batch read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.clients.kafka_peer import SPARK_JARS, missing_peers
from support.nodes.node import StartNode


@pytest.mark.spark
def test_every_row_is_copied_once(start_node: StartNode, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tidelog[spark-local]'")
    if (reason := missing_peers(jars=SPARK_JARS)) is not None:
        pytest.skip(reason)
    node = start_node(config={"num.partitions": "3"})
    jars = ",".join(str(jar) for jar in SPARK_JARS.glob("*.jar"))
    script = Path(__file__).parent / "copy_and_count.py"
    command = [sys.executable, str(script), node.bootstrap, jars, str(tmp_path / "checkpoint")]
    ran = subprocess.run(command, capture_output=True, check=False, timeout=110, text=True)
    assert ran.returncode == 0, ran.stderr[-4_000:]
    rows = json.loads(ran.stdout.splitlines()[-1])
    assert sorted((int(key), value) for key, value, _, _ in rows) == sorted(
        (number, f"value {number}") for number in [*range(1_000), *range(10)]
    )
    for partition in range(3):
        offsets = sorted(row[2] for row in rows if row[3] == partition)
        assert offsets == list(range(len(offsets)))
        assert offsets
    node.close()
