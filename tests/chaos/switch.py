"""Carries packets between network namespaces, each of which has one device: `python switch.py SEED PEER…`.

A peer is a number below 255, the last part of its address. The peer `CLIENTS` is where the switch was started; all
others get a namespace of their own. Reads orders from stdin, one JSON object a line, answers each with one, and ends
with its stdin. Packets that come while a way is fair are handed on at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import selectors
import struct
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.sandbox import CLONE_NEWNET, enter_namespace, unshare
from chaos.wires import Way, Weather, Wires

NETWORK = "10.77.0"
CLIENTS = 100
DEVICE = "tidelog"
MTU = 8_000
PACKETS_QUEUED = 10_000
PACKETS_AT_ONCE = 64
TUNSETIFF = 0x4004_54CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
IPV4 = 4


def address_of(peer: int) -> str:
    return f"{NETWORK}.{peer}"


class Switch:
    """See the module.

    Attributes:
        namespaces: descriptors of those of the peers, which others open below /proc/PID/fd.
    """

    def __init__(self, seed: int, peers: list[int]) -> None:
        self.wires = Wires(random.Random(seed))
        self.namespaces: dict[int, int] = {}
        self.devices: dict[int, int] = {}
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        for peer in peers:
            if peer != CLIENTS:
                unshare(CLONE_NEWNET)
                self.namespaces[peer] = os.open("/proc/self/ns/net", os.O_RDONLY)
            self.devices[peer] = _new_device(peer)
            enter_namespace(home)
        os.close(home)

    def run(self) -> None:
        """Until stdin ends."""
        with selectors.DefaultSelector() as selector:
            for peer, device in self.devices.items():
                selector.register(device, selectors.EVENT_READ, peer)
            os.set_blocking(sys.stdin.fileno(), False)
            selector.register(sys.stdin.fileno(), selectors.EVENT_READ, None)
            orders = b""
            while True:
                due = self.wires.next_due()
                ready = selector.select(None if due is None else max(0.0, due - time.monotonic()))
                for key, _ in ready:
                    if key.data is not None:
                        self._carry(key.data)
                        continue
                    piece = os.read(sys.stdin.fileno(), 65_536)
                    if not piece:
                        return
                    *lines, orders = (orders + piece).split(b"\n")
                    for line in lines:
                        say(self._obey(json.loads(line)))
                for way, packet in self.wires.take_due(time.monotonic()):
                    self._deliver(way, packet)

    def _carry(self, source: int) -> None:
        device, wires = self.devices[source], self.wires
        for _ in range(PACKETS_AT_ONCE):
            try:
                packet = os.read(device, 65_536)
            except BlockingIOError:
                return
            if packet[0] >> 4 != IPV4 or packet[19] not in self.devices:
                continue
            way = Way(source, packet[19])
            if wires.is_clear(way):
                wires.passed += 1
                self._deliver(way, packet)
            else:
                wires.on_packet(way, packet, time.monotonic())

    def _deliver(self, way: Way, packet: bytes) -> None:
        with suppress(BlockingIOError):  # its queue is full: lost, as anywhere
            os.write(self.devices[way.target], packet)

    def _obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """`{"ways": [[source, target, weather], …]}` replaces the weather; all other ways are fair."""
        wires = self.wires
        if not any(weather.forgets for weather in wires.weather.values()):
            wires.opened.clear()
        wires.weather = {Way(source, target): Weather(**weather) for source, target, weather in order["ways"]}
        return {
            "passed": wires.passed,
            "lost": wires.lost,
            "repeated": wires.repeated,
            "overtaken": wires.overtaken,
            "reset": wires.reset,
        }


def order_of(weather: dict[Way, Weather]) -> str:
    """The line that makes it so."""
    return json.dumps({"ways": [[*way, asdict(one)] for way, one in weather.items()]}) + "\n"


def say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _new_device(peer: int) -> int:
    """In the namespace where we are. It is gone when its descriptor is closed."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    for command in (
        "link set lo up",
        f"addr add {address_of(peer)}/24 dev {DEVICE}",
        f"link set {DEVICE} mtu {MTU} txqueuelen {PACKETS_QUEUED} up",
    ):
        subprocess.run(["ip", *command.split()], check=True)
    return device


if __name__ == "__main__":
    switch = Switch(int(sys.argv[1]), [int(peer) for peer in sys.argv[2:]])
    say({"namespaces": switch.namespaces})
    switch.run()
