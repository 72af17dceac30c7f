"""Read JSON orders, add a total to each, and write them to another topic: on one event loop, a batch at a time.

    python examples/async_etl.py 127.0.0.1:9092 orders totals etl

What cannot be read as an order goes to the topic `<target>-refused`, with the reason. A batch is committed when all
that came of it is written, so nothing is left out; after a crash the last batch may be written twice.
`exactly_once_copy.py` shows how to avoid that. Ctrl-C ends the program.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from typing import Any

from tidelog import ConsumerRecord, aio


def with_total(value: bytes | None) -> bytes:
    """An order with its total. Raises ValueError, KeyError, TypeError: it is none."""
    order: dict[str, Any] = json.loads(value or b"")
    order["total"] = order["price"] * order["quantity"]
    return json.dumps(order).encode()


async def send(producer: aio.Producer, record: ConsumerRecord, target: str) -> Any:
    """What comes of one record, on its way."""
    try:
        return await producer.send(target, with_total(record.value), key=record.key)
    except (ValueError, KeyError, TypeError) as error:
        headers = [("reason", repr(error).encode())]
        return await producer.send(f"{target}-refused", record.value, key=record.key, headers=headers)


async def main(bootstrap: str, source: str, target: str, group: str) -> None:
    async with (
        aio.Producer(bootstrap) as producer,
        aio.Consumer(bootstrap, group_id=group, auto_offset_reset="none", enable_auto_commit=False) as consumer,
    ):
        consumer.subscribe([source], start="earliest")
        while True:
            records = await consumer.poll(timeout_ms=1_000, max_records=1_000)
            if records:
                written = [await send(producer, record, target) for record in records]
                await asyncio.gather(*written)  # each future is done when its record is replicated
                await consumer.commit(records)
                print(f"{len(records)} records", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
