"""A coordinator that is no group coordinator: registers on a topic of their own, driven by the same runtime.

A register is set and got by its name. One that nobody sets for `LEASE_MS` is cleared. A copy of one to another name is
recorded first, asked of whoever coordinates that name until it is done, and then recorded as done.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import cast

from tidelog.base.errors import Code, KafkaError, NetworkError, refusal
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.journal import CoordinatorJournal, CoordinatorReady, KeyValue, RequestId, Send, SendId
from tidelog.metadata.configs import broker as keys
from tidelog.server.coordinators.coordinator_partition import CoordinatorKind
from tidelog.server.coordinators.coordinator_partitions import CoordinatorPartitions

TOPIC = "__registers"
LEASE_MS = 60_000
COPY = b"copy:"

REGISTERS = CoordinatorKind(
    TOPIC,
    noun="register",
    loss="these registers are empty",
    logger=logging.getLogger("tidelog.tests.registers"),
    module="support.registers",
    partition_count_key=keys.OFFSETS_TOPIC_NUM_PARTITIONS,
    replication_factor_key=keys.OFFSETS_TOPIC_REPLICATION_FACTOR,
    segment_size_key=keys.OFFSETS_TOPIC_SEGMENT_BYTES,
    topic_configs=(("cleanup.policy", "compact"),),
)


@dataclass
class RecordedRegisters:
    """Values by name; and, under names that begin with `COPY`, copies that are not done."""

    values: dict[bytes, bytes] = field(default_factory=dict)

    def apply(self, record: object) -> None:
        key, value = cast(KeyValue, record)
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def clone(self) -> RecordedRegisters:
        return RecordedRegisters(dict(self.values))


class RegisterMachine:
    """A `CoordinatorMachine`."""

    def __init__(self) -> None:
        self._journal = CoordinatorJournal(RecordedRegisters())
        self._due_ms: dict[bytes, int] = {}
        self._copies: dict[SendId, bytes] = {}
        self._last_send_id = 0

    @property
    def batch_size_bytes_max(self) -> int:
        return self._journal.batch_size_bytes_max

    @batch_size_bytes_max.setter
    def batch_size_bytes_max(self, size_bytes: int) -> None:
        self._journal.batch_size_bytes_max = size_bytes

    def replay(
        self, key: bytes | None, value: bytes | None, offset: Offset, *, transaction_of: int | None = None
    ) -> None:
        if key is not None:
            self._journal.replay((key, value), offset, transaction_of=transaction_of)

    def replay_end(self, producer_id: int, *, is_committed: bool) -> None:
        self._journal.replay_end(producer_id, is_committed=is_committed)

    def restore(self) -> None: ...

    def become_active(self, leader_epoch: LeaderEpoch, next_offset: Offset, *, now_ms: int, wall_ms: int) -> None:
        self._journal.become_active(leader_epoch, next_offset)
        for key in self._journal.state.values:
            if key.startswith(COPY):
                self._send(key)
            else:
                self._due_ms[key] = now_ms + LEASE_MS

    def on_committed(self, end_offset: Offset) -> None:
        self._journal.on_committed(end_offset)

    def on_time(self, *, now_ms: int, wall_ms: int) -> None:
        for name in [name for name, due_ms in self._due_ms.items() if due_ms <= now_ms]:
            del self._due_ms[name]
            self._journal.write(((name, None),))

    def next_deadline_ms(self) -> int | None:
        return min(self._due_ms.values(), default=None)

    def on_disconnected(self, request_id: RequestId, *, now_ms: int, wall_ms: int) -> None: ...

    def on_sent(self, send_id: SendId, outcome: object, *, now_ms: int, wall_ms: int) -> None:
        self._journal.write(((self._copies.pop(send_id), None),))

    def resign(self, error: KafkaError | None = None) -> None:
        self._journal.resign(error)

    def take_ready(self) -> CoordinatorReady:
        return self._journal.take_ready()

    # What is asked of it.

    def on_set(self, request_id: RequestId, name: str, value: str, *, now_ms: int) -> None:
        self._due_ms[name.encode()] = now_ms + LEASE_MS
        self._journal.write_and_answer(((name.encode(), value.encode()),), request_id, "set")

    def on_get(self, request_id: RequestId, name: str) -> None:
        self._journal.answer(request_id, self._journal.state.values.get(name.encode(), b"nothing").decode())

    def on_copy(self, request_id: RequestId, name: str, to: str) -> None:
        value = self._journal.state.values.get(name.encode())
        if value is None:
            self._journal.answer(request_id, refusal(Code.RESOURCE_NOT_FOUND, f"register {name} is empty"))
            return
        key = COPY + to.encode()
        self._journal.write_and_answer(((key, value),), request_id, "will be copied")
        self._send(key)

    def _send(self, key: bytes) -> None:
        self._last_send_id += 1
        send_id = SendId(self._last_send_id)
        self._copies[send_id] = key
        name, value = key.removeprefix(COPY).decode(), self._journal.state.values[key].decode()
        self._journal.send(Send(send_id, TopicPartition(TOPIC, PartitionIndex(0)), (name, value)))


class RegisterCoordinators(CoordinatorPartitions[RegisterMachine]):
    """The registers of one node."""

    def _new_machine(self, index: int) -> RegisterMachine:
        return RegisterMachine()


@dataclass
class OtherBroker:
    """Whoever copies are asked of.

    Attributes:
        failures: what is raised next, each once.
        attempts: how often each node asked.
        copied: what arrived.
    """

    failures: list[KafkaError | NetworkError] = field(default_factory=list)
    attempts: Counter[int] = field(default_factory=Counter)
    copied: dict[str, str] = field(default_factory=dict)

    async def ask(self, number: int, destination: TopicPartition, request: object) -> object:
        self.attempts[number] += 1
        if self.failures:
            raise self.failures.pop(0)
        name, value = cast("tuple[str, str]", request)
        self.copied[name] = value
        return "copied"
