"""Spark's own Kafka connector against a node: batch write, streaming with a checkpoint, batch read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.clients.kafka_peer import SPARK_JARS, missing_peers
from support.nodes.node import StartNode
from tidelog.cli.app import run
from tidelog.spark import CheckpointError, losses


@pytest.mark.spark
def test_every_row_is_copied_once(start_node: StartNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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

    # Its checkpoint is read: where a query of Tidelog's source would go on, and what the checkpoint cannot tell.
    checkpoint = str(tmp_path / "checkpoint")
    assert run(["spark", "offsets", checkpoint]) == 0
    assert "it holds no leader epochs: whether the log was truncated" in capsys.readouterr().out
    assert run(["spark", "offsets", checkpoint, "--output", "value"]) == 0
    stands = json.loads(capsys.readouterr().out)
    assert sum(stands["written"].values()) == 1_010
    with pytest.raises(CheckpointError, match="it reads with Spark's Kafka connector, whose offsets hold no leader"):
        losses(checkpoint)
    node.close()
