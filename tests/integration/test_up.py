"""`tidelog up` and `tidelog server` as whoever starts them sees them: lines, signals, exit statuses."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.nodes.server_process import STOP_SECONDS_MAX, NodeFailedError
from support.nodes.up_process import UpProcess

START = [sys.executable, "-m", "tidelog"]


def wait_until_gone(pid: int) -> None:
    """Return once the process is gone; fails after a deadline. It need not be a child of ours."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        gone, _, _ = select.select([handle], [], [], STOP_SECONDS_MAX)
    finally:
        os.close(handle)
    assert gone, f"process {pid} is still there"


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[UpProcess]:
    """A node that is not started yet."""
    node = UpProcess(tmp_path / "data", config={})
    yield node
    node.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_stop_signal_ends_everything_with_status_0(fresh: UpProcess, number: signal.Signals) -> None:
    fresh.start()
    assert fresh.stop(number) == 0
    wait_until_gone(fresh.pid)


def test_a_node_keeps_its_port_and_its_identity_over_a_restart(fresh: UpProcess) -> None:
    fresh.start()
    port, pid = fresh.port, fresh.pid
    meta = (fresh.data_dir / "node-1" / "meta.properties").read_text()
    fresh.restart()
    assert (fresh.port, fresh.pid != pid) == (port, True)
    assert (fresh.data_dir / "node-1" / "meta.properties").read_text() == meta


def test_a_directory_that_was_formatted_beforehand_keeps_its_cluster(fresh: UpProcess) -> None:
    command = [*START, "storage", "format", "--cluster-id", "a-cluster-of-ours", "--node-id", "1"]
    command += ["--data", str(fresh.data_dir / "node-1")]
    subprocess.run(command, check=True, capture_output=True)
    fresh.start()
    assert "cluster.id=a-cluster-of-ours\n" in (fresh.data_dir / "node-1" / "meta.properties").read_text()
    fresh.stop()
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "belongs to node 1 of cluster a-cluster-of-ours already" in again.stderr


def test_a_node_dies_with_a_parent_that_was_killed(fresh: UpProcess) -> None:
    fresh.start()
    fresh.kill_up()
    wait_until_gone(fresh.pid)


def test_ctrl_c_in_a_terminal_reaches_up_alone_which_tells_its_node(fresh: UpProcess) -> None:
    fresh.start()
    assert os.getpgid(fresh.pid) == fresh.pid != os.getpgid(0)


def test_a_node_that_was_killed_ends_up_with_status_1(fresh: UpProcess) -> None:
    fresh.start()
    assert fresh.kill() == 1
    assert f"error: node 1 (pid {fresh.pid}) was killed by SIGKILL" in fresh.log


def test_a_setting_that_is_not_known_is_refused_by_name(fresh: UpProcess) -> None:
    fresh.config["log.segment.byte"] = "1048576"
    with pytest.raises(NodeFailedError, match="status 2"):
        fresh.start()
    assert "log.segment.byte" in fresh.log
    assert "log.segment.bytes" in fresh.log
    assert "Traceback" not in fresh.log


def test_a_port_that_is_taken_is_an_error_that_names_it(fresh: UpProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        fresh.port = taken.getsockname()[1]
        with pytest.raises(NodeFailedError, match="status 1"):
            fresh.start()
    assert str(fresh.port) in fresh.log
    assert "Traceback" not in fresh.log


def test_two_nodes_cannot_share_their_files(fresh: UpProcess) -> None:
    fresh.start()
    other = UpProcess(fresh.data_dir, config={})
    with pytest.raises(NodeFailedError, match="status 1"):
        other.start()
    assert "Traceback" not in fresh.log
    assert fresh.is_running


def test_server_runs_one_node_from_a_file_and_loads_only_what_it_needs(tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text(
        "process.roles=broker,controller\nnode.id=7\nlisteners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=7@127.0.0.1:0\n"
        f"log.dirs={tmp_path / 'logs'}\n"
    )
    modules = tmp_path / "modules.json"
    script = (
        "import atexit, json, pathlib, sys\n"
        f"atexit.register(lambda: pathlib.Path({str(modules)!r}).write_text(json.dumps(sorted(sys.modules))))\n"
        f"sys.argv = ['tidelog', 'server', {str(settings)!r}]\n"
        "from tidelog.cli import main\n"
        "main()\n"
    )
    with (tmp_path / "log").open("wb") as log:
        node = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=log)
    try:
        assert node.stdout is not None
        with node.stdout as stdout:
            first, second = stdout.readline().decode(), stdout.readline().decode()
        assert first.startswith(f"node id=7 pid={node.pid} port=")
        assert second == f"ready bootstrap=127.0.0.1:{first.rpartition('=')[2]}"
        node.terminate()
        assert node.wait(STOP_SECONDS_MAX) == 0
    finally:
        node.kill()
        node.wait()
    heavy = {"pyarrow", "pyspark", "rich", "numpy", "matplotlib", "unittest", "http.client", "email"}
    assert heavy.isdisjoint(json.loads(modules.read_text()))
    assert not any(name.startswith(("tidelog.client", "tidelog.spark")) for name in json.loads(modules.read_text()))


def test_server_takes_the_older_name_of_its_id(tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text(
        "process.roles=broker,controller\nbroker.id=7\nlisteners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=7@127.0.0.1:0\n"
        f"log.dirs={tmp_path / 'logs'}\n"
    )
    node = subprocess.Popen([*START, "server", str(settings)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert node.stdout is not None
        with node.stdout as stdout:
            assert stdout.readline().decode().startswith(f"node id=7 pid={node.pid} port=")
        node.terminate()
        assert node.wait(STOP_SECONDS_MAX) == 0
    finally:
        node.kill()
        node.wait()
