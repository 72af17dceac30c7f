"""A recorder sees all nodes of a cluster and their clients from outside, and says what must hold and does not.

After every step it looks at what that step may have changed. What the metadata says is taken from the committed part of
its log, what replicas hold from their disks, and only who leads, and what it takes for committed, from the nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from tidelog.base.ids import BrokerId, Offset, PartitionIndex, TopicPartition
from tidelog.base.losses import LossId
from tidelog.base.ports import Buffer
from tidelog.log.directory import parse_directory_name
from tidelog.log.files.checkpoint import parse_partition_metadata
from tidelog.log.recovery import PARTITION_METADATA_FILE
from tidelog.metadata.image import MetadataImage, PartitionImage, TopicImage
from tidelog.replica import ReplicaId
from tidelog.server.broker.broker import Broker
from tidelog.server.node import Node
from tidelog.sim.checkers.history import PartitionHistory, is_unclean
from tidelog.sim.checkers.in_sync import LeaderInIsr
from tidelog.sim.checkers.losses import LossesAreAccounted, SeenRecords, awaited, without_entry
from tidelog.sim.checkers.metadata_log import BegunWrite, CheckedMetadataLog
from tidelog.sim.checkers.metadata_reads import MetadataReads
from tidelog.sim.checkers.partition import PartitionCheckers
from tidelog.sim.checkers.promises import AckedRecordsSurvive, what_is_wrong_with_acknowledged
from tidelog.sim.checkers.quorum import QuorumCheckers
from tidelog.sim.checkers.readers import NoSilentLoss
from tidelog.sim.checkers.stopping import StoppedMeansStopped, what_is_wrong_with_deleting
from tidelog.sim.checkers.transactional_logs import LastStableOffsetIsStable, TransactionalView
from tidelog.sim.checkers.views import PartitionView, Record, ReplicaView
from tidelog.sim.node import LOGS, SimulatedNode
from tidelog.sim.runs.client_recorder import ClientRecorder, WatchedPartition
from tidelog.sim.runs.cluster_plan import OFFSETS, ClusterPlan
from tidelog.sim.runs.cluster_views import (
    METADATA_DIRECTORY,
    METADATA_NAME,
    hosted,
    is_registered,
    partition_view,
    quorum_view,
)
from tidelog.sim.runs.stored import StoredRecords
from tidelog.sim.world.disk import OnChange
from tidelog.sim.world.process import Process


class ClusterPartition(WatchedPartition):
    """What is known of one partition, and of each replica of it."""

    def __init__(
        self,
        name: TopicPartition,
        nodes: Mapping[BrokerId, SimulatedNode],
        losses_max: int | None,
        made: Counter[str],
        *,
        is_transactional: bool = False,
    ) -> None:
        self.name = name
        self.last_stable = LastStableOffsetIsStable() if is_transactional else None
        self.stored = {node_id: StoredRecords(node.machine.disk, f"logs/{name}") for node_id, node in nodes.items()}
        self.history = PartitionHistory(losses_max)
        self.checkers = PartitionCheckers(self.history, made)
        self.unique = self.checkers.unique
        self.readers = NoSilentLoss(self.checkers.prefixes.before)
        self.seen = SeenRecords()
        self.cutting: set[BrokerId] = set()  # whose processes remove records since the last look
        self.is_rotten = False
        self.is_touched = True
        self.touched = set(nodes)
        self.state: PartitionImage | None = None
        self.said: dict[BrokerId, object] = {}  # of its replica, by the node itself
        self._nodes = nodes

    def view(self, latest: MetadataImage) -> PartitionView | None:
        """All replicas, as they are now; None while the metadata does not know of it."""
        if self.state is None:
            return None
        for node_id in sorted(self.touched):
            stored = self.stored[node_id]
            begin, before = stored.read()
            now = stored.records[begin - stored.start_offset :]
            self.seen.on_read(node_id, begin, before, now, is_cut=node_id in self.cutting)
        self.touched.clear()
        self.cutting.clear()
        return partition_view(self.name, self.state, self._nodes, self.stored, latest)

    def on_change(self, node_id: BrokerId, operation: str, path: str) -> None:
        """The disk of a node is about to change, and the log perhaps with it."""
        if not path.startswith(f"{LOGS}/{self.name}/"):
            self.seen.on_notes_lost(node_id)  # the directory comes or goes
        elif not operation.startswith("write") and hosted(self._nodes[node_id], self.name) is not None:
            self.cutting.add(node_id)

    def to_be_read(self) -> Sequence[Record] | None:
        leader = self.leader()
        return None if leader is None else leader.records

    def leader(self) -> StoredRecords | None:
        """What the leader has; None while nobody leads."""
        leader = None if self.state is None else self.state.leader
        if leader is None:
            return None
        replica = hosted(self._nodes[leader], self.name)
        return None if replica is None or replica.replica is None else self.stored[leader]

    def transactional_views(self) -> Iterator[TransactionalView]:
        """Of each that leads, or believes so, of what `view` has read."""
        for node_id in () if self.state is None else self.state.replicas:
            replica, stored = hosted(self._nodes[node_id], self.name), self.stored[node_id]
            if replica is not None and replica.replica is not None:
                stable = replica.last_stable_offset
                yield TransactionalView(node_id, stored.transactional, stored.readings, replica.high_watermark, stable)


class OfOneNode:
    """What becomes of one of the nodes, told to the witness of all."""

    def __init__(self, cluster: ClusterRecorder, node_id: BrokerId) -> None:
        self._cluster = cluster
        self._node_id = node_id

    def on_serving(self) -> None:
        self._cluster.on_process_changed(self._node_id)

    def before_end(self, *, without_power: bool) -> None:
        self._cluster.before_end(self._node_id, without_power=without_power)

    def after_end(self) -> None:
        self._cluster.after_end(self._node_id)

    def on_rotten(self, partition: TopicPartition) -> None:
        """A replica that rots is one that lost what it had: it was told already."""

    def is_rotten(self, partition: TopicPartition) -> bool:
        return False

    def expect(self, holds: bool, invariant: str, what: str) -> None:
        self._cluster.expect(holds, invariant, what)


class ClusterRecorder(ClientRecorder):
    """See the module.

    Args:
        nodes: all of them, none started yet.
        stepped: the process whose step was the last.

    Attributes:
        metadata: what is committed of it, and what it comes to.
        facts: what happened, counted.
        listeners: are told of each node that took a step, while it runs.
    """

    def __init__(
        self, plan: ClusterPlan, nodes: Mapping[BrokerId, SimulatedNode], stepped: Callable[[], Process | None]
    ) -> None:
        super().__init__()
        self._stepped = stepped
        self.metadata = CheckedMetadataLog()
        self.facts: Counter[str] = Counter()
        self.latest = MetadataImage.empty()
        self._plan = plan
        self._nodes = nodes
        self._quorum = QuorumCheckers(plan.voter_ids)
        self._metadata_logs = {
            node_id: StoredRecords(node.machine.disk, METADATA_DIRECTORY) for node_id, node in nodes.items()
        }
        self._partitions: dict[TopicPartition, ClusterPartition] = {}
        self._by_directory: dict[str, ClusterPartition] = {}
        self._unwatched: dict[TopicPartition, PartitionHistory] = {}
        self._unclean: dict[TopicPartition, list[Offset]] = {}  # which metadata each election was
        self._unclean_epochs: list[LossId] = []  # that were committed since the last look at the account
        self._doubted: set[TopicPartition] = set()
        self._powerless: set[BrokerId] = set()  # some time or other
        self._is_quorum_touched = True
        self._touched_logs = set(nodes)
        self._quorum_seen: dict[BrokerId, object] = {}
        self._stepping: dict[Process, tuple[BrokerId, SimulatedNode] | None] = {}  # whose process each is
        self._images: dict[BrokerId, tuple[Node, MetadataImage]] = {}
        self._topics_seen: dict[str, TopicImage] = {}
        self.listeners: list[Callable[[BrokerId, Node], None]] = []
        self.keep_promises_of([OFFSETS])
        for node_id, node in nodes.items():
            disk = node.machine.disk
            disk.on_change = partial(self._on_change, node_id, disk.on_change)

    @property
    def watched(self) -> Mapping[TopicPartition, ClusterPartition]:
        return self._partitions

    def watch(self, partition: TopicPartition, *, is_transactional: bool = False) -> None:
        if partition not in self._partitions:
            losses_max = self._plan.power_losses_max
            known = ClusterPartition(partition, self._nodes, losses_max, self.checks, is_transactional=is_transactional)
            self._partitions[partition] = self._by_directory[str(partition)] = known
            self._on_metadata(self.latest)

    def keep_promises_of(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions that nobody looks at, whose records are to survive all the same."""
        for partition in partitions:
            self._unwatched[partition] = PartitionHistory(self._plan.clients.min_insync_replicas - 1)

    def unclean_elections(self, partition: TopicPartition) -> int:
        """How many there were."""
        return len(self._unclean.get(partition, ()))

    def unclean_elections_known(self, partition: TopicPartition) -> int:
        """How many of them every broker that runs has heard of."""
        images = (node.node.broker.image for node in self._nodes.values() if node.node is not None)
        known = min((-1 if image.last_offset is None else image.last_offset for image in images), default=-1)
        return sum(offset <= known for offset in self._unclean.get(partition, ()))

    def keeps(self, partition: TopicPartition) -> bool:
        """Whether all that was ever promised there must still be there."""
        watched = self._partitions.get(partition)
        if watched is not None and watched.history.ended:
            return False
        return partition not in self._unclean and partition not in self._doubted

    # What happens to nodes.

    def of(self, node_id: BrokerId) -> OfOneNode:
        """Who is told what becomes of one of them."""
        return OfOneNode(self, node_id)

    def on_process_changed(self, node_id: BrokerId) -> None:
        """It began to serve, or is no more."""
        self._is_quorum_touched = True
        self._touched_logs.add(node_id)
        for known in self._partitions.values():
            known.is_touched = True

    def before_end(self, node_id: BrokerId, *, without_power: bool) -> None:
        """Its process is about to be gone."""
        self.look_at_all()
        self.on_process_changed(node_id)
        self.metadata.on_changed(node_id, 0)
        if without_power:
            self._on_power_lost(node_id)

    def before_disk_lost(self, node_id: BrokerId) -> None:
        """As a loss of power, and nothing of what it had will be there."""
        self.before_end(node_id, without_power=True)
        self._quorum.on_log_lost(node_id)
        self._quorum.on_votes_lost(node_id)
        for known in self._partitions.values():
            known.seen.on_notes_lost(node_id)

    def before_metadata_lost(self, node_id: BrokerId, *, is_log_lost: bool, are_votes_lost: bool) -> None:
        """It has ended, and its metadata log, or what it voted, is about to go."""
        self.look_at_all()
        if is_log_lost:
            self._quorum.on_log_lost(node_id)
        if are_votes_lost:
            self._quorum.on_votes_lost(node_id)

    def may_lose_log(self, node_id: BrokerId, partition: TopicPartition) -> bool:
        """Whether the run allows the loss of one replica of a partition more."""
        known = self._partitions.get(partition)
        if known is None or known.state is None or node_id not in known.state.replicas:
            return False
        if self._plan.allows_unclean:
            return True
        doubtful = {each for each in known.state.replicas if known.history.is_doubtful(each)} | {node_id}
        may_lead = {*known.state.isr, *known.state.eligible_leader_replicas}
        return len(doubtful) < self._plan.clients.min_insync_replicas and not may_lead <= doubtful

    def before_log_lost(self, node_id: BrokerId, partition: TopicPartition) -> None:
        """It has ended, and its log of one partition is about to go."""
        self.look_at_all()
        self._partitions[partition].history.on_power_lost(node_id)
        self._partitions[partition].seen.on_notes_lost(node_id)

    def after_end(self, node_id: BrokerId) -> None:
        """Its process is gone, and its disk may be another than it was."""
        self.on_process_changed(node_id)
        self._touched_logs.add(node_id)
        self._metadata_logs[node_id].forget()
        for known in self._partitions.values():
            known.stored[node_id].forget()
            known.touched.add(node_id)
            known.is_touched = True

    def _on_power_lost(self, node_id: BrokerId) -> None:
        self._powerless.add(node_id)
        for history, state in self._histories():
            if node_id in state.replicas:
                history.on_power_lost(node_id)
        self._check_doubts()

    def may_lose_power(self, node_id: BrokerId, *, is_disk: bool = False) -> bool:
        """Whether the run allows one loss more at a time.

        Brokers of which the controller does not know yet that they lost something count for every partition: it may
        still place a new topic on them.
        """
        if self._plan.allows_unclean and not is_disk:
            return True
        unknown = {each for each in self._powerless if not self._is_known(each)} | {node_id}
        if len(unknown) >= self._plan.clients.min_insync_replicas:
            return False
        for history, state in self._histories():
            if node_id in state.replicas:
                doubtful = {each for each in self._nodes if history.is_doubtful(each)} | {node_id}
                if len(doubtful) >= self._plan.clients.min_insync_replicas:
                    return False
        return all(
            node_id not in state.replicas or not unknown.issuperset((*state.isr, *state.eligible_leader_replicas))
            for topic in self.latest.topics_by_name.values()
            for state in topic.partitions
        )

    def _histories(self) -> list[tuple[PartitionHistory, PartitionImage]]:
        """Of all partitions in which something is promised."""
        found = [(known.history, known.state) for known in self._partitions.values() if known.state is not None]
        for partition, history in self._unwatched.items():
            state = self.latest.partition(partition.topic, partition.partition)
            if state is not None:
                found.append((history, state))
        return found

    def _check_doubts(self) -> None:
        """Once too many have lost power, what groups committed may be gone, and what else nobody looks at."""
        for partition, history in self._unwatched.items():
            state = self.latest.partition(partition.topic, partition.partition)
            if state is not None:
                doubtful = sum(history.is_doubtful(each) for each in state.replicas)
                if doubtful >= self._plan.clients.min_insync_replicas:
                    self._on_doubted(partition)

    def _on_doubted(self, partition: TopicPartition) -> None:
        self._doubted.add(partition)
        if partition == OFFSETS:
            self.keeps_all = False

    # What clients are told.

    def on_acknowledged(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        self.facts["record acknowledged"] += 1
        self.look(partition)
        known = self._partitions[partition]
        replicas, lost = partial(self._replicas, known), partial(known.seen.who_lost, offset)
        what = what_is_wrong_with_acknowledged(known.history, offset, value, replicas, lost)
        self.expect(what is None, AckedRecordsSurvive.name, f"{partition}: {what}")

    def _replicas(self, known: ClusterPartition) -> Sequence[ReplicaView]:
        view = known.view(self.latest)
        return () if view is None else tuple(view.replicas.values())

    def on_asked(self, operation: str, name: str) -> BegunWrite:
        self._look_at_quorum()
        return self.metadata.begin(operation, name)

    def on_done(self, operation: str, name: str, begun: object) -> None:
        assert isinstance(begun, BegunWrite)
        self._look_at_quorum()
        self.note([CheckedMetadataLog.is_linear], self.metadata.check_done(begun))

    # What is checked.

    def after_step(self) -> None:
        self._notice()
        if self._is_quorum_touched:
            self._look_at_quorum()
        for known in self._partitions.values():
            if known.is_touched:
                self._check(known)

    def look(self, partition: TopicPartition) -> None:
        self._look_at_quorum()
        self._check(self._partitions[partition])

    def look_at_all(self) -> None:
        """Take in everything that may have changed."""
        self._look_at_quorum()
        for known in self._partitions.values():
            self._check(known)

    def replicas_differ(self) -> str | None:
        """Which replica has not what its leader has, if all is healed; None if all are equal."""
        for partition, known in self._partitions.items():
            view = known.view(self.latest)
            leader = None if view is None or view.state.leader is None else view.replicas[view.state.leader]
            if view is None or leader is None or not leader.leads:
                return f"nobody leads {partition}"
            if leader.high_watermark < leader.log_end_offset:
                return f"not all of {partition} is committed"
            for replica in view.replicas.values():
                if (replica.log_start_offset, replica.records) != (leader.log_start_offset, leader.records):
                    return f"{replica.called} has not what {leader.called} has, the leader of {partition}"
        return None

    def awaited(self) -> str | None:
        """Which entries of the account of losses await somebody; None for none."""
        return "; ".join(awaited(self.latest)) or None

    def check_account(self) -> None:
        """All is healed: the account has what was lost, and nothing else."""
        what = self.awaited()
        self.expect(what is None, LossesAreAccounted.name, f"all is healed, and {what}")
        for partition, known in self._partitions.items():
            view = known.view(self.latest)
            topic = self.latest.topic(partition.topic)
            if view is None or topic is None:
                continue
            losses = [
                loss
                for loss in self.latest.losses.values()
                if (loss.topic_id, loss.partition) == (topic.topic_id, partition.partition)
            ]
            self.facts["record that a loss names"] += sum(row.cut_count for loss in losses for row in loss.cut)
            found = LossesAreAccounted(known.seen).check(view, known.history, losses)
            self.note_of(partition, LossesAreAccounted.name, found)

    def _notice(self) -> None:
        """What the node that took the step says of itself may have changed without a change of any disk."""
        stepped = self._stepped()
        if stepped is None:
            return
        known = self._stepping.get(stepped, ...)
        if known is ...:
            running = (each for each in self._nodes.items() if each[1].machine.runs(stepped))
            known = self._stepping[stepped] = next(running, None)
        if known is not None:
            node_id, node = known
            if node.node is not None and node.machine.runs(stepped):
                self._listen(node_id, node.node)

    def _listen(self, node_id: BrokerId, process: Node) -> None:
        if process.member is not None:
            quorum = process.member.quorum
            seen = (quorum.leader_epoch, quorum.leader_id, quorum.is_leader, quorum.high_watermark)
            if self._quorum_seen.get(node_id) != seen:
                self._quorum_seen[node_id] = seen
                self._is_quorum_touched = True
        for listener in self.listeners:
            listener(node_id, process)
        broker = process.broker
        before = self._images.get(node_id)
        if before is None or broker.image is not before[1]:
            self._check_image(node_id, process, broker.image)
        if broker.stops.stopped:
            self._check_stopped(node_id, broker)
        for partition, known in self._partitions.items():
            replica = broker.replica_of(partition)
            if replica is None:
                continue
            role = replica.role
            leader = role.leader_replica
            isr = None if leader is None else leader.isr
            said = (leader, role.leader_epoch, role.high_watermark, isr)
            if known.said.get(node_id) != said:
                known.said[node_id] = said
                known.is_touched = True

    def _look_at_quorum(self) -> None:
        if not self._is_quorum_touched:
            return
        self._is_quorum_touched = False
        for node_id in sorted(self._touched_logs):
            changed_from, _ = self._metadata_logs[node_id].read()
            self.metadata.on_changed(node_id, changed_from)
        self._touched_logs.clear()
        known_end_offset = self.metadata.end_offset
        views = [quorum_view(node_id, node, self._metadata_logs[node_id]) for node_id, node in self._nodes.items()]
        for view in views:
            self.note([CheckedMetadataLog.stays], self.metadata.check_log(view))
        self.note(QuorumCheckers.names, self._quorum.check(views, self.metadata.committed))
        for offset in range(known_end_offset, self.metadata.end_offset):
            self._on_metadata(self.metadata.image_at(offset))
        if self.metadata.end_offset > known_end_offset:
            self._check_leaders()
            unclean, self._unclean_epochs = self._unclean_epochs, []
            if unclean:
                self.note([LossesAreAccounted.name], without_entry(self.latest, unclean))

    def _on_metadata(self, image: MetadataImage) -> None:
        """One record more is committed."""
        before, self.latest = self.latest, image
        if image.topics_by_id is not before.topics_by_id:
            self._note_unclean_epochs(before, image)
        for partition, known in self._partitions.items():
            state = image.partition(partition.topic, partition.partition)
            if state is not known.state:
                self._on_state(partition, known.history, known.state, state)
                known.state, known.is_touched = state, True
        for partition, history in self._unwatched.items():
            was, state = (each.partition(partition.topic, partition.partition) for each in (before, image))
            if state is not was and self._on_state(partition, history, was, state):
                self._on_doubted(partition)

    def _note_unclean_epochs(self, before: MetadataImage, image: MetadataImage) -> None:
        for topic_id, topic in image.topics_by_id.items():
            was = before.topics_by_id.get(topic_id)
            if topic is was:
                continue
            for number, state in enumerate(topic.partitions):
                known = None if was is None or number >= len(was.partitions) else was.partitions[number].unclean_epoch
                if state.unclean_epoch is not None and state.unclean_epoch != known:
                    self._unclean_epochs.append(LossId(topic_id, PartitionIndex(number), state.unclean_epoch))

    def _on_state(
        self,
        partition: TopicPartition,
        history: PartitionHistory,
        before: PartitionImage | None,
        state: PartitionImage | None,
    ) -> bool:
        """Returns whether that was an unclean election."""
        if before is None or state is None:
            return False
        if history.has_doubts:
            history.on_state(state, [node_id for node_id in state.replicas if not self._is_known(node_id)])
        if not is_unclean(before, state):
            return False
        self.facts["unclean election"] += 1
        history.on_unclean_election(state.leader_epoch)
        last_offset = self.latest.last_offset
        self._unclean.setdefault(partition, []).append(Offset(-1 if last_offset is None else last_offset))
        return True

    def _is_known(self, node_id: BrokerId) -> bool:
        return is_registered(self._nodes[node_id], node_id, self.latest)

    def _check(self, known: ClusterPartition) -> None:
        known.is_touched = False
        view = known.view(self.latest)
        if view is not None:
            found = known.checkers.check(view)
            self.note((), (broken._replace(what=f"{known.name}: {broken.what}") for broken in found))
            if known.last_stable is not None:
                for each in known.transactional_views():
                    self.note_of(known.name, LastStableOffsetIsStable.name, known.last_stable.check(each))

    def _check_image(self, node_id: BrokerId, process: Node, image: MetadataImage) -> None:
        self._look_at_quorum()
        before = self._images.get(node_id)
        self._images[node_id] = (process, image)
        self.note([CheckedMetadataLog.images_equal], self.metadata.check_image(node_id, image))
        known = None if before is None or before[0] is not process else before[1].last_offset
        if known is not None:
            goes_on = image.last_offset is not None and image.last_offset >= known
            what = f"broker {node_id} publishes offset {image.last_offset}, after {known}"
            self.expect(goes_on, MetadataReads.never_goes_back, what)

    def _check_leaders(self) -> None:
        for topic in self.latest.topics_by_name.values():
            if topic is self._topics_seen.get(topic.name):
                continue
            self._topics_seen[topic.name] = topic
            for number, state in enumerate(topic.partitions):
                found = LeaderInIsr().check(PartitionView(state, {}), PartitionHistory(), {})
                self.note_of(TopicPartition(topic.name, PartitionIndex(number)), LeaderInIsr.name, found)

    def _on_change(self, node_id: BrokerId, tell_others: OnChange, operation: str, path: str, data: Buffer) -> None:
        directory, is_inside, _ = path.removeprefix(f"{LOGS}/").partition("/")
        known = self._by_directory.get(directory)
        if known is not None and known.stored[node_id].on_change(operation, path):
            known.is_touched = True
            known.touched.add(node_id)
            known.on_change(node_id, operation, path)
        elif directory == METADATA_NAME:
            self._is_quorum_touched = True
            if self._metadata_logs[node_id].on_change(operation, path):
                self._touched_logs.add(node_id)
        partition = None if is_inside or not operation.startswith("rename") else parse_directory_name(directory)
        if partition is not None:
            self._check_deletion(node_id, partition, path, operation)
        tell_others(operation, path, data)

    def _check_deletion(self, node_id: BrokerId, partition: TopicPartition, path: str, operation: str) -> None:
        """The log of a replica is about to go: out of everybody's way, or to be removed."""
        self._look_at_quorum()
        node = self._nodes[node_id]
        file = f"{path}/{PARTITION_METADATA_FILE}"
        what = f"{path} of node {node_id} goes ({operation})"
        process = node.node
        if process is None or file not in node.machine.disk.files:
            is_asked_for = process is not None and partition.topic in self.may_be_deleted
            self.expect(is_asked_for, StoppedMeansStopped.name, f"{what}, which nobody asked for")
            return
        topic_id = parse_partition_metadata(node.machine.disk.read_bytes(file), file)
        published, heard = process.broker.image.last_offset, process.metadata_received_end_offset - 1
        offsets = range(heard, -1 if published is None else published - 1, -1)
        known = (self.metadata.image_at(offset) for offset in offsets)
        wrong = what_is_wrong_with_deleting(ReplicaId(topic_id, partition.partition), node_id, known, self.latest)
        self.expect(wrong is None, StoppedMeansStopped.name, f"{what}, {wrong}")

    def _check_stopped(self, node_id: BrokerId, broker: Broker) -> None:
        """What was told to stop neither leads nor follows."""
        for partition in broker.partitions:
            if ReplicaId(partition.topic_id, partition.topic_partition.partition) in broker.stops.stopped:
                what = f"node {node_id} was told to stop {partition.topic_partition}, and serves on"
                self.expect(not partition.role.is_active, StoppedMeansStopped.name, what)
