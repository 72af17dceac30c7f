"""What 1,000 logins a minute do to other clients, beside Apache Kafka: SCRAM-SHA-256 of 4,096 iterations, over TLS.

Another process logs in at a steady pace, each time on a new connection. Meanwhile a client here produces a small batch
and fetches one, turn by turn, some hundred times a second; and as long without the logins, in turns.

python bench/bench_logins.py [--quick] [--long]
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from beside_kafka import PEER, QUICK, Target, in_turns, need_kafka, topic_on
from harness import WireClient, cpu_seconds, figure, say
from secured_brokers import PASSWORD, USER, Secured, secured_brokers

from support.clients.wire_client import batch_of

LOGINS_PER_MINUTE = 1_000
SECONDS = 3.0 if QUICK else 8.0
"""Of one turn. There are four in a round: both brokers, each with logins and without."""
ASK_EVERY_SECONDS = 0.003
P99_RATIO_MAX = 1.2
LOADER = Path(__file__).with_name("scram_logins.py")


class Ran(NamedTuple):
    """One turn: how long each request took, and what the broker used."""

    waits_ms: dict[str, list[float]]
    cpu_seconds: float
    logins: int


@contextmanager
def logins(brokers: Secured, target: Target) -> Iterator[list[int]]:
    """Logins meanwhile. The list has how many there were, afterwards."""
    port = next(one.port for one in brokers.listeners["SASL_SSL"] if one.name == target.name)
    arguments = [str(port), str(brokers.authority), USER, PASSWORD, str(LOGINS_PER_MINUTE / 60)]
    with subprocess.Popen(
        [sys.executable, str(LOADER), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as loader:
        counts: list[int] = []
        try:
            time.sleep(1.5)  # it has loaded its modules and derived its keys
            yield counts
        finally:
            said, _ = loader.communicate()
        assert loader.returncode == 0, "a login failed: see above"
        counts.append(json.loads(said)["count"])


def run(target: Target, topic: str) -> Ran:
    """A turn of the client that is not to notice anything."""
    waits: dict[str, list[float]] = {"produce": [], "fetch": []}
    batch = batch_of(b"x" * 1_000)
    before = cpu_seconds(target.pid)
    with WireClient(target.port) as client:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            began = time.perf_counter()
            produced = client.produce(topic, bytes(batch))
            answered = time.perf_counter()
            fetched = client.fetch(topic, produced.base_offset)
            waits["produce"].append((answered - began) * 1e3)
            waits["fetch"].append((time.perf_counter() - answered) * 1e3)
            assert produced.error_code == fetched.error_code == 0, (produced, fetched)
            assert fetched.records, "what was produced is not there"
            time.sleep(ASK_EVERY_SECONDS)
    return Ran(waits, cpu_seconds(target.pid) - before, 0)


def p99(runs: list[Ran], what: str) -> float:
    found = sorted(wait for one in runs for wait in one.waits_ms[what])
    return found[int(len(found) * 0.99)]


def main() -> None:
    need_kafka()
    with (
        secured_brokers() as brokers,
        # The batches say that they are of long ago: nothing is to be deleted for its age.
        topic_on(brokers.listeners["PLAINTEXT"], "bystander", 1, retention_ms="-1") as topic,
    ):
        plain = brokers.listeners["PLAINTEXT"]
        names = {f"{target.name} {how}": (target, how) for how in ("alone", "logins") for target in plain}

        def turn(named: Target) -> Ran:
            target, how = names[named.name]
            if how == "alone":
                return run(target, topic)
            with logins(brokers, target) as counts:
                ran = run(target, topic)
            return ran._replace(logins=counts[0])

        results = in_turns([target._replace(name=name) for name, (target, _) in names.items()], turn)
    for what in ("produce", "fetch"):
        ratios = {}
        for name in ("node", "peer"):
            alone, beside = (p99(results[f"{name} {how}"], what) for how in ("alone", "logins"))
            say(f"{what}, {name}: p99 {alone:.2f} ms alone, {beside:.2f} ms beside logins")
            ratios[name] = beside / alone
        figure(
            f"p99 of another client's {what} beside {LOGINS_PER_MINUTE:,} logins a minute",
            ratios["node"],
            "of that without",
            peer=PEER,
            peer_value=ratios["peer"],
            at_most=P99_RATIO_MAX,
        )
    cpu = {
        name: (cpu_of(results[f"{name} logins"]) - cpu_of(results[f"{name} alone"]))
        * 1e3
        / max(sum(one.logins for one in results[f"{name} logins"]), 1)
        for name in ("node", "peer")
    }
    figure("a login by SCRAM over TLS: CPU of the broker", cpu["node"], "ms", peer=PEER, peer_value=cpu["peer"])


def cpu_of(runs: list[Ran]) -> float:
    return sum(one.cpu_seconds for one in runs)


if __name__ == "__main__":
    main()
