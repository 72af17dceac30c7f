"""The files that speak of a whole node: damaged, missing, of somebody else, or in use. Never a silent wrong start."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.fixtures.log_files import append, batches, change
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess, StartNode
from support.nodes.server_process import NodeFailedError
from tidelog.client.admin.admin import Admin

TOPIC = "kept"
RECORDS = 10
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
)
START_SECONDS_MAX = 20


@pytest.fixture(scope="module")
def undamaged(start_node: StartNode) -> Path:
    """The directory of a node with a topic of RECORDS records, which was stopped."""
    node = start_node()
    with WireClient(node.port) as client:
        client.create_topic(TOPIC)
        client.produce(TOPIC, batch_of(*[b"%d" % i for i in range(RECORDS)]))
    node.stop()
    return node.data_dir


@pytest.fixture
def filled(undamaged: Path, tmp_path: Path) -> Iterator[NodeProcess]:
    """A stopped node of the test's own, with a copy of that directory."""
    node = NodeProcess(Path(shutil.copytree(undamaged, tmp_path / "filled")), config={})
    yield node
    node.close()


def directory(node: NodeProcess) -> Path:
    return node.data_dir / "node-1"


def metadata_log(node: NodeProcess) -> Path:
    return directory(node) / "__cluster_metadata-0" / "00000000000000000000.log"


def assert_all_there(node: NodeProcess, more: int = 0) -> None:
    with WireClient(node.port) as client:
        values = [record.value for record in client.read_all(TOPIC)]
        assert values[:RECORDS] == [b"%d" % i for i in range(RECORDS)]
        assert len(values) == RECORDS + more
        assert client.log_end_offset(TOPIC) == RECORDS + more


def produce_one(node: NodeProcess, offset: int) -> None:
    with WireClient(node.port) as client:
        assert client.produce(TOPIC, batch_of(b"more")).base_offset == offset


def refusal_of(node: NodeProcess) -> str:
    """What a node that must not start says as it ends, which it does with a status of its own."""
    before = len(node.log)
    with pytest.raises(
        NodeFailedError, match=r"ended with status [12] before it was ready|its settings cannot be written"
    ):
        node.start()
    said = node.log[before:]
    assert "Traceback" not in said, said
    return said


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(missing_ok=True),
    "garbled": lambda path: path.write_bytes(b"\0\xff garbled \n\n"),
    "cut short": lambda path: path.write_bytes(b"0\n5\nkept 0 7\n"),
    "empty": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("ends", ["stop", pytest.param("kill", marks=pytest.mark.slow)])
@pytest.mark.parametrize("damage", DAMAGES)
def test_checkpoints_can_be_done_without(filled: NodeProcess, damage: str, ends: str) -> None:
    if ends == "kill":
        filled.start()
        filled.kill()
    for name in CHECKPOINTS[:2]:
        DAMAGES[damage](directory(filled) / name)
    filled.start()
    assert_all_there(filled)
    produce_one(filled, RECORDS)
    filled.restart()
    assert_all_there(filled, more=1)


@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_checkpoints_far_beyond_the_end_say_that_records_are_lost(filled: NodeProcess, ends: str) -> None:
    """The log is shorter than what was committed: of an only replica what is left is served, and that is said."""
    if ends == "kill":
        filled.start()
        filled.kill()
    for name in CHECKPOINTS[:2]:
        (directory(filled) / name).write_bytes(b"0\n2\nkept 0 1000000\n__cluster_metadata 0 1000000\n")
    filled.start()
    assert f"{TOPIC}-0: RECORDS ARE LOST" in filled.log
    assert_all_there(filled)
    produce_one(filled, RECORDS)
    filled.restart()
    assert_all_there(filled, more=1)


def test_a_garbled_log_start_checkpoint_is_done_without_and_said(filled: NodeProcess) -> None:
    (directory(filled) / CHECKPOINTS[2]).write_bytes(b"garbled")
    filled.start()
    assert_all_there(filled)
    assert CHECKPOINTS[2] in filled.log


