"""Which replicas one log directory lists (`log.replica_list`): who is listed and not there has lost its log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

from tidelog.base.invariant import invariant
from tidelog.log.directory import LogDirectory
from tidelog.log.files.replica_list import ListedReplica, entry_lines


class ListedReplicas:
    """The list of one directory, as it is on the disk. On the executor's threads, several at once.

    Args:
        found: the replicas whose logs lie there.

    Attributes:
        is_lost: the directory had a list, and it is gone or damaged: so every replica that is not there may be lost.
        found_lost: replicas whose logs lie there and lack records, which is yet to be committed.
    """

    def __init__(self, directory: LogDirectory, found: Callable[[], Iterable[ListedReplica]]) -> None:
        self.is_lost = False
        self.found_lost: set[ListedReplica] = set()
        self._directory = directory
        self._found = found
        self._replicas: set[ListedReplica] = set()
        self._lines: list[str] | None = None  # of all of them, as they were written last
        self._lock = threading.Lock()

    def read(self) -> None:
        """Read the list at the start. A directory of an older release has none: it gets one. Raises DiskError."""
        properties = self._directory.read_meta_properties()
        if properties is not None and properties.has_replica_list:
            listed = self._directory.read_replica_list()
            self.is_lost = listed is None
            self._replicas, self.found_lost = (set(), set()) if listed is None else map(set, listed)
            return
        self._write(set(self._found()), set())
        if properties is not None:
            self._directory.write_meta_properties(replace(properties, has_replica_list=True))

    def __contains__(self, replica: ListedReplica) -> bool:
        return replica in self._replicas

    def add(self, replicas: Iterable[ListedReplica]) -> None:
        """Logs of theirs lie here from now on; synced when this returns. Raises DiskError: none is listed anew."""
        with self._lock:
            self._replace(self._replicas.union(replicas), self.found_lost)

    def remove(self, replicas: Iterable[ListedReplica]) -> None:
        """Their logs are about to go, or their loss is committed; synced when this returns. Raises DiskError."""
        with self._lock:
            removed = set(replicas)
            self._replace(self._replicas - removed, self.found_lost - removed)

    def note_lost(self, replica: ListedReplica) -> None:
        """Its log lacks records: whatever a start makes of the files, the next one knows. Raises DiskError."""
        with self._lock:
            if replica not in self.found_lost:
                self._replace(self._replicas | {replica}, self.found_lost | {replica})

    def renew(self) -> None:
        """A list in the place of the lost one: what it named has been told as lost. Raises DiskError."""
        invariant(self.is_lost, "{}: its list of replicas is not lost", self._directory.path)
        found = set(self._found())
        with self._lock:
            self._write(found, set())
            self.is_lost = False

    def _replace(self, replicas: set[ListedReplica], found_lost: set[ListedReplica]) -> None:
        if self.is_lost:
            self._replicas, self.found_lost, self._lines = (
                replicas,
                found_lost,
                None,
            )  # see `renew`: a file would say that it names all
        elif (replicas, found_lost) != (self._replicas, self.found_lost):
            self._write(replicas, found_lost)

    def _write(self, replicas: set[ListedReplica], found_lost: set[ListedReplica]) -> None:
        lines = self._lines_of(replicas, found_lost)
        self._directory.write_replica_list(lines, found_lost)
        self._replicas, self.found_lost = replicas, found_lost
        self._lines = None if found_lost else lines

    def _lines_of(self, replicas: set[ListedReplica], found_lost: set[ListedReplica]) -> list[str]:
        """Those of the last time and of what came since, where nothing went: topics come a few at a time."""
        if self._lines is not None and not found_lost:
            added = replicas - self._replicas
            if len(replicas) == len(self._replicas) + len(added):
                return sorted([*self._lines, *entry_lines(added)])
        return entry_lines(replicas - found_lost)
