"""What goes in and out of a transaction coordinator. Kafka: `TransactionMetadata`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.base.ids import ProducerEpoch, ProducerId
from tidelog.coordinator.transactions.transaction import EPOCH_BUMP_VERSION


class ProducerIdNeededError(Exception):
    """The answer to a request that cannot go on without a producer id that nobody was given before.

    The shell gets one, and hands the request in again with it.
    """


def needed(fresh_producer_id: ProducerId | None) -> ProducerId:
    """Raises ProducerIdNeededError: the request came without one."""
    if fresh_producer_id is None:
        raise ProducerIdNeededError
    return fresh_producer_id


class ProducerIdentity(NamedTuple):
    """A producer id and epoch, as they are answered."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducer:
    """A producer begins, or goes on after an error.

    Attributes:
        timeout_ms: after which a transaction of the producer that is open is aborted.
        expected: what the producer has, if it goes on (KIP-360).
        fresh_producer_id: nobody's, in case one is needed.
    """

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdentity | None = None
    fresh_producer_id: ProducerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """A producer ends its transaction.

    Attributes:
        client_version: of transactions, by the request's version.
        fresh_producer_id: nobody's, in case the epochs run out with this.
    """

    transactional_id: str
    producer: ProducerIdentity
    commits: bool
    client_version: int
    fresh_producer_id: ProducerId | None = None

    @property
    def bumps_epoch(self) -> bool:
        """Whether the producer goes on with the next epoch (KIP-890)."""
        return self.client_version >= EPOCH_BUMP_VERSION
