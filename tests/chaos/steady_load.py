"""The load that a soak's latency and lag are measured with: the same few records a second for all its time.

One producer writes to a topic whose old segments are deleted, and to one that is compacted; a group of one consumer
reads the first. It goes on whatever is hurt: a refused record is counted, and judged by nobody.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from chaos.nodes import ChaosCluster
from tidelog import Consumer, Producer
from tidelog.base.errors import TidelogError

RETAINED, COMPACTED, GROUP = "steady-retained", "steady-compacted", "steady-readers"
PARTITIONS, REPLICAS = 3, 3
TURN_SECONDS = 0.05
VALUE_BYTES = 1_000
KEYS = 100
RETENTION_MS = 60_000
SEGMENT_BYTES = 262_144
SETTINGS = {
    RETAINED: {"retention_ms": str(RETENTION_MS), "segment_bytes": str(SEGMENT_BYTES)},
    COMPACTED: {"cleanup_policy": "compact", "segment_bytes": str(SEGMENT_BYTES), "min_cleanable_dirty_ratio": "0.1"},
}


class SteadyLoad:
    """See the module. It has two threads.

    Attributes:
        refused: records whose producer was told that they failed.
        failures: why a thread ended before it was to; nothing was measured from then on.
    """

    def __init__(self, cluster: ChaosCluster) -> None:
        self._cluster = cluster
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._produced: list[float] = []
        self._fetched: list[float] = []
        self.refused = 0
        self.failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(one,)) for one in (self._produce, self._consume)]

    def start(self) -> None:
        """Create its topics, and begin."""
        for topic, settings in SETTINGS.items():
            self._cluster.create_topic(topic, PARTITIONS, replication_factor=REPLICAS, **settings)
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Returns when its threads have ended. May be called again."""
        self._ended.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def take_latencies(self) -> dict[str, list[float]]:
        """In ms, since the last call: from `send` to the acknowledgement, and from `send` to the reader."""
        with self._lock:
            produced, self._produced = self._produced, []
            fetched, self._fetched = self._fetched, []
        return {"produce": produced, "fetch": fetched}

    def _run(self, part: Callable[[], None]) -> None:
        try:
            part()
        except BaseException as error:
            self.failures.append(error)

    def _produce(self) -> None:
        number = 0
        producer = Producer(self._cluster.bootstrap)
        while not self._ended.wait(TURN_SECONDS):
            number += 1
            key = b"%d" % (number % KEYS)
            for topic in SETTINGS:
                sent_at = time.monotonic()
                value = (b"%.6f " % sent_at).ljust(VALUE_BYTES, b".")
                try:
                    producer.send(topic, value, key=key, partition=number % PARTITIONS).result()
                except TidelogError:
                    self.refused += 1
                    continue
                if topic == RETAINED:
                    with self._lock:
                        self._produced.append((time.monotonic() - sent_at) * 1e3)
        with suppress(TidelogError):
            producer.close(timeout=5)

    def _consume(self) -> None:
        consumer = Consumer(self._cluster.bootstrap, group_id=GROUP, auto_offset_reset="earliest")
        consumer.subscribe([RETAINED])
        while not self._ended.is_set():
            with suppress(TidelogError):
                records = consumer.poll(timeout_ms=500)
                now = time.monotonic()
                with self._lock:
                    self._fetched += [(now - float((one.value or b"").split()[0])) * 1e3 for one in records]
        with suppress(TidelogError):
            consumer.close()
