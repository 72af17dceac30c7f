"""Asks a transaction's coordinator before a group's coordinator takes offsets in for it (KIP-890).

```
 a guard ──► is the group's partition in the transaction? ──► the guard is still the one ──► the machine, the log
                                                    ▲
                       a marker that comes here ────┘  takes the guard back: the answer is about what was before
```

A marker may come late, when its producer has begun the next transaction already: the coordinator answered as soon as
the end was decided. Then it is asked once more, about that one.

An offset that came in behind its marker would be pending for ever, and consumers that wait for it with it.
While the producer's transaction is open on the partition, nobody needs to be asked.

Kafka: `CoordinatorRuntime.scheduleTransactionalWriteOperation`, `AddPartitionsToTxnManager`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import TopicPartition
from tidelog.log import VerificationGuard
from tidelog.log.producer_state import ProducerStates

if TYPE_CHECKING:
    from tidelog.coordinator.groups import GroupCoordinator
    from tidelog.journal import RequestId
    from tidelog.server.groups.group_coordinators import GroupCoordinators
    from tidelog.wire.messages.api_28_txn_offset_commit import TxnOffsetCommitRequest

NO_SEQUENCE = -1
LOADING_IS_KNOWN_SINCE = 2
"""The version from which on clients understand COORDINATOR_LOAD_IN_PROGRESS in an answer (KAFKA-7296)."""
ABORTABLE_SINCE = 4
"""The version from which on they understand TRANSACTION_ABORTABLE."""
ADDS_PARTITION_SINCE = 5
"""The version of producers that leave it to the broker to add the group's partition to the transaction."""
ASKED_MAX = 3
"""How often a coordinator is asked for one request. Each end of a transaction has one marker here."""

Verify = Callable[[TopicPartition, bool], Awaitable[Code]]
"""Asks whether a partition is in the transaction, or adds it. Raises KafkaError."""


async def commit(
    groups: GroupCoordinators, request: TxnOffsetCommitRequest, *, api_version: int, verify: Verify, now_ms: int
) -> object:
    """Commit what a request says, once its transaction is known to be open.

    Args:
        now_ms: since 1970.

    Returns:
        The answer of the machine, or a future of it: see `GroupCoordinators.submit`.

    Raises:
        KafkaError: the transaction's coordinator, or this partition, refuses; as the version says it.
    """
    place = groups.partition_for(request.group_id)
    if place is None:
        raise refusal(Code.NOT_COORDINATOR, "no group has a coordinator yet: ask FindCoordinator")
    adds = api_version >= ADDS_PARTITION_SINCE

    def begin(producers: ProducerStates) -> VerificationGuard | None:
        known = producers.get(request.producer_id)
        if known is not None:
            known.check_epoch(request.producer_epoch)
        return producers.begin_verification(
            request.producer_id, NO_SEQUENCE, request.producer_epoch, supports_epoch_bump=adds, now_ms=now_ms
        )

    def check(producers: ProducerStates) -> None:
        if (current := begin(producers)) is not None and current is not guard:
            raise refusal(
                Code.INVALID_TXN_STATE,
                f"group {request.group_id!r}: the transaction of producer {request.producer_id} ended meanwhile",
            )

    for _ in range(ASKED_MAX):
        guard = begin(groups.producers_at(place.partition))
        if guard is None:
            break
        try:
            code = await verify(place, adds)
        except KafkaError as error:
            raise refusal(as_answered(error.code, api_version), str(error)) from error
        if code is not Code.NONE:
            raise refusal(
                as_answered(code, api_version),
                f"group {request.group_id!r}: {place} is in no transaction of {request.transactional_id!r}",
            )
        if begin(groups.producers_at(place.partition)) in (None, guard):
            break

    def hand_in(coordinator: GroupCoordinator, request_id: RequestId, now_ms: int, wall_ms: int) -> None:
        coordinator.on_txn_offset_commit(request_id, request, api_version=api_version, now_ms=now_ms, wall_ms=wall_ms)

    return groups.submit_to_partition(place.partition, hand_in, check)


def as_answered(code: Code, api_version: int) -> Code:
    """What a producer is told of what the transaction's coordinator says: it takes all for the group's coordinator.

    As Kafka does; and a transaction that is just ending (CONCURRENT_TRANSACTIONS) is told to producers before version 5
    as something to try again: they take it for fatal.
    """
    match code:
        case Code.PRODUCER_FENCED:
            return Code.INVALID_PRODUCER_EPOCH
        case Code.TRANSACTION_ABORTABLE if api_version < ABORTABLE_SINCE:
            return Code.INVALID_TXN_STATE
        case Code.CONCURRENT_TRANSACTIONS if api_version < ADDS_PARTITION_SINCE:
            return Code.COORDINATOR_LOAD_IN_PROGRESS
        case Code.NETWORK_EXCEPTION:
            return Code.COORDINATOR_LOAD_IN_PROGRESS
        case (
            Code.NOT_COORDINATOR
            | Code.UNKNOWN_TOPIC_OR_PARTITION
            | Code.NOT_ENOUGH_REPLICAS
            | Code.REQUEST_TIMED_OUT
            | Code.NOT_LEADER_OR_FOLLOWER
        ):
            return Code.COORDINATOR_NOT_AVAILABLE
    return code


def as_known(code: Code, api_version: int) -> Code:
    """The code of an answer, as a client of a version knows it."""
    if code is Code.COORDINATOR_LOAD_IN_PROGRESS and api_version < LOADING_IS_KNOWN_SINCE:
        return Code.COORDINATOR_NOT_AVAILABLE
    return code
