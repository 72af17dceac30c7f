"""Producing and consuming through TLS beside Apache Kafka, and what TLS costs each: librdkafka, 1 KB records.

Each round runs with and without TLS, so that the difference of the CPU is that of the same minute. OpenSSL alone takes
0.06 CPU-seconds per 100 MB on a machine of 1.7 GB/s with AES-256-GCM: `openssl speed -evp aes-256-gcm`.

python bench/bench_kafka_tls.py [--quick] [--long]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from bench_kafka_consume import consume
from bench_kafka_produce import produce
from beside_kafka import PEER, QUICK, Target, in_turns, need_kafka, topic_on, values_of
from harness import cpu_seconds, figure, median, say
from secured_brokers import Secured, secured_brokers

VALUE_SIZE_BYTES = 1_000
COUNT = (50_000_000 if QUICK else 200_000_000) // VALUE_SIZE_BYTES
CPU_SECONDS_MORE_MAX = 0.10

Run = Callable[[Target, Mapping[str, str]], float]


class Ran(NamedTuple):
    """One run."""

    records_per_second: float
    cpu_seconds_per_100_mb: float


def compare(name: str, brokers: Secured, run: Run) -> None:
    """Both brokers, both ways, in turns: the rates through TLS, and how much more of the CPU it takes.

    Args:
        run: given a broker and the options of a client, returns the records per second.
    """
    tls = {"security.protocol": "SSL", "ssl.ca.location": str(brokers.authority)}
    options = {"SSL": tls, "PLAINTEXT": {}}
    targets = {
        f"{target.name} {listener}": (target, options[listener])
        for listener in options
        for target in brokers.listeners[listener]
    }

    def measured(named: Target) -> Ran:
        target, security = targets[named.name]
        before = cpu_seconds(target.pid)
        rate = run(target, security)
        taken = cpu_seconds(target.pid) - before
        return Ran(rate, taken * 1e8 / (COUNT * VALUE_SIZE_BYTES))

    results = in_turns([target._replace(name=called) for called, (target, _) in targets.items()], measured)
    for called, runs in results.items():
        say(f"{name}, {called}: " + "; ".join(f"{ran[0]:,.0f} records/s, {ran[1]:.3f} CPU-s" for ran in runs))
    rates = {called: median([ran.records_per_second for ran in runs]) for called, runs in results.items()}
    cpu = {called: median([ran.cpu_seconds_per_100_mb for ran in runs]) for called, runs in results.items()}
    for listener, called, at_least in (("SSL", "through TLS", 1.0), ("PLAINTEXT", "without TLS", None)):
        figure(
            f"{name} {called}",
            rates[f"node {listener}"],
            "records/s",
            peer=PEER,
            peer_value=rates[f"peer {listener}"],
            at_least=at_least,
            of_ratio=True,
        )
        figure(
            f"{name} {called}: CPU of the broker",
            cpu[f"node {listener}"],
            "CPU-s/100 MB",
            peer=PEER,
            peer_value=cpu[f"peer {listener}"],
        )
    figure(
        f"{name}: CPU that TLS takes more",
        cpu["node SSL"] - cpu["node PLAINTEXT"],
        "CPU-s/100 MB",
        peer=PEER,
        peer_value=cpu["peer SSL"] - cpu["peer PLAINTEXT"],
        at_most=CPU_SECONDS_MORE_MAX,
    )


def main() -> None:
    need_kafka()
    values = values_of(VALUE_SIZE_BYTES, 10_000)
    with secured_brokers() as brokers:
        plain = brokers.listeners["PLAINTEXT"]

        def produced(topic: str, target: Target, security: Mapping[str, str]) -> float:
            return produce(target, topic, values, count=COUNT, partitions=1, compression="none", security=security)

        def consumed(topic: str, target: Target, security: Mapping[str, str]) -> float:
            return consume(target, topic, 1, COUNT, security=security)

        with topic_on(plain, "produced", 1) as topic:
            compare("produce, librdkafka, 1 KB records", brokers, lambda *given: produced(topic, *given))
        with topic_on(plain, "consumed", 1) as topic:
            for target in plain:
                produced(topic, target, {})
            compare("consume, librdkafka, 1 KB records", brokers, lambda *given: consumed(topic, *given))


if __name__ == "__main__":
    main()
