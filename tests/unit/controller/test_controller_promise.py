"""Brokers stop, crash, lose their power and come back, and a partition moves among them, in any order: whoever may be
elected has all that is committed.

Leaders and followers are logs here, which know what they last heard of the controller. The controller is the real one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerEpoch, BrokerId, Offset, PartitionIndex, TopicId, TopicPartition
from tidelog.controller import (
    METADATA_VERSION,
    BrokerSessions,
    BrokerToRegister,
    ConfigChange,
    ConfigsToAlter,
    ControllerSettings,
    ControllerState,
    FeatureToUpdate,
    Heartbeat,
    HeartbeatReply,
    IsrChange,
    IsrMember,
    PartitionToAlter,
    PartitionToReassign,
    UpgradeType,
)
from tidelog.metadata import PartitionImage, RegisteredEndpoint, ResourceKey, ResourceType
from tidelog.metadata.features import own_features
from tidelog.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionRecord,
    TopicRecord,
    decode_record,
    encode_record,
)

TOPIC = TopicId(UUID(int=7))
FIRST = PartitionIndex(0)
ONE, TWO, THREE, FOUR = (BrokerId(number) for number in (1, 2, 3, 4))
BROKERS = st.sampled_from((ONE, TWO, THREE, FOUR))


@dataclass
class Heard:
    """The partition as one step of the metadata has it, with what must be in sync there."""

    state: PartitionImage
    isr_size_min: int
    end_offset: int


@dataclass
class Replica:
    """A broker: what it has written, and what it last heard."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    log: list[int] = field(default_factory=list)
    is_up: bool = True
    stopped_in: BrokerEpoch | None = None  # what its directories show: that it lost nothing since
    has_lost: bool = False  # and has not registered since
    heard: int = 0
    proposed: set[BrokerId] = field(default_factory=set)


