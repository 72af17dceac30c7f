"""A leader is killed: how long until the next write with acks=all is acknowledged, and until the next record is read.
Three nodes beside three of Kafka.

Both with the default sessions (`broker.session.timeout.ms`), RF 3, min.insync.replicas=2. A program of each client
writes a record every 5 ms, and reads them, with the client's defaults (failover_clients/lines.py). A round counts from
`kill -9` to the acknowledgement of the first record that was sent after it, and to the first such record that is read.
The victim leads the partition; in half of the rounds it is the active controller as well.

python bench/bench_failover.py [--quick | --long] [--clients=NAME,NAME] [--rounds=N] [--without-kafka]
                               [--leaders-only] [--group=PROTOCOL] [--paused] [--logs=DIRECTORY] [--slow=MS]

--clients: librdkafka, Java, franz-go, kafka-python, aiokafka, Tidelog; without it all.
--rounds: kills of each kind for each client, at Tidelog.
--without-kafka: no Kafka beside it.
--leaders-only: the active controller is not killed.
--group: readers are members of a group of this protocol, classic or consumer; those clients that speak it. In one
    round of three the victim is its coordinator as well.
--paused: the leader is stopped (SIGSTOP) instead, and its connections stay open: only the end of its session, of two
    seconds here, tells the others. A machine without power looks the same to them. Other clients than Tidelog's wait
    for the answer of the silent leader, up to a minute.
--logs: the clients say what they do; what those of slow rounds said is kept there, with what the nodes said.
--slow: which rounds those are; without it those beyond the target.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from beside_kafka import PEER, QUICK, need_kafka
from failover_programs import CLIENTS, TIDELOG, Client, Program
from harness import LONG, WireClient, figure, say

from support.clients.kafka_peer import KafkaCluster
from support.fixtures.waiting import wait_until
from support.nodes.cluster import Cluster as OurCluster
from tidelog.base.errors import TidelogError
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.descriptions import NewTopic
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.api_10_find_coordinator import (
    KEY_TYPE_GROUP,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

SIZE = 3
REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
}


def option(name: str) -> str | None:
    return next((one.partition("=")[2] for one in sys.argv[1:] if one.startswith(f"--{name}=")), None)


GROUP_PROTOCOL = option("group")
PAUSED = "--paused" in sys.argv[1:]
SESSION_MS = 2_000
if PAUSED:
    REPLICATED |= {"broker.session.timeout.ms": str(SESSION_MS), "broker.heartbeat.interval.ms": "500"}
SIGNAL, STRIKE = (signal.SIGSTOP, "SIGSTOP") if PAUSED else (signal.SIGKILL, "kill -9")

OUR_ROUNDS = int(option("rounds") or (3 if QUICK else 100 if LONG else 20))
PEER_ROUNDS = 1 if QUICK else 20 if LONG else 5
WITHOUT_KAFKA = "--without-kafka" in sys.argv[1:]
LEADERS_ONLY = "--leaders-only" in sys.argv[1:]
LOGS = option("logs")
OUR_MS_MAX = 150
STOCK_MS_MAX = 600
NOTICED_MS_MAX = 1_000
"""Beyond a session: a heartbeat may have come just before, and a client asks twice a second who leads."""
OF_CONTROLLER_MS_MAX = 2_500
ISR_SECONDS_MAX = 120.0

Cluster = OurCluster | KafkaCluster
Failover = Callable[[Cluster, str, Callable[[], None]], tuple[float, float]]
"""A round's time to the next acknowledgement, in milliseconds; then that to the next record read."""


@contextmanager
def started(new: Callable[[Path], Cluster]) -> Iterator[Cluster]:
    directory = Path(tempfile.mkdtemp(prefix="failover-bench-"))
    cluster = new(directory)
    try:
        if isinstance(cluster, KafkaCluster):
            cluster.format()
        cluster.start()
        wait_until(lambda: _has_coordinator(cluster), "there are coordinators of groups", seconds=ISR_SECONDS_MAX)
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(directory, ignore_errors=True)


def _has_coordinator(cluster: Cluster) -> bool:
    """The first to ask has the topic of all groups made: that is no part of a round."""
    request = FindCoordinatorRequest(coordinator_keys=["warm"], key_type=KEY_TYPE_GROUP)
    ports = [node.port for node in cluster.nodes.values()]
    with WireClient(ports[0]) as client:
        answer = client.ask(ApiKey.FIND_COORDINATOR, 4, request, FindCoordinatorResponse)
    return not answer.coordinators[0].error_code


def failover_of(client: Client, directory: Path) -> Failover:
    """What one client does in a round."""
    command, log_path = client.build(directory, LOGS is not None), directory / f"{client.name}.log"

    def failover(cluster: Cluster, topic: str, strike: Callable[[], None]) -> tuple[float, float]:
        arguments = [cluster.bootstrap, topic, *(["--debug"] if LOGS else ())]
        if GROUP_PROTOCOL is not None:
            arguments.append(f"--group={GROUP_PROTOCOL}")
        with Program([*command, *arguments], log_path) as program:
            waits_ms = program.waits_ms(strike, client.warm_seconds)
        if LOGS and max(waits_ms) > float(option("slow") or limit_ms(client)):
            how = f"struck {program.struck}, acknowledged after {waits_ms[0]:.1f} ms, read after {waits_ms[1]:.1f} ms\n"
            keep_logs(cluster, Path(LOGS) / f"{topic}-{time.time():.0f}-{max(waits_ms):.0f}", log_path, how)
        return waits_ms

    return failover


