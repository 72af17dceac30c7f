"""An admin client of ours in front of a cluster that is a model, impatient enough for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from support.model_cluster import ModelCluster
from tidelog import aio

FAST: dict[str, Any] = {
    "retry_backoff_ms": 2,
    "retry_backoff_max_ms": 10,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 5,
    "default_api_timeout_ms": 5_000,
}


def run(work: Callable[[ModelCluster, aio.Admin], Coroutine[Any, Any, None]]) -> None:
    """Run `work`, which says how the cluster answers, and asks."""

    async def do() -> None:
        async with ModelCluster() as cluster, aio.Admin(cluster.address, **FAST) as admin:
            await work(cluster, admin)

    asyncio.run(do())


def in_turn(*answers: Any) -> Callable[[Any, int], Any]:
    """Answer one after the other, and the last one for good."""
    left = list(answers)
    return lambda request, version: left.pop(0) if len(left) > 1 else left[0]
