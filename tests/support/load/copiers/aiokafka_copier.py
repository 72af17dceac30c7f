"""A copier by aiokafka. It commits offsets for its group by name alone; only its transactional id fences others.

A member that joins its group again while a transaction is open is given what that transaction copies once more: see
FINDINGS.md. So the copier remembers what it has copied.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced

from support.load.copiers.told import BATCH_RECORDS_MAX, POLL_SECONDS, SESSION_TIMEOUT_MS, listen


async def main() -> None:
    told = listen()
    consumer: Any = AIOKafkaConsumer(
        told.source,
        bootstrap_servers=told.bootstrap,
        group_id=told.name,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_TIMEOUT_MS,
    )
    producer: Any = AIOKafkaProducer(bootstrap_servers=told.bootstrap, transactional_id=told.name)
    await producer.start()
    await consumer.start()
    copied: dict[Any, int] = {}  # the next offset, in this process
    while True:
        given = await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1_000), max_records=BATCH_RECORDS_MAX)
        found = {
            place: fresh
            for place, records in given.items()
            if (fresh := [record for record in records if record.offset >= copied.get(place, 0)])
        }
        if not found:
            continue
        try:
            async with producer.transaction():
                sent = [
                    await producer.send(told.target, record.value, partition=place.partition)
                    for place, records in found.items()
                    for record in records
                ]
                await asyncio.gather(*sent)
                offsets = {place: records[-1].offset + 1 for place, records in found.items()}
                await producer.send_offsets_to_transaction(offsets, told.name)
            copied.update(offsets)
        except ProducerFenced:
            raise
        except KafkaError:
            await consumer.seek_to_committed()


if __name__ == "__main__":
    asyncio.run(main())