class Partition(RuleBasedStateMachine):
    """One partition under the real controller: three replicas at first, of four brokers."""

    @initialize(min_insync=st.integers(1, 3))
    def begin(self, min_insync: int) -> None:
        self.controller = ControllerState(ControllerSettings())
        self.next_offset = 0
        self.min_insync = min_insync
        self.replicas: dict[BrokerId, Replica] = {}
        self.history: list[Heard] = []
        self.committed: list[int] = []
        self.on_the_way: list[tuple[BrokerId, BrokerEpoch, IsrChange]] = []
        self.written = 0
        self.level = METADATA_VERSION
        self.sessions = BrokerSessions(self.controller.metadata, end_offset=Offset(0), now_ms=0)
        self.power_losses_left = min_insync - 1
        self._apply(*self.controller.decide_bootstrap().records)
        for number in (1, 2, 3, 4):
            self._register(BrokerId(number), None)
            epoch = self.replicas[BrokerId(number)].broker_epoch
            self._apply(BrokerRegistrationChangeRecord(broker_id=number, broker_epoch=epoch, fenced=-1))
        self._apply(TopicRecord(name="t", topic_id=TOPIC))
        self._apply(
            ConfigRecord(
                resource_type=ResourceType.TOPIC, resource_name="t", name="min.insync.replicas", value=str(min_insync)
            )
        )
        everyone = [1, 2, 3]
        self._apply(
            PartitionRecord(
                partition_id=0,
                topic_id=TOPIC,
                replicas=everyone,
                isr=everyone,
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
            )
        )
        self._remember()

    # What brokers, producers and operators do.

    @rule(broker=BROKERS)
    def follow(self, broker: BrokerId) -> None:
        """A follower truncates to its leader's log, and has all of it."""
        leader = self._leader_of(broker)
        if leader is not None:
            self.replicas[broker].log = list(self.replicas[leader].log)

    @rule()
    def write(self) -> None:
        """All know of the leader, and a record is written there."""
        self.all_hear()
        if self.state.leader is not None:
            self.write_at(self.state.leader)

    @rule(broker=BROKERS)
    def write_at(self, broker: BrokerId) -> None:
        """A record at one that believes that it leads: committed if all that may be in sync, as it sees it, have it."""
        if not self._leads(broker):
            return
        leader = self.replicas[broker]
        self.written += 1
        leader.log.append(self.written)
        heard = self.history[leader.heard]
        members = ({*heard.state.isr} | leader.proposed) - {broker}
        if len(heard.state.isr) < heard.isr_size_min or any(self._leader_of(one) != broker for one in members):
            return
        for member in members:
            self.replicas[member].log = list(leader.log)
        self.committed += [record for record in leader.log if record not in self.committed]

    @rule(other=BROKERS)
    def alter_now(self, other: BrokerId) -> None:
        """All know of the leader; what it asks is decided at once."""
        self.all_hear()
        if self.state.leader is not None and self._leads(self.state.leader):
            self.propose(self.state.leader, other)
            self.alter(0)

    @rule(broker=BROKERS, other=BROKERS)
    def propose(self, broker: BrokerId, other: BrokerId) -> None:
        """A leader asks that another one joins, having caught up, or leaves; or for the ISR that there is."""
        if not self._leads(broker):
            return
        leader, state = self.replicas[broker], self.history[self.replicas[broker].heard].state
        isr = {*state.isr}
        if other in isr - {broker}:
            isr.remove(other)
        elif other != broker and other in state.replicas and not state.is_recovering:
            if self._leader_of(other) != broker:
                return
            self.replicas[other].log = list(leader.log)
            isr.add(other)
        leader.proposed |= isr
        members = tuple(IsrMember(one, self.replicas[one].broker_epoch) for one in sorted(isr))
        change = IsrChange(state.leader_epoch, state.partition_epoch, members)
        self.on_the_way.append((broker, leader.broker_epoch, change))

    @rule(age=st.integers(0, 5))
    def alter(self, age: int) -> None:
        """What a leader asked comes to the controller, perhaps late, perhaps not for the last time."""
        if not self.on_the_way:
            return
        sender, epoch, change = self.on_the_way[max(len(self.on_the_way) - 1 - age, 0)]
        if self.controller.metadata.brokers[sender].broker_epoch != epoch:
            return
        decision = self.controller.decide_alter_partitions(sender, epoch, [PartitionToAlter(TOPIC, FIRST, change)])
        self._apply(*decision.records)
        assert bool(decision.records) == (decision.reply[0].code == Code.NONE)

    @rule(broker=BROKERS, steps=st.integers(1, 9))
    def hear(self, broker: BrokerId, steps: int) -> None:
        """A broker applies more of the metadata."""
        replica = self.replicas[broker]
        if replica.is_up and replica.heard < len(self.history) - 1:
            before = self.history[replica.heard].state.partition_epoch
            replica.heard = min(replica.heard + steps, len(self.history) - 1)
            state = self.history[replica.heard].state
            if state.partition_epoch > before:
                replica.proposed = set()  # nothing else says what became of it
            if broker not in state.replicas:
                replica.log = []

    @rule()
    def all_hear(self) -> None:
        for broker in self.replicas:
            self.hear(broker, len(self.history))

    @rule(broker=BROKERS)
    def stop(self, broker: BrokerId) -> None:
        """A clean shutdown: all is on disk, and the next incarnation can tell."""
        replica = self.replicas[broker]
        if replica.is_up:
            replica.is_up, replica.stopped_in = False, replica.broker_epoch

    @rule(broker=BROKERS, tells=st.booleans())
    def crash(self, broker: BrokerId, tells: bool) -> None:
        """The process ends, and what it wrote is there; its directories may show that, or be silent."""
        replica = self.replicas[broker]
        if replica.is_up:
            replica.is_up, replica.stopped_in = False, replica.broker_epoch if tells else None

    @rule(broker=BROKERS)
    def beat(self, broker: BrokerId) -> None:
        """A heartbeat, which lets in who is fenced and has seen its registration."""
        if self.replicas[broker].is_up:
            self._heartbeat(broker)

    @rule(broker=BROKERS)
    def go(self, broker: BrokerId) -> None:
        """A controlled shutdown: once it may, nobody who is there takes it for the leader, unless nobody else could."""
        replica, known = self.replicas[broker], self.controller.metadata.brokers[broker]
        if not replica.is_up:
            return
        led = self.state.leader == broker
        if not self._heartbeat(broker, wants_shut_down=True).should_shut_down:
            return
        if known.in_controlled_shutdown and not known.is_fenced and not led:
            for other in self.controller.metadata.brokers.values():
                heard = self.history[self.replicas[other.broker_id].heard].state
                assert not other.is_active or heard.leader != broker
        self.stop(broker)
        if self.controller.decide_pending_changes().records:
            return  # it was fenced before, and what it leads is about to be another's
        assert self.state.leader != broker
        assert broker not in self.state.isr or not self.knows_eligible

    @rule(broker=BROKERS, keeps=st.integers(0, 2))
    def lose_power(self, broker: BrokerId, keeps: int) -> None:
        """As often as the promise allows."""
        replica = self.replicas[broker]
        if replica.is_up and self.power_losses_left:
            self.power_losses_left -= 1
            replica.is_up, replica.has_lost = False, True
            del replica.log[keeps:]

    @precondition(lambda self: not all(replica.is_up for replica in self.replicas.values()))
    @rule(data=st.data(), is_let_in=st.booleans())
    def restart(self, data: st.DataObject, is_let_in: bool) -> None:
        down = [one for one in self.replicas if not self.replicas[one].is_up]
        self.come_back(data.draw(st.sampled_from(down), label="broker"), is_let_in)

    def come_back(self, broker: BrokerId, is_let_in: bool) -> None:
        replica = self.replicas[broker]
        self._register(broker, replica.stopped_in)
        replica.heard = len(self.history) - 1
        if is_let_in:
            self.fence(broker, is_fenced=False)

    @rule(broker=BROKERS, is_fenced=st.booleans(), is_alone=st.booleans())
    def fence(self, broker: BrokerId, is_fenced: bool, is_alone: bool = False) -> None:
        """The controller loses sight of a broker, or sees it again; what follows comes with it, or later."""
        replica = self.replicas[broker]
        self.controller.settings = ControllerSettings(partition_changes_max=0 if is_alone else 1)
        decide = self.controller.decide_fence_broker if is_fenced else self.controller.decide_unfence_broker
        if is_fenced or replica.is_up:
            self._apply(*decide(broker, self.controller.metadata.brokers[broker].broker_epoch).records)
        self.controller.settings = ControllerSettings()

    @rule()
    def settle(self) -> None:
        """Whoever is the active controller does what is left to do."""
        self._apply(*self.controller.decide_pending_changes().records)
        assert not self.controller.decide_pending_changes().records

    @rule(fewer=st.integers(1, 2))
    def need_fewer(self, fewer: int) -> None:
        """Fewer must be in sync from now on, so less is promised."""
        if fewer < self.min_insync and not any(replica.has_lost for replica in self.replicas.values()):
            self.min_insync, self.power_losses_left = fewer, min(fewer - 1, self.power_losses_left)
            resource = ResourceKey(ResourceType.TOPIC, "t")
            change = ConfigChange("min.insync.replicas", 0, str(fewer))
            self._apply(*self.controller.decide_alter_configs([ConfigsToAlter(resource, [change])]).records)

    @rule(replicas=st.lists(BROKERS, min_size=1, max_size=4, unique=True))
    def reassign(self, replicas: list[BrokerId]) -> None:
        """To brokers in any state, and in whatever the last one left; to no fewer than what is promised takes."""
        if len(replicas) >= self.min_insync:
            assert self._alter_reassignment(tuple(replicas)) is Code.NONE

    @rule()
    def cancel(self) -> None:
        """Back to the replicas before, where those hold enough."""
        before, is_moving = self.state, bool(self.state.adding_replicas or self.state.removing_replicas)
        code = self._alter_reassignment(None)
        assert (code is Code.NO_REASSIGNMENT_IN_PROGRESS) == (not is_moving)
        if code is Code.NONE:
            assert {*self.state.replicas} == {*before.replicas} - {*before.adding_replicas}
            assert not self.state.removing_replicas
        else:
            assert self.state == before

    def _alter_reassignment(self, target: tuple[BrokerId, ...] | None) -> Code:
        asked = PartitionToReassign(TopicPartition("t", FIRST), target)
        decision = self.controller.decide_alter_reassignments([asked])
        self._apply(*decision.records)
        return decision.reply[0].code

    @rule(level=st.sampled_from((22, 23, METADATA_VERSION)))
    def update(self, level: int) -> None:
        """Another level of the metadata; below 23 nobody is eligible but the ISR, and no loss of power is survived."""
        if level < 23 and any(replica.has_lost for replica in self.replicas.values()):
            return
        kind = UpgradeType.UPGRADE if level >= self.level else UpgradeType.UNSAFE_DOWNGRADE
        decision = self.controller.decide_update_features([FeatureToUpdate("metadata.version", level, kind)]).at_once()
        assert [one.code for one in decision.reply] == [Code.NONE]
        self.level = level
        if not self.knows_eligible:
            self.power_losses_left = 0
        self._apply(*decision.records)

    # What must hold.

    @invariant()
    def the_leader_is_in_sync_and_epochs_only_grow(self) -> None:
        before = self.history[0].state
        for heard in self.history:
            state = heard.state
            assert state.leader is None or state.leader in state.isr
            assert not {*state.isr} & {*state.eligible_leader_replicas}
            assert not {*state.eligible_leader_replicas} & {*state.last_known_eligible_leader_replicas}
            assert len(state.isr) < heard.isr_size_min or not state.eligible_leader_replicas
            assert before.leader_epoch <= state.leader_epoch <= before.leader_epoch + 1
            assert before.leader == state.leader or before.leader_epoch < state.leader_epoch
            assert before.partition_epoch <= state.partition_epoch
            assert {*before.replicas} == {*state.replicas} or before.leader_epoch < state.leader_epoch
            before = state

    @invariant()
    def what_moves_is_among_the_replicas(self) -> None:
        state = self.state
        assert len({*state.replicas}) == len(state.replicas)
        assert {*state.isr, *state.eligible_leader_replicas, *state.adding_replicas} <= {*state.replicas}
        assert {*state.removing_replicas} <= {*state.replicas} - {*state.adding_replicas}
        target = {*state.replicas} - {*state.removing_replicas}
        is_moving = state.adding_replicas or state.removing_replicas
        is_there = target <= {*state.isr} and not state.is_recovering
        assert not is_moving or not is_there, "it is there, and nobody says so"

    @invariant()
    def somebody_among_the_replicas_has_all_that_is_committed(self) -> None:
        """Power was lost no more often than the promise allows."""
        logs = [{*self.replicas[broker].log} for broker in self.state.replicas]
        assert any({*self.committed} <= log for log in logs)

    @invariant()
    def who_may_be_elected_has_all_that_is_committed(self) -> None:
        state = self.state
        for broker in (*state.isr, *state.eligible_leader_replicas):
            replica = self.replicas[broker]
            if not replica.has_lost:
                assert {*self.committed} <= {*replica.log}, f"broker {broker} may be elected"

    @invariant()
    def nobody_waits_without_need(self) -> None:
        state, brokers = self.state, self.controller.metadata.brokers
        if self.controller.decide_pending_changes().records:
            return  # it is about to be done
        if state.leader is None:
            assert not any(brokers[broker].is_active for broker in (*state.isr, *state.eligible_leader_replicas))
        else:
            assert not brokers[state.leader].is_fenced
        if self.knows_eligible:
            assert all(brokers[broker].is_active or broker == state.leader for broker in state.isr)
        else:
            assert not state.eligible_leader_replicas

    @property
    def knows_eligible(self) -> bool:
        return self.level >= 23

    @property
    def state(self) -> PartitionImage:
        return self.controller.metadata.topics_by_id[TOPIC].partitions[0]

    def _leads(self, broker: BrokerId) -> bool:
        replica = self.replicas[broker]
        return replica.is_up and self.history[replica.heard].state.leader == broker

    def _leader_of(self, broker: BrokerId) -> BrokerId | None:
        """Whom a broker follows, if that one believes that it leads, in the same leader epoch."""
        replica = self.replicas[broker]
        heard = self.history[replica.heard].state
        if not replica.is_up or broker not in heard.replicas:
            return None
        if heard.leader is None or heard.leader == broker or not self._leads(heard.leader):
            return None
        leads_in = self.history[self.replicas[heard.leader].heard].state.leader_epoch
        return heard.leader if leads_in == heard.leader_epoch else None

    def _heartbeat(self, broker: BrokerId, *, wants_shut_down: bool = False) -> HeartbeatReply:
        replica = self.replicas[broker]
        heartbeat = Heartbeat(
            broker,
            replica.broker_epoch,
            Offset(self.history[replica.heard].end_offset - 1),
            wants_shut_down=wants_shut_down,
        )
        decision = self.controller.decide_heartbeat(
            heartbeat, self.sessions, next_offset=Offset(self.next_offset), now_ms=0
        )
        self._apply(*decision.records)
        return decision.reply

    def _register(self, broker: BrokerId, stopped_in: BrokerEpoch | None) -> None:
        new = BrokerToRegister(
            broker,
            UUID(int=self.next_offset + 1),
            (RegisteredEndpoint("PLAINTEXT", "h", 9092),),
            features=own_features(),
            previous_broker_epoch=stopped_in,
        )
        decision = self.controller.decide_register_broker(new, next_offset=Offset(self.next_offset))
        assert not decision.reply.has_more
        replica = self.replicas.setdefault(broker, Replica(broker, decision.reply.broker_epoch))
        replica.broker_epoch, replica.is_up = decision.reply.broker_epoch, True
        replica.stopped_in, replica.has_lost, replica.proposed = None, False, set()
        self._apply(*decision.records)

    def _apply(self, *records: object) -> None:
        for record in records:
            self.controller.apply(decode_record(encode_record(record)))
        self.next_offset += len(records)
        if self.history and records:
            self._remember()

    def _remember(self) -> None:
        size_min = min(self.min_insync, len(self.state.replicas) - len(self.state.adding_replicas))
        self.history.append(Heard(self.state, size_min, self.next_offset))


def play(min_insync: int, *steps: Callable[[Partition], None]) -> Partition:
    """What is seldom drawn, step by step; what must hold is looked at after each."""
    partition = Partition()
    partition.begin(min_insync)
    for step in steps:
        step(partition)
        partition.the_leader_is_in_sync_and_epochs_only_grow()
        partition.who_may_be_elected_has_all_that_is_committed()
        partition.nobody_waits_without_need()
        partition.what_moves_is_among_the_replicas()
        partition.somebody_among_the_replicas_has_all_that_is_committed()
    return partition


def test_who_lost_its_power_is_not_eligible_though_too_few_are_in_sync() -> None:
    played = play(3, Partition.write, lambda p: p.lose_power(TWO, 0), lambda p: p.come_back(TWO, is_let_in=True))
    assert played.state.eligible_leader_replicas == ()
    assert played.state.last_known_eligible_leader_replicas == (TWO,)


def test_a_request_that_was_overtaken_brings_nobody_back() -> None:
    played = play(
        2,
        lambda p: p.propose(ONE, THREE),
        lambda p: p.fence(TWO, True),
        Partition.write,
        lambda p: p.fence(TWO, False),
        lambda p: p.alter(0),
    )
    assert played.state.isr == (ONE, THREE)
    assert played.committed


def test_what_an_incarnation_proved_does_not_let_the_next_one_join() -> None:
    played = play(
        2,
        Partition.write,
        lambda p: p.fence(TWO, True),
        lambda p: p.fence(TWO, False),
        Partition.all_hear,
        lambda p: p.propose(ONE, TWO),
        lambda p: p.lose_power(TWO, 0),
        lambda p: p.come_back(TWO, is_let_in=True),
        lambda p: p.alter(0),
    )
    assert played.state.isr == (ONE, THREE)


def test_those_that_come_do_not_hold_alone_what_was_acknowledged() -> None:
    played = play(
        2,
        lambda p: p.fence(TWO, True),
        Partition.write,
        lambda p: p.reassign([TWO, FOUR]),
        lambda p: p.alter_now(FOUR),
        lambda p: p.lose_power(FOUR, 0),
    )
    assert played.state.removing_replicas == (ONE, THREE)


def test_a_cancel_does_not_drop_what_the_others_do_not_have() -> None:
    played = play(
        2,
        lambda p: p.fence(THREE, True),
        lambda p: p.reassign([FOUR, THREE]),
        lambda p: p.alter_now(FOUR),
        lambda p: p.fence(TWO, True),
        Partition.write,
        Partition.cancel,
        lambda p: p.lose_power(ONE, 0),
    )
    assert played.state.adding_replicas == (FOUR,)


TestPartition = Partition.TestCase
TestPartition.settings = settings(stateful_step_count=40, report_multiple_bugs=False)
