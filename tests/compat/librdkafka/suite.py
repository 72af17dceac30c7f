"""librdkafka's own tests against three nodes, or against Apache Kafka: `make librdkafka`, or

    python tests/compat/librdkafka/suite.py [--peer] [--nodes N] [--jobs N] [NUMBER…]

`LIST` has every test of librdkafka, and why one is not run. Each runs in a process of its own; of the tests in `PARTS`,
each part does. The suite prints what passed, at the end what failed beyond `ALLOW`, and its exit status says whether
anything did. A test is skipped, and says so, where what it needs is not on this machine.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from support.clients.kafka_peer import KAFKA_JARS, KafkaCluster, java_command, missing_peers  # noqa: E402
from support.nodes.cluster import Cluster  # noqa: E402
from support.nodes.secured_cluster import SecuredCluster  # noqa: E402

SOURCE = ROOT / "peers" / "librdkafka" / "package" / "deps" / "librdkafka"
TEST_SECONDS_MAX = 240
SECONDS_MAX_OF = {"0113": 1_500}
"""0113 is some sixty groups, each of which waits for the delay of its first rebalance, over and over."""

BROKER_VERSION = "4.1.0"
NODE_CONFIG = {
    "num.partitions": "4",
    "group.initial.rebalance.delay.ms": "3000",
    "min.insync.replicas": "1",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
"""What the tests expect of every broker: topics with four partitions; groups gather before they start; consumers are
sent to replicas in their rack, as librdkafka's own scripts set it."""

AUTHORIZED = {
    "auto.create.topics.enable": "true",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
SCENARIOS = {
    "default": {"auto.create.topics.enable": "true"},
    "noautocreate": {"auto.create.topics.enable": "false"},
    "authorizer": AUTHORIZED,
    "sasl": AUTHORIZED | {"connections.max.reauth.ms": "5000"},
}
"""A test wants one of these sets of brokers: by the names that librdkafka gives them, or as AUTHORIZER and SASL say."""

AUTHORIZER = ("0109", "0115", "0119")
"""Tests that deny topics to everybody, by `kafka-acls.sh` without a password: clients are `User:ANONYMOUS`."""

SASL = ("0081", "0135", "0142")
"""Tests of users and of what they may do: clients log in by SCRAM, over TLS."""

SECURED = ("authorizer", "sasl")
"""The scenarios whose nodes are as those of `tidelog up --secure`. Apache Kafka is tried without."""

KAFKA_SCRIPTS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
}

PARTS = ("0081", "0137")
"""Tests that end at the first part that fails, with parts that are served after one that is not."""

WANTS_SSL = {"0064_interceptors", "0081_admin", "0135_sasl_credentials", "0142_reauthentication"}
"""Tests that fail, where others skip themselves, if librdkafka is built without OpenSSL, which SCRAM takes as well."""

WANTS_KAFKA = {
    "0045_subscribe_update_non_exist_and_partchange",
    "0045_subscribe_update_topic_remove",
    "0052_msg_timestamps",
    "0077_compaction",
    "0098_consumer_txn",
    "0109_auto_create_topics",
    "0115_producer_auth",
    "0119_consumer_auth",
}
"""Tests that call Apache Kafka's scripts, or programs in Java that run with its classes."""

