"""The network between nodes, as the runner sees it: who can talk to whom, and how well."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from chaos.switch import CLIENTS, address_of, order_of
from chaos.wires import CUT, Way, Weather

__all__ = ["CLIENTS", "Network"]


class Network:
    """Nodes by their ids, and `CLIENTS`, each in a network namespace of its own. Ends with the `with` block."""

    def __init__(self, seed: int, nodes: Collection[int]) -> None:
        self.peers = (*nodes, CLIENTS)
        command = [sys.executable, str(Path(__file__).with_name("switch.py")), str(seed), *map(str, self.peers)]
        self._switch = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._namespaces = {int(peer): one for peer, one in self._answer()["namespaces"].items()}
        self._weather: dict[Way, Weather] = {}

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def address_of(self, peer: int) -> str:
        return address_of(peer)

    def wrapper_of(self, node_id: int) -> tuple[str, ...]:
        """The command that runs what follows it in the node's namespace."""
        return ("nsenter", f"--net=/proc/{self._switch.pid}/fd/{self._namespaces[node_id]}")

    def set(self, ways: Collection[Way], weather: Weather) -> None:
        """These ways are like this from now on; the others stay as they are."""
        self._weather |= dict.fromkeys(ways, weather)
        self.ask()

    def clear(self, ways: Collection[Way]) -> None:
        """These ways are fair again."""
        for way in ways:
            self._weather.pop(way, None)
        self.ask()

    def cut(self, ways: Collection[Way]) -> None:
        """Nothing passes on these ways; nobody is told."""
        self.set(ways, CUT)

    def between(self, ones: Collection[int], others: Collection[int], *, both: bool = True) -> list[Way]:
        """The ways from each of these peers to each of those, and back unless it is said otherwise."""
        there = [Way(one, other) for one in ones for other in others if one != other]
        return there + ([Way(way.target, way.source) for way in there] if both else [])

    def rest(self, ones: Collection[int]) -> list[int]:
        """All peers but these, clients included."""
        return [peer for peer in self.peers if peer not in ones]

    def close(self) -> None:
        """The devices go with the switch, the namespaces with who is in them last."""
        assert self._switch.stdin is not None
        assert self._switch.stdout is not None
        self._switch.kill()
        self._switch.wait()
        self._switch.stdin.close()
        self._switch.stdout.close()

    def ask(self) -> Mapping[str, int]:
        """How many packets passed, were lost, repeated and overtaken. It is all as it was set when this comes back."""
        assert self._switch.stdin is not None
        self._switch.stdin.write(order_of(self._weather))
        self._switch.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._switch.stdout is not None
        line = self._switch.stdout.readline()
        if not line:
            raise AssertionError(f"the switch ended with status {self._switch.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer
