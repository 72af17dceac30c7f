"""Batches that count as a whole or not at all: what lies between a begin and an end in one log (KIP-868).

```
 log:  ──────┤ begin ░░░░░░ │ ░░░░░░░ │ ░░░ end ├──▶
             │                                  │
 committed state stays here                     └── and is here at once, when the end is committed
```
Whoever leads next ends an open transaction by an abort: then nothing of it ever counted.

Kafka: `OffsetControlManager`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from tidelog.base.ids import Offset

S = TypeVar("S")


class Boundary(Enum):
    """What a record says of a transaction."""

    BEGIN = 0
    END = 1
    ABORT = 2


@dataclass(frozen=True, slots=True)
class LogTransactions(Generic[S]):
    """What a journal with transactions has to know of its records and its state.

    Attributes:
        boundary_of: what a record says of a transaction; None for all other records.
        fork: a copy of the committed state, to which a transaction is applied while it is open.
        adopt: the copy (the first) takes the place of the state (the second), with what that noted for others.
    """

    boundary_of: Callable[[object], Boundary | None]
    fork: Callable[[S], S]
    adopt: Callable[[S, S], None]


@dataclass(slots=True)
class OpenTransaction(Generic[S]):
    """One that has no end yet.

    Attributes:
        begin_offset: of its first record, the begin.
        state: the committed state with what there is of the transaction.
        records: what there is of it.
    """

    begin_offset: Offset
    state: S
    records: list[object] = field(default_factory=list)
