"""A broker that is told to stop its replica of one partition: reassignments, deletions, topics that are made again.

Every StopReplica that was ever pushed lies in the network, and may arrive at any time, and again. What the controller
decided is a history, which the broker hears in its order, when it does. Adding a replica, removing it, deleting a topic
and making one of its name are all that the controller does here, apart from taking a replica that is there into
the ISR.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from support.exhaustive.small_world_parts import Numbers
from support.exhaustive.small_world_search import Found, State
from support.old_rules.stop_rules import Stopping
from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionEpoch, PartitionIndex, TopicId, TopicPartition
from tidelog.controller.partition_changes import with_replicas
from tidelog.metadata import PartitionImage
from tidelog.metadata.image import MetadataImage, TopicImage
from tidelog.replica import HeldReplica, ReplicaId, StopOrder, StoppedReplicas

US, OTHER = BrokerId(1), BrokerId(2)
PARTITION = TopicPartition("small", PartitionIndex(0))


@dataclass(frozen=True)
class StopBounds:
    """How small.

    Attributes:
        changes: that the controller decides.
        topics: of that name, one after the other.
        crashes: of the broker, whose logs stay.
        is_tagged: whether orders tell the topic id and the offset of the metadata that they follow from.
        is_haste_harmless: whether a log may go before the broker has heard why, as it might before KIP-570.
    """

    changes: int = 6
    topics: int = 3
    crashes: int = 1
    is_tagged: bool = True
    is_haste_harmless: bool = False


class Change(NamedTuple):
    """One place of the controller's history: what is the case from there on.

    Attributes:
        topic: which one of that name, from 1; 0 while there is none.
        order: what was pushed on account of it, if anything was.
    """

    topic: int
    state: PartitionImage | None
    order: StopOrder | None = None
    does: str = ""


History = tuple[Change, ...]


class StopWorld:
    """All that may happen, in any state, with one kind of replicas.

    A state: the history, how much of it was heard, the topic whose log is there (0: none), the machine, crashes, and
    whether something is broken.
    """

    def __init__(self, bounds: StopBounds, stopping: Callable[[BrokerId], Stopping] = StoppedReplicas) -> None:
        self._bounds = bounds
        self._stopping = stopping
        self.histories: Numbers[History] = Numbers()
        self.machines: list[Stopping] = []
        self._numbers: dict[object, int] = {}
        self._faults: Numbers[str] = Numbers()
        both = (US, OTHER)
        state = PartitionImage(both, both, OTHER, LeaderEpoch(0), PartitionEpoch(0))
        fine = self._faults.of("")
        first = self.histories.of((Change(1, state),))
        self.initial: State = (first, 0, 1, self._freeze(stopping(US)), 0, fine)

    def broken(self, state: State) -> str:
        """What does not hold, beginning with the name of the invariant; empty if all does."""
        return self._faults.values[state[5]]

    def successors(self, state: State) -> Found:
        history_number, applied, held, machine, crashes, fault = state
        history = self.histories.values[history_number]
        found: Found = []
        if len(history) <= self._bounds.changes:
            for change in self._changes(history, applied, held):
                number = self.histories.of((*history, change))
                found.append(((change.does,), (number, applied, held, machine, crashes, fault)))
        if applied + 1 < len(history):
            found.append((("learn", US), self._learn(state, history, applied + 1)))
        for at, change in enumerate(history):
            if change.order is not None and held:
                found.append((("stop", at), self._arrive(state, history, change.order)))
        if crashes < self._bounds.crashes:
            begun = self._freeze(self._stopping(US))
            found.append((("restart", US), (history_number, applied, held, begun, crashes + 1, fault)))
        return found

    # The controller.

    def _changes(self, history: History, applied: int, held: int) -> list[Change]:
        topic, state = history[-1].topic, history[-1].state
        if state is None:
            made = max(change.topic for change in history) + 1
            if made > self._bounds.topics:
                return []
            both = (US, OTHER)
            return [Change(made, PartitionImage(both, both, OTHER, LeaderEpoch(0), PartitionEpoch(0)), None, "create")]
        changes = [Change(0, None, self._order(topic, None, len(history)), "delete")]
        if US in state.replicas:
            removed = _with_replicas(state, (OTHER,))
            changes.append(Change(topic, removed, self._order(topic, removed.leader_epoch, len(history)), "remove"))
            heard = history[applied]
            is_here = held == topic and heard.topic == topic and heard.state is not None
            is_current = heard.state is not None and heard.state.leader_epoch == state.leader_epoch
            if US not in state.isr and is_here and is_current:
                changes.append(Change(topic, _joined(state), None, "join"))
        else:
            changes.append(Change(topic, _with_replicas(state, (US, OTHER)), None, "add"))
        return changes

    def _order(self, topic: int, leader_epoch: LeaderEpoch | None, offset: int) -> StopOrder:
        is_tagged = self._bounds.is_tagged
        return StopOrder(
            PARTITION,
            _topic_id(topic) if is_tagged else None,
            leader_epoch,
            True,
            Offset(offset) if is_tagged else None,
        )

    # The broker.

    def _learn(self, state: State, history: History, applied: int) -> State:
        number, _, held, frozen, crashes, fault = state
        machine = self.machines[frozen].clone()
        image = _image(history[applied], applied)
        machine.on_image(image)
        left = self._do(machine, held)
        assigned = _assigned(history[applied])
        gone = [topic for topic in (held,) if topic != left] if held else []
        if left and left != assigned:
            gone.append(left)  # the metadata says so, be there an order or not
            left = 0
        after = assigned or left
        return (number, applied, after, self._freeze(machine), crashes, self._check(fault, gone, history, applied))

    def _arrive(self, state: State, history: History, order: StopOrder) -> State:
        number, applied, held, frozen, crashes, fault = state
        machine = self.machines[frozen].clone()
        heard = history[applied]
        known = heard.state.leader_epoch if heard.state is not None and heard.topic == held else None
        try:
            machine.on_order(order, HeldReplica(_topic_id(held), known), _image(heard, applied))
        except KafkaError:
            return state
        left = self._do(machine, held)
        gone = [held] if left != held else []
        return (number, applied, left, self._freeze(machine), crashes, self._check(fault, gone, history, applied))

    def _do(self, machine: Stopping, held: int) -> int:
        """What the machine says is owed. Returns the topic whose log is left."""
        ready = machine.take_ready()
        return 0 if ReplicaId(_topic_id(held), PARTITION.partition) in ready.delete else held

    def _check(self, fault: int, gone: list[int], history: History, applied: int) -> int:
        """No log is gone that what was heard assigns here, nor one that is in sync as the controller has it."""
        for topic in gone:
            heard, latest = history[applied], history[-1]
            if _assigned(heard) == topic and not self._bounds.is_haste_harmless:
                return self._faults.of("StoppedMeansStopped: A deleted what the metadata assigns to it")
            if latest.topic == topic and latest.state is not None and US in latest.state.isr:
                return self._faults.of("StoppedMeansStopped: A deleted what it is in sync of")
        return fault

    def _freeze(self, machine: Stopping) -> int:
        number = self._numbers.get(machine.canonical_key())
        if number is None:
            number = self._numbers[machine.canonical_key()] = len(self.machines)
            self.machines.append(machine)
        return number


def _topic_id(topic: int) -> TopicId:
    return TopicId(UUID(int=topic))


def _assigned(change: Change) -> int:
    """The topic whose log belongs here; 0 for none."""
    return change.topic if change.state is not None and US in change.state.replicas else 0


@lru_cache(maxsize=10_000)
def _image(change: Change, offset: int) -> MetadataImage:
    if change.state is None:
        return MetadataImage(last_offset=Offset(offset))
    topic = TopicImage(PARTITION.topic, _topic_id(change.topic), (change.state,))
    return MetadataImage({topic.name: topic}, {topic.topic_id: topic}, last_offset=Offset(offset))


def _with_replicas(state: PartitionImage, replicas: tuple[BrokerId, ...]) -> PartitionImage:
    return with_replicas(state, replicas, min_insync_replicas=1, is_active=lambda _: True)


def _joined(state: PartitionImage) -> PartitionImage:
    return PartitionImage(
        state.replicas, state.replicas, state.leader, state.leader_epoch, PartitionEpoch(state.partition_epoch + 1)
    )
