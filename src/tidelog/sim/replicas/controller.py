"""The test controller: it keeps the metadata's history for good, decides by production's own rules, and tells brokers.

One process that never ends: what several controllers agree on is not its subject. Its messages are lost, late and
repeated as anybody's are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import BrokerEpoch, BrokerId, ControllerEpoch, Offset, TopicPartition
from tidelog.base.ports import Rng
from tidelog.controller.isr_changes import PartitionToAlter
from tidelog.controller.leaders import ElectionType, is_active_in
from tidelog.controller.partition_changes import change_record, with_replicas
from tidelog.controller.state import ControllerState
from tidelog.controller.topic_rules import TopicRules
from tidelog.controller.values import BrokerToRegister, ControllerSettings, NewTopic, TopicToDelete
from tidelog.metadata.image import Endpoint, MetadataImage, PartitionImage, TopicImage
from tidelog.replica import ReplicaId, StopOrder
from tidelog.sim.replicas.fabric import Fabric, Reply, Station
from tidelog.sim.replicas.messages import (
    PARTITION,
    AlterPartition,
    AskMetadata,
    Committed,
    Heartbeat,
    HeartbeatAnswer,
    Metadata,
    PartitionAltered,
    Register,
    Registered,
    StopReplica,
)
from tidelog.sim.replicas.plan import Plan
from tidelog.sim.world.machine import Machine

CONTROLLER = "controller"
TICK_MS = 100
EPOCH = ControllerEpoch(1)
BATCHES_TOLD_MAX = 50

OnDecided = Callable[[MetadataImage, MetadataImage], None]


def machine_of(broker: BrokerId) -> str:
    return f"broker-{broker}"


class Controller:
    """See the module.

    Args:
        on_decided: told of each step of the metadata's history, what was before and what is.

    Attributes:
        image: the truth, whoever has heard of it.
        history: all there ever was, in batches.
        is_generous: whether it holds an unclean election wherever nobody else may lead.
    """

    def __init__(self, machine: Machine, fabric: Fabric, plan: Plan, rng: Rng, on_decided: OnDecided) -> None:
        self.image = MetadataImage.empty()
        self.history: list[Committed] = []
        self.is_generous = False
        self._plan = plan
        self._rng = rng
        self._clock = machine.clock
        self._state = ControllerState(ControllerSettings())
        self._last_contact_ms: dict[BrokerId, int] = {}
        self._leaderless_ms: dict[ReplicaId, int] = {}
        self._on_decided = on_decided
        self._fabric = fabric
        self._station: Station
        machine.start(self._main)

    async def _main(self) -> None:
        self._station = self._fabric.station(CONTROLLER, self._serve)
        self._tick()

    # What an operator does.

    def create_topic(self, name: str, replicas: Sequence[BrokerId]) -> None:
        """A topic of one partition. Raises KafkaError."""
        settings = (("min.insync.replicas", str(self._plan.min_insync_replicas)),)
        new = NewTopic(name, assignments=((0, tuple(replicas)),), configs=settings)
        decision = self._state.decide_create_topics([new], rng=self._rng)
        self._commit(decision.records)
        (created,) = decision.reply
        if created.topic_id is None:
            raise refusal(created.code, f"{name}: {created.message}")

    def delete_topic(self, name: str) -> None:
        """Delete it, and push that to all who have it."""
        topic = self.image.topics_by_name[name]
        self._commit(self._state.decide_delete_topics([TopicToDelete(name=name)]).records)
        for broker in topic.partitions[PARTITION].replicas:
            self._push_stop(broker, topic, None)

    def reassign(self, name: str, replicas: Sequence[BrokerId]) -> None:
        """Another set of replicas, at once (rule 8): who is added begins with nothing, and is not in sync."""
        topic = self.image.topics_by_name[name]
        before = topic.partitions[PARTITION]
        minimum = TopicRules(self.image, self._state.settings).min_insync(name)
        changed = with_replicas(
            before, tuple(replicas), min_insync_replicas=minimum, is_active=is_active_in(self.image)
        )
        self._commit((change_record(topic.topic_id, PARTITION, before, changed),))
        for broker in set(before.replicas) - set(replicas):
            self._push_stop(broker, topic, changed)

    def elect(self, name: str, kind: ElectionType) -> None:
        """An election that an operator asks for. Raises KafkaError."""
        decision = self._state.decide_elect_leaders(kind, [TopicPartition(name, PARTITION)])
        self._commit(decision.records)
        (elected,) = decision.reply
        if elected.code != Code.NONE:
            raise refusal(elected.code, f"{name}: {elected.message}")

    def expire(self, broker: BrokerId) -> None:
        """Take its session for over, whether it is alive or not."""
        self._last_contact_ms.pop(broker, None)
        self._expire(broker)

    # What brokers ask.

    def _serve(self, sender: str, body: object, reply: Reply) -> None:
        match body:
            case Heartbeat():
                reply(self._heartbeat(body))
            case AlterPartition():
                reply(self._alter(body))
            case Register():
                reply(self._register(body))
            case AskMetadata():
                reply(Metadata(self._told_from(body.next_number)))

    def _register(self, asked: Register) -> Registered:
        endpoint = Endpoint("PLAINTEXT", machine_of(asked.broker_id), 9092)
        new = BrokerToRegister(
            asked.broker_id, asked.incarnation_id, (endpoint,), previous_broker_epoch=asked.previous_broker_epoch
        )
        try:
            decision = self._state.decide_register_broker(new, next_offset=self._next_offset)
        except KafkaError as error:
            return Registered(error.code)
        self._commit(decision.records)
        self._last_contact_ms[asked.broker_id] = self._clock.now_ms()
        return Registered(Code.NONE, decision.reply.broker_epoch)

    def _heartbeat(self, heard: Heartbeat) -> HeartbeatAnswer:
        broker = self.image.brokers.get(heard.broker_id)
        if broker is None or broker.broker_epoch != heard.broker_epoch:
            return HeartbeatAnswer(Code.STALE_BROKER_EPOCH)
        self._last_contact_ms[heard.broker_id] = self._clock.now_ms()
        if broker.is_fenced and heard.applied_end_offset > heard.broker_epoch:
            self._commit(self._state.decide_unfence_broker(heard.broker_id, heard.broker_epoch).records)
        return HeartbeatAnswer(Code.NONE, self._told_from(heard.next_number))

    def _alter(self, asked: AlterPartition) -> PartitionAltered:
        one = PartitionToAlter(asked.replica.topic_id, asked.replica.partition, asked.change)
        try:
            decision = self._state.decide_alter_partitions(asked.broker_id, asked.broker_epoch, [one])
        except KafkaError as error:
            return PartitionAltered(error.code)
        self._commit(decision.records)
        (altered,) = decision.reply
        return PartitionAltered(altered.code, altered.state)

    # What it decides, and tells.

    @property
    def _next_offset(self) -> Offset:
        return self.history[-1].end_offset if self.history else Offset(0)

    def _commit(self, records: Sequence[object]) -> None:
        if not records:
            return
        for record in records:
            self._state.apply(record)
        end_offset = Offset(self._next_offset + len(records))
        committed = Committed(len(self.history), end_offset, tuple(records))
        self.history.append(committed)
        before, self.image = self.image, self._state.image(Offset(end_offset - 1))
        self._on_decided(before, self.image)
        for broker in self.image.brokers:
            self._station.tell(machine_of(broker), Metadata((committed,)))

    def _told_from(self, number: int) -> tuple[Committed, ...]:
        return tuple(self.history[number : number + BATCHES_TOLD_MAX])

    def _push_stop(self, broker: BrokerId, topic: TopicImage, state: PartitionImage | None) -> None:
        """Only what is committed is pushed (KIP-570)."""
        known = self.image.brokers.get(broker)
        order = StopOrder(
            TopicPartition(topic.name, PARTITION),
            topic.topic_id,
            None if state is None else state.leader_epoch,
            is_deletion=True,
            metadata_offset=Offset(self._next_offset - 1),
        )
        epoch = BrokerEpoch(0) if known is None else known.broker_epoch
        self._station.tell(machine_of(broker), StopReplica(EPOCH, epoch, (order,)))

    # What time does.

    def _tick(self) -> None:
        now_ms = self._clock.now_ms()
        for broker, last_contact_ms in list(self._last_contact_ms.items()):
            if now_ms - last_contact_ms > self._plan.session_ms:
                del self._last_contact_ms[broker]
                self._expire(broker)
        if self.is_generous:
            self._elect_uncleanly(now_ms)
        self._station.later(TICK_MS, self._tick)

    def _expire(self, broker: BrokerId) -> None:
        known = self.image.brokers.get(broker)
        if known is not None and not known.is_fenced:
            self._commit(self._state.decide_fence_broker(broker, known.broker_epoch).records)

    def _elect_uncleanly(self, now_ms: int) -> None:
        """Where nobody who may lead has come back for a while."""
        waiting: dict[ReplicaId, int] = {}
        for topic in list(self.image.topics_by_id.values()):
            if topic.partitions[PARTITION].leader is not None:
                continue
            name = ReplicaId(topic.topic_id, PARTITION)
            since_ms = waiting[name] = self._leaderless_ms.get(name, now_ms)
            if now_ms - since_ms > self._plan.unclean_after_ms:
                try:
                    self.elect(topic.name, ElectionType.UNCLEAN)
                except KafkaError:
                    continue  # nobody is there
        self._leaderless_ms = waiting
