"""Records of a producer's transaction in the log of a coordinator: how they are written, and what a state is told.

```
 in the log     transactional batch: key, value …          control batch: COMMIT or ABORT
                          │                                          │
 the state      TransactionRecord(producer_id, …)          TransactionEnd(producer_id, is_committed)
```

A state takes in the same two, in the same order, whether they are written just now or read from the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class TransactionRecord(NamedTuple):
    """A record whose transaction is open. What it says counts once that is committed.

    Attributes:
        producer_id: whose transaction it is part of.
        record: as the state would take it in outside of a transaction.
    """

    producer_id: int
    record: object


class TransactionEnd(NamedTuple):
    """A producer's transaction ended here."""

    producer_id: int
    is_committed: bool


@dataclass(frozen=True, slots=True)
class TransactionPart:
    """What makes a batch part of a transaction, or its end.

    Attributes:
        end: the batch is a control batch, whose record is the marker of this end; None for records.
    """

    producer_id: int
    producer_epoch: int
    end: TransactionEnd | None = None

    def applied(self, records: Iterable[object]) -> Iterable[object]:
        """What a state takes in for the records of such a batch."""
        if self.end is not None:
            return (self.end,)
        return (TransactionRecord(self.producer_id, record) for record in records)
