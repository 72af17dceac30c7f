"""The shell of the metadata quorum at one node: its machine decides, this reads, writes, syncs, sends and waits.

```
  controller ── append_decision ──▶ log ── synced ──▶ ┌─────────┐ ──▶ peers: votes, epochs, fetches
      ▲                                               │ machine │
      └── on_replayed, on_committed ◀── committed ─── └─────────┘ ◀── handlers: what others ask
```
What the machine owes the world is carried out in its order, one thing after the other: the state of the voter is on
disk before anybody is answered on the strength of it, what was fetched is synced before the next fetch says so.

Kafka: `KafkaRaftManager`, `KafkaRaftClient`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from tidelog.base.errors import Code, ConfigError, CorruptLogError, KafkaError, NetworkError, TidelogError, refusal
from tidelog.base.ids import BrokerId, ClusterId, LeaderEpoch, Offset
from tidelog.base.invariant import invariant
from tidelog.base.ports import Clock, Executor, Network, Rng
from tidelog.log import LogSlice
from tidelog.net.address import Address
from tidelog.net.security import ConnectionSecurity
from tidelog.quorum import QuorumLog, QuorumNode
from tidelog.quorum.progress import QuorumProgress
from tidelog.quorum.recovering import PROBE_OFFSET
from tidelog.quorum.values import (
    Answer,
    EpochBegun,
    FetchAnswer,
    PeerRequest,
    QuorumFetch,
    QuorumReady,
    ReplicaKey,
    Role,
    SnapshotId,
    VoterSet,
)
from tidelog.server.notifier import Notifier
from tidelog.server.quorum.controller import Controller
from tidelog.server.quorum.foreign_clusters import ForeignClusters
from tidelog.server.quorum.leaderless import nobody_else_has_it, warn_while_leaderless
from tidelog.server.quorum.living_voters import living_voters, voters_heard
from tidelog.server.quorum.metadata_log import encode_decision
from tidelog.server.quorum.metadata_storage import MetadataStorage
from tidelog.server.quorum.pending_peer_requests import PendingPeerRequests
from tidelog.server.quorum.quorum_peers import Namesake, QuorumPeers
from tidelog.server.settings.quorum_config import Endpoints, QuorumConfig
from tidelog.server.storage.metadata_files import MetadataFiles, OpenedMetadata
from tidelog.server.tasks import Tasks

R = TypeVar("R")

logger = logging.getLogger("tidelog.server.quorum")

TIMER_MS_MIN = 1
RECORDS_PER_TURN = 150
"""Of the metadata log, replayed: each takes some tens of microseconds."""


class MetadataQuorum:
    """This node's share in the metadata quorum, be it a voter or an observer. See the module.

    Others can be answered once it is started. A snapshot that was found on disk is the controller's before that.

    Args:
        opened: what is on disk.
        endpoints: where this node listens for controllers; empty if it does not.
        new_controller: makes the one that replays what is committed, and decides while this node leads.
        on_failed: told when the metadata log cannot be written any more; the node has to stop.

    Attributes:
        key: of this node's log.
        controller: what `new_controller` made.
        storage: the log and its snapshots.
        peers: the way to the other nodes, and where they listen.
        pending_requests: others whose requests wait.
        tasks: of the quorum, its controller's included.
        high_watermark: exclusive end of what is committed and here; None while that is not known.
        is_lost: whether this node lost what it kept for the quorum, and has not recovered.

    Raises:
        CorruptLogError: what this node kept for the quorum is lost, and no other node is known to have it.
    """

    def __init__(
        self,
        node_id: BrokerId,
        cluster_id: ClusterId,
        config: QuorumConfig,
        opened: OpenedMetadata,
        files: MetadataFiles,
        *,
        endpoints: Endpoints,
        new_controller: Callable[[MetadataQuorum], Controller],
        network: Network,
        security: ConnectionSecurity | None = None,
        clock: Clock,
        rng: Rng,
        executor: Executor,
        tasks: Tasks,
        on_failed: Callable[[str], None],
    ) -> None:
        self.node_id = node_id
        self.tasks = tasks.branch("quorum", self.give_up)
        self.cluster_id = cluster_id
        self.config = config
        self.endpoints = endpoints
        self.key = ReplicaKey(node_id, opened.directory_id)
        self.high_watermark: Offset | None = None
        self.pending_requests = PendingPeerRequests()
        self._clock = clock
        self._executor = executor
        self._on_failed = on_failed
        self._is_busy = True  # until it is started
        self._is_ended = False
        self._error: Exception | None = None
        self._is_loading = False
        self.is_lost = opened.state.is_lost
        self._known_leader: tuple[BrokerId | None, LeaderEpoch | None] = (None, None)
        self._leader_heard_ms = clock.now_ms()
        self._is_refused = False
        self._leader_changed = Notifier()
        self._commit_changed = Notifier()
        self._carrying_out: asyncio.Task[None] | None = None
        self._replaying: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._foreign = ForeignClusters(cluster_id, clock=clock)
        self.peers = QuorumPeers(
            node_id,
            cluster_id,
            endpoints,
            config,
            self,
            network=network,
            security=security,
            rng=rng,
            tasks=self.tasks,
        )
        self._namesake = Namesake(node_id, config.settings, is_controller=config.is_controller)
        self.storage = storage = MetadataStorage(
            opened,
            config,
            config.first_voters(node_id, endpoints),
            persist=files.write_quorum_state,
            clock=clock,
            executor=executor,
            tasks=self.tasks,
            on_voters=self._on_voters,
            on_synced=lambda end_offset: self._on(self._machine.on_synced, end_offset),
            on_failed=self.give_up,
        )
        if opened.state.is_lost and storage.voters.current.ids == (node_id,):
            raise nobody_else_has_it(storage.log.directory)
        self._on_voters(storage.voters.current)
        log = storage.log
        self._machine = storage.machine = QuorumNode(
            self.key,
            storage.voters.current,
            opened.state,
            QuorumLog(log.log_start_offset, log.log_end_offset, log.lineage, log.snapshot),
            settings=config.settings,
            rng=rng,
            now_ms=clock.now_ms(),
            voters_end_offset=storage.voters.end_offset,
            previous_voters=storage.voters.previous,
        )
        self.controller = new_controller(self)

    # Who leads, and where everybody is.

    @property
    def leader_id(self) -> BrokerId | None:
        """As far as this node knows."""
        return self._known_leader[0]

    @property
    def leader_epoch(self) -> LeaderEpoch | None:
        return self._known_leader[1]

    @property
    def is_leader(self) -> bool:
        return self._machine.standing.role is Role.LEADER

    @property
    def voters(self) -> VoterSet:
        return self.storage.voters.current

    @property
    def committed_end(self) -> Offset | None:
        """Exclusive end of what is committed, here or not, as far as the leader has said so."""
        return self._machine.committed_end

    @property
    def is_reconfigurable(self) -> bool:
        """Whether the log, not the configuration, says who votes."""
        return self.storage.voters.is_in_log

    @property
    def kraft_version(self) -> int:
        """1 once it is committed that the log says who votes; else 0."""
        return self.storage.voters.at(self.high_watermark or Offset(0)).version

    @property
    def leader_address(self) -> Address | None:
        """Of the leader's controller listener."""
        return None if self.leader_id is None else self.peers.address_of(self.leader_id)

    @property
    def is_leaderless(self) -> bool:
        """See `LeaderSource`."""
        return self.leader_address is None and not self._is_refused

    @property
    def leaderless_ms(self) -> int:
        """For how long no leader was heard of; 0 until that is longer than one that lives is ever silent.

        Who led last is known for longer than that: until there is another.
        """
        if self.is_leader or self._is_loading:
            return 0
        contact_ms = self._machine.standing.last_contact_ms
        heard_ms = self._leader_heard_ms if contact_ms is None else max(contact_ms, self._leader_heard_ms)
        silent_ms = self._clock.now_ms() - heard_ms
        return silent_ms if silent_ms > self.config.settings.fetch_timeout_ms else 0

    @property
    def living_voters(self) -> tuple[BrokerId, ...] | None:
        """See `living_voters`."""
        return living_voters(self, self._clock.now_ms())

    @property
    def voters_heard(self) -> str:
        """See `voters_heard`."""
        return voters_heard(self, self._clock.now_ms())

    async def leader_changed(self) -> None:
        """Return at the next change of the leader, of its epoch, or of the voters."""
        await self._leader_changed.wait()

    async def committed(self, end_offset: Offset) -> None:
        """Return once all below is committed. Raises KafkaError: NOT_LEADER_OR_FOLLOWER."""
        leader_epoch = self.leader_epoch
        while (self._machine.high_watermark or 0) < end_offset:
            if not self.is_leader or self.leader_epoch != leader_epoch or self._is_ended:
                raise refusal(Code.NOT_LEADER_OR_FOLLOWER, "another node leads: it may have been done, or not")
            await self._commit_changed.wait()

    def describe(self) -> QuorumProgress:
        """What this node knows of the quorum."""
        return self._machine.describe(self._clock.now_ms())

    # Start and stop.

    async def start(self) -> None:
        """Take part from now on; a node that is alone leads when this returns. Raises what `give_up` was told."""
        self._is_busy = False
        self._on(self._machine.on_tick)
        self.tasks.start(warn_while_leaderless(self, self.peers.unanswered))
        while self.voters.ids == (self.node_id,) and not self.controller.is_active and not self._is_ended:
            await self.leader_changed()
        if self._error is not None:
            raise self._error

    async def resign(self) -> None:
        """Lead no more, and tell the others who should be next; what was decided is synced first."""
        if not self._is_ended:
            await self.storage.synced()
            self._on(self._machine.on_resign)

    async def stop(self) -> None:
        """Take part no more. Whoever waits is answered that this is not the controller."""
        await self.resign()
        while self._carrying_out is not None:
            await asyncio.gather(self._carrying_out, return_exceptions=True)
        await self.peers.say_farewell()
        self._is_ended = True
        if self._replaying is not None:
            await asyncio.gather(self._replaying, return_exceptions=True)
        await self.storage.synced()
        if self._timer is not None:
            self._timer.cancel()
        self._fail_pending_requests()
        await self.tasks.end()
        await self.peers.close()

    def _fail_pending_requests(self) -> None:
        """Fail all that waits: nothing more is decided, or answered, here."""
        self.controller.on_lost()
        self.pending_requests.give_up()
        self._leader_changed.notify()
        self._commit_changed.notify()

    def _on_voters(self, voters: VoterSet) -> None:
        self.peers.set_voters(voters)
        self._leader_changed.notify()

    # What others ask.

    def check_requester(self, cluster_id: str | None, peer: str, claimant: int | None = None) -> None:
        """Raises KafkaError: this node does not listen to that one, or not to who would lead by it (`claimant`)."""
        if self._is_ended:
            raise refusal(Code.BROKER_NOT_AVAILABLE, "this node is not in the quorum at present")
        self._foreign.check(cluster_id, peer)
        if claimant is not None and not self.is_reconfigurable:
            self._foreign.check_claimant(claimant, self.voters, peer)

    def may_read_snapshot(self, reader: ReplicaKey, leader_epoch: LeaderEpoch) -> Code:
        """FetchSnapshot: whether this node serves it, as the leader in that epoch. Who loads one follows."""
        return self._machine.on_snapshot_request(reader, leader_epoch, self._clock.now_ms())

    async def handle(self, request: PeerRequest) -> tuple[Answer, LogSlice | None]:
        """The answer to what another node asks, with the records that go with it. Who waits no more is forgotten."""
        if isinstance(request, EpochBegun) and request.leader_id != self.node_id:
            self.peers.on_endpoints(request.leader_id, request.endpoints)
        answer = await self.pending_requests.handle(request, self._machine, self._on)
        if isinstance(request, QuorumFetch) and request.fetch_offset == PROBE_OFFSET:
            self._write_for_prober()
        if not isinstance(answer, FetchAnswer) or answer.code:
            return answer, None
        if answer.diverging is not None or answer.snapshot is not None:
            return answer, None
        return answer, self.storage.log.records_from(answer.fetch_offset)

    def _write_for_prober(self) -> None:
        """A voter that recovers waits for a record that is written after it asked: now, if nothing is under way."""
        machine, log_end_offset = self._machine, self.storage.log.log_end_offset
        if self.controller.is_active and not self._is_ended and machine.high_watermark == log_end_offset:
            self.controller.append_nothing()

    # What the peers tell.

    def on_answered(self, number: int, answer: Answer, records: bytes) -> None:
        machine = self._machine
        standing = machine.standing
        leads = standing.role is Role.LEADER and standing.leader_epoch == answer.leader_epoch
        if self._namesake.is_seen(answer, leads=leads, now_ms=self._clock.now_ms()):
            self.give_up(self._namesake.error())
            return
        if records and self._machine.following.awaits(number):  # others come late, and are not appended
            self.storage.fetched = (number, records)
        self._on(self._machine.on_answered, number, answer)

    def on_unanswered(self, number: int) -> None:
        self._on(self._machine.on_unanswered, number)

    def on_hung_up(self, node_id: BrokerId) -> None:
        if node_id == self.leader_id:
            self.controller.on_leader_disconnected(node_id)
        self._on(self._machine.on_peer_closed, node_id)

    # What the controller decides.

    def append_decision(self, records: tuple[object, ...], leader_epoch: LeaderEpoch) -> Offset:
        """See `AppendsDecisions`."""
        machine = self._machine
        standing = machine.standing
        leads = standing.role is Role.LEADER and standing.leader_epoch == leader_epoch and not self._is_ended
        invariant(leads, "a decision of leader epoch {}: {} in {}", leader_epoch, standing.role, standing.leader_epoch)
        batch = encode_decision(records, self._clock.wall_ms())
        offset = self.storage.append(batch, leader_epoch)
        self.storage.scheduler.on_committed(len(batch))
        self._advance()  # who waits for news is sent them while they are synced here
        return offset

    def decide_on_voters(self, decide: Callable[[QuorumNode], VoterSet]) -> VoterSet:
        """What `append_voters` would append. Raises KafkaError: what `decide` says."""
        return decide(self._machine)

    def append_voters(self, decide: Callable[[QuorumNode], VoterSet]) -> Offset:
        """Have the voters that are decided on count from now on. Returns the exclusive end of the record.

        Raises:
            KafkaError: what `decide` says; NOT_LEADER_OR_FOLLOWER where this node is on its way up or down.
        """
        machine = self._machine
        voters = decide(machine)
        if not self.controller.is_active or self._is_ended:
            raise refusal(Code.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum")
        if voters == machine.voters.latest:
            return self.storage.voters.end_offset
        try:
            end_offset = self.storage.append_voters(voters, machine.standing.leader_epoch)
        except Exception as error:
            self.give_up(error)
            raise refusal(Code.KAFKA_STORAGE_ERROR, f"the metadata log failed: {error}") from error
        logger.info("the voters of the metadata quorum are %s", ", ".join(map(str, voters.ids)))
        self.controller.on_control_appended(end_offset)
        self._advance()
        return end_offset

    async def send_to_leader(self, message: object, response: type[R], *, timeout_ms: int) -> R:
        """Raises NetworkError: nobody leads, or it does not answer; UnsupportedVersionError: it cannot."""
        if self.leader_id is None:
            raise NetworkError("nobody is known to lead")
        connection = await self.peers.connection(self.leader_id)
        return await connection.request(message, response, timeout_ms=timeout_ms)

    def give_up(self, error: Exception) -> None:
        """Whether what was written is on disk cannot be known any more: nothing may be built on it."""
        if self._is_ended:
            return
        self._is_ended, self._error = True, error
        if not isinstance(error, TidelogError):
            logger.critical("the metadata quorum failed: a bug in Tidelog", exc_info=error)
        self._fail_pending_requests()
        self._on_failed(str(error) if isinstance(error, ConfigError) else f"the metadata log failed: {error}")

    # What the machine owes the world.

    def _on(self, event: Callable[..., None], *arguments: object) -> None:
        """Apply one event to the machine, and carry out what it then has ready."""
        if self._is_ended:
            return
        try:
            event(*arguments, self._clock.now_ms())
        except Exception as error:
            self.give_up(error)
            return
        self._advance()

    def _advance(self) -> None:
        """Carry out what there is, unless that is being done."""
        if self._is_ended:
            return
        try:
            self._note_role()
            while not self._is_busy:
                ready = self._machine.take_ready()
                self._note_role()
                self._is_busy = True
                if any(one is not None for one in ready[:5]):  # all before the high watermark: they take time
                    self._carrying_out = self.tasks.start(self._process_ready(ready))
                    break
                has_update = self._process_ready_without_disk(ready)
                self._is_busy = False
                if not has_update:
                    break
        except Exception as error:
            self.give_up(error)
            return
        self._set_timer()

    async def _process_ready(self, ready: QuorumReady) -> None:
        try:
            await self.storage.process_ready(ready)
            if ready.state is not None:
                self._note_recovery(is_lost=ready.state.is_lost)
            if ready.load is not None and not self._is_loading:
                self._is_loading = True
                self.tasks.start(self._load(ready.load))
            self._process_ready_without_disk(ready)
            self._is_busy = False
        except Exception as error:  # of the disk or a bug of ours
            self.give_up(error)
            return
        finally:
            self._carrying_out = None
        self._advance()

    def _note_recovery(self, *, is_lost: bool) -> None:
        if self.is_lost and not is_lost:
            logger.warning(
                "%s: what this node had lost for the metadata quorum is made up for: it votes again",
                self.storage.log.directory,
            )
        self.is_lost = is_lost

    def _process_ready_without_disk(self, ready: QuorumReady) -> bool:
        """Carry out what needs no disk. Returns whether there was anything."""
        has_update = self._publish(ready.high_watermark)
        self.pending_requests.answer(ready.replies)
        for request in ready.requests:
            self.peers.send(request)
        return has_update or bool(ready.replies or ready.requests)

    def _publish(self, high_watermark: Offset | None) -> bool:
        """Let the controller have what is committed. Returns whether there was anything new."""
        if high_watermark is None:
            return False
        controller = self.controller
        end_offset = min(high_watermark, self.storage.log.log_end_offset)
        has_moved = end_offset != self.high_watermark
        self.high_watermark = end_offset
        if has_moved and controller.is_active:
            controller.on_committed(end_offset)
        elif has_moved:
            self._replay()
        self._lead_if_all_is_known()
        if has_moved:
            self._commit_changed.notify()
        self._make_snapshot()
        return has_moved

    def _replay(self) -> None:
        """Let a controller that is not active have what others committed: little at once, and much in turns."""
        if self._replaying is not None:
            return
        if self._replay_some():
            self._lead_if_all_is_known()
        else:
            self._replaying = self.tasks.start(self._replay_in_turns())

    async def _replay_in_turns(self) -> None:
        try:
            is_known = False
            while not is_known and not self._is_ended:
                await asyncio.sleep(0)
                is_known = self._replay_some()
                self._make_snapshot()
        except Exception as error:  # of the disk or a bug of ours
            self.give_up(error)
        finally:
            self._replaying = None
        self._on(lambda _: self._lead_if_all_is_known())

    def _replay_some(self) -> bool:
        """Whole batches, as many as a turn takes, and publish what they say. Returns whether there is no more; while a
        snapshot is loaded, what lies behind it waits for that.
        """
        controller, end_offset = self.controller, self.high_watermark
        if end_offset is None or self._is_loading or controller.is_active:
            return True
        count, replayed_end_offset = 0, controller.journal.next_offset
        for batch in self.storage.log.batches(replayed_end_offset, end_offset):
            controller.on_replayed(batch)
            self.storage.scheduler.on_committed(batch.size_bytes)
            count, replayed_end_offset = count + len(batch.records), batch.end_offset
            if count >= RECORDS_PER_TURN:
                break
        controller.on_committed(replayed_end_offset)
        return replayed_end_offset >= end_offset

    def _lead_if_all_is_known(self) -> None:
        """The controller becomes active where this node leads, and all that is committed was replayed."""
        controller, machine, storage = self.controller, self._machine, self.storage
        if controller.is_active or machine.standing.role is not Role.LEADER or storage.opened is None:
            return
        leader_epoch, opened_end_offset = storage.opened
        if leader_epoch == machine.standing.leader_epoch and controller.journal.next_offset >= opened_end_offset:
            logger.info("node %d is the active controller, in leader epoch %d", self.node_id, leader_epoch)
            controller.on_leading(leader_epoch, storage.log.log_end_offset)
            self._leader_changed.notify()

    def _note_role(self) -> None:
        """What the machine has become: an active controller that leads no more is none from this moment on."""
        machine, controller = self._machine, self.controller
        if machine.standing.role is Role.LEADER:
            self._leader_heard_ms = self._clock.now_ms()
        elif machine.standing.last_contact_ms is not None:
            self._leader_heard_ms = machine.standing.last_contact_ms
        if controller.is_active:
            leads = machine.standing.role is Role.LEADER and machine.standing.leader_epoch == controller.leader_epoch
            if not leads:
                logger.info("node %d is not the active controller any more", self.node_id)
                controller.on_lost()
        known, is_refused = (machine.standing.leader_id, machine.standing.leader_epoch), self.peers.are_foreign
        if known != self._known_leader or is_refused is not self._is_refused:
            self._known_leader, self._is_refused = known, is_refused
            self._leader_changed.notify()
            self._commit_changed.notify()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadlines = (self._machine.next_deadline_ms(), self.storage.scheduler.next_deadline_ms())
        deadline_ms = min((one for one in deadlines if one is not None), default=None)
        if deadline_ms is not None:
            wait_ms = max(deadline_ms - self._clock.now_ms(), TIMER_MS_MIN)
            self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._make_snapshot()
        self._on(self._machine.on_tick)

    # Snapshots.

    def _make_snapshot(self) -> None:
        if self.storage.scheduler.is_due:
            self.tasks.start(self.storage.make_snapshot(self.controller.image()))

    async def _load(self, snapshot_id: SnapshotId) -> None:
        """Fetch a snapshot from the leader, and go on behind it."""
        from tidelog.server.quorum.snapshot_loading import SnapshotLoading  # few nodes ever fall so far behind

        loading = SnapshotLoading(self.key, self.cluster_id, self.peers, self.storage, executor=self._executor)
        try:
            snapshot = await loading.load(snapshot_id, timeout_ms=self.config.settings.request_timeout_ms)
            await self.controller.on_snapshot(snapshot)
            self._advance()
        except (NetworkError, KafkaError, CorruptLogError) as error:
            logger.warning("the snapshot of the metadata up to offset %d: %s", snapshot_id.end_offset, error)
            self._on(self._machine.on_snapshot_failed)
        except Exception as error:  # of the disk or a bug of ours
            self.give_up(error)
        finally:
            self._is_loading = False
            self._on(lambda _: self._replay())
