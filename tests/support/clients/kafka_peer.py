"""Apache Kafka itself, as `make peers` fetched it: brokers in processes of their own."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from support.clients.wire_client import WireClient
from support.fixtures.waiting import wait_until
from tidelog.cli.ports import free_ports
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataResponse

__all__ = [
    "KAFKA_JARS",
    "SPARK_JARS",
    "TOOL_FLAGS",
    "KafkaCluster",
    "KafkaPeer",
    "PeerFailedError",
    "java_command",
    "missing_peers",
    "shared_peer",
]

PEERS = Path(__file__).parents[3] / "peers"
KAFKA_JARS = PEERS / "kafka"
SPARK_JARS = PEERS / "spark"

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
TOGETHER_SECONDS_MAX = 10.0

# What Kafka's own start script gives a broker.
BROKER_FLAGS = [
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
]
CLASS_ARCHIVE = KAFKA_JARS / "classes.jsa"
# For programs that end soon after they began. A JVM that finds no archive loads the classes one by one.
TOOL_FLAGS = [
    f"-XX:SharedArchiveFile={CLASS_ARCHIVE}",
    "-Xlog:disable",  # an archive that fits no more, as after a move of the clone, is no output of a tool
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
]

CLUSTER_ID = "dGlkZWxvZy1wZWVyLXNlcg"
CONFIG = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    # One broker holds the one replica of everything.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class PeerFailedError(AssertionError):
    """Kafka did not do what is needed to go on. Carries the end of what it said."""


def missing_peers(*, jars: Path = KAFKA_JARS) -> str | None:
    """Why Kafka cannot be run here, or None when it can."""
    if not (jars / ".fetched").exists():
        return f"{jars.relative_to(PEERS.parent)} is not there: `make peers` fetches it"
    if shutil.which("javac") is None:
        return "there is no javac on the PATH: Kafka's programs need a JDK of 17 or newer"
    return None


def java_command(
    arguments: Sequence[str], *, flags: Sequence[str] = TOOL_FLAGS, classes: Path | None = None
) -> list[str]:
    """How to start a JVM with Kafka's classes, and those of a directory after them, that ends with this process.

    The class path begins as that of the archive does, which is not used otherwise.
    """
    path = f"{KAFKA_JARS}/*" if classes is None else f"{KAFKA_JARS}/*:{classes}"
    command = ["java", *flags, "-cp", path, *arguments]
    if (setpriv := shutil.which("setpriv")) is not None:  # where it is missing, a killed test run leaves it behind
        return [setpriv, "--pdeathsig", "KILL", *command]
    return command


class KafkaPeer:
    """One broker of Apache Kafka that is a controller too, on a directory and on free ports of its own.

    Args:
        node_id: its number among those of its cluster.
        flags: of its JVM; `TOOL_FLAGS` halve what a start takes of a processor.

    Attributes:
        controller_port: of its listener for controllers.
        broker_count: of its cluster, once all serve; as many as there are voters unless it is put there.
        voters: of its quorum, as `controller.quorum.voters` names them; it alone unless others are put there.
        bootstrap: `HOST:PORT` for clients. The same after every restart.
        pid: of the JVM.
        directory: of all its files; the partitions' are in `log_dir`.
        config: what `server.properties` says on top of what one broker needs; may be changed before a start.
        log_path: what it writes to its console.
    """

    def __init__(
        self,
        directory: Path,
        *,
        config: dict[str, str] | None = None,
        node_id: int = 1,
        flags: Sequence[str] = BROKER_FLAGS,
    ) -> None:
        self.directory = directory
        self.config = config or {}
        self.node_id = node_id
        self._flags = flags
        self.log_dir = directory / "data"
        self.log_path = directory / "console.log"
        self.port, self.controller_port = free_ports("127.0.0.1", [None, None])
        self.voters = [self.voter]
        self.broker_count = 0
        self.pid = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def voter(self) -> str:
        """As the others of its quorum name it."""
        return f"{self.node_id}@127.0.0.1:{self.controller_port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def format(self) -> None:
        """Give it its directory; `start` does so where that was not done."""
        self.directory.mkdir(parents=True, exist_ok=True)
        arguments = ["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID]
        arguments += ["--config", str(self._write_properties())]
        ran = subprocess.run(java_command(arguments), check=False, capture_output=True, timeout=START_SECONDS_MAX)
        if ran.returncode != 0:
            raise PeerFailedError(f"kafka-storage format: {ran.stdout.decode()}{ran.stderr.decode()}")

    def start(self) -> None:
        """Return when it serves, and all of its cluster with it.

        Raises:
            PeerFailedError: it ended, or did not serve in time.
        """
        self.start_soon()
        self.wait_until_serving()

    def start_soon(self) -> None:
        """Start it without waiting for it."""
        assert not self.is_running, "the broker runs already"
        if not self.log_dir.exists():
            self.format()
        properties = self._write_properties()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                java_command(["kafka.Kafka", str(properties)], flags=self._flags),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.pid = self._process.pid  # setpriv becomes the JVM

    def wait_until_serving(self) -> None:
        """Return when it serves. Raises as `start`."""
        assert self._process is not None, "the broker was never started"
        try:
            wait_until(lambda: self._serves() or not self.is_running, "Kafka serves", seconds=START_SECONDS_MAX)
        except AssertionError as error:
            self._fail(str(error))
        if not self.is_running:
            self._fail(f"Kafka ended with status {self._process.wait()} before it served")

    def stop(self) -> None:
        """Stop it as an operator would, and return when it has ended.

        Raises:
            PeerFailedError: it did not end in time.
        """
        assert self._process is not None, "the broker was never started"
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._fail(f"Kafka was still there {STOP_SECONDS_MAX:.0f} s after SIGTERM")

    def terminate(self) -> None:
        """Ask it to stop, and do not wait for it."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """`kill -9`; returns when it is gone."""
        assert self._process is not None, "the broker was never started"
        self._process.kill()
        self._process.wait()

    def wait_until_ended(self, seconds: float) -> bool:
        """Whether it ends within so long."""
        assert self._process is not None, "the broker was never started"
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Leave nothing running, whatever state it is in. The files are whoever's the directory is."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _serves(self) -> bool:
        """Whether it takes requests, and knows every broker of its cluster."""
        try:
            with WireClient(self.port) as client:
                answer = client.ask(ApiKey.METADATA, 12, MetadataRequest(topics=[]), MetadataResponse)
                return len(answer.brokers) == (self.broker_count or len(self.voters))
        except OSError:
            return False

    def _write_properties(self) -> Path:
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}"
        config = CONFIG | {
            "node.id": str(self.node_id),
            "listeners": listeners,
            "controller.quorum.voters": ",".join(self.voters),
            "log.dirs": str(self.log_dir),
        }
        path = self.directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in (config | self.config).items()))
        return path

    def _fail(self, what: str) -> NoReturn:
        self.close()
        said = self.log_path.read_text(errors="replace")[-4_000:] if self.log_path.exists() else ""
        raise PeerFailedError(f"{what}; the end of {self.log_path}:\n{said}")


@contextmanager
def shared_peer(directory: Path) -> Iterator[KafkaPeer]:
    """A broker for the tests of a folder. They take topic names of their own; one that stops it starts it again."""
    config = {
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "100",
    }
    peer = KafkaPeer(directory, config=config, flags=TOOL_FLAGS)
    try:
        peer.start()
        yield peer
    finally:
        peer.close()


class KafkaCluster:
    """Brokers of Apache Kafka that are their own controllers, formatted alike.

    Args:
        flags: of their JVMs, as of a `KafkaPeer`.

    Attributes:
        nodes: by id, 1 to `size`.
    """

    def __init__(
        self,
        directory: Path,
        size: int,
        *,
        config: dict[str, str] | None = None,
        flags: Sequence[str] = BROKER_FLAGS,
    ) -> None:
        self.nodes = {
            node_id: KafkaPeer(directory / f"node-{node_id}", config=config, node_id=node_id, flags=flags)
            for node_id in range(1, size + 1)
        }
        for node in self.nodes.values():
            node.voters = [one.voter for one in self.nodes.values()]

    @property
    def bootstrap(self) -> str:
        """Of all of them, for clients."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    def format(self) -> None:
        """Give each its directory."""
        for node in self.nodes.values():
            node.format()

    def start(self) -> None:
        """Start all at once; return when every one serves. Raises as `KafkaPeer.start`."""
        for node in self.nodes.values():
            node.start_soon()
        for node in self.nodes.values():
            node.wait_until_serving()

    def stop(self) -> None:
        """Stop all at once. The last ones have no quorum left to tell, and would wait for it: they are killed."""
        for node in self.nodes.values():
            node.terminate()
        running = [node for node in self.nodes.values() if node.is_running]
        deadline = time.monotonic() + TOGETHER_SECONDS_MAX
        while running and time.monotonic() < deadline:
            running[0].wait_until_ended(deadline - time.monotonic())
            running = [node for node in running if node.is_running]
        self.close()

    def close(self) -> None:
        """Leave nothing running."""
        for node in self.nodes.values():
            node.close()
