"""Several node processes under one parent: who ends is told of, and the others serve on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tidelog.cli.supervision import NodeChild, NodeEndedError, Supervision


def settings_of(home: Path, node_id: int) -> str:
    """A node that needs no other one."""
    path = home / f"node-{node_id}.properties"
    path.write_text(
        f"process.roles=broker,controller\nnode.id={node_id}\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.voters={node_id}@127.0.0.1:0\nlog.dirs={home / str(node_id)}\n"
    )
    return str(path)


def is_there(node: NodeChild) -> bool:
    return node.process.poll() is None


def test_each_node_that_ends_is_told_of_and_the_last_one_ends_it_all(tmp_path: Path) -> None:
    told: list[tuple[int, str]] = []
    left = [2, 1, 3]

    with Supervision() as supervision:
        for node_id in (1, 2, 3):
            supervision.start(node_id, [settings_of(tmp_path, node_id), "--log-level", "warning"])
        assert supervision.wait_until_ready()
        pids = {node.node_id: node.pid for node in supervision.nodes}

        def kill_next() -> None:
            os.kill(pids[left.pop(0)], signal.SIGKILL)

        def on_ended(node: NodeChild, error: NodeEndedError) -> None:
            assert all(is_there(other) for other in supervision.nodes if other.node_id in left)
            told.append((node.node_id, str(error)))
            kill_next()

        kill_next()
        with pytest.raises(NodeEndedError, match=r"node 3 .* was killed by SIGKILL"):
            supervision.wait_until_told(on_ended)
    assert told == [(node_id, f"node {node_id} (pid {pids[node_id]}) was killed by SIGKILL") for node_id in (2, 1)]


def test_a_node_that_cannot_start_says_so_itself(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def start() -> None:
        with Supervision() as supervision:
            supervision.start(7, [str(tmp_path / "gone.properties")])
            supervision.wait_until_ready()

    with pytest.raises(NodeEndedError, match=r"^node 7: /.*gone.properties: No such file .* can be read$") as raised:
        start()
    assert raised.value.status == 2
    assert "gone.properties" not in capfd.readouterr().err, "its parent says it"


def test_a_stop_that_is_said_twice_at_once_is_one(tmp_path: Path) -> None:
    with Supervision() as supervision:
        supervision.start(1, [settings_of(tmp_path, 1), "--log-level", "warning"])
        assert supervision.wait_until_ready()
        signal.raise_signal(signal.SIGTERM)
        supervision.wait_until_told(lambda _node, _error: None)
        signal.raise_signal(signal.SIGTERM)
    assert supervision.nodes[0].process.returncode == 0


def test_what_ended_before_is_no_failure_of_the_stop(tmp_path: Path) -> None:
    told: list[int] = []

    def on_ended(node: NodeChild, _: NodeEndedError) -> None:
        told.append(node.node_id)
        signal.raise_signal(signal.SIGTERM)

    with Supervision() as supervision:
        for node_id in (1, 2):
            supervision.start(node_id, [settings_of(tmp_path, node_id), "--log-level", "warning"])
        assert supervision.wait_until_ready()
        os.kill(supervision.nodes[0].pid, signal.SIGKILL)
        supervision.wait_until_told(on_ended)
    assert told == [1]
    assert [node.process.returncode for node in supervision.nodes] == [-signal.SIGKILL, 0]
