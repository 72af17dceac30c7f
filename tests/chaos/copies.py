"""A copy in transactions beside the load of a round: each input counts once, whatever is hurt and whoever dies."""

from __future__ import annotations

import random
from pathlib import Path

from chaos.in_background import InBackground
from chaos.nodes import ChaosCluster
from support.load.copying import Copying, python_copier

CLIENTS = ("confluent", "kafka_python", "aiokafka")
NAME = "copies"
INPUTS = 30
"""Written at a time; about two transactions of the copier."""
PAUSE_SECONDS = 0.3
KILLED_EVERY_SECONDS = 8.0
"""The copier, on the average. Its transaction is left open, and another one with its name takes over."""


class Copies:
    """A topic that grows, and its copy; see `Copying`. It has a thread.

    Args:
        dice: says which client copies, and when it is killed.
        home: where what the copiers say is kept.
    """

    def __init__(self, cluster: ChaosCluster, dice: random.Random, home: Path) -> None:
        self.client = dice.choice(CLIENTS)
        self._dice = random.Random(dice.random())
        self._copying = Copying(cluster, python_copier(self.client), NAME, home)
        self._background = InBackground(self._go_on, PAUSE_SECONDS)

    def start(self) -> None:
        """Returns when the first inputs are copied."""
        copying = self._copying.__enter__()
        copying.write(INPUTS)
        copying.wait_until_copied(1)
        self._background.start()

    def check(self) -> int:
        """Wait until all is copied, and read it. Returns how many inputs there were.

        Raises:
            AssertionError: one is missing, is there twice or in another place; or a transaction hangs.
        """
        self._background.check()
        self._copying.check()
        self._copying.kill()
        return sum(map(len, self._copying.written))

    def close(self) -> None:
        """End all, be it checked or not."""
        self._background.end()
        self._copying.kill()

    def _go_on(self) -> None:
        if self._dice.random() < PAUSE_SECONDS / KILLED_EVERY_SECONDS:
            self._copying.kill()
        self._copying.replace_ended()
        self._copying.write(INPUTS)
