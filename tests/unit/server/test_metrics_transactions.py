"""What is counted of transactions: those that are open for too long, and what coordinators did that are no more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from support.fixtures.logs import NOW_MS, open_log
from support.fixtures.memory_disk import MemoryDisk
from support.fixtures.transactions import abort, send
from tidelog.coordinator.transactions import TransactionFacts
from tidelog.server.observe.coordinator_metrics import LATE_MS, about_transactions
from tidelog.server.transactions.transaction_coordinators import TransactionCoordinators
from tidelog.server.transport.turns import TURN_SIZE

TIMEOUT_MS_MAX = 60_000


def gauges(partitions: list[Any], *, later_ms: int) -> dict[str, float]:
    """What a node shows whose clock is so much later than the records of its partitions."""
    transactions = SimpleNamespace(here=[], facts=TransactionFacts(), timeout_ms_max=TIMEOUT_MS_MAX, memory_bytes=0)
    node: Any = SimpleNamespace(
        transactions=transactions,
        clock=SimpleNamespace(wall_ms=lambda: NOW_MS + later_ms),
        broker=SimpleNamespace(partitions=partitions),
    )

    async def collect() -> dict[str, float]:
        families = [family async for family in about_transactions(node)]
        samples = [sample for family in families for sample in family.samples if not sample.labels]
        return {sample.name: sample.value for sample in samples}

    return asyncio.run(collect())


def test_a_transaction_is_late_once_no_coordinator_ends_it_any_more() -> None:
    log = open_log(MemoryDisk())
    partition = SimpleNamespace(log=log, replica=object(), last_stable_offset=0, high_watermark=0)
    follower = SimpleNamespace(log=log, replica=None)
    late_ms = TIMEOUT_MS_MAX + LATE_MS
    late = "tidelog_partitions_with_late_transactions"
    assert gauges([partition], later_ms=late_ms + 1)[late] == 0
    send(log, 1)
    send(log, 2)
    assert gauges([partition, follower], later_ms=late_ms)[late] == 0
    assert gauges([partition, follower], later_ms=late_ms + 1)[late] == 1
    abort(log, 1)
    assert gauges([partition], later_ms=late_ms + 1)[late] == 1
    abort(log, 2)
    assert gauges([partition], later_ms=late_ms + 1)[late] == 0


def test_others_have_their_turns_while_many_partitions_are_counted() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    class Partitions:
        """So many that none of them leads; others begin with the first."""

        def __iter__(self) -> Iterator[Any]:
            self.task = asyncio.ensure_future(others())
            yield from [SimpleNamespace(replica=None)] * (10 * TURN_SIZE)
            self.task.cancel()

    partitions: Any = Partitions()
    assert gauges(partitions, later_ms=0)["tidelog_partitions_unstable"] == 0
    assert turns >= 8


def test_what_coordinators_did_is_counted_on_when_they_are_no_more() -> None:
    transactions: Any = TransactionCoordinators.__new__(TransactionCoordinators)

    def coordinator(timed_out: int, fenced: int) -> Any:
        return SimpleNamespace(facts=TransactionFacts(timed_out=timed_out, fenced=fenced))

    transactions._here = {
        0: SimpleNamespace(coordinator=coordinator(1, 2)),
        1: SimpleNamespace(coordinator=coordinator(3, 4)),
    }
    assert transactions.facts == TransactionFacts(timed_out=4, fenced=6)
    transactions._on_ended(transactions._here.pop(1).coordinator)
    assert transactions.facts == TransactionFacts(timed_out=4, fenced=6)
    transactions._on_ended(transactions._here.pop(0).coordinator)
    assert transactions.facts == TransactionFacts(timed_out=4, fenced=6)