def test_a_torn_end_of_the_metadata_log(node: NodeProcess) -> None:
    """What was not synced was not promised; what was before it is there."""
    with WireClient(node.port) as client:
        client.create_topic(TOPIC)
        client.produce(TOPIC, batch_of(*[b"%d" % i for i in range(RECORDS)]))
    node.kill()
    for number, tail in enumerate((b"\0" * 500, b"garbage" * 30, metadata_log(node).read_bytes()[:70])):
        append(metadata_log(node), tail)
        node.start()
        assert_all_there(node, more=number)
        produce_one(node, RECORDS + number)
        with WireClient(node.port) as client:
            assert client.create_topic(f"after-{number}").error_code == 0
        node.kill()
    node.start()
    with WireClient(node.port) as client:
        for number in range(3):
            assert client.describe_topic(f"after-{number}").error_code == 0


def test_a_metadata_log_that_lost_what_was_committed(filled: NodeProcess) -> None:
    """A flipped bit within the committed metadata: the node does not go on without what it promised, until told to."""
    log = metadata_log(filled)
    position, header = batches(log)[2]
    change(log, position + header.size_bytes - 3, lambda byte: byte ^ 1)
    for marker in directory(filled).glob(".kafka_cleanshutdown"):
        marker.unlink()
    for _ in range(2):  # the damage is cut off at the first start; the second must not take that for the truth
        assert "committed metadata behind the damage" in refusal_of(filled)
    kept = b"".join(path.read_bytes() for path in directory(filled).glob(f"{TOPIC}-0/*.log"))
    assert kept, "the records are gone"
    (cut,) = log.parent.glob("*.cut")
    cut.rename(filled.data_dir.parent / "elsewhere")
    filled.start()
    filled.stop()


def test_directories_of_two_clusters_are_refused(start_node: Callable[..., NodeProcess], tmp_path: Path) -> None:
    metadata_dir = tmp_path / "metadata"
    node = start_node(config={"metadata.log.dir": str(metadata_dir)})
    with WireClient(node.port) as client:
        client.create_topic(TOPIC)
        client.produce(TOPIC, batch_of(*[b"%d" % i for i in range(RECORDS)]))
    node.stop()
    for path in (metadata_dir, directory(node)):
        properties = path / "meta.properties"
        before = properties.read_text()
        cluster_id = next(line for line in before.splitlines() if line.startswith("cluster.id"))
        properties.write_text(before.replace(cluster_id, "cluster.id=AAAAAAAAAAAAAAAAAAAAAA"))
        said = refusal_of(node)
        assert "AAAAAAAAAAAAAAAAAAAAAA" in said
        assert "cluster" in said
        properties.write_text(before)
    node.start()
    assert_all_there(node)
    node.close()


def test_a_directory_of_another_node_or_release_is_refused(filled: NodeProcess) -> None:
    properties = directory(filled) / "meta.properties"
    before = properties.read_text()
    for line, expected in (
        ("version=2", "version"),
        ("version=0", "version"),
        ("node.id=7", "node 7"),
        ("node.id=seven", "node.id"),
    ):
        key = line.partition("=")[0]
        lines = [line if found.startswith(key) else found for found in before.splitlines()]
        properties.write_text("\n".join(lines) + "\n")
        said = refusal_of(filled)
        assert expected in said
        assert str(directory(filled)) in said
    properties.write_text(before)
    filled.start()
    assert_all_there(filled)


def test_meta_properties_garbled_or_missing(filled: NodeProcess) -> None:
    properties = directory(filled) / "meta.properties"
    before = properties.read_bytes()
    for contents in (b"\xff\xfe\0", b"", b"cluster.id=x\n"):
        properties.write_bytes(contents)
        assert "meta.properties" in refusal_of(filled)
    properties.unlink()
    assert "neither empty nor formatted" in refusal_of(filled)
    assert not properties.exists()
    properties.write_bytes(before)
    filled.start()
    assert_all_there(filled)


