"""What a second core can give a broker: prototypes of its produce path, and two nodes on one host.

Sixteen connections produce, each to a partition of its own, records of 1 KB in batches of 50, and single records of
100 bytes; the prototypes over TLS as well. Each way is compared with one event loop. The senders share the two cores:
beside each rate is what the CPU of both sides allows at most.

python bench/bench_cores.py [--quick] [--long] [--free-threaded=PYTHON]: a CPython of that kind, with the packages
crc32c and cramjam, runs a thread for each connection as well.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from beside_kafka import QUICK, ROUNDS
from harness import cpu_seconds, figure, median, say, skip

from support.fixtures.certificates import Authority, missing_openssl
from support.nodes.background_command import BackgroundCommand
from support.nodes.server_process import ServerProcess
from tidelog import Admin, NewTopic
from tidelog.cli.ports import free_ports

HOST = "127.0.0.1"
CONNECTIONS = 16
SECONDS = 1.0 if QUICK else 3.0
HERE = Path(__file__).resolve().parent
SOURCE = {"PYTHONPATH": str(HERE.parent / "src")}
"""For an interpreter that tidelog is not installed for."""
LOADS = {"50 records of 1 KB": (50, 1_000), "one record of 100 bytes": (1, 100)}
TOPIC = "cores"
CORES = 2
FREE_THREADED = next((one.partition("=")[2] for one in sys.argv[1:] if one.startswith("--free-threaded=")), None)
GAIN_MIN = 1.6


class Ran(NamedTuple):
    """What was reached.

    Attributes:
        rate: bytes of batches each second.
        server_cpu: seconds each second.
        sender_cpu: the same of whoever sent.
    """

    rate: float
    server_cpu: float
    sender_cpu: float

    @property
    def rate_max(self) -> float:
        """On two cores, if both sides were spread over them without loss."""
        return self.rate * CORES / (self.server_cpu + self.sender_cpu)


class Served(NamedTuple):
    """Where the partitions are: the port of each."""

    pids: list[int]
    ports: list[int]


@contextmanager
def prototypes(way: str, count: int, certificate: Path | None, python: str = sys.executable) -> Iterator[Served]:
    directory = Path(tempfile.mkdtemp(prefix="tidelog-cores-"))
    processes = []
    try:
        found = []
        for number in range(count):
            own = directory / str(number)
            own.mkdir()
            arguments = [python, str(HERE / "cores_server.py"), way, str(own)]
            arguments += [] if certificate is None else [str(certificate)]
            process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=os.environ | SOURCE)
            processes.append(process)
            assert process.stdout is not None
            pid, port = (int(word.partition("=")[2]) for word in process.stdout.readline().split())
            found.append((pid, port))
        ports = [found[partition % count][1] for partition in range(CONNECTIONS)]
        yield Served([pid for pid, _ in found], ports)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def nodes(count: int) -> Iterator[Served]:
    """`tidelog up --nodes COUNT`, and a topic with one replica of each partition."""
    directory = Path(tempfile.mkdtemp(prefix="tidelog-cores-"))
    up = BackgroundCommand(
        directory / "log", "up", "--nodes", str(count), "--data", str(directory / "data"), "--port=0"
    )
    try:
        with Admin(up.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, CONNECTIONS, 1)])
            while True:
                (topic,) = admin.describe_topics([TOPIC]).values()
                leaders = [one.leader for one in topic.partitions if one.leader is not None]
                if len(leaders) == CONNECTIONS:
                    break
                time.sleep(0.1)
            ports = {broker.broker_id: broker.port for broker in admin.describe_cluster().brokers}
        yield Served(list(up.pids.values()), [ports[leader] for leader in leaders])
    finally:
        up.close()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def secured_nodes(count: int, certificate: Path) -> Iterator[Served]:
    """So many nodes, each a cluster of its own, whose clients come over TLS."""
    directory = Path(tempfile.mkdtemp(prefix="tidelog-cores-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        pids, ports = [], []
        for number in range(count):
            port, plain, controller = free_ports(HOST, [None] * 3)
            node = ServerProcess(directory, directory / f"data-{number}", node_id=number + 1)
            node.settings |= {
                "listeners": f"SSL://{HOST}:{port},PLAINTEXT://{HOST}:{plain},CONTROLLER://{HOST}:{controller}",
                "listener.security.protocol.map": "SSL:SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(certificate),
            }
            stack.callback(node.close)
            node.start()
            with Admin(f"{HOST}:{plain}") as admin:
                admin.create_topics([NewTopic(TOPIC, CONNECTIONS, 1)])
            pids.append(node.pid)
            ports.append(port)
        yield Served(pids, [ports[partition % count] for partition in range(CONNECTIONS)])


def run(served: Served, load: tuple[int, int], authority: Path | None) -> Ran:
    places = [f"{port}/{partition}" for partition, port in enumerate(served.ports)]
    values, value_bytes = map(str, load)
    arguments = [str(SECONDS), values, value_bytes, "-" if authority is None else str(authority), *places]
    before = sum(map(cpu_seconds, served.pids))
    sender = subprocess.run(
        [sys.executable, str(HERE / "cores_sender.py"), *arguments], check=True, capture_output=True, text=True
    )
    told = json.loads(sender.stdout)
    used = sum(map(cpu_seconds, served.pids)) - before
    return Ran(told["bytes"] / told["seconds"], used / told["seconds"], told["cpu"] / told["seconds"])


def compare(what: str, ways: dict[str, Served], authority: Path | None) -> None:
    for load_name, load in LOADS.items():
        found: dict[str, list[Ran]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, served in ways.items():
                found[name].append(run(served, load, authority))
        (base_name, *names) = ways
        base = median([ran.rate for ran in found[base_name]])
        for name in ways:
            rate, at_most = (median([value(ran) for ran in found[name]]) for value in (_rate, _rate_max))
            server, sender = (median([value(ran) for ran in found[name]]) for value in (_server, _sender))
            say(
                f"{what}, {load_name}, {name}: {rate / 1e6:.1f} MB/s, the server takes {server:.2f} cores, the sender"
                f" {sender:.2f}: {at_most / 1e6:.1f} MB/s are possible"
            )
            if name in names:
                figure(
                    f"{what}, 16 connections, {load_name}: {name}",
                    rate / 1e6,
                    "MB/s",
                    peer=base_name,
                    peer_value=base / 1e6,
                    at_least=GAIN_MIN,
                    of_ratio=True,
                )


def _rate(ran: Ran) -> float:
    return ran.rate


def _rate_max(ran: Ran) -> float:
    return ran.rate_max


def _server(ran: Ran) -> float:
    return ran.server_cpu


def _sender(ran: Ran) -> float:
    return ran.sender_cpu


def main() -> None:
    if (reason := missing_openssl()) is not None:
        skip(reason)
    with nodes(1) as one, nodes(2) as two:
        compare("Tidelog", {"one node": one, "two nodes": two}, None)
    directory = Path(tempfile.mkdtemp(prefix="tidelog-cores-"))
    authority = Authority(directory)
    certificate = authority.sign("broker", hosts="DNS:localhost,IP:127.0.0.1").both
    try:
        with secured_nodes(1, certificate) as one, secured_nodes(2, certificate) as two:
            compare("Tidelog, TLS", {"one node": one, "two nodes": two}, authority.certificate)
        for what, pem, trusted in (("prototype", None, None), ("prototype, TLS", certificate, authority.certificate)):
            with (
                prototypes("loop", 1, pem) as loop,
                prototypes("threads-write", 1, pem) as writes,
                prototypes("threads", 1, pem) as threads,
                prototypes("loop", 2, pem) as processes,
                ExitStack() as others,
            ):
                ways = {
                    "one loop": loop,
                    "checks and writes on two threads": writes,
                    "a thread for each connection": threads,
                    "two processes": processes,
                }
                if FREE_THREADED is not None:
                    free = prototypes("threads", 1, pem, FREE_THREADED)
                    ways["a thread for each connection, free-threaded"] = others.enter_context(free)
                compare(what, ways, trusted)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
