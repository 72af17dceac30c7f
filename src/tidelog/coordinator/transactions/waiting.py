"""Requests that wait until the transaction before them has ended, one for each transactional id.

Kafka refuses them with CONCURRENT_TRANSACTIONS, and its clients ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tidelog.base.errors import KafkaError
from tidelog.coordinator.deadlines import Deadlines
from tidelog.coordinator.memory import CoordinatorMemory
from tidelog.journal import RequestId

WAITING_MS_MAX = 1_000
"""How long a request waits, if that end does not come: its client asks again."""

REQUEST_BYTES = 1_024
"""About what a request takes that waits, beside the partitions that it adds."""


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """One.

    Attributes:
        run: what it does once it is its turn; takes the time by both clocks.
        refusal: what it is answered if its turn does not come.
        partition_bytes: what the partitions take that it adds.
    """

    request_id: RequestId
    run: Callable[[int, int], None]
    refusal: KafkaError
    partition_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        return REQUEST_BYTES + self.partition_bytes


class WaitingRequests:
    """Those of one coordinator.

    Args:
        memory: what they take counts there.
    """

    def __init__(self, memory: CoordinatorMemory) -> None:
        self._memory = memory
        self._requests: dict[str, WaitingRequest] = {}
        self._ids: dict[RequestId, str] = {}
        self._deadlines: Deadlines[str] = Deadlines()

    def add(self, transactional_id: str, request: WaitingRequest, now_ms: int) -> None:
        """Have it wait.

        Raises:
            KafkaError: its refusal, since the memory has no room for it.
        """
        if not self._memory.has_room(request.size_bytes):
            raise request.refusal
        self._memory.used_bytes += request.size_bytes
        self._requests[transactional_id] = request
        self._ids[request.request_id] = transactional_id
        self._deadlines.set(transactional_id, now_ms + WAITING_MS_MAX)

    def take(self, transactional_id: str) -> WaitingRequest | None:
        """The one that waits for this id, if any. It waits no longer."""
        self._deadlines.cancel(transactional_id)
        request = self._requests.pop(transactional_id, None)
        if request is not None:
            del self._ids[request.request_id]
            self._memory.used_bytes -= request.size_bytes
        return request

    def take_due(self, now_ms: int) -> Iterator[WaitingRequest]:
        """Those that have waited long enough."""
        while (transactional_id := self._deadlines.pop_due(now_ms)) is not None:
            request = self.take(transactional_id)
            if request is not None:
                yield request

    def take_all(self) -> Iterator[WaitingRequest]:
        """Every one."""
        for transactional_id in list(self._requests):
            request = self.take(transactional_id)
            assert request is not None
            yield request

    def forget(self, request_id: RequestId) -> None:
        """Nobody waits for its answer any more."""
        transactional_id = self._ids.get(request_id)
        if transactional_id is not None:
            self.take(transactional_id)

    def next_deadline_ms(self) -> int | None:
        """When the first of them has waited long enough."""
        return self._deadlines.next_ms()