def test_a_garbled_quorum_state_is_refused(filled: NodeProcess) -> None:
    state = directory(filled) / "__cluster_metadata-0" / "quorum-state"
    before = state.read_bytes()
    for contents in (b"{", b'{"leaderEpoch":"x"}', before.replace(b'"data_version":1', b'"data_version":9')):
        state.write_bytes(contents)
        assert "quorum-state" in refusal_of(filled)
    state.write_bytes(before)
    filled.start()
    assert_all_there(filled)


def test_a_directory_in_use_is_refused(node: NodeProcess) -> None:
    with WireClient(node.port) as client:
        client.create_topic(TOPIC)
        client.produce(TOPIC, batch_of(*[b"%d" % i for i in range(RECORDS)]))
    other = NodeProcess(node.data_dir, config={})
    try:
        said = refusal_of(other)
    finally:
        other.close()
    assert str(directory(node)) in said
    assert node.is_running
    assert_all_there(node)


def test_a_node_that_died_leaves_no_lock_behind(node: NodeProcess) -> None:
    node.kill()
    node.start()
    with WireClient(node.port) as client:
        assert client.create_topic(TOPIC).error_code == 0


def test_a_directory_that_is_a_file_or_may_not_be_written(node: NodeProcess, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    command = [sys.executable, "-m", "tidelog", "up", "--port", "0", "--data", str(tmp_path / "file")]
    ended = subprocess.run(command, capture_output=True, timeout=START_SECONDS_MAX, check=False)
    assert ended.returncode in (1, 2)
    assert b"Traceback" not in ended.stderr
    assert str(tmp_path / "file").encode() in ended.stderr


def test_strange_things_in_the_directory_are_left_alone(filled: NodeProcess) -> None:
    (directory(filled) / "lost+found").mkdir()
    (directory(filled) / "notes.txt").write_text("mine")
    (directory(filled) / "no-partition").mkdir()
    stray = directory(filled) / "deleted-while-down-0"
    shutil.copytree(directory(filled) / f"{TOPIC}-0", stray)
    filled.start()
    assert_all_there(filled)
    assert (directory(filled) / "notes.txt").read_text() == "mine"
    assert (directory(filled) / "no-partition").exists()
    copies = [path for path in directory(filled).iterdir() if path.name.startswith("deleted-while-down")]
    assert copies, "records that nobody asked to delete are gone"
    assert any((path / "00000000000000000000.log").stat().st_size for path in copies)


def test_a_partition_whose_directory_is_gone_is_led_by_nobody_until_somebody_decides(filled: NodeProcess) -> None:
    """It does not begin anew by itself, which nobody would be told of. Its readers learn of it by the leader epoch."""
    filled.start()
    with WireClient(filled.port) as client:
        before = client.describe_topic(TOPIC).partitions[0].leader_epoch
    filled.stop()
    shutil.rmtree(directory(filled) / f"{TOPIC}-0")
    filled.start()
    assert f"{TOPIC}-0: A REPLICA IS LOST" in filled.log
    with WireClient(filled.port) as client:
        assert client.describe_topic(TOPIC).partitions[0].leader_id == -1
    filled.restart()
    with Admin(filled.bootstrap) as admin:
        wait_until(lambda: all(one is None for one in admin.elect_leaders("unclean").values()), lambda: filled.log)
    with WireClient(filled.port) as client:
        assert client.log_end_offset(TOPIC) == 0
        now = client.describe_topic(TOPIC).partitions[0].leader_epoch
        assert now > before
        assert client.end_of_epoch(TOPIC, before, current_leader_epoch=now).end_offset <= 0
        assert client.produce(TOPIC, batch_of(b"anew")).base_offset == 0
        assert client.read_all(TOPIC)[0].leader_epoch == now
