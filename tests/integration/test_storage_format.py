"""`tidelog storage format` as Kafka's operators know it: who votes at first, and at which level a cluster begins."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

import pytest

from support.nodes.server_process import ServerProcess
from tidelog import Admin
from tidelog.base.ids import uuid_text
from tidelog.cli import app
from tidelog.cli.command import USAGE
from tidelog.cli.node_directories import owner_of
from tidelog.cli.ports import free_ports
from tidelog.client.admin.user_descriptions import UserScramCredentialDeletion
from tidelog.metadata.features import METADATA_VERSION

CLUSTER_ID = "jtxwXpv4Sgyz09Nvdi2SYg"
HOST = "127.0.0.1"


class Nodes:
    """Nodes whose voters stand in the log, not yet formatted."""

    def __init__(self, home: Path, count: int, stack: ExitStack) -> None:
        self.controllers = free_ports(HOST, [None] * count)
        self.home = home
        self.of: dict[int, ServerProcess] = {}
        for node_id, port in enumerate(self.controllers, start=1):
            server = ServerProcess(
                home,
                home / f"data-{node_id}",
                node_id=node_id,
                listeners=f"PLAINTEXT://{HOST}:0,CONTROLLER://{HOST}:{port}",
                controller_quorum_bootstrap_servers=",".join(f"{HOST}:{each}" for each in self.controllers),
            )
            del server.settings["controller.quorum.voters"]
            stack.callback(server.close)
            self.of[node_id] = server

    def file(self, node_id: int) -> str:
        path = self.home / f"format-{node_id}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in self.of[node_id].settings.items()))
        return str(path)

    def format(self, node_id: int, *flags: str) -> int:
        return app.run(["storage", "format", "-t", CLUSTER_ID, "-c", self.file(node_id), *flags])


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with ExitStack() as stack:
        yield Nodes(tmp_path, 2, stack)


def test_a_cluster_begins_with_one_voter_and_at_the_level_that_is_said(nodes: Nodes) -> None:
    assert nodes.format(1, "--standalone", "--feature", "metadata.version=20", "--feature", "group.version=0") == 0
    assert nodes.format(2, "--no-initial-controllers") == 0
    nodes.of[1].start()
    nodes.of[2].start()
    for server in nodes.of.values():
        with Admin(f"{HOST}:{server.port}") as admin:
            cluster = admin.describe_cluster()
            assert cluster.cluster_id == CLUSTER_ID
            assert [broker.broker_id for broker in cluster.brokers] == [1, 2]
            levels = {name: feature.level for name, feature in admin.describe_features().items()}
            assert (levels["metadata.version"], levels["group.version"]) == (20, None)
    assert nodes.of[2].end() == 0
    nodes.of[2].start()
    assert nodes.of[2].end() == 0
    assert nodes.of[1].end() == 0


def test_the_initial_voters_are_named_with_their_directories(nodes: Nodes) -> None:
    ids = [uuid_text(UUID(int=number)) for number in (101, 102)]
    voters = ",".join(
        f"{node_id}@{HOST}:{port}:{directory_id}"
        for node_id, port, directory_id in zip((1, 2), nodes.controllers, ids, strict=True)
    )
    for node_id in (1, 2):
        assert nodes.format(node_id, "--initial-controllers", voters) == 0
        owner = owner_of(str(nodes.home / f"data-{node_id}"))
        assert owner is not None
        assert owner.directory_id == ids[node_id - 1]
    nodes.of[1].start_soon()
    nodes.of[2].start()
    nodes.of[1].wait_until_serving()
    with Admin(f"{HOST}:{nodes.of[1].port}") as admin:
        assert [broker.broker_id for broker in admin.describe_cluster().brokers] == [1, 2]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "does not say who votes"),
        (("--standalone", "--no-initial-controllers"), "exclude each other"),
        (("--initial-controllers", "1@h:1"), "is not of the form ID@HOST:PORT:DIRECTORY-ID"),
        (("--initial-controllers", "1@h:1:x"), "is not a Kafka id"),
        (("--initial-controllers", f"3@h:1:{'A' * 22}"), "this node, 1, is not among them"),
        (("--initial-controllers", f"1@h:1:{'A' * 22},1@h:2:{'B' * 21}A"), "1 stands there twice"),
        (("--standalone", "--feature", "metadata.version=3"), "this release works at levels"),
        (("--standalone", "--feature", "streams.version=1"), "this release works at level 0"),
        (("--standalone", "--feature", "nonsense=3"), "there is no such feature"),
    ],
)
def test_what_cannot_be_meant_formats_nothing(
    nodes: Nodes, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], message: str
) -> None:
    assert nodes.format(1, *flags) == USAGE
    assert message in capsys.readouterr().err
    assert not (nodes.home / "data-1").exists()


def test_configured_voters_and_those_in_the_log_exclude_each_other(
    nodes: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes.of[1].settings["controller.quorum.voters"] = f"1@{HOST}:{nodes.controllers[0]}"
    assert nodes.format(1, "--standalone") == USAGE
    assert "controller.quorum.voters says who votes" in capsys.readouterr().err


def test_a_directory_alone_has_no_listeners(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["storage", "format", "-t", CLUSTER_ID, "--data", str(tmp_path), "--node-id", "1", "--standalone"]
    assert app.run(arguments) == USAGE
    assert "--standalone needs --config-file FILE" in capsys.readouterr().err


def test_a_voter_begins_with_nothing_voted_and_what_it_voted_is_missed_from_then_on(nodes: Nodes) -> None:
    assert nodes.format(1, "--no-initial-controllers") == 0
    state = nodes.home / "data-1" / "__cluster_metadata-0" / "quorum-state"
    assert '"leaderEpoch":0' in state.read_text()
    owner = owner_of(str(nodes.home / "data-1"))
    assert owner is not None
    assert owner.has_quorum_state
    shutil.rmtree(state.parent)
    assert nodes.format(1, "--no-initial-controllers", "--ignore-formatted") == 0
    assert not state.exists()
    assert nodes.format(2, "--standalone") == 0
    nodes.of[1].start_soon()
    nodes.of[2].start()
    nodes.of[1].wait_until_serving()
    assert "is LOST" in nodes.of[1].log
    assert "is LOST" not in nodes.of[2].log


def test_a_directory_in_place_of_one_that_is_lost_begins_as_a_loss(
    nodes: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    assert nodes.format(1, "--standalone", "--lost") == USAGE
    assert "--lost and --standalone exclude each other" in capsys.readouterr().err
    assert nodes.format(1, "--lost") == USAGE
    assert "does not say who votes: give --no-initial-controllers, since the others know" in capsys.readouterr().err
    assert nodes.format(1, "--standalone") == 0
    assert nodes.format(2, "--no-initial-controllers", "--lost") == 0
    nodes.of[2].start_soon()
    nodes.of[1].start()
    nodes.of[2].wait_until_serving()
    assert "is LOST" in nodes.of[2].log


def test_what_was_formatted_is_left_as_it_is(nodes: Nodes) -> None:
    assert nodes.format(1, "--standalone") == 0
    before = {path: path.read_bytes() for path in (nodes.home / "data-1").rglob("*") if path.is_file()}
    assert nodes.format(1, "--standalone") == USAGE
    assert nodes.format(1, "--standalone", "--ignore-formatted") == 0
    assert {path: path.read_bytes() for path in (nodes.home / "data-1").rglob("*") if path.is_file()} == before
    ran = subprocess.run(
        [sys.executable, "-m", "tidelog", "storage", "format", "-t", "another", "-c", nodes.file(1), "-s", "-g"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == USAGE
    assert f"belongs to node 1 of cluster {CLUSTER_ID} already" in ran.stderr


def test_a_cluster_begins_with_the_users_that_it_was_formatted_with(nodes: Nodes) -> None:
    user = "SCRAM-SHA-256=[name=alice,iterations=8192,password=pencil]"
    assert nodes.format(1, "--standalone", "--add-scram", user, "-S", "SCRAM-SHA-512=[name=bob,password=eraser]") == 0
    nodes.of[1].start()
    with Admin(nodes.of[1].bootstrap) as admin:
        assert admin.describe_user_scram_credentials() == {
            "alice": {"SCRAM-SHA-256": 8192},
            "bob": {"SCRAM-SHA-512": 4096},
        }
        assert admin.describe_features()["metadata.version"].level == METADATA_VERSION
        admin.alter_user_scram_credentials([UserScramCredentialDeletion("alice", "SCRAM-SHA-256")])
    nodes.of[1].end(signal.SIGKILL)
    nodes.of[1].start()
    with Admin(nodes.of[1].bootstrap) as admin:
        assert list(admin.describe_user_scram_credentials()) == ["bob"], "they are for the first start alone"


def test_users_need_a_level_that_knows_them(nodes: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    flags = "--standalone", "--feature", "metadata.version=10", "-S", "SCRAM-SHA-256=[name=a,password=x]"
    assert nodes.format(1, *flags) == USAGE
    assert "users need metadata.version 11, not 10" in capsys.readouterr().err
