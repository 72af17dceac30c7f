"""Acknowledged means kept: the node is killed under load, again and again, and nothing acknowledged moves or goes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from support.clients.confluent import read_from
from support.nodes.node import NodeProcess

KILLS = 10
PARTITIONS = 3
DEADLINE_SECONDS = 90.0


class Load:
    """An idempotent producer that never stops, and a note of every acknowledgement."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.failed: list[str] = []
        self.sent = 0
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
            }
        )

    def send_until(self, enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not enough():
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} of {self.sent} acknowledged, then no more"
            if len(self._producer) < 5_000:
                for _ in range(100):
                    self._send()
            self._producer.poll(0.001)

    def finish(self) -> None:
        assert self._producer.flush(DEADLINE_SECONDS) == 0, "records were never acknowledged"

    def _send(self) -> None:
        value = b"record %d" % self.sent
        self.sent += 1
        self._producer.produce(self.topic, value, partition=self.sent % PARTITIONS, on_delivery=self._on_delivery)

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        place = (message.partition(), message.offset())
        assert place not in self.acknowledged, f"{place} was acknowledged twice"
        self.acknowledged[place] = message.value()


@pytest.mark.timeout(240)
def test_every_acknowledged_record_is_where_it_was_acknowledged(node: NodeProcess) -> None:
    rng = random.Random(20)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic("kept", PARTITIONS, 1)])["kept"].result(10)
    load = Load(node.bootstrap, "kept")
    for _ in range(KILLS):
        target = len(load.acknowledged) + rng.randrange(1, 20_000)
        load.send_until(lambda target=target: len(load.acknowledged) >= target)  # type: ignore[misc]
        node.kill()
        node.restart()
    load.send_until(lambda: len(load.acknowledged) >= target + 1)
    load.finish()

    assert not load.failed
    found = {
        (partition, read.offset): read.value
        for partition in range(PARTITIONS)
        for read in read_from(node.bootstrap, "kept", partition=partition)
    }
    lost = {place: value for place, value in load.acknowledged.items() if found.get(place) != value}
    assert not lost, f"{len(lost)} acknowledged records are not where they were acknowledged: {sorted(lost)[:3]}"
    assert len(found) == len(load.acknowledged) == load.sent, "an idempotent producer's records came out twice"
