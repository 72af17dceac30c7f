"""Kafka's command line tools, all in one JVM: starting one for each would take most of the time."""

from __future__ import annotations

import base64
import os
import selectors
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from support.clients.java_classes import compiled
from support.clients.kafka_peer import java_command

SECONDS_MAX = 60.0
RUNNER = Path(__file__).parent / "java" / "ToolRunner.java"

TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}
"""As the scripts of Kafka's distribution are named, to the classes that they start."""


class Ran(NamedTuple):
    """What a tool left behind."""

    status: int
    output: str
    errors: str


class KafkaTools:
    """A JVM that runs tools as they are asked for; a new one after a tool that did not end. Use as a context.

    Args:
        sources: of more classes to run.
    """

    def __init__(self, *sources: Path) -> None:
        self._classes = compiled(RUNNER, *sources)
        self._jvm = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        command = java_command([RUNNER.stem], classes=self._classes)
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def __enter__(self) -> KafkaTools:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave nothing running."""
        self._jvm.kill()
        self._jvm.communicate()

    def run(self, tool: str, *arguments: str, stdin: str = "", status: int | None = 0) -> Ran:
        """Run a tool of TOOLS, or any class by its name, and return what it said.

        Args:
            status: the exit status that is expected; None for any.

        Raises:
            AssertionError: it ended with another status, or not in time.
        """
        fields = [TOOLS.get(tool, tool), stdin, *arguments]
        line = " ".join(base64.b64encode(field.encode()).decode() or "-" for field in fields)
        if self._jvm.poll() is not None:
            self._jvm = self._started()
        assert self._jvm.stdin is not None
        self._jvm.stdin.write(f"{line}\n".encode())
        self._jvm.stdin.flush()
        answer = self._read_line(f"{tool} {' '.join(arguments)}")
        first, output, errors = answer.split()
        ran = Ran(int(first), _decoded(output), _decoded(errors))
        assert status is None or ran.status == status, f"{tool} {' '.join(arguments)}: {ran}"
        return ran

    def _read_line(self, command: str) -> str:
        assert self._jvm.stdout is not None
        read = bytearray()
        deadline = time.monotonic() + SECONDS_MAX
        with selectors.DefaultSelector() as selector:
            selector.register(self._jvm.stdout, selectors.EVENT_READ)
            while not read.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self.close()
                    raise AssertionError(f"still running after {SECONDS_MAX:.0f} s: {command}")
                piece = os.read(self._jvm.stdout.fileno(), 65_536)
                assert piece, f"the JVM ended with status {self._jvm.wait()} during: {command}"
                read += piece
        return read.decode()


def _decoded(field: str) -> str:
    return "" if field == "-" else base64.b64decode(field).decode(errors="replace")
