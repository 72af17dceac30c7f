"""The audit of a table against its topic: local[2], 100-byte values; how fast, and who uses the processors for it.

The seconds of the processors say more than the speed does where the machine is shared. A first audit, in a Spark that
has just started, compiles what later ones find compiled: it is shown by itself, as `tidelog spark audit` begins so.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench_spark_healing import ROUNDS, ROWS, SQL, TOPIC, Pipeline, fill
from harness import figure, median, new_node, say

from tidelog.spark.session import local_session

RECORDS_PER_SECOND_MIN = 1_000_000
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PARTS = ("node", "JVM", "workers", "driver")


def used() -> dict[tuple[int, str], float]:
    """Seconds of processors that this process and each one below it have used, with what it is.

    Python workers that ended are not among them: Spark's daemon does not wait for them, so nobody knows.
    """
    found = {}
    for pid, part in _below(os.getpid(), "driver"):
        fields = _said(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        if fields:
            found[pid, part] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
    return found


def _below(root: int, part: str) -> Iterator[tuple[int, str]]:
    """A process, and those that it started, each with what it is."""
    yield root, part
    for task in Path("/proc", str(root)).glob("task/*/children"):
        for child in _said(task).split():
            kind = part
            if part == "JVM":
                kind = "workers"
            elif part == "driver":
                is_spark = "org.apache.spark.deploy.SparkSubmit" in _said(Path(f"/proc/{child}/cmdline"))
                kind = "JVM" if is_spark else "node"
            yield from _below(int(child), kind)


def _said(path: Path) -> str:
    """A file of /proc; nothing, if its process or thread has ended."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


class Measured:
    """Some audits: their speeds, and what they used for each million records."""

    def __init__(self) -> None:
        self.speeds: list[float] = []
        self.seconds: list[dict[str, float]] = []

    def run(self, pipeline: Pipeline) -> None:
        before = used()
        self.speeds.append(pipeline.audit("table", SQL))
        after = used()
        spent = dict.fromkeys(PARTS, 0.0)
        for (pid, part), seconds in after.items():
            spent[part] += (seconds - before.get((pid, part), 0.0)) / ROWS * 1e6
        self.seconds.append(spent)
        say(f"{self.speeds[-1] / 1e6:.2f} M records/s; s/M records: {self.spent()}")

    def spent(self) -> str:
        """Of the last audit, by who used it."""
        return ", ".join(f"{part} {seconds:.2f}" for part, seconds in self.seconds[-1].items())

    def show(self, name: str, target: float | None = None) -> None:
        figure(name, median(self.speeds), "records/s", at_least=target)
        total = median([sum(one.values()) for one in self.seconds])
        figure(f"{name}, processors", total, "s/M records", note=f"the last: {self.spent()}")


def main() -> None:
    first, later = Measured(), Measured()
    with new_node() as node, tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
        say(f"writing {ROWS:,} records to {TOPIC} ...")
        fill(node.bootstrap)
        say("starting Spark ...")
        spark = local_session("bench", cores=2, heap="2g", settings={"spark.log.level": "ERROR"})
        try:
            pipeline = Pipeline(spark, node.bootstrap, Path(folder))
            pipeline.heal("table")
            first.run(pipeline)
            for _ in range(ROUNDS):
                later.run(pipeline)
        finally:
            spark.stop()
    later.show("spark_audit", RECORDS_PER_SECOND_MIN)
    first.show("spark_audit, the first of a Spark")


if __name__ == "__main__":
    main()
