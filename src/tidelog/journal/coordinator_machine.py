"""What one runtime asks of every coordinator whose memory is a partition of an internal topic.

```
 partition's log ──► replay, replay_end ──► restore ──► become_active ──► requests, on_time, on_sent ──► resign
                                                              ▲                    │
                                                on_committed ─┴── the driver ◄── take_ready: append, answer, send
```

A machine is pure. Its driver (`server/coordinators`) owns the log, the clocks, the futures of those who ask, and the
connections to other brokers. One machine serves in one leader epoch; the next one loads the log anew.

Kafka: `CoordinatorShard` and what `CoordinatorRuntime` asks of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, NewType, Protocol

from tidelog.base.errors import KafkaError
from tidelog.base.ids import LeaderEpoch, Offset, TopicPartition
from tidelog.journal.runtime import Batch

RequestId = NewType("RequestId", int)
"""Names an answer that is to come. The driver's to choose; never used twice at one machine."""

SendId = NewType("SendId", int)
"""Names a request to another broker. The machine's to choose; never used twice by one machine."""

KeyValue = tuple[bytes, bytes | None]
"""A record of an internal topic; without a value it is a tombstone."""


class Moment(NamedTuple):
    """When a machine is told something.

    Attributes:
        now_ms: never goes back: for deadlines.
        wall_ms: the time of day: for timestamps in records, and retention.
    """

    now_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request is answered: a message or a part of one, or the `KafkaError` that refuses it."""

    request_id: RequestId
    outcome: object


@dataclass(frozen=True, slots=True)
class Send:
    """A request to another broker. The driver tries until it is done, or until the leadership here ends.

    Attributes:
        destination: the leader of this partition is asked, whoever that is at each attempt.
        request: whatever the driver's `send_to_leader` understands. It may arrive more than once.
    """

    send_id: SendId
    destination: TopicPartition
    request: object


@dataclass(frozen=True, slots=True)
class CoordinatorReady:
    """What the driver owes the world, in field order: append, answer, send.

    Attributes:
        batches: to append in this order. Once they are committed the driver calls `on_committed`; if one is refused, it
            calls `resign`.
        answers: depend on nothing that is not committed.
        sends: likewise.
    """

    batches: tuple[Batch[KeyValue], ...] = ()
    answers: tuple[Answer, ...] = ()
    sends: tuple[Send, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.batches or self.answers or self.sends)


class CoordinatorMachine(Protocol):
    """Replays, becomes active, answers, resigns; then it is spent.

    Requests are methods of its own, that take a `RequestId`, `now_ms` and `wall_ms`. Each gets one answer, unless
    `on_disconnected` says that nobody waits for it.

    Attributes:
        batch_size_bytes_max: of the log behind it, in force from now on whenever it is set.
    """

    batch_size_bytes_max: int

    # Loading.

    def replay(
        self, key: bytes | None, value: bytes | None, offset: Offset, *, transaction_of: int | None = None
    ) -> None:
        """A committed record was read from the log. One of a kind that is not known is skipped.

        Args:
            transaction_of: the producer whose transaction it is part of: it counts once `replay_end` says so. A kind
                that writes nothing in transactions skips it.

        Raises:
            CorruptLogError: it is not what it claims; names the offset. The partition is not to be led.
        """
        ...

    def replay_end(self, producer_id: int, *, is_committed: bool) -> None:
        """The transaction of a producer ended here."""
        ...

    def restore(self) -> None:
        """All was replayed. What takes long is done here, on another thread; nobody else knows the machine yet."""
        ...

    # Serving.

    def become_active(self, leader_epoch: LeaderEpoch, next_offset: Offset, *, now_ms: int, wall_ms: int) -> None:
        """All that lies below `next_offset` was replayed, and is committed. What was to be sent is sent again."""
        ...

    def on_committed(self, end_offset: Offset) -> None:
        """Everything below `end_offset` (exclusive) is there to stay."""
        ...

    def on_time(self, *, now_ms: int, wall_ms: int) -> None:
        """Do what is due. May be called early, and late."""
        ...

    def next_deadline_ms(self) -> int | None:
        """When to call `on_time`, by the clock of `now_ms`; None while there is nothing to wait for."""
        ...

    def on_disconnected(self, request_id: RequestId, *, now_ms: int, wall_ms: int) -> None:
        """Nobody waits for that answer any more, which may come all the same."""
        ...

    def on_sent(self, send_id: SendId, outcome: object, *, now_ms: int, wall_ms: int) -> None:
        """Another broker answered, or refused for good: then `outcome` is the `KafkaError`."""
        ...

    def resign(self, error: KafkaError | None = None) -> None:
        """Leadership is lost, or the log refused a batch: whoever waits is told NOT_COORDINATOR, or `error`."""
        ...

    # What to do about it.

    def take_ready(self) -> CoordinatorReady:
        """All that is owed since the last call."""
        ...
