"""What is done with all logs now and then is done in turns."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from support.fixtures.loop_steps import Steps
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.server.broker.log_maintenance import RETAINED_AT_ONCE_MAX, LogMaintenance


def test_retention_looks_at_some_partitions_at_a_time() -> None:
    """A thousand partitions whose segments were all due took the loop 600 ms."""
    steps = Steps()
    partitions: list[Any] = [SimpleNamespace(topic_partition=index) for index in range(3 * RETAINED_AT_ONCE_MAX + 1)]
    files: Any = SimpleNamespace(directory_of=lambda _: steps.count())
    nothing: Any = None
    maintenance = LogMaintenance(nothing, files, nothing, clock=SystemClock(), executor=InlineExecutor())
    asyncio.run(maintenance._retain(partitions))
    assert steps.counts == [RETAINED_AT_ONCE_MAX] * 3 + [1]
