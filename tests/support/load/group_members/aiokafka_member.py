"""A member of a group by aiokafka: commits as it goes, and all it has read when partitions are taken from it."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

from support.load.group_members.told import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, Voice, listen

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


async def main() -> None:
    told, leaving = listen()
    voice = Voice()
    consumer: Any = AIOKafkaConsumer(
        bootstrap_servers=told.bootstrap,
        group_id=told.group,
        group_instance_id=told.instance,
        partition_assignment_strategy=(ASSIGNORS[told.strategy],),
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
    )
    positions: dict[int, int] = {}

    async def commit() -> None:
        offsets = {TopicPartition(told.topic, one): position for one, position in positions.items()}
        try:
            if offsets:
                await consumer.commit(offsets)
        except KafkaError:
            pass  # what is not committed is read again

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            if revoked:
                await commit()
                positions.clear()
                voice.revoked()

        async def on_partitions_assigned(self, assigned: Any) -> None:
            pass

    consumer.subscribe([told.topic], listener=Listener())
    await consumer.start()
    while not leaving.is_set():
        for place, records in (await consumer.getmany(timeout_ms=50, max_records=1_000)).items():
            voice.read(place.partition, [record.offset for record in records])
            positions[place.partition] = records[-1].offset + 1
        await commit()
        voice.owns({one.partition for one in consumer.assignment()})
    await commit()
    await consumer.stop()
    voice.closed()


if __name__ == "__main__":
    asyncio.run(main())
