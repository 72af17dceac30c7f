"""The pytest plugin, in runs of pytest of its own, as its users have it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from support.fixtures.waiting import wait_until
from tidelog.testing import Cluster, ClusterFailedError

needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks for processes in /proc")
ROOT = Path(__file__).parents[2]
PAGE, EXAMPLE = ROOT / "docs" / "testing.md", ROOT / "examples" / "test_truncation.py"
SECONDS_MAX = 100.0
# By its module: where Tidelog is installed it is there by itself, and is not to be there twice.
COMMAND = [sys.executable, "-m", "pytest", "-p", "no:tidelog", "-p", "tidelog.testing.plugin", "-p", "no:cacheprovider"]


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "--basetemp", str(directory / "tmp"), *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


USER_TESTS = """
import pytest
from tidelog import Consumer, Producer, TopicPartition

seen = set()

def send(cluster, topic):
    with Producer(cluster.bootstrap_servers) as producer:
        assert producer.send(topic, b"hello").result().offset == 0

@pytest.mark.parametrize("name", ["a/b", "c"])
def test_a_node_is_shared_and_a_topic_is_not(tidelog_node, tidelog_topic, name):
    seen.add((tidelog_node, tidelog_topic))
    send(tidelog_node, tidelog_topic)

def test_so_it_was(tidelog_node):
    assert {cluster for cluster, _ in seen} == {tidelog_node}
    assert len(seen) == 2
    assert tidelog_node.nodes[1].settings["log.retention.hours"] == "7"

@pytest.mark.tidelog(nodes=1, disks=2, config={"min.insync.replicas": "1"})
def test_a_cluster_as_the_marker_says(tidelog_cluster, tidelog_node, tidelog_topic):
    assert tidelog_cluster is not tidelog_node
    assert (len(tidelog_cluster.nodes), len(tidelog_cluster.nodes[1].directories)) == (1, 2)
    send(tidelog_cluster, tidelog_topic)
"""


def test_fixtures_start_what_is_asked_for_and_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(USER_TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntidelog_config = log.retention.hours=7\n")
    ran = run(tmp_path, "-W", "error", "--strict-markers")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "4 passed" in ran.stdout
    assert not list((tmp_path / "tmp").glob("tidelog*/*"))


def test_a_failed_test_shows_the_logs_and_keeps_the_files(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(
        "import pytest\n"
        "@pytest.mark.tidelog(nodes=1)\n"
        "def test_it(tidelog_cluster):\n"
        "    assert tidelog_cluster is None\n"
        "@pytest.mark.tidelog(3)\n"
        "def test_wrong(tidelog_cluster):\n"
        "    pass\n"
        "@pytest.mark.tidelog(config={'min.insync.replica': '2'})\n"
        "def test_typo(tidelog_cluster):\n"
        "    pass\n"
    )
    ran = run(tmp_path)
    assert ran.returncode == 1
    (log,) = (tmp_path / "tmp").glob("tidelog*/node-1.log")
    assert f"Log of node 1 of tidelog, {log}" in ran.stdout
    assert "serves on port" in ran.stdout
    assert "takes nodes, config and disks, each by its name" in ran.stdout
    assert "there is no such broker setting" in ran.stdout
    assert "min.insync.replicas" in ran.stdout


def test_the_page_and_the_example_run_as_they_stand(tmp_path: Path) -> None:
    script, story, fixtures = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (diff,) = re.findall(r"```diff\n(.*?)```", PAGE.read_text(), re.DOTALL)
    before = "".join(line[1:] + "\n" for line in diff.splitlines() if line[0] != "+")
    after = "".join(line[1:] + "\n" for line in diff.splitlines() if line[0] != "-")
    assert story.count(before) == EXAMPLE.read_text().count(after) == 1
    (tmp_path / "test_script.py").write_text(script)
    (tmp_path / "test_story.py").write_text(story)
    (tmp_path / "test_fixtures.py").write_text(fixtures)
    (tmp_path / "test_example.py").write_text(EXAMPLE.read_text())
    ran = run(tmp_path)
    outcomes = re.search(r"(\d+) failed, (\d+) passed", ran.stdout)
    assert outcomes is not None, ran.stdout + ran.stderr
    assert outcomes.groups() == ("1", "3"), ran.stdout
    assert "FAILED test_story.py::test_a_lost_order_is_not_charged" in ran.stdout
    for line in re.findall(r"^E  .*$", PAGE.read_text(), re.MULTILINE):
        assert line in ran.stdout


def parent_of(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("PPid:")).partition(":")[2])


@needs_proc
def test_nodes_end_with_the_process_that_they_are_forked_from() -> None:
    with Cluster(nodes=1) as cluster:
        node = cluster.nodes[1]
        os.kill(parent_of(node.pid), signal.SIGKILL)
        wait_until(lambda: not node.is_running, "the node has ended")
        with pytest.raises(ClusterFailedError, match=r"node 1 cannot be started.*the end of"):
            node.start()
    with Cluster(nodes=1) as again:
        assert again.nodes[1].is_running


def children_of(pid: int) -> list[int]:
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # ended by now
            if parent_of(int(directory.name)) == pid:
                found.append(int(directory.name))
    return found


@needs_proc
def test_a_killed_run_leaves_nothing_running_not_even_what_is_paused(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(
        "import time\n"
        "def test_it(tidelog_node, tmp_path_factory):\n"
        "    tidelog_node.nodes[1].pause()\n"
        "    (tmp_path_factory.getbasetemp() / 'paused').touch()\n"
        "    time.sleep(1_000)\n"
    )
    command = [*COMMAND, "--basetemp", str(tmp_path / "tmp")]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as user:
        try:
            wait_until((tmp_path / "tmp" / "paused").exists, "the node is paused")
            (server,) = children_of(user.pid)
            (node,) = children_of(server)
        finally:
            os.kill(user.pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{node}").exists() and not Path(f"/proc/{server}").exists(), "all have ended")


def test_the_plugin_loads_nothing_that_is_not_asked_for() -> None:
    program = (
        "import sys, pytest; before = set(sys.modules); import tidelog.testing.plugin; "
        "print(*sorted(name for name in set(sys.modules) - before if name.partition('.')[0] != 'encodings'))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["tidelog", "tidelog.testing", "tidelog.testing.plugin"]
