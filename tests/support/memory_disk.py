"""The simulator's disk, for tests of everything that writes files."""

from __future__ import annotations

from tidelog.sim.world.disk import Contents
from tidelog.sim.world.disk import SimulatedDisk as MemoryDisk
from tidelog.sim.world.disk import SimulatedFile as MemoryFile

__all__ = ["Contents", "MemoryDisk", "MemoryFile"]
