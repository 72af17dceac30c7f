"""One broker on a simulated machine: it registers, follows the metadata in order, and keeps a replica for each
partition that it is assigned, on production's files.

What production's broker does for one node is done here for one of several; the cluster's own shell will take its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from tidelog.base.errors import Code, CorruptLogError, DiskError, KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId, Offset, TopicPartition
from tidelog.base.ports import Disk
from tidelog.controller.isr_changes import IsrChange, IsrMember
from tidelog.log.directory import LogDirectory, parse_directory_name
from tidelog.log.files.checkpoint import parse_partition_metadata
from tidelog.log.recovery import PARTITION_METADATA_FILE
from tidelog.metadata import MetadataDelta, MetadataImage
from tidelog.replica import (
    FollowerRequest,
    HeldReplica,
    IsrProposal,
    ReplicaId,
    StoppedReplicas,
    Truncation,
    check_stop_request,
)
from tidelog.server.storage.log_dir import LogDir, close_logs
from tidelog.sim.replicas.controller import CONTROLLER, EPOCH, machine_of
from tidelog.sim.replicas.fabric import Fabric, Reply
from tidelog.sim.replicas.messages import (
    PARTITION,
    AlterPartition,
    AskMetadata,
    Committed,
    FollowerAsks,
    Heartbeat,
    HeartbeatAnswer,
    Metadata,
    PartitionAltered,
    Register,
    Registered,
    StopReplica,
)
from tidelog.sim.replicas.parked import Parked
from tidelog.sim.replicas.picture import LogPicture
from tidelog.sim.replicas.plan import Plan
from tidelog.sim.replicas.replica import HostedReplica
from tidelog.sim.replicas.serving import serve
from tidelog.sim.world.machine import Machine

LOGS = "logs"
ANSWER_TIMEOUT_MS = 1_000


class World(Protocol):
    """Whoever watches."""

    def on_step(self) -> None: ...
    def on_logs_touched(self) -> None: ...
    def on_process_failed(self, broker: BrokerId, why: str) -> None: ...
    def on_fact(self, kind: str) -> None: ...
    def picture(self, broker: BrokerId, name: ReplicaId) -> LogPicture: ...


class Broker:
    """One process of a broker. See the module.

    Attributes:
        image: the metadata as far as it is applied here.
        broker_epoch: of this process; None until it is registered.
        is_registered: whether the image says so: before, nothing is led or followed (rule 6).
        is_failed: whether it does nothing any more, and is about to end.
        replicas: those that are served, by partition.
    """

    def __init__(self, broker_id: BrokerId, machine: Machine, fabric: Fabric, plan: Plan, world: World) -> None:
        self.broker_id = broker_id
        self.plan = plan
        self.image = MetadataImage.empty()
        self.broker_epoch: BrokerEpoch | None = None
        self.replicas: dict[ReplicaId, HostedReplica] = {}
        self._machine = machine
        self._world = world
        self._rng = machine.new_rng()
        self._incarnation_id = self._rng.uuid()
        self._known: dict[int, Committed] = {}
        self._next_number = 0
        self._is_applying = False
        self.is_failed = False
        self.is_registered = False
        self._stopped = StoppedReplicas(broker_id)
        self.station = fabric.station(machine.name, self._serve)
        self.parked = Parked(self.later)
        directory = LogDirectory.open(machine.disk, LOGS)
        self.held = LogDir(directory, self._rng.uuid(), disk=machine.disk, rng=self._rng)
        self.held.take_clean_shutdown()
        self._register()
        self._beat()
        self.later(plan.checkpoint_ms, self._keep)

    @property
    def is_running(self) -> bool:
        """Whether this process is there, and at work."""
        return self.station.process.is_alive and not self.is_failed

    @property
    def applied_number(self) -> int:
        """How many batches of the metadata are applied here."""
        return self._next_number

    def is_told_to_stop(self, name: ReplicaId) -> bool:
        """Whether a push said so, and the metadata has not said yet what becomes of it."""
        return self._stopped.is_stopped(name)

    def logs_on_disk(self) -> list[ReplicaId]:
        """Whatever this process knows of them."""
        files, found = self._machine.disk.files, []
        for directory in sorted(self._machine.disk.directories):
            topic_partition = parse_directory_name(directory.removeprefix(f"{LOGS}/"))
            contents = files.get(f"{directory}/{PARTITION_METADATA_FILE}")
            if topic_partition is not None and contents is not None:
                topic_id = parse_partition_metadata(bytes(contents.data), directory)
                found.append(ReplicaId(topic_id, topic_partition.partition))
        return found

    # What a replica needs.

    @property
    def disk(self) -> Disk:
        return self._machine.disk

    @property
    def active_brokers(self) -> dict[BrokerId, BrokerEpoch]:
        return {broker_id: broker.broker_epoch for broker_id, broker in self.image.brokers.items() if broker.is_active}

    def now_ms(self) -> int:
        return self._machine.clock.now_ms()

    def wall_ms(self) -> int:
        return self._machine.clock.wall_ms()

    def later(self, ms: float, step: Callable[[], object]) -> None:
        """Another step of this process."""

        def take() -> None:
            if not self.is_failed:
                step()

        self.station.later(ms, take)

    def on_step(self) -> None:
        """A replica did something: there is something to look at."""
        self._world.on_step()

    def offload(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        """Do what waits for the disk, a little later; then the rest."""

        def done(future: asyncio.Future[None]) -> None:
            error = future.exception()
            if self.is_failed:
                return
            if isinstance(error, DiskError | CorruptLogError):
                self.on_failed(error)
            elif error is not None:
                raise error
            else:
                then()

        asyncio.ensure_future(self._machine.executor.run(work)).add_done_callback(done)

    def ask(self, replica: HostedReplica, request: FollowerRequest) -> None:
        """Send what a follower asks its leader."""
        follower = replica.follower
        assert follower is not None
        assert self.broker_epoch is not None
        body = FollowerAsks(self.broker_id, self.broker_epoch, replica.name, request)

        def answered(answer: object | None) -> None:
            if not self.is_failed:
                replica.on_answer(follower, request, answer)

        timeout_ms = ANSWER_TIMEOUT_MS + self.plan.fetch_wait_ms
        self.station.ask(machine_of(request.leader), body, timeout_ms, answered)

    def propose(self, replica: HostedReplica, proposal: IsrProposal) -> None:
        """Put an ISR to the controller."""
        leader = replica.leader
        assert leader is not None
        assert self.broker_epoch is not None
        members = tuple(IsrMember(broker, proposal.broker_epoch(broker)) for broker in sorted(proposal.isr))
        change = IsrChange(proposal.leader_epoch, proposal.partition_epoch, members)
        body = AlterPartition(self.broker_id, self.broker_epoch, replica.name, change)
        is_told = False

        def answered(answer: object | None) -> None:
            nonlocal is_told
            if self.is_failed:
                return
            state = answer.state if isinstance(answer, PartitionAltered) else None
            if state is not None and not self.plan.answers_tell_state:
                return  # the metadata will
            if state is None and is_told:
                return  # an answer that comes late, or twice, says nothing of what was asked since
            is_told = True
            replica.on_proposal_answered(leader, state)

        self.station.ask(CONTROLLER, body, ANSWER_TIMEOUT_MS, answered)

    def checkpoint_high_watermarks(self) -> None:
        """Write them: before a log is cut below its own, and where one is found to be cut."""
        self.held.checkpoints.write_high_watermarks(self.replicas.values())

    def checkpoint_recovery_points(self) -> None:
        """Write them, and where the logs start."""
        self.held.checkpoints.write_recovery_points(self.replicas.values())

    def on_failed(self, error: DiskError | CorruptLogError) -> None:
        """The one log directory cannot be relied on: this process ends."""
        if not self.is_failed:
            self.is_failed = True
            self._world.on_process_failed(self.broker_id, str(error))

    def on_truncated(self, replica: HostedReplica, truncation: Truncation) -> None:
        """A follower removes records."""
        self._world.on_fact("truncation")
        if truncation.below_high_watermark is not None:
            self._world.on_fact("truncation below the high watermark, reported")

    def on_damage(self, replica: HostedReplica, error: Exception) -> None:
        """What a leader sent cannot be appended."""
        self._world.on_fact("damaged fetch refused")

    # Registering, and being heard.

    def _register(self) -> None:
        body = Register(self.broker_id, self._incarnation_id, self.held.previous.broker_epoch)

        def answered(answer: object | None) -> None:
            if self.broker_epoch is not None:
                return
            if isinstance(answer, Registered) and answer.broker_epoch is not None:
                self.broker_epoch = answer.broker_epoch
                self._apply_soon()
            elif answer is None:
                self._register()

        self.station.ask(CONTROLLER, body, ANSWER_TIMEOUT_MS, answered)

    def _beat(self) -> None:
        epoch = self.broker_epoch
        body: object = AskMetadata(self._got_up_to)
        if epoch is not None:
            last = self.image.last_offset
            body = Heartbeat(self.broker_id, epoch, self._got_up_to, Offset(0 if last is None else last + 1))
        self.station.ask(CONTROLLER, body, ANSWER_TIMEOUT_MS, self._on_contact)
        self.later(self.plan.heartbeat_ms, self._beat)

    def _on_contact(self, answer: object | None) -> None:
        if isinstance(answer, HeartbeatAnswer):
            if answer.code is Code.STALE_BROKER_EPOCH:
                self.on_failed(DiskError(LOGS, "another process has registered as this broker"))
                return
            self._take(answer.committed)
        elif isinstance(answer, Metadata):
            self._take(answer.committed)

    # The metadata.

    @property
    def _got_up_to(self) -> int:
        number = self._next_number
        while number in self._known:
            number += 1
        return number

    def _take(self, committed: tuple[Committed, ...]) -> None:
        for batch in committed:
            if batch.number >= self._next_number:
                self._known[batch.number] = batch
        self._apply_soon()

    def _apply_soon(self) -> None:
        """Each batch in its turn, at this broker's own pace; what it missed before it was there, at once."""
        if self._is_applying or self._next_number not in self._known:
            return
        self._is_applying = True
        batch = self._known[self._next_number]
        is_past = self.broker_epoch is None or batch.end_offset <= self.broker_epoch
        self.later(0 if is_past else self._rng.random() * self.plan.metadata_ms_max, self._apply_next)

    def _apply_next(self) -> None:
        self._is_applying = False
        batch = self._known.pop(self._next_number, None)
        if batch is None or self.is_failed:
            return
        self._next_number += 1
        self._world.on_logs_touched()
        try:
            self._apply(batch)
        except (DiskError, CorruptLogError) as error:
            self.on_failed(error)
            return
        self._apply_soon()

    def _apply(self, batch: Committed) -> None:
        delta = MetadataDelta(self.image)
        for record in batch.records:
            delta.replay(record)
        self.image = delta.apply(Offset(batch.end_offset - 1))
        known = self.image.brokers.get(self.broker_id)
        if known is None or known.incarnation_id != self._incarnation_id:
            return
        self.broker_epoch = known.broker_epoch  # the answer to the registration may be lost
        if not self.is_registered:
            self.is_registered = True
            self._set_strays_aside()
            changed = [ReplicaId(topic, PARTITION) for topic in self.image.topics_by_id]
        else:
            changed = [ReplicaId(topic, index) for topic, each in delta.changed_partitions.items() for index in each]
            changed += [ReplicaId(topic, PARTITION) for topic in delta.deleted_topics]
        for name in changed:
            self._reconcile(name)
        if delta.changed_brokers:
            for replica in list(self.replicas.values()):
                replica.on_brokers()
        self._stopped.on_image(self.image)
        self._settle_stops()

    def _set_strays_aside(self) -> None:
        """Of topics that were deleted, or that are another's, while this broker was away."""
        for topic_partition in self.held.partitions():
            state = self.image.partition(*topic_partition)
            topic = self.image.topic(topic_partition.topic)
            is_ours = state is not None and self.broker_id in state.replicas
            if not is_ours or topic is None or self.held.topic_id_of(topic_partition) not in (None, topic.topic_id):
                self.held.mark_for_deletion(topic_partition)

    def _reconcile(self, name: ReplicaId) -> None:
        """Have what the metadata assigns, in the role that it gives; and nothing else."""
        topic = self.image.topic_by_id(name.topic_id)
        state = None if topic is None else topic.partitions[name.partition]
        replica = self.replicas.get(name)
        if topic is None or state is None or self.broker_id not in state.replicas:
            if replica is not None:
                self._remove(replica)
            return
        if self._stopped.is_stopped(name):
            return
        if replica is None:
            replica = self._open(TopicPartition(topic.name, name.partition), name)
        replica.on_state(state)

    def _open(self, topic_partition: TopicPartition, name: ReplicaId) -> HostedReplica:
        held = self.held
        if held.holds(topic_partition) and held.topic_id_of(topic_partition) not in (None, name.topic_id):
            held.mark_for_deletion(topic_partition)  # of a topic that no longer is
        if not held.holds(topic_partition):
            held.make({topic_partition: name.topic_id})
        log = held.open_log(topic_partition, self.plan.log, topic_id=name.topic_id, now_ms=self.wall_ms())
        if log.recovery.truncation is not None:
            self._world.on_fact("log cut by recovery")
        high_watermark = held.checkpoints.high_watermark(topic_partition)
        picture = self._world.picture(self.broker_id, name)
        replica = HostedReplica(self, topic_partition, name, log, high_watermark=high_watermark, picture=picture)
        self.replicas[name] = replica
        if high_watermark is not None and replica.high_watermark < high_watermark:
            self.checkpoint_high_watermarks()
        return replica

    def _remove(self, replica: HostedReplica) -> None:
        del self.replicas[replica.name]
        replica.stop()
        replica.picture.restart()
        self.held.mark_for_deletion(replica.topic_partition)
        self._world.on_fact("replica deleted")

    # StopReplica.

    def _stop_replicas(self, request: StopReplica) -> None:
        if not self.is_registered or self.broker_epoch is None:
            return
        try:
            check_stop_request(
                sent_controller_epoch=request.controller_epoch,
                controller_epoch=EPOCH,
                sent_broker_epoch=request.broker_epoch,
                broker_epoch=self.broker_epoch,
            )
            for order in request.orders:
                replica = self._named(order.topic_partition)
                state = self.image.partition(*order.topic_partition)
                held = None
                if replica is not None:
                    is_known = self.image.topic_by_id(replica.name.topic_id) is not None
                    epoch = state.leader_epoch if state is not None and is_known else None
                    held = HeldReplica(replica.name.topic_id, epoch)
                self._stopped.on_order(order, held, self.image)
        except KafkaError:
            self._world.on_fact("StopReplica refused")
        self._settle_stops()

    def _named(self, topic_partition: TopicPartition) -> HostedReplica | None:
        return next((each for each in self.replicas.values() if each.topic_partition == topic_partition), None)

    def _settle_stops(self) -> None:
        ready = self._stopped.take_ready()
        for each in ready.stop:
            replica = self.replicas.get(each)
            if replica is not None:
                self._world.on_fact("replica stopped by a push")
                replica.stop()
        for each in ready.delete:
            replica = self.replicas.get(each)
            if replica is not None:
                self._remove(replica)
        for each in ready.resume:
            replica = self.replicas.pop(each, None)
            if replica is not None:
                replica.log.retire()
                self.held.on_failed(replica.topic_partition)  # to be looked at, as after a crash
                self._reconcile(replica.name)

    # What is asked.

    def _serve(self, sender: str, body: object, reply: Reply) -> None:
        if self.is_failed:
            return
        if isinstance(body, Metadata):
            self._take(body.committed)
        elif isinstance(body, StopReplica):
            self._world.on_logs_touched()
            try:
                self._stop_replicas(body)
            except (DiskError, CorruptLogError) as error:
                self.on_failed(error)
        else:
            serve(self, body, reply)

    # Now and then, and at the end.

    def _keep(self) -> None:
        try:
            for replica in self.replicas.values():
                if not replica.is_stopped and replica.log.failure is None:
                    replica.log.maybe_flush(self.now_ms())
            self.checkpoint_high_watermarks()
            self.checkpoint_recovery_points()
        except DiskError as error:
            self.on_failed(error)
            return
        self.later(self.plan.checkpoint_ms, self._keep)

    def close(self) -> None:
        """Stop cleanly: the next process can show that it lost nothing, if this one came so far as to open its logs."""
        self.is_failed = True
        replicas = list(self.replicas.values())
        for replica in replicas:
            replica.stop()
        is_clean = close_logs(log for log in (each.log for each in replicas) if log.failure is None)
        is_clean = is_clean and self.is_registered and all(each.log.failure is None for each in replicas)
        self.held.leave(replicas, self.broker_epoch if is_clean else None)
