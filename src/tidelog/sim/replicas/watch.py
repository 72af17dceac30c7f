"""An observer looks at all replicas after every step, keeps what clients were told, and says what is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Protocol

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, TopicId
from tidelog.client.core.values import PositionReset
from tidelog.metadata.image import MetadataImage, PartitionImage
from tidelog.replica import ReplicaId
from tidelog.sim.checkers.findings import Findings
from tidelog.sim.checkers.history import PartitionHistory, is_unclean
from tidelog.sim.checkers.partition import PartitionCheckers
from tidelog.sim.checkers.promises import AckedRecordsSurvive, what_is_wrong_with_acknowledged
from tidelog.sim.checkers.readers import NoSilentLoss
from tidelog.sim.checkers.stopping import BrokerView, StoppedMeansStopped
from tidelog.sim.checkers.views import PartitionView, ReplicaView
from tidelog.sim.replicas.broker import Broker
from tidelog.sim.replicas.messages import PARTITION
from tidelog.sim.replicas.picture import LogPicture
from tidelog.sim.replicas.plan import Plan


class Watched(Protocol):
    """The world."""

    @property
    def latest(self) -> MetadataImage: ...
    @property
    def brokers(self) -> Mapping[BrokerId, Broker]: ...
    def image_at(self, number: int) -> MetadataImage: ...


class WatchedPartition:
    """One partition, for as long as its topic exists."""

    def __init__(self, plan: Plan, checks: Counter[str]) -> None:
        self.history = PartitionHistory(None if plan.is_synced else plan.min_insync_replicas - 1)
        self.checkers = PartitionCheckers(self.history, checks)
        self.readers = NoSilentLoss(self.checkers.prefixes.before)


class Watch(Findings):
    """See the module.

    Attributes:
        facts: what happened, counted.
        is_touched: whether there is something to look at after this step.
        are_logs_touched: whether a broker may have made, stopped or deleted one.
    """

    def __init__(self, plan: Plan, world: Watched) -> None:
        super().__init__()
        self.facts: Counter[str] = Counter()
        self.is_touched = False
        self.are_logs_touched = False
        self._plan = plan
        self._world = world
        self._partitions: dict[ReplicaId, WatchedPartition] = {}
        self._pictures: dict[tuple[BrokerId, ReplicaId], LogPicture] = {}
        self._added: dict[tuple[BrokerId, ReplicaId], LeaderEpoch] = {}  # in which leader epoch, if not at first
        self._stopping = StoppedMeansStopped()

    def partition(self, name: ReplicaId) -> WatchedPartition:
        """What is known of one; None of it, at first."""
        if name not in self._partitions:
            self._partitions[name] = WatchedPartition(self._plan, self.checks)
        return self._partitions[name]

    def picture(self, broker: BrokerId, name: ReplicaId) -> LogPicture:
        """Of the log of one replica."""
        return self._pictures.setdefault((broker, name), LogPicture())

    # What happens.

    def on_decided(self, before: MetadataImage, after: MetadataImage) -> None:
        """The controller committed something."""
        self.is_touched = self.are_logs_touched = True
        for topic_id, topic in after.topics_by_id.items():
            known = before.topics_by_id.get(topic_id)
            if known is topic or known is None:
                continue
            name, was, state = ReplicaId(topic_id, PARTITION), known.partitions[PARTITION], topic.partitions[PARTITION]
            for broker in set(state.replicas) - set(was.replicas):
                self._added[broker, name] = state.leader_epoch
            if is_unclean(was, state):
                self.facts["unclean election"] += 1
                self.partition(name).history.on_unclean_election(state.leader_epoch)
        for name in [name for name in self._partitions if name.topic_id not in after.topics_by_id]:
            if name.topic_id in before.topics_by_id:
                del self._partitions[name]

    def on_power_lost(self, broker: BrokerId, *, is_disk_lost: bool = False) -> None:
        """Of one broker."""
        for topic_id, topic in self._world.latest.topics_by_id.items():
            if broker in topic.partitions[PARTITION].replicas:
                self.partition(ReplicaId(topic_id, PARTITION)).history.on_power_lost(broker)
        if is_disk_lost:
            self._stopping.on_disk_lost(broker)
            for (holder, _), picture in self._pictures.items():
                if holder == broker:
                    picture.restart()

    def doubtful_in(self, topic_id: TopicId, state: PartitionImage) -> int:
        """How many of a partition's replicas have lost power and not won their seats back yet."""
        history = self.partition(ReplicaId(topic_id, PARTITION)).history
        return sum(history.is_doubtful(broker) for broker in state.replicas)

    def is_doubtful(self, topic_id: TopicId, broker: BrokerId) -> bool:
        """Whether one replica is among those."""
        return self.partition(ReplicaId(topic_id, PARTITION)).history.is_doubtful(broker)

    # What clients are told.

    def on_acknowledged(self, name: ReplicaId, values: tuple[str, ...], offset: Offset, acks: int) -> None:
        """A producer with acks=all was told that its records are committed."""
        self.facts["batch acknowledged"] += 1
        self.check()
        found = self._partitions.get(name)
        if acks != -1 or found is None or self._world.latest.topic_by_id(name.topic_id) is None:
            return
        for place, value in enumerate(values, start=offset):
            what = what_is_wrong_with_acknowledged(found.history, place, value, partial(self._replicas, name))
            self.expect(what is None, AckedRecordsSurvive.name, what or "")

    def _replicas(self, name: ReplicaId) -> Iterable[ReplicaView]:
        topic = self._world.latest.topic_by_id(name.topic_id)
        return () if topic is None else self.view(name, topic.partitions[name.partition]).replicas.values()

    def on_given(self, reader: str, name: ReplicaId, offset: int, leader_epoch: LeaderEpoch, value: str) -> None:
        """A consumer was given a record."""
        self.facts["record delivered"] += 1
        if self._world.latest.topic_by_id(name.topic_id) is not None:
            found = self.partition(name).readers.on_given(reader, offset, (leader_epoch, value))
            self.note([NoSilentLoss.name], found)

    def on_told(self, reader: str, name: ReplicaId, reset: PositionReset) -> None:
        """A consumer was told that what it stood on is gone."""
        self.facts[f"reader told: {reset.reason.value}"] += 1
        self.partition(name).readers.on_told(reader, reset.divergent_offset, reset.new_offset)

    def on_stuck(self, reader: str, error: Exception) -> None:
        """A consumer gave up, which none of them has a reason to."""
        self.expect(False, "Progress", f"{reader} reads no more: {error}")

    def on_fact(self, kind: str) -> None:
        """Something worth counting."""
        self.facts[kind] += 1

    # Looking.

    def after_step(self) -> None:
        if self.is_touched:
            self.check()

    def check(self) -> None:
        """Look at everything."""
        self.is_touched = False
        latest = self._world.latest
        for topic_id, topic in latest.topics_by_id.items():
            name = ReplicaId(topic_id, PARTITION)
            self.note((), self.partition(name).checkers.check(self.view(name, topic.partitions[PARTITION])))
        if self.are_logs_touched:
            self.are_logs_touched = False
            running = [broker for broker in self._world.brokers.values() if broker.is_registered and broker.is_running]
            found = self._stopping.check([self._broker_view(broker) for broker in running], latest)
            self.note([StoppedMeansStopped.name], found)

    def view(self, name: ReplicaId, state: PartitionImage) -> PartitionView:
        """All replicas of a partition, as they are now."""
        views: dict[BrokerId, ReplicaView] = {}
        for broker in dict.fromkeys((*state.replicas, *self._world.brokers)):
            process = self._world.brokers.get(broker)
            replica = None if process is None or not process.is_running else process.replicas.get(name)
            if broker not in state.replicas and (replica is None or replica.leader is None):
                continue  # who was removed, and leads because it has not heard of it, still commits
            if replica is not None and not replica.is_stopped and replica.log.failure is None:
                views[broker] = self._without_strangers(name, replica.view())
            else:
                picture = self._pictures.get((broker, name))
                if picture is not None:
                    views[broker] = _down(broker, picture)
        return PartitionView(state, views)

    def _without_strangers(self, name: ReplicaId, view: ReplicaView) -> ReplicaView:
        """A leader that is behind may presume in sync a replica that was removed: the one that was added since, on the
        same broker, is another, and no concern of that leader.
        """
        epoch = view.leader_epoch
        strangers = [
            broker
            for broker in view.isr
            if epoch is not None and self._added.get((broker, name), LeaderEpoch(0)) > epoch
        ]
        return view._replace(isr=view.isr.difference(strangers)) if strangers else view

    def check_settled(self) -> None:
        """All is healed, and read to its end."""
        self.check()
        for name, found in self._partitions.items():
            topic = self._world.latest.topic_by_id(name.topic_id)
            if topic is None:
                continue
            state = topic.partitions[name.partition]
            leader = None if state.leader is None else self.view(name, state).replicas.get(state.leader)
            if leader is not None:
                self.note([NoSilentLoss.name], found.readers.check_settled(leader.log_start_offset, leader.records))

    def _broker_view(self, broker: Broker) -> BrokerView:
        held = frozenset(broker.logs_on_disk())
        serving = frozenset(name for name, each in broker.replicas.items() if not each.is_stopped)
        stopped = frozenset(log for log in held if broker.is_told_to_stop(log))
        return BrokerView(broker.broker_id, held, stopped, serving, self._world.image_at(broker.applied_number))


def _down(broker: BrokerId, picture: LogPicture) -> ReplicaView:
    """Of a broker that does not run, or has not come so far yet."""
    return ReplicaView(
        broker, False, False, None, picture.log_start_offset, picture.records, (), picture.log_start_offset
    )
