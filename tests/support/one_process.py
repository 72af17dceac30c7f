"""Which tests `--dist loadfile` keeps in one process: those of a file, and those that share what is dear to start."""

from __future__ import annotations

DEAR_FOLDERS = ("tests/compat/java/", "tests/compat/kafka_tools/", "tests/spark/")
"""The tests of each share Kafka, a JVM or Spark. In two processes there would be two of it."""


def scope_of(nodeid: str) -> str:
    """The folder or the file whose tests run in one process, one after the other."""
    return next((folder for folder in DEAR_FOLDERS if nodeid.startswith(folder)), nodeid.partition("::")[0])


def is_begun_first(nodeid: str) -> bool:
    """Whether it belongs to a folder: that takes longest, and is not to be what is left when all else is done."""
    return scope_of(nodeid) in DEAR_FOLDERS
