"""A copy in transactions beside the load of a round: each input counts once, whatever is hurt and whoever dies."""

from __future__ import annotations

import random
import threading
from pathlib import Path

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
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Returns when the first inputs are copied."""
        copying = self._copying.__enter__()
        copying.write(INPUTS)
        copying.wait_until_copied(1)
        self._thread.start()

    def check(self) -> int:
        """Wait until all is copied, and read it. Returns how many inputs there were.

        Raises:
            AssertionError: one is missing, is there twice or in another place; or a transaction hangs.
        """
        self._end()
        if self._failure is not None:
            raise self._failure
        self._copying.check()
        self._copying.kill()
        return sum(map(len, self._copying.written))

    def close(self) -> None:
        """End all, be it checked or not."""
        self._end()
        self._copying.kill()

    def _end(self) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._ended.wait(PAUSE_SECONDS):
                if self._dice.random() < PAUSE_SECONDS / KILLED_EVERY_SECONDS:
                    self._copying.kill()
                self._copying.replace_ended()
                self._copying.write(INPUTS)
        except BaseException as error:
            self._failure = error
