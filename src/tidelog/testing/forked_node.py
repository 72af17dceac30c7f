"""A node in a process that was forked for it."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tidelog.base.errors import TidelogError
from tidelog.testing.links import Links

FAILED = 1
SAYING_FD = 3
"""Where a forked process tells that it serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedNode:
    """What a node is told.

    Attributes:
        properties: its settings, by Kafka's keys.
        links_file: which ways are cut.
        node_id: its number.
        node_count: how many the cluster has.
        brokers: the nodes by the ports of their listeners for brokers.
        controllers: the nodes by the ports of their listeners for controllers.
        clients_port: where clients reach it.
    """

    properties: dict[str, str]
    links_file: str
    node_id: int
    node_count: int
    brokers: dict[int, int]
    controllers: dict[int, int]
    clients_port: int

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> ForkedNode:
        """Of what `to_json` gave, whose keys have become text."""
        ports = {side: {int(port): one for port, one in told[side].items()} for side in ("brokers", "controllers")}
        return cls(**told | ports)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def run(self) -> int:
        """Be the node; returns its exit status. `port=PORT` is written to SAYING_FD when it serves."""
        from tidelog.server.main import run
        from tidelog.testing.cut_network import CutNetwork

        def on_ready(port: int, _address: str) -> None:
            os.write(SAYING_FD, f"port={port}\n".encode())

        links = Links(Path(self.links_file), self.node_count)
        network = CutNetwork(
            links,
            self.node_id,
            brokers=self.brokers,
            controllers=self.controllers,
            clients_port=self.clients_port,
        )
        try:
            return run(self.properties, on_ready=on_ready, network=network)
        except TidelogError as error:
            print(f"tidelog: {error}", file=sys.stderr)
            return FAILED


def run_node(told: dict[str, Any]) -> int:
    """Be the node that `ForkedNode.to_json` tells of."""
    return ForkedNode.from_json(told).run()
