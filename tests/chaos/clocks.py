"""A wall clock of its own for the process of a node, which can be set while it runs.

The clock is moved where a Python program asks the system for it: before anything of Tidelog is loaded, `time.time` and
`time.time_ns` get a shift added that stands in a file. The clock that never goes back stays as it is, as it does when
somebody sets a machine's clock; the times of files and the clocks of other processes are the machine's.
"""

from __future__ import annotations

import struct
from pathlib import Path

_PROGRAM = """
import mmap, struct, time
with open({file!r}, "rb") as file:
    shift = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
unpack, time_ns, seconds = struct.Struct("<q").unpack_from, time.time_ns, time.time
time.time_ns = lambda: time_ns() + unpack(shift)[0]
time.time = lambda: seconds() + unpack(shift)[0] / 1e9
from tidelog.cli.app import main
main()
"""


class NodeClock:
    """One of them, right at first.

    Args:
        file: where its shift is kept.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_bytes(bytes(8))

    @property
    def program(self) -> str:
        """For `python -c`: the command line of Tidelog under this clock."""
        return _PROGRAM.format(file=str(self._file))

    def set(self, seconds: float) -> None:
        """How far it is ahead from now on; negative for behind."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("<q", round(seconds * 1e9)))
