"""How fast a node is there, and what it holds when nobody asks anything of it.

The peer is a server in Python that speaks the protocol and does nothing: what the interpreter and the event loop take.
"""

from __future__ import annotations

import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_produce import acknowledge_only
from harness import LONG, UpProcess, figure, median, new_node, receive_exactly, resident_bytes, say

ROUNDS = 15 if LONG else 7
CONNECTIONS = 1_000
TESTING_CLUSTERS = 3
API_VERSIONS_V0 = bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", ""))


def time_up() -> list[float]:
    """Milliseconds from the start of `tidelog up` to `ready`: first on an empty directory, then on its own files."""
    times = []
    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    node = UpProcess(directory / "data", config={})
    try:
        for _ in range(ROUNDS):
            started = time.perf_counter()
            node.start()
            times.append((time.perf_counter() - started) * 1e3)
            node.stop()
    finally:
        node.close()
        shutil.rmtree(directory)
    return times


def time_server() -> list[float]:
    """Likewise for `tidelog server`, which is what `up` starts for each node; each time on an empty directory."""
    times = []
    for _ in range(ROUNDS):
        directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
        properties = directory / "server.properties"
        properties.write_text(
            "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
            "controller.quorum.voters=1@127.0.0.1:0\n"
            "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
            f"log.dirs={directory}/data\n"
        )
        started = time.perf_counter()
        command = [sys.executable, "-m", "tidelog", "server", str(properties), "--log-level", "warning"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            assert server.stdout is not None
            while not (line := server.stdout.readline()).startswith(b"ready "):
                assert line, f"`tidelog server` ended with status {server.wait()}"
            times.append((time.perf_counter() - started) * 1e3)
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate()
            shutil.rmtree(directory)
    return times


def time_testing(nodes: int) -> tuple[float, float]:
    """Milliseconds until a cluster of `tidelog.testing` serves: the first of a process, and later ones."""
    program = (
        "import time; started = time.perf_counter()\n"
        "from tidelog.testing import Cluster\n"
        f"for _ in range({TESTING_CLUSTERS}):\n"
        f"    with Cluster(nodes={nodes}):\n"
        "        print((time.perf_counter() - started) * 1e3)\n"
        "    started = time.perf_counter()\n"
    )
    firsts, laters = [], []
    for _ in range(ROUNDS):
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        first, *later = map(float, ran.stdout.split())
        firsts.append(first)
        laters += later
    return median(firsts), median(laters)


def time_peer() -> tuple[list[float], int]:
    """Milliseconds to the peer's ready, and its resident bytes then."""
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        with acknowledge_only() as (pid, _):
            times.append((time.perf_counter() - started) * 1e3)
            resident = resident_bytes(pid)
    return times, resident


def connect_many(port: int) -> list[socket.socket]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, CONNECTIONS + 100)), hard))
    return [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(CONNECTIONS)]


def say_hello(stream: socket.socket) -> None:
    stream.sendall(API_VERSIONS_V0)
    receive_exactly(stream, int.from_bytes(receive_exactly(stream, 4)))


def main() -> None:
    peer = "acknowledge only"
    up = time_up()
    server = time_server()
    peer_times, peer_resident = time_peer()
    say(f"up: {up[0]:.0f} ms on an empty directory, then {', '.join(f'{ms:.0f}' for ms in up[1:])}")
    for name, times in (("tidelog up", up), ("tidelog server", server)):
        figure(f"start: {name} to ready", median(times), "ms", peer=peer, peer_value=median(peer_times), at_most=500)
    for nodes, at_most in ((1, 1_000), (3, 1_500)):
        first, later = time_testing(nodes)
        name = f"start: tidelog.testing, {nodes} {'node' if nodes == 1 else 'nodes'}"
        figure(f"{name}, first of a process", first, "ms", at_most=at_most)
        figure(f"{name}, later", later, "ms", at_most=at_most)
    with new_node() as node:
        idle = resident_bytes(node.pid)
        streams = connect_many(node.port)
        say_hello(streams[-1])  # all before it have been accepted
        connected = resident_bytes(node.pid)
        for stream in streams:
            say_hello(stream)
        greeted = resident_bytes(node.pid)
        for stream in streams:
            stream.close()
    figure("idle: RSS of a node", idle / 1e6, "MB", peer=peer, peer_value=peer_resident / 1e6, at_most=60)
    figure(f"idle: RSS added by {CONNECTIONS:,} connections", (connected - idle) / 1e6, "MB", at_most=50)
    figure("idle: RSS added once each has asked ApiVersions", (greeted - idle) / 1e6, "MB", at_most=50)


if __name__ == "__main__":
    main()
