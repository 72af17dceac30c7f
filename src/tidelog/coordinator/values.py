"""What goes into a group coordinator and comes out of it, apart from the messages themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from tidelog.base.ids import LeaderEpoch, Offset

RequestId = NewType("RequestId", int)
"""Names an answer that is to come. The driver's to choose; never used twice at one coordinator."""

KeyValue = tuple[bytes, bytes | None]
"""A record of `__consumer_offsets`; without a value it is a tombstone."""


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Records to append as one batch, at `base_offset`, in `leader_epoch`."""

    base_offset: Offset
    leader_epoch: LeaderEpoch
    records: tuple[KeyValue, ...]

    @property
    def end_offset(self) -> Offset:
        """Exclusive."""
        return Offset(self.base_offset + len(self.records))


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request is answered: a message or a part of one, or the `KafkaError` that refuses it."""

    request_id: RequestId
    outcome: object


@dataclass(frozen=True, slots=True)
class Ready:
    """What the driver owes the world, in field order: append, then answer.

    Attributes:
        batches: to append in this order. Once they are committed the driver calls `on_committed`; if one is refused, it
            calls `resign`.
        answers: depend on nothing that is not committed.
    """

    batches: tuple[EncodedBatch, ...]
    answers: tuple[Answer, ...]

    def __bool__(self) -> bool:
        return bool(self.batches or self.answers)
