"""Write the archive of Kafka's classes that short programs of the tests map: `python class_archive.py`.

A broker that serves has loaded most of what Kafka's tools load too. With the archive a broker of `TOOL_FLAGS` starts
with half of the processor time, a tool with two thirds.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.clients.kafka_peer import CLASS_ARCHIVE, TOOL_FLAGS, KafkaPeer


def main() -> None:
    written = CLASS_ARCHIVE.with_suffix(".new")
    flags = [flag for flag in TOOL_FLAGS if str(CLASS_ARCHIVE) not in flag]
    with TemporaryDirectory() as directory:
        peer = KafkaPeer(Path(directory) / "kafka", flags=[*flags, f"-XX:ArchiveClassesAtExit={written}"])
        try:
            peer.start()
            peer.stop()
        finally:
            peer.close()
    os.replace(written, CLASS_ARCHIVE)


if __name__ == "__main__":
    main()
