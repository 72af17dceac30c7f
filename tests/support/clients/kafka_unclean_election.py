"""An unclean election of Apache Kafka, to order: what one of two brokers acknowledged, the other never had.

```
    broker 2 leads       broker 1 follows, and is the controller
    0 .. 49              0 .. 49           in sync
                         cut               its fetches reach broker 2 no more: it leaves the ISR
    0 .. 99              0 .. 49           min.insync.replicas=1: what broker 2 holds alone is acknowledged
    killed               elect (unclean)   broker 1 leads, with a new leader epoch
    start
    0 .. 49              0 .. 49           broker 2 truncates, and follows
```
Replication goes through a link of ours, since broker 2 names that as its address among brokers.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from support.clients.kafka_peer import TOOL_FLAGS, KafkaPeer
from support.fixtures.waiting import wait_until
from tidelog import Admin, NewTopic, TopicPartition
from tidelog.base.errors import Code, KafkaError
from tidelog.cli.ports import free_ports

__all__ = ["KafkaUncleanElection"]

HOST = "127.0.0.1"
FOLLOWER, LEADER = 1, 2
CONFIG = {
    "inter.broker.listener.name": "BROKERS",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.num.partitions": "1",
    "min.insync.replicas": "1",
    "replica.lag.time.max.ms": "1000",
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "2000",
}


class Link:
    """Takes connections to `port`, and passes on what comes to and from `target`, until it is cut."""

    def __init__(self, port: int, target: int) -> None:
        self._target = target
        self._is_cut = False
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server((HOST, port))
        threading.Thread(target=self._take, daemon=True).start()

    def cut(self) -> None:
        """End all connections, and each new one at once."""
        with self._lock:
            self._is_cut = True
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        with self._lock:
            self._is_cut = False

    def close(self) -> None:
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _take(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                came, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(came,), daemon=True).start()

    def _connect(self, came: socket.socket) -> None:
        with came, suppress(OSError), socket.create_connection((HOST, self._target)) as onward:
            with self._lock:
                if self._is_cut:
                    return
                self._open |= {came, onward}
            back = threading.Thread(target=self._pass_on, args=(onward, came), daemon=True)
            back.start()
            self._pass_on(came, onward)
            back.join()
            with self._lock:
                self._open -= {came, onward}

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(65_536):
                sink.sendall(piece)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)


class KafkaUncleanElection:
    """Two brokers of Apache Kafka, for one unclean election after the other. Use as a context.

    Args:
        directory: for their files.
        config: of both, on top of what the election takes.
    """

    def __init__(self, directory: Path, *, config: dict[str, str] | None = None) -> None:
        own, between, linked = free_ports(HOST, [None, None, None])
        self._link = Link(linked, between)
        shared = CONFIG | (config or {})
        self._follower, self._leader = (
            KafkaPeer(directory / f"kafka-{node_id}", config=dict(shared), node_id=node_id, flags=TOOL_FLAGS)
            for node_id in (FOLLOWER, LEADER)
        )
        follower, leader = self._follower, self._leader
        follower.config["listeners"] = (
            f"PLAINTEXT://{follower.bootstrap},BROKERS://{HOST}:{own},CONTROLLER://{HOST}:{follower.controller_port}"
        )
        leader.config |= {
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://{leader.bootstrap},BROKERS://{HOST}:{between}",
            "advertised.listeners": f"PLAINTEXT://{leader.bootstrap},BROKERS://{HOST}:{linked}",
        }
        leader.voters = [follower.voter]
        for node in (follower, leader):
            node.broker_count = 2

    @property
    def bootstrap_servers(self) -> str:
        return f"{self._follower.bootstrap},{self._leader.bootstrap}"

    def __enter__(self) -> KafkaUncleanElection:
        try:
            for node in (self._follower, self._leader):
                node.start_soon()
            for node in (self._follower, self._leader):
                node.wait_until_serving()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave nothing running."""
        self._leader.close()
        self._follower.close()
        self._link.close()

    def create_topic(self, topic: str) -> None:
        """With one partition, which broker 2 leads."""
        with Admin(self.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(topic, replica_assignments={0: [LEADER, FOLLOWER]})])
        self._wait_for(topic, LEADER, {LEADER, FOLLOWER})

    def begin_loss(self, topic: str) -> None:
        """From here on only broker 2 has what is written. It leads again, should broker 1 have won an election before.

        The first record waits until broker 1 has left the ISR, where it stays as long as nothing is written.
        """
        self._elect("preferred", topic)
        self._wait_for(topic, LEADER, {LEADER, FOLLOWER})
        self._link.cut()

    def lose(self, topic: str) -> None:
        """Lose what was acknowledged since `begin_loss`."""
        self._wait_for(topic, LEADER, {LEADER})
        self._leader.kill()
        self._wait_for(topic, None, set())  # broker 2 stays eligible (KIP-966), and is not there
        self._elect("unclean", topic)
        self._wait_for(topic, FOLLOWER, {FOLLOWER})
        self._link.mend()
        self._leader.start()
        self._wait_for(topic, FOLLOWER, {LEADER, FOLLOWER})

    def _elect(self, kind: Literal["preferred", "unclean"], topic: str) -> None:
        partition = TopicPartition(topic, 0)

        def is_elected() -> bool:
            with Admin(self._follower.bootstrap) as admin:
                error = admin.elect_leaders(kind, [partition])[partition]
            if error is not None and error.code != Code.ELECTION_NOT_NEEDED:
                raise error
            return True

        wait_until(_refused_for_now(is_elected), f"an election ({kind}) is held for {partition}")

    def _wait_for(self, topic: str, leader: int | None, isr: set[int]) -> None:
        """Until the controller says so."""
        found: tuple[int | None, set[int]] | None = None
        with Admin(self._follower.bootstrap) as admin:

            def is_so() -> bool:
                nonlocal found
                partition = admin.describe_topics([topic])[topic].partitions[0]
                found = (partition.leader, set(partition.isr))
                return found == (leader, isr)

            wait_until(
                _refused_for_now(is_so),
                lambda: f"{topic}-0 is led by {leader}, and {isr or 'none'} are in sync; found {found}",
            )


def _refused_for_now(ask: Callable[[], bool]) -> Callable[[], bool]:
    def asked() -> bool:
        try:
            return ask()
        except KafkaError:
            return False

    return asked
