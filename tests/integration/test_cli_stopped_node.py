"""Commands end in the time that they were given, though the node that they wait for has stopped in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from support.nodes.cli import tidelog
from support.nodes.node import NodeProcess

TIMEOUT = ("--timeout", "2")
SECONDS_MAX = 30
LINE = "x" * 100_000


def test_a_record_that_nobody_acknowledges(node: NodeProcess) -> None:
    tidelog(node, "topics", "create", "t")
    command = [sys.executable, "-m", "tidelog", "produce", "t", "--bootstrap", node.bootstrap, *TIMEOUT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1) as producer:
        assert producer.stdin is not None
        assert producer.stderr is not None
        producer.stdin.write("a\n")
        assert tidelog(node, "consume", "t", "--from-beginning", "--count", "1") == "a\n"
        os.kill(node.pid, signal.SIGSTOP)
        producer.stdin.write("b\n")
        producer.stdin.close()
        assert producer.wait(SECONDS_MAX) == 1
        assert "1 of 2 records were not written to t" in producer.stderr.read()
    os.kill(node.pid, signal.SIGCONT)


def test_an_end_that_does_not_come(node: NodeProcess) -> None:
    tidelog(node, "topics", "create", "t", "--partitions", "1")
    tidelog(node, "produce", "t", stdin=f"{LINE}\n" * 100)
    command = [sys.executable, "-m", "tidelog", "consume", "t", "--bootstrap", node.bootstrap]
    command += ["--from-beginning", "--no-follow", *TIMEOUT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        assert consumer.stdout.readline() == f"{LINE}\n"
        os.kill(node.pid, signal.SIGSTOP)
        for _line in consumer.stdout:
            pass
        assert consumer.wait(SECONDS_MAX) == 1
        said = consumer.stderr.read()
    os.kill(node.pid, signal.SIGCONT)
    assert "of 100, and nothing came for 2 s: does its leader serve?" in said
