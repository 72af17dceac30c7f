"""Which ports a process listens on. Linux only."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def listening_ports(pid: int) -> set[int]:
    """All of them, of IPv4."""
    sockets = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed by now
            sockets.add(str(entry.readlink()))
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]
    return {int(address.partition(":")[2], 16) for address in listening}
