"""Which ways are cut between the nodes of a cluster, and between nodes and clients: a file that all of them map.

    a byte for each way:      to clients   to node 1   to node 2
                from clients      .            0           0
                from node 1       0            .           1     <- what node 1 sends to node 2 is held
                from node 2       0            1           .

What a byte says holds for the next thing that is sent or received, in whatever process, be it paused or yet to start.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

CLIENTS = 0
"""Stands for all clients where a node's number stands for a node."""
ALL, REPLICATION = 1, 2
"""What is cut on a way: everything, or what goes over the listener of brokers (bits of a byte)."""


class Links:
    """See the module.

    Args:
        path: of the file.
        nodes: how many there are, numbered from 1.
        create: make the file, with nothing cut.
    """

    def __init__(self, path: Path, nodes: int, *, create: bool = False) -> None:
        self._peers = nodes + 1
        size_bytes = self._peers * self._peers
        descriptor = os.open(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0), 0o600)
        try:
            if create:
                os.ftruncate(descriptor, size_bytes)
            self._ways = mmap.mmap(descriptor, size_bytes)
        finally:
            os.close(descriptor)

    def is_cut(self, source: int, target: int, what: int = ALL) -> bool:
        """Whether what the one sends does not reach the other.

        Args:
            what: the cuts that count: ALL, or both for what goes over the listener of brokers.
        """
        return self._ways[source * self._peers + target] & what != 0

    def cut(self, source: int, target: int, what: int = ALL) -> None:
        """From now on what the one sends does not reach the other. A peer always reaches itself."""
        if source != target:
            self._ways[source * self._peers + target] |= what

    def mend(self, what: int = ALL) -> None:
        """From now on nothing is cut any more in this sense."""
        for way in range(len(self._ways)):
            self._ways[way] &= ~what & 0xFF

    @property
    def are_whole(self) -> bool:
        """Whether nothing is cut."""
        return not any(self._ways[:])

    def close(self) -> None:
        self._ways.close()
