"""Directories that were formatted for a quorum whose voters stand in its log: ours and Kafka's are the same."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from support.clients.kafka_tools import KafkaTools
from support.nodes.server_process import ServerProcess
from tidelog import Admin
from tidelog.cli import app
from tidelog.cli.ports import free_ports

CLUSTER_ID = "jtxwXpv4Sgyz09Nvdi2SYg"
HOST = "127.0.0.1"


@pytest.fixture
def server(tmp_path: Path) -> ServerProcess:
    """A node that is to vote alone, on a directory that is not formatted."""
    (port,) = free_ports(HOST, [None])
    server = ServerProcess(
        tmp_path,
        tmp_path / "data",
        listeners=f"PLAINTEXT://{HOST}:0,CONTROLLER://{HOST}:{port}",
        controller_quorum_bootstrap_servers=f"{HOST}:{port}",
    )
    del server.settings["controller.quorum.voters"]
    (tmp_path / "format.properties").write_text("".join(f"{key}={value}\n" for key, value in server.settings.items()))
    return server


def written(tmp_path: Path) -> tuple[Path, Path]:
    """The snapshot that the log begins with, and the levels that the cluster does."""
    data = tmp_path / "data"
    name = "00000000000000000000-0000000000.checkpoint"
    return data / "__cluster_metadata-0" / name, data / "bootstrap.checkpoint"


def what_it_says(tools: KafkaTools, path: Path) -> list[str]:
    """The records of a snapshot as Kafka reads them, without what differs each time."""
    dumped = tools.run("kafka-dump-log", "--cluster-metadata-decoder", "--files", str(path)).output
    assert "isvalid: false" not in dumped
    found = re.findall(r"headerKeys: \[\] (.*)$", dumped, re.MULTILINE)
    unlike = r'"(lastContainedLogTimestamp|voterDirectoryId)":("[^"]*"|[0-9]+)'
    return [re.sub(unlike, r'"\1":…', line) for line in found]


def test_ours_reads_as_kafkas_does(tools: KafkaTools, server: ServerProcess, tmp_path: Path) -> None:
    file = str(tmp_path / "format.properties")
    salt = base64.b64encode(b"some salt").decode()
    users = [
        f'SCRAM-SHA-256=[name=alice,iterations=8192,salt="{salt}",password=alice-secret]',
        f'SCRAM-SHA-512=[name="bob",salt="{salt}",password="with = and ]"]',
    ]
    flags = ["-t", CLUSTER_ID, "-c", file, "--standalone", *(flag for user in users for flag in ("--add-scram", user))]
    assert app.run(["storage", "format", *flags, "--feature", "metadata.version=21"]) == 0
    ours = [what_it_says(tools, path) for path in written(tmp_path)]
    (tmp_path / "data").rename(tmp_path / "ours")
    tools.run("kafka.tools.StorageTool", "format", *flags, "--release-version", "3.9")
    theirs = [what_it_says(tools, path) for path in written(tmp_path)]
    assert ours == theirs
    assert any("KRaftVoters" in line for line in ours[0])
    assert sum("USER_SCRAM_CREDENTIAL_RECORD" in line for line in ours[1]) == len(users)
    assert any("FEATURE_LEVEL_RECORD" in line for line in ours[1])


def test_a_directory_of_kafkas_is_served_at_its_level(
    tools: KafkaTools, server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["-t", CLUSTER_ID, "-c", str(tmp_path / "format.properties"), "--standalone"]
    tools.run("kafka.tools.StorageTool", "format", *flags, "--release-version", "3.9")
    snapshot, levels = written(tmp_path)
    assert app.run(["log", "dump", str(snapshot), "--records"]) == 0
    assert "KRAFT_VOTERS" in capsys.readouterr().out
    assert app.run(["log", "dump", str(levels), "--records"]) == 0
    assert "FeatureLevelRecord(name='metadata.version', feature_level=21)" in capsys.readouterr().out
    try:
        server.start()
        with Admin(f"{HOST}:{server.port}") as admin:
            assert admin.describe_features()["metadata.version"].level == 21
            [voter] = admin.describe_quorum().voters
        assert f"directory.id={voter.directory_id}" in (tmp_path / "data" / "meta.properties").read_text()
        assert server.end() == 0
    finally:
        server.close()
