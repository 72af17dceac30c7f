"""Asks other brokers whether they are there: an answer proves it for the time at which the question was sent.

```
 wanted  ──►  question 1  ──►  answered
   wanted ──┐ wanted ──┐           │
            └──────────┴────► question 2  ──►  …
```
One question is under way to a broker at a time. All who want to know meanwhile share the next one: the answer to the
first says nothing about the time at which they wanted to know.

The question bears the token of the metadata that was published here (KIP-1243). So its answer shows as well that the
broker has published that: it leads what it is said to lead. It is a DescribeConfigs of nothing, for that waits for its
token, and costs little; on the connection for requests that are answered at once.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from tidelog.base.errors import NetworkError, TidelogError
from tidelog.base.ids import BrokerId
from tidelog.metadata import MetadataImage
from tidelog.server.replication.replica_requests import Peers
from tidelog.server.tasks import Tasks
from tidelog.wire import ConsistencyState
from tidelog.wire.messages.api_32_describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

TOKENS_SINCE_VERSION = 4
"""Before, the header of the request has no place for one."""


class OnProbed(Protocol):
    """Whoever asked."""

    def on_hung_up(self, leader: BrokerId) -> None:
        """It cannot be connected to, or its connection broke."""
        ...

    def on_answered(self, leader: BrokerId, asked: float) -> None:
        """It answered what it was asked at this time of the loop."""
        ...


class LeaderProbes:
    """Of one broker.

    Args:
        timeout_ms: how long an answer may take before the connection is given up.
    """

    def __init__(self, peers: Peers, *, timeout_ms: int, tasks: Tasks) -> None:
        self._peers = peers
        self._timeout_ms = timeout_ms
        self._tasks = tasks
        self._unsent: dict[BrokerId, asyncio.Task[None]] = {}
        self._sent: dict[BrokerId, asyncio.Task[None]] = {}
        self._published = ConsistencyState(None, None)

    def on_published(self, image: MetadataImage) -> None:
        """Answers from here reflect this image from now on."""
        self._published = ConsistencyState(None, image.last_offset)

    def probe(self, leader: BrokerId, told: OnProbed) -> asyncio.Task[None]:
        """Ask a broker from now on; `told` is told before the task ends. Shared: it is not to be cancelled."""
        unsent = self._unsent.get(leader)
        if unsent is None:
            unsent = self._unsent[leader] = self._tasks.start(self._probe(leader, told))
        return unsent

    async def _probe(self, leader: BrokerId, told: OnProbed) -> None:
        before = self._sent.get(leader)
        if before is not None and not before.done():
            await asyncio.wait((before,))
        self._sent[leader] = self._unsent.pop(leader)
        asked = asyncio.get_running_loop().time()
        try:
            connection = await self._peers.connection(leader)
            await connection.send(
                DescribeConfigsRequest(resources=[]),
                DescribeConfigsResponse,
                timeout_ms=self._timeout_ms,
                min_version=TOKENS_SINCE_VERSION,
                state=self._published,
            )
        except NetworkError:
            told.on_hung_up(leader)
        except TidelogError:
            pass  # it is there, and will not speak with us: the fetchers say so
        else:
            told.on_answered(leader, asked)
