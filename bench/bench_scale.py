"""One node with 10,000 partitions: how fast they are made, what it holds and does while idle, and how it starts again.

A topic has one partition, which is the dearest shape. Seconds of the processor are of the node's process alone: they
stay what they are where the machine is shared. The longest wait of a bystander, who asks for the end of one log every
few milliseconds, bounds the longest step of the event loop.

python bench/bench_scale.py [--count=10000] [--cluster] [--keep=DIRECTORY]

--cluster: three nodes, each of which holds a replica of every partition (scale_cluster.py).
--keep: the files stay there, for a profile of the next start.
"""

from __future__ import annotations

import re
import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from urllib.request import urlopen

import scale_cluster
from bystander import waits_beside, waits_during
from harness import MEGABYTE, UpProcess, WireClient, cpu_seconds, figure, resident_bytes, resident_bytes_peak, say

from tidelog.wire import ApiKey
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataResponse
from tidelog.wire.messages.api_19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

COUNT = next((int(one[8:]) for one in sys.argv[1:] if one.startswith("--count=")), 10_000)
KEEP = next((Path(one[7:]) for one in sys.argv[1:] if one.startswith("--keep=")), None)
PER_REQUEST = 500
SETTLED_SECONDS = 5.0
IDLE_SECONDS = 20.0
ROUNDS = 5
CREATE_TIMEOUT_MS = 120_000
BYSTANDER = "bystander"
OPEN_FILES = COUNT + 3_000
NAME = f"{COUNT:,} partitions"


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < OPEN_FILES:
        sys.exit(f"the hard limit of open files is {hard}; {OPEN_FILES} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if "--cluster" in sys.argv[1:]:
        scale_cluster.measure(COUNT)
        return
    directory = KEEP or Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    directory.mkdir(parents=True, exist_ok=True)
    node = UpProcess(directory / "data", config={"metrics.listener": "HTTP://127.0.0.1:0"})
    try:
        node.start()
        measure_creation(node)
        measure_idle(node)
        measure_answers(node)
        measure_starts(node)
    finally:
        node.close()
        if KEEP is None:
            shutil.rmtree(directory, ignore_errors=True)


def measure_creation(node: UpProcess) -> None:
    """By CreateTopics in requests of PER_REQUEST topics, one after the other."""
    with WireClient(node.port) as client:
        client.create_topic(BYSTANDER)
        before = cpu_seconds(node.pid)
        with waits_beside(node.port, BYSTANDER) as waits:
            started = time.perf_counter()
            for first in range(0, COUNT, PER_REQUEST):
                create_topics(client, range(first, min(first + PER_REQUEST, COUNT)))
            seconds = time.perf_counter() - started
        cpu = cpu_seconds(node.pid) - before
    figure(f"{NAME}: topics created a second", COUNT / seconds, "1/s", at_least=1_000)
    figure("… CPU of the node for each", cpu / COUNT * 1e3, "ms", at_most=1)
    figure("… longest wait of another client meanwhile", max(waits), "ms")
    figure("… p99 of its waits", statistics.quantiles(waits, n=100)[-1], "ms")


def create_topics(client: WireClient, numbers: range) -> None:
    topics = [CreatableTopic(name=f"topic-{one:05d}", num_partitions=1, replication_factor=1) for one in numbers]
    request = CreateTopicsRequest(topics=topics, timeout_ms=CREATE_TIMEOUT_MS)
    answer = client.ask(ApiKey.CREATE_TOPICS, 7, request, CreateTopicsResponse)
    refused = [(topic.name, topic.error_code) for topic in answer.topics if topic.error_code]
    assert not refused, refused[:3]


def measure_idle(node: UpProcess) -> None:
    """What it takes while nobody asks anything."""
    time.sleep(SETTLED_SECONDS)
    before, started = cpu_seconds(node.pid), time.perf_counter()
    time.sleep(IDLE_SECONDS)
    share = (cpu_seconds(node.pid) - before) / (time.perf_counter() - started)
    figure(f"{NAME}, idle: CPU", share * 100, "% of a core", at_most=5)
    figure(f"{NAME}, idle: RSS", resident_bytes(node.pid) / MEGABYTE, "MB", at_most=200)
    figure("… the most so far", resident_bytes_peak(node.pid) / MEGABYTE, "MB")


def measure_answers(node: UpProcess) -> None:
    """Metadata of all topics, and a scrape of the metrics; and who waits for them."""
    port = re.findall(r"served on http://127\.0\.0\.1:(\d+)", node.log)[-1]

    def scrape() -> None:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            answer.read()

    with WireClient(node.port) as client:

        def ask() -> None:
            found = client.ask(ApiKey.METADATA, 12, MetadataRequest(topics=None), MetadataResponse)
            assert len(found.topics) >= COUNT

        for what, work in (("Metadata of all topics", ask), ("a scrape of the metrics", scrape)):
            work()  # the first one loads what answers it
            alone = waits_during(node.port, BYSTANDER, lambda: time.sleep(1.0))
            before = cpu_seconds(node.pid)
            waits = waits_during(node.port, BYSTANDER, lambda work=work: [work() for _ in range(ROUNDS)])  # type: ignore[misc]
            cpu = (cpu_seconds(node.pid) - before) / ROUNDS
            figure(f"{NAME}: {what}, CPU of the node", cpu * 1e3, "ms")
            figure("… longest wait of another client meanwhile", max(waits), "ms", peer="alone", peer_value=max(alone))


def measure_starts(node: UpProcess) -> None:
    """After a clean stop, and after `kill -9`."""
    for what, end, at_most in (("a clean stop", node.stop, 5), ("kill -9", node.kill, 7)):
        before, started = cpu_seconds(node.pid), time.perf_counter()
        end()
        say(f"{what}: {time.perf_counter() - started:.2f} s; the node used {before:.1f} s of CPU until then")
        started = time.perf_counter()
        node.start()
        figure(f"{NAME}: start after {what}", time.perf_counter() - started, "s", at_most=at_most)
        figure("… CPU of the node", cpu_seconds(node.pid), "s", at_most=at_most)
        figure("… RSS then", resident_bytes(node.pid) / MEGABYTE, "MB", at_most=200)


if __name__ == "__main__":
    main()