def keep_logs(cluster: Cluster, place: Path, log_path: Path, how: str) -> None:
    place.mkdir(parents=True)
    shutil.copy(log_path, place)
    (place / "waits").write_text(how)
    if isinstance(cluster, OurCluster):
        for node in cluster.nodes.values():
            (place / node.log_path.name).write_text(f"{node.bootstrap}\n{node.log[-30_000:]}")


# Rounds.


def play(cluster: Cluster, name: str, failover: Failover, *, of_controller: bool) -> tuple[float, float]:
    """One round, and all of it mended again."""
    with Admin(cluster.bootstrap) as admin:
        controller_id = admin.describe_quorum().leader_id
        assert controller_id is not None
        ids = sorted(cluster.nodes, key=lambda one: ((one == controller_id) != of_controller, one))
        admin.create_topics([NewTopic(name, replica_assignments={0: ids})])
    victim = cluster.nodes[ids[0]]
    wait_until(lambda: _in_sync(cluster, name) == SIZE, "all are in sync", seconds=ISR_SECONDS_MAX)
    waited_ms = failover(cluster, name, lambda: os.kill(victim.pid, SIGNAL))
    os.kill(victim.pid, signal.SIGKILL)
    victim.close()
    victim.start()
    wait_until(lambda: _in_sync(cluster, name) == SIZE, "all are in sync again", seconds=ISR_SECONDS_MAX)
    with Admin(cluster.bootstrap) as admin:
        admin.delete_topics([name])
    return waited_ms


def _in_sync(cluster: Cluster, topic: str) -> int:
    """As the node that knows of the fewest says."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    found = []
    for node in cluster.nodes.values():
        try:
            with WireClient(node.port) as client:
                answer = client.ask(ApiKey.METADATA, 9, request, MetadataResponse).topics[0]
        except (OSError, TidelogError):
            return 0
        found.append(min((len(one.isr_nodes) for one in answer.partitions if one.leader_id >= 0), default=0))
    return min(found)


def waits_ms(
    cluster: Cluster, name: str, failover: Failover, rounds: int, *, of_controller: bool
) -> tuple[list[float], list[float]]:
    """What the rounds took, from the shortest to the longest: to the acknowledgement; to the record read."""
    whose = "controller" if of_controller else "leader"
    found = []
    for number in range(rounds):
        found.append(play(cluster, f"{name}-{whose}-{number}", failover, of_controller=of_controller))
        acknowledged, read = found[-1]
        load = os.getloadavg()[0]
        say(f"{type(cluster).__name__}, {name}, {whose}: {acknowledged:.0f} / {read:.0f} ms (load {load:.1f})")
    written, read_ = zip(*found, strict=True)
    return sorted(written), sorted(read_)


def quantile(values: list[float], share: float) -> float:
    return values[min(int(len(values) * share), len(values) - 1)]


def limit_ms(client: Client) -> int:
    if PAUSED:
        return SESSION_MS + NOTICED_MS_MAX
    return OUR_MS_MAX if client is TIDELOG else STOCK_MS_MAX


def measure(clients: list[Client], directory: Path, node: Cluster, peer: Cluster | None) -> None:
    for client in clients:
        failover = failover_of(client, directory)
        for of_controller in (False,) if LEADERS_ONLY else (False, True):
            whose = "leader that is the active controller" if of_controller else "leader"
            theirs: tuple[list[float], list[float]] | None = None
            if peer is not None and client is not TIDELOG:
                theirs = waits_ms(peer, client.name, failover, PEER_ROUNDS, of_controller=of_controller)
            ours = waits_ms(node, client.name, failover, OUR_ROUNDS, of_controller=of_controller)
            p99_ms_max = OF_CONTROLLER_MS_MAX if of_controller else limit_ms(client)
            for number, what in enumerate(("acknowledged write", "record read")):
                how = "" if GROUP_PROTOCOL is None else f" in a group of the {GROUP_PROTOCOL} protocol"
                name = f"{STRIKE} of a {whose}, to the next {what}, {client.name}{how}"
                _tell(name, ours[number], p99_ms_max, None if theirs is None else theirs[number])


def _tell(name: str, ours: list[float], p99_ms_max: int, theirs: list[float] | None) -> None:
    for quantile_name, share in (("p50", 0.5), ("p99", 0.99)):
        figure(
            f"{name}, {quantile_name} of {len(ours)}",
            quantile(ours, share),
            "ms",
            peer=None if theirs is None else PEER,
            peer_value=None if theirs is None else quantile(theirs, share),
            at_most=p99_ms_max if quantile_name == "p99" else None,
        )


def wanted_clients() -> list[Client]:
    """Those that were asked for and can run here; why others cannot is said."""
    names = option("clients")
    wanted = [one for one in CLIENTS if names is None or one.name.lower() in names.lower().split(",")]
    if GROUP_PROTOCOL is not None:
        wanted = [one for one in wanted if GROUP_PROTOCOL in one.protocols]
    missing = {one.name: why for one in wanted if (why := one.missing()) is not None}
    for name, why in missing.items():
        say(f"{name} is left out: {why}")
    return [one for one in wanted if one.name not in missing]


def main() -> None:
    clients = wanted_clients()
    with tempfile.TemporaryDirectory(prefix="failover-clients-") as directory:
        if WITHOUT_KAFKA or clients == [TIDELOG]:
            with started(lambda home: OurCluster(home, SIZE, config=REPLICATED)) as node:
                measure(clients, Path(directory), node, None)
            return
        need_kafka()
        with (
            started(lambda home: OurCluster(home, SIZE, config=REPLICATED)) as node,
            started(lambda home: KafkaCluster(home, SIZE, config=REPLICATED)) as peer,
        ):
            measure(clients, Path(directory), node, peer)


if __name__ == "__main__":
    main()
