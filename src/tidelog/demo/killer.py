"""Kills a node of the demo, and starts it again while the others go on."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from tidelog.base.errors import TidelogError
from tidelog.demo.nodes import DemoCluster
from tidelog.demo.report import Outage, RunLog

DOWN_SECONDS = 4.0
"""How long a node stays dead."""


class Narrator(Protocol):
    """Tells people what the demo does."""

    def say(self, text: str) -> None: ...


class Killer:
    """Kills one node, and starts it again a little later."""

    def __init__(self, cluster: DemoCluster, log: RunLog, narrator: Narrator) -> None:
        self._cluster = cluster
        self._log = log
        self._narrator = narrator
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    @property
    def has_struck(self) -> bool:
        return self._thread is not None

    def strike(self, who: str, node_id: int) -> None:
        """Kill it now; it comes back while others go on. `join` waits for that."""
        outage = Outage(who, self._log.seconds())
        self._log.outages.append(outage)
        self._narrator.say(f"kill -9 {self._cluster.pids[node_id]}: node {node_id}, {who}, is gone")
        said = self._cluster.kill(node_id)
        if said:
            self._narrator.say(f"`tidelog up` says: {said}")

        def bring_back() -> None:
            time.sleep(DOWN_SECONDS)
            try:
                seconds = self._cluster.start_again(node_id)
            except TidelogError as error:
                self._error = error
                return
            outage.back_at = self._log.seconds()
            self._narrator.say(f"node {node_id} is back on the same files, up in {seconds:.2f} s")

        self._thread = threading.Thread(target=bring_back, name="demo-killer", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Raises NodeFailedError: it did not come back."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
