"""A controller of a quorum of one, brokers that it hears of, and a log of encoded records behind it."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId, ClusterId, LeaderEpoch, Offset, PartitionIndex, TopicId
from tidelog.controller import (
    BrokerChange,
    BrokerSessions,
    BrokerToRegister,
    ControllerSettings,
    ControllerState,
    Heartbeat,
    HeartbeatReply,
    NewTopic,
)
from tidelog.journal import Decision, Journal
from tidelog.metadata import Endpoint, MetadataImage, PartitionImage
from tidelog.metadata.records import encode_record

CLUSTER = ClusterId("AAAAAAAAAAAAAAAAAAAAAA")
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


class SeededRng:
    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def random(self) -> float:
        return self._random.random()

    def randrange(self, start: int, stop: int) -> int:
        return self._random.randrange(start, stop)

    def uuid(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)


class Cluster:
    """A controller of a quorum of one, with a log of encoded records behind it."""

    def __init__(self) -> None:
        self.journal = Journal(self.empty(), not_active=Code.NOT_CONTROLLER)
        self.journal.become_active(LeaderEpoch(1), Offset(1))
        self.log: list[tuple[int, bytes]] = []
        self.incarnations = 0
        self.epochs: dict[BrokerId, BrokerEpoch] = {}
        self.now_ms = 0
        self.sessions: BrokerSessions
        self.begin_sessions()

    def begin_sessions(self) -> None:
        """As a controller does that becomes active."""
        self.sessions = BrokerSessions(self.state.metadata, end_offset=self.journal.next_offset, now_ms=self.now_ms)

    @staticmethod
    def empty() -> ControllerState:
        return ControllerState(ControllerSettings(cluster_id=CLUSTER))

    @property
    def state(self) -> ControllerState:
        return self.journal.speculative

    @property
    def image(self) -> MetadataImage:
        return self.journal.committed.image(None)

    def run(self, decision: Decision[Any]) -> Any:
        self.journal.submit(decision)
        ready = self.journal.take_ready()
        for batch in ready.batches:
            self.log += [(batch.base_offset + i, encode_record(record)) for i, record in enumerate(batch.records)]
        self.journal.on_committed(self.journal.next_offset)
        (reply,) = ready.replies + self.journal.take_ready().replies
        return reply.outcome

    def registration(self, broker_id: BrokerId) -> BrokerToRegister:
        self.incarnations += 1
        return BrokerToRegister(broker_id, UUID(int=self.incarnations), (Endpoint("PLAINTEXT", "h", 9092),))

    def decide_register(self, broker: BrokerToRegister) -> Decision[BrokerChange]:
        """Whoever had this id before is not heard of any more."""
        return self.state.decide_register_broker(broker, next_offset=self.journal.next_offset)

    def register_beside(self, broker: BrokerToRegister) -> BrokerChange:
        """Whoever has this id may be alive."""
        decision = self.state.decide_register_broker(
            broker, next_offset=self.journal.next_offset, sessions=self.sessions, now_ms=self.now_ms
        )
        reply: BrokerChange = self.run(decision)
        return reply

    def register(self, broker_id: BrokerId) -> BrokerChange:
        reply: BrokerChange = self.run(self.decide_register(self.registration(broker_id)))
        self.epochs[broker_id] = reply.broker_epoch
        return reply

    def hear(
        self,
        broker_id: BrokerId,
        *,
        at: int | None = -1,
        wants_fence: bool = False,
        wants_shut_down: bool = False,
        failed: tuple[UUID, ...] = (),
    ) -> HeartbeatReply:
        """A heartbeat of a broker whose image is at `at`, all that there is unless told otherwise."""
        offset = Offset(self.journal.next_offset - 1) if at == -1 else at
        heartbeat = Heartbeat(
            broker_id,
            self.epochs[broker_id],
            None if offset is None else Offset(offset),
            wants_fence=wants_fence,
            wants_shut_down=wants_shut_down,
            offline_log_dirs=failed,
        )
        decision = self.state.decide_heartbeat(
            heartbeat, self.sessions, next_offset=self.journal.next_offset, now_ms=self.now_ms
        )
        reply: HeartbeatReply = self.run(decision)
        return reply

    def expire(self) -> tuple[BrokerId, ...]:
        fenced: tuple[BrokerId, ...] = self.run(self.state.decide_fence_expired(self.sessions, now_ms=self.now_ms))
        return fenced

    def unfence(self, broker_id: BrokerId) -> BrokerChange:
        reply: BrokerChange = self.run(self.state.decide_unfence_broker(broker_id, self.epochs[broker_id]))
        return reply

    def fence(self, broker_id: BrokerId) -> BrokerChange:
        reply: BrokerChange = self.run(self.state.decide_fence_broker(broker_id, self.epochs[broker_id]))
        return reply

    def start(self, *broker_ids: BrokerId) -> None:
        for broker_id in broker_ids:
            self.register(broker_id)
            self.unfence(broker_id)

    def write(self, *records: object) -> None:
        """What somebody else decided."""
        self.run(Decision(records, None))

    def create(self, name: str, *replicas: list[BrokerId]) -> TopicId:
        topic = NewTopic(name, assignments=list(enumerate(replicas)))
        (result,) = self.run(self.state.decide_create_topics([topic], rng=SeededRng(self.journal.next_offset)))
        assert result.code == Code.NONE, result.message
        return TopicId(result.topic_id)

    def partition(self, name: str, index: int = 0) -> PartitionImage:
        state = self.image.partition(name, PartitionIndex(index))
        assert state is not None
        return state


def leadership(state: PartitionImage) -> tuple[int | None, int, tuple[int, ...]]:
    return state.leader, state.leader_epoch, state.isr


def refused(decide: Any, *arguments: Any, **rest: Any) -> Code:
    with pytest.raises(KafkaError) as refusal:
        decide(*arguments, **rest)
    return refusal.value.code