AMISS = {"0101": "rxbytes was not highest on broker"}
"""What a test says when it saw a fault, and then passes all the same."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one process of librdkafka's runner does.

    Attributes:
        number: of the tests: the runner knows them by nothing else.
        scenario: what kind of brokers they want, of SCENARIOS.
        names: of the tests that have the number and want such brokers.
        part: the one part to run of a test that is run by its parts.
    """

    number: str
    scenario: str
    names: tuple[str, ...]
    part: str = ""

    @property
    def declared_scenario(self) -> str:
        """What librdkafka calls it."""
        return "default" if self.scenario in SECURED else self.scenario

    @property
    def outcome_names(self) -> list[str]:
        return [f"{name}/{self.part}" if self.part else name for name in self.names]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one test went."""

    name: str
    result: str  # "passed", "skipped", "failed"
    seconds: float
    reason: str


def declared_tests(source: Path) -> dict[str, str]:
    """All tests of librdkafka, in its order, by name: the first scenario that it runs in."""
    table = (source / "tests" / "test.c").read_text()
    entries = re.findall(r"^ {4}_TEST\((\d{4}_\w+)(.*?)(?=^ {4}_TEST\(|^};)", table, re.MULTILINE | re.DOTALL)
    scenarios = {name: re.search(r'\.scenario = "(\w+)', rest) for name, rest in entries}
    return {name: found[1] if found else "default" for name, found in scenarios.items()}


def listed_runs(source: Path) -> list[Run]:
    """How the tests are run that `LIST` says are. Raises ValueError if it has not exactly those that librdkafka has."""
    declared, listed = declared_tests(source), reasons_in("LIST")
    missing, stale = sorted(set(declared) - set(listed)), sorted(set(listed) - set(declared))
    if missing or stale:
        raise ValueError(f"LIST is not that of {source}: it lacks {missing}, and has {stale} that are not there")
    together = dict[tuple[str, str], list[str]]()
    for name, scenario in declared.items():
        if listed[name] == "run":
            number = name[:4]
            kind = "sasl" if number in SASL else "authorizer" if number in AUTHORIZER else scenario
            together.setdefault((number, kind), []).append(name)
    return [
        Run(number, scenario, tuple(names), part)
        for (number, scenario), names in together.items()
        for part in parts_of(source, number)
    ]


def parts_of(source: Path, number: str) -> list[str]:
    """The parts of a test that is run by its parts; one without a name for any other."""
    if number not in PARTS:
        return [""]
    (file,) = (source / "tests").glob(f"{number}-*.c")
    functions = re.findall(r"^static void\s+(do_test_\w+)\((.*?)^}", file.read_text(), re.MULTILINE | re.DOTALL)
    return [name for name, body in functions if "SUB_TEST" in body]


def perform(source: Path, run: Run, directory: Path, environment: dict[str, str]) -> list[Outcome]:
    started = time.monotonic()
    log = directory / f"{'.'.join(filter(None, (run.number, run.scenario, run.part)))}.log"
    environment = {**environment, "TESTS": run.number, "TEST_SCENARIO": run.declared_scenario}
    if run.part:
        environment["SUBTESTS"] = f"{run.part}:"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            # -L: without the local tests that have the same number.
            [str(source / "tests" / "test-runner"), "-p1", "-L"],
            cwd=directory / "tests",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
        seconds_max = SECONDS_MAX_OF.get(run.number, TEST_SECONDS_MAX)
        try:
            process.wait(seconds_max)
            late = ""
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            late = f"not done within {seconds_max} s"
    return outcomes_of(run, log.read_text(errors="replace"), time.monotonic() - started, late)


def outcomes_of(run: Run, said: str, seconds: float, late: str = "") -> list[Outcome]:
    """What came of the tests of one process, by the table that it printed at its end.

    Args:
        late: why it was ended before it printed any; "" if it ended by itself.
    """
    said = re.sub(r"\x1b\[[0-9;]*m", "", said)
    table = dict[str, tuple[str, float]]()
    for name, state, took in re.findall(r"^\|\s*(\w+)\s*\|\s*(\w+)\s*\|\s*([0-9.]+)s", said, re.MULTILINE):
        table[name] = (state, float(took))
    outcomes = []
    for name, full_name in zip(run.names, run.outcome_names, strict=True):
        state, took = table.get(name, ("", seconds))
        amiss = AMISS.get(run.number, "")
        if state == "PASSED" and not (amiss and amiss in said):
            why = _why_unrun(run.part, said) if run.part else ""
            outcome = Outcome(full_name, "skipped" if why else "passed", took, why)
        elif state == "SKIPPED":
            found = re.search(rf"\[{name[:28]} */.*SKIPPING TEST: (.*)", said)  # the runner cuts names there
            outcome = Outcome(full_name, "skipped", took, found[1].strip() if found else "")
        else:
            found = re.search(rf'^### Test "{name}.* failed at (\S+):\w*\(\).*\n(.*)', said, re.MULTILINE)
            reason = " ".join(found.groups()) if found else late or amiss or f"it ended with {said[-200:]!r}"
            outcome = Outcome(full_name, "failed", took, reason)
        outcomes.append(outcome)
    return outcomes


def _why_unrun(part: str, said: str) -> str:
    """Why a part of a test that passed was not run; "" if it was."""
    if f"[ {part}:" not in said:
        return "librdkafka does not call this part"
    found = re.search(rf"\[ {part}:.*: SKIP: (.*) ]", said)
    return found[1].strip() if found and not re.search(rf"\[ {part}:.*: PASS ", said) else ""


def lay_out(directory: Path, source: Path) -> None:
    """Give the tests a directory of their own to run in, with the files beside it that some of them read."""
    (directory / "tests").mkdir(exist_ok=True)
    for name in ("src", "tests/interceptor_test"):
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(source / name)


@dataclass(frozen=True, slots=True)
class Brokers:
    """What tests are given of the brokers.

    Attributes:
        bootstrap: their addresses.
        settings: of librdkafka, for all its clients.
    """

    bootstrap: str
    settings: dict[str, str] = field(default_factory=dict)


@contextmanager
def brokers(directory: Path, size: int, scenario: str, *, is_peer: bool) -> Iterator[Brokers]:
    """Nodes, or brokers of Apache Kafka, each in a rack of its own that bears its number."""
    copies = str(min(size, 3))
    config = NODE_CONFIG | {"default.replication.factor": copies, "offsets.topic.replication.factor": copies}
    config |= SCENARIOS[scenario]
    if is_peer:
        kafka = KafkaCluster(directory / "kafka", size)
        for node_id, peer in kafka.nodes.items():
            peer.config = {**config, "broker.rack": f"RACK{node_id}"}
        try:
            kafka.start()
            yield Brokers(kafka.bootstrap)
        finally:
            kafka.close()
        return
    secured = SecuredCluster(directory / "nodes", size, config=config) if scenario in SECURED else None
    cluster = Cluster(directory / "nodes", size, config=config) if secured is None else secured.cluster
    for node_id, node in cluster.nodes.items():
        node.settings["broker.rack"] = f"RACK{node_id}"
    try:
        if secured is None:
            cluster.start()
            yield Brokers(cluster.bootstrap)
        else:
            secured.start()
            yield brokers_of(secured, scenario)
        cluster.check_logs()
    finally:
        cluster.close()


def brokers_of(secured: SecuredCluster, scenario: str) -> Brokers:
    if scenario == "authorizer":
        return Brokers(secured.bootstrap("OPEN"))
    login = secured.login("SCRAM-SHA-256")
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(secured.authority),
        "sasl.mechanism": login.mechanism,
        "sasl.username": login.username,
        "sasl.password": login.password,
    }
    return Brokers(secured.bootstrap(), settings)


def kafka_path(directory: Path, source: Path) -> Path | None:
    """Where the tests find what a few call of Apache Kafka: scripts in `bin`; builds their own programs in Java.

    Returns:
        The directory for `KAFKA_PATH`; None without `make peers`.
    """
    if missing_peers() is not None:
        return None
    scripts = directory / "kafka-home" / "bin"
    scripts.mkdir(parents=True, exist_ok=True)
    for name, main_class in KAFKA_SCRIPTS.items():
        command = java_command([main_class])
        (scripts / name).write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        (scripts / name).chmod(0o755)
    programs = directory / "tests" / "java"
    shutil.copytree(source / "tests" / "java", programs, dirs_exist_ok=True)
    sources = [str(path) for path in programs.glob("*.java")]
    subprocess.run(["javac", "-nowarn", "-cp", f"{KAFKA_JARS}/*", *sources], check=True)
    (programs / "run-class.sh").write_text(f'#!/bin/sh\nexec {shlex.join(java_command([], classes=programs))} "$@"\n')
    (programs / "run-class.sh").chmod(0o755)
    (directory / "tests" / "Makefile").write_text(".PHONY: java\njava:\n")  # which they ask to build it
    return scripts.parent


def reasons_in(file: str) -> dict[str, str]:
    """`ALLOW`: test names to the reasons for which they may fail; `LIST`: to "run", or to "not run" and why."""
    lines = [line.partition(":") for line in (HERE / file).read_text().splitlines() if line and line[0] != "#"]
    return {name.strip(): reason.strip() for name, _, reason in lines}


def lacking(source: Path, run: Run) -> str | None:
    """Why something cannot be run on this machine; None if it can."""
    if WANTS_KAFKA.intersection(run.names) and (missing := missing_peers()) is not None:
        return missing
    config = (source / "config.h").read_text()
    if WANTS_SSL.intersection(run.names) and not re.search("^#define WITH_SSL 1$", config, re.MULTILINE):
        return "librdkafka is built without OpenSSL: its headers (libssl-dev) were not there"
    return None


def perform_all(source: Path, runs: Sequence[Run], directory: Path, given: Brokers, jobs: int) -> list[Outcome]:
    """Run tests against brokers, `jobs` at a time, and print how each went. The long ones begin first."""
    lay_out(directory, source)
    (directory / "tests" / "test.conf").write_text(
        f"metadata.broker.list={given.bootstrap}\n"
        + "".join(f"{key}={value}\n" for key, value in given.settings.items())
        + "test.topic.random=true\n"
        # As librdkafka's runner does with tests that it runs at once: each gets less of the machine.
        f"test.timeout.multiplier={1 + (jobs - 1) / 3:.1f}\n"
    )
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{source / 'src'}:{source / 'src-cpp'}",
        "TEST_KAFKA_VERSION": BROKER_VERSION,
        "BROKERS": given.bootstrap,
    }
    if (home := kafka_path(directory, source)) is not None:
        environment["KAFKA_PATH"] = str(home)

    def performed(run: Run) -> list[Outcome]:
        lacks = lacking(source, run)
        if lacks is not None:
            outcomes = [Outcome(name, "skipped", 0, lacks) for name in run.outcome_names]
        else:
            outcomes = perform(source, run, directory, environment)
        for outcome in outcomes:
            print(f"{outcome.result:8} {outcome.seconds:6.1f} s  {outcome.name}  {outcome.reason}", flush=True)
        return outcomes

    with ThreadPoolExecutor(jobs) as pool:
        ordered = sorted(runs, key=lambda run: run.number not in SECONDS_MAX_OF)
        return [outcome for outcomes in pool.map(performed, ordered) for outcome in outcomes]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="librdkafka's own tests against nodes")
    parser.add_argument("--peer", action="store_true", help="against Apache Kafka, for comparison")
    parser.add_argument("--nodes", type=int, default=3, help="how many (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=4, help="how many tests at a time (default: %(default)s)")
    parser.add_argument("--source", type=Path, default=SOURCE, help="librdkafka, built with its tests")
    parser.add_argument("--keep", type=Path, help="a directory for all files; else they go")
    parser.add_argument("numbers", nargs="*", help="of the tests to run, as 0012; all without")
    options = parser.parse_args(arguments)
    if not (options.source / "tests" / "test-runner").exists():
        print(f"error: {options.source} is not built: `make librdkafka` does that", file=sys.stderr)
        return 2
    runs = [run for run in listed_runs(options.source) if not options.numbers or run.number in options.numbers]
    outcomes = list[Outcome]()
    with tempfile.TemporaryDirectory(prefix="librdkafka-") as temporary:
        directory = (options.keep or Path(temporary)).absolute()
        directory.mkdir(parents=True, exist_ok=True)
        for scenario in SCENARIOS:
            wanted = [run for run in runs if run.scenario == scenario]
            if not wanted or (options.peer and scenario in SECURED):
                continue
            shutil.rmtree(directory / scenario, ignore_errors=True)  # of the run before, with --keep
            with brokers(directory / scenario, options.nodes, scenario, is_peer=options.peer) as given:
                outcomes += perform_all(options.source, wanted, directory, given, options.jobs)
    return conclude(outcomes, {} if options.peer else reasons_in("ALLOW"))


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
