"""librdkafka's own tests against a node, or against Apache Kafka: `make librdkafka`, or

    python tests/compat/librdkafka/suite.py [--peer] [NUMBER…]

Each test runs in a process of its own, one after the other: a table of what passed, at the end what failed beyond
`ALLOW`, and an exit status that says whether anything did. Tests that bring a broker of their own (mocks, unit tests),
and those of TLS, SASL and share groups, say nothing about us and are left out.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from support.kafka_peer import KafkaPeer, java_command, missing_peers  # noqa: E402
from support.node import NodeProcess  # noqa: E402

SOURCE = ROOT / "peers" / "librdkafka" / "package" / "deps" / "librdkafka"
TEST_SECONDS_MAX = 240
SECONDS_MAX_OF = {"0045": 600, "0113": 900}
"""What is picked by number brings the tests of librdkafka's own mock along, and some of those take minutes."""

BROKER_VERSION = "4.1.0"
NODE_CONFIG = {
    "num.partitions": "4",
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "3000",
}
"""What the tests expect: topics appear when asked for, with four partitions; groups gather before they start."""

KAFKA_SCRIPTS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
}
LEFT_OUT = re.compile(r"mock|share_|ssl|sasl|oauth|auth$|_ut$|unittests|manual|idle$|metadata_update")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one test went."""

    name: str
    result: str  # "passed", "skipped", "failed"
    seconds: float
    reason: str


def test_names(source: Path) -> list[str]:
    """The tests that talk to the broker they are given, by name, as `0012_produce_consume`."""
    declared = re.findall(r"^ {4}_TEST\((0\d{3}_\w+)", (source / "tests" / "test.c").read_text(), re.MULTILINE)
    numbers = dict[str, str]()
    for name in dict.fromkeys(declared):
        if not LEFT_OUT.search(name):
            numbers.setdefault(name[:4], name)  # TESTS= picks by the number: once is enough
    return sorted(numbers.values())


def run_test(source: Path, name: str, directory: Path, environment: dict[str, str]) -> Outcome:
    started = time.monotonic()
    log = directory / f"{name}.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [str(source / "tests" / "test-runner"), "-p1"],
            cwd=directory / "tests",
            env={**environment, "TESTS": name[:4]},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
        seconds_max = SECONDS_MAX_OF.get(name[:4], TEST_SECONDS_MAX)
        try:
            status: int | None = process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = None
    seconds = time.monotonic() - started
    said = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(errors="replace"))
    if status is None:
        return Outcome(name, "failed", seconds, f"not done within {seconds_max} s")
    if status == 0:
        skipped = re.search(rf"\|\s*{name}\s*\|\s*SKIPPED", said)
        return Outcome(name, "skipped" if skipped else "passed", seconds, "")
    failure = re.search(r"failed at (\S+).*\n(?:.*: )?(.*)", said)
    return Outcome(name, "failed", seconds, " ".join(failure.groups()) if failure else f"exit status {status}")


def lay_out(directory: Path, source: Path) -> None:
    """Give the tests a directory of their own to run in, with the files beside it that some of them read."""
    (directory / "tests").mkdir(exist_ok=True)
    for name in ("src", "tests/interceptor_test"):
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(source / name)


@contextmanager
def broker(directory: Path, *, is_peer: bool) -> Iterator[str]:
    """A node, or Apache Kafka, with the settings that the tests expect."""
    if is_peer:
        kafka = KafkaPeer(directory / "kafka", config=NODE_CONFIG)
        kafka.start()
        try:
            yield kafka.bootstrap
        finally:
            kafka.stop()
        return
    node = NodeProcess(directory / "node", config=NODE_CONFIG)
    node.start()
    try:
        yield node.bootstrap
    finally:
        node.close()


def kafka_path(directory: Path) -> Path | None:
    """Where the tests find `bin/kafka-topics.sh`, which a few of them call; None without `make peers`."""
    if missing_peers() is not None:
        return None
    scripts = directory / "kafka-home" / "bin"
    scripts.mkdir(parents=True)
    for name, main_class in KAFKA_SCRIPTS.items():
        command = java_command([main_class])
        (scripts / name).write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        (scripts / name).chmod(0o755)
    return scripts.parent


def allowed() -> dict[str, str]:
    """Test names to the reasons for which they may fail."""
    lines = [line.partition(":") for line in (HERE / "ALLOW").read_text().splitlines() if line and line[0] != "#"]
    return {name.strip(): reason.strip() for name, _, reason in lines}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="librdkafka's own tests against a node")
    parser.add_argument("--peer", action="store_true", help="against Apache Kafka, for comparison")
    parser.add_argument("--source", type=Path, default=SOURCE, help="librdkafka, built with its tests")
    parser.add_argument("--keep", type=Path, help="a directory for the logs; else they go")
    parser.add_argument("numbers", nargs="*", help="of the tests to run, as 0012; all without")
    options = parser.parse_args(arguments)
    if not (options.source / "tests" / "test-runner").exists():
        print(f"error: {options.source} is not built: `make librdkafka` does that", file=sys.stderr)
        return 2
    names = [name for name in test_names(options.source) if not options.numbers or name[:4] in options.numbers]
    with tempfile.TemporaryDirectory(prefix="librdkafka-") as temporary:
        directory = options.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        with broker(Path(temporary), is_peer=options.peer) as bootstrap:
            lay_out(directory, options.source)
            (directory / "tests" / "test.conf").write_text(
                f"metadata.broker.list={bootstrap}\ntest.topic.random=true\n"
            )
            libraries = f"{options.source / 'src'}:{options.source / 'src-cpp'}"
            environment = {
                **os.environ,
                "LD_LIBRARY_PATH": libraries,
                "TEST_KAFKA_VERSION": BROKER_VERSION,
                "BROKERS": bootstrap,
            }
            if (home := kafka_path(Path(temporary))) is not None:
                environment["KAFKA_PATH"] = str(home)
            outcomes = []
            for name in names:
                outcome = run_test(options.source, name, directory, environment)
                outcomes.append(outcome)
                print(f"{outcome.result:8} {outcome.seconds:6.1f} s  {name}  {outcome.reason}", flush=True)
    return conclude(outcomes, {} if options.peer else allowed())


def conclude(outcomes: list[Outcome], reasons: dict[str, str]) -> int:
    """Say what is not as `ALLOW` has it. Returns the exit status."""
    counts = {result: sum(each.result == result for each in outcomes) for result in ("passed", "failed", "skipped")}
    surprises = [each.name for each in outcomes if each.result == "failed" and each.name not in reasons]
    stale = [each.name for each in outcomes if each.result == "passed" and each.name in reasons]
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    for name in surprises:
        print(f"error: {name} failed, and ALLOW does not say why it may", file=sys.stderr)
    for name in stale:
        print(f"error: {name} passed: its line in ALLOW is not needed any more", file=sys.stderr)
    return 1 if surprises or stale else 0


if __name__ == "__main__":
    sys.exit(main())
