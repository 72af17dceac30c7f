"""What is counted of each topic and partition, in turns: what comes meanwhile is counted, too, or later."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from support.fixtures.logs import open_log
from support.fixtures.memory_disk import MemoryDisk
from tidelog.server.observe.metrics_export import _about_each_partition, _about_topics, _Families, write_down
from tidelog.server.settings.metrics import NodeMetrics
from tidelog.server.transport.turns import TURN_SIZE


def image(*topics: str) -> Any:
    by_name = {topic: SimpleNamespace(name=topic) for topic in topics}
    return SimpleNamespace(topics_by_name=by_name, topics_by_id={})


def test_what_is_fetched_of_a_topic_that_comes_meanwhile_is_not_forgotten() -> None:
    log = open_log(MemoryDisk())
    partition = SimpleNamespace(
        topic_partition=SimpleNamespace(topic="old"),
        log=log,
        produced_bytes=0,
        produced_batches=0,
        opened_end_offset=0,
        opened_start_offset=0,
    )
    node: Any = SimpleNamespace(
        image=image("old", "gone"), broker=SimpleNamespace(partitions=[partition] * 2 * TURN_SIZE)
    )
    metrics = NodeMetrics(10)
    fetched = metrics.requests.fetched.of("consumer")
    fetched.update(old=5, gone=6)

    async def others() -> None:
        node.image = image("old", "new")
        fetched["new"] = 7

    async def collect() -> dict[tuple[str, ...], float]:
        meanwhile = asyncio.ensure_future(others())
        families = [family async for family in _about_topics(node, metrics)]
        await meanwhile
        samples = [sample for family in families for sample in family.samples]
        return {(sample.name, *sample.labels.values()): sample.value for sample in samples}

    found = asyncio.run(collect())
    assert fetched == {"old": 5, "new": 7}
    assert found["tidelog_topic_fetched_bytes_total", "new", "consumer"] == 7
    assert found["tidelog_topics",] == 2


def test_partitions_are_not_put_in_order_in_one_turn() -> None:
    """With 30,000 partitions that took 44 ms: they are, where the page is written down."""
    log = open_log(MemoryDisk())
    looked_at = [0]

    class Partition:
        replica = None
        high_watermark = 0

        def __init__(self, index: int) -> None:
            self._name = SimpleNamespace(topic=f"t{index % 3}", partition=index)
            self.log = log

        @property
        def topic_partition(self) -> Any:
            looked_at[-1] += 1
            return self._name

    partitions = [Partition(index) for index in reversed(range(5 * TURN_SIZE))]
    node: Any = SimpleNamespace(broker=SimpleNamespace(partitions=partitions))

    async def others() -> None:
        while True:
            looked_at.append(0)
            await asyncio.sleep(0)

    async def collect() -> _Families:
        meanwhile = asyncio.ensure_future(others())
        families = [family async for family in _about_each_partition(node)]
        meanwhile.cancel()
        return _Families(families, families)

    families = asyncio.run(collect())
    assert max(looked_at) <= 2 * TURN_SIZE
    rows = [line for line in write_down(families, "")[2].decode().splitlines() if "_segments{" in line]
    names = [(f"t{index % 3}", index) for index in range(5 * TURN_SIZE)]
    assert rows == [
        f'tidelog_partition_segments{{partition="{index}",topic="{topic}"}} 1.0' for topic, index in sorted(names)
    ]
