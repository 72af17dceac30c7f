"""One node: its share in the metadata quorum, and a broker, a controller or both, in one process.

It starts in the order in which each part can be true: files, ports, its share in the quorum (whose other nodes are let
in from there on), registration, logs, leaderships; and only then does it accept clients.

Kafka: `KafkaRaftServer`, `BrokerServer`, `ControllerServer`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import BrokerEpoch, BrokerId, ClusterId, Offset, ProducerId
from tidelog.base.ports import Clock, Disk, Executor, Network, Rng
from tidelog.controller import ControllerState, CreateTopicResult, TopicToCreate
from tidelog.metadata import MetadataImage
from tidelog.metadata.configs import BrokerSettings
from tidelog.records import KERNEL_IS_COMPILED
from tidelog.security.acl_authorizer import AclAuthorizer, authorizer_of
from tidelog.server.api import forwarding
from tidelog.server.api.audit_log import AuditLog
from tidelog.server.api.dispatch import Dispatcher
from tidelog.server.api.fetch_sessions import FetchSessions
from tidelog.server.api.throttling import Throttle
from tidelog.server.api.told_readers import ToldReaders
from tidelog.server.broker.access_rules import AccessRules
from tidelog.server.broker.broker import Broker
from tidelog.server.broker.client_quotas import ClientQuotasInForce
from tidelog.server.broker.dynamic_configs import DynamicConfigs, PartitionSettings
from tidelog.server.broker.log_chores import LogChores
from tidelog.server.cluster_member import ClusterMember
from tidelog.server.coordinators.coordinator_partitions import CoordinatorNode
from tidelog.server.groups.group_coordinators import GroupCoordinators
from tidelog.server.groups.share_group_positions import ShareGroupPositions
from tidelog.server.membership.broker_lifecycle import BrokerLifecycle
from tidelog.server.membership.broker_watch import BrokerWatch
from tidelog.server.membership.controller_channel import ControllerChannel
from tidelog.server.membership.controller_registrations import ControllerRegistration, ControllerRegistrations
from tidelog.server.membership.leader_balancing import LeaderBalancing
from tidelog.server.membership.loss_reports import LossReports
from tidelog.server.membership.producer_ids import ProducerIds
from tidelog.server.membership.replica_stops import ReplicaStops
from tidelog.server.membership.token_expiry import TokenExpiry
from tidelog.server.quorum.controller import Controller
from tidelog.server.quorum.metadata_quorum import MetadataQuorum
from tidelog.server.quorum.voter_requests import VoterRequests
from tidelog.server.replication.replication import Replication
from tidelog.server.settings.config import NodeConfig
from tidelog.server.settings.controller_settings import controller_settings
from tidelog.server.settings.replication_settings import ReplicaFetchSettings
from tidelog.server.share_fetching.kept_states import KeepsShareStates
from tidelog.server.share_fetching.share_fetching import ShareFetching
from tidelog.server.share_state.group_requests import GroupRequests
from tidelog.server.share_state.persister import SharePersister
from tidelog.server.share_state.share_coordinators import ShareCoordinators
from tidelog.server.storage.log_files import LogFiles
from tidelog.server.tasks import Tasks
from tidelog.server.transactions.markers import MarkerSends, MarkerWriter
from tidelog.server.transactions.transaction_coordinators import TransactionCoordinators
from tidelog.server.transactions.verification import TransactionVerification
from tidelog.server.transport.authentication import Authentication
from tidelog.server.transport.connections import Connections
from tidelog.server.transport.listener_roles import BROKER, CONTROLLER
from tidelog.server.transport.listeners import EARLY, Listeners
from tidelog.server.transport.node_logins import NodeLogins
from tidelog.server.transport.node_networks import NodeNetworks
from tidelog.wire import ConsistencyState

if TYPE_CHECKING:
    from tidelog.server.api.request_context import RequestContext
    from tidelog.server.api.slow_requests import SlowRequestLog
    from tidelog.server.groups.group_lags import GroupLags
    from tidelog.server.observe.metrics_listener import MetricsListener
    from tidelog.server.settings.metrics import NodeMetrics
    from tidelog.wire.messages.api_56_alter_partition import AlterPartitionRequest, AlterPartitionResponse

logger = logging.getLogger("tidelog.server.node")

ALTER_PARTITIONS_TIMEOUT_MS = 10_000
"""Then the leaders propose anew what they want by then."""


class Node:
    """Everything of one process.

    To be made on its event loop.

    Args:
        disk: where all files lie.
        network: where it listens.
        executor: takes whatever may wait for the disk.

    Attributes:
        group_lags: how far groups lag; None unless it is shown.
        failure: done when this node cannot go on, be it while it starts or later, with the reason.
        member: what takes part in the cluster; None until the files are open and the ports are bound.
        metrics: what is counted; None unless somebody wants to know.
        tasks: everything that runs here, in the parts of the node.
    """

    def __init__(
        self, config: NodeConfig, *, disk: Disk, network: Network, clock: Clock, rng: Rng, executor: Executor
    ) -> None:
        self.config = config
        self.clock = clock
        self.rng = rng
        self.tasks = Tasks("node")
        self._upkeep = self.tasks.branch("upkeep", lambda error: self._fail(f"its upkeep ended: {error}"))
        self.connections = Connections.of(config.static, network.file_limit(), clock)
        self.files = LogFiles(
            config,
            disk=disk,
            clock=clock,
            rng=rng,
            executor=executor,
            tasks=self.tasks,
            room_for_logs=lambda: self.connections.limits.room_for_logs(network.open_files()),
        )
        self.networks = NodeNetworks(config, network)
        self.logins = NodeLogins(config, rng)
        self.authentication = Authentication(config.static, self, self.connections.peers, clock=clock, rng=rng)
        self.authorizer = authorizer_of(config.static)
        self.audit = AuditLog(clock)
        fetch_settings = ReplicaFetchSettings.from_properties(config.static)
        self.broker = Broker(
            config.node_id,
            rng.uuid(),
            self.files,
            lambda broker: Replication(
                broker,
                config.node_id,
                self.files.served,
                self._alter_partitions,
                fetch_settings,
                network=self.networks.to_brokers,
                security=self.logins.to_brokers,
                clock=clock,
                rng=rng,
            ),
            clock=clock,
            executor=executor,
            tasks=self.tasks,
            on_failed=self._fail,
        )
        self._dynamic_configs = DynamicConfigs(config.static, config.node_id)
        self.broker.add_listener(self._dynamic_configs)
        if isinstance(self.authorizer, AclAuthorizer):
            self.broker.add_listener(AccessRules(self.authorizer, lambda: self.quorum.committed_end))
        self.broker.add_listener(ClientQuotasInForce(self.connections.quotas))
        coordinator_node = CoordinatorNode(self.broker, config.static, clock, executor, rng, self.create_topics)
        self.share_states = ShareCoordinators(coordinator_node, log_starts=self.files.served)
        self.share_persister = SharePersister(self.broker, self.share_states, rng)
        self.groups = GroupCoordinators(
            coordinator_node, send_to_leader=GroupRequests(self.share_persister).send_to_leader
        )
        self.share_positions = ShareGroupPositions(self.broker, self.share_persister)
        self.marker_writer = MarkerWriter(self.broker, self.groups, clock)
        self._marker_sends = MarkerSends(self.broker, self.marker_writer.write)
        self.transactions = TransactionCoordinators(coordinator_node, send_to_leader=self._marker_sends.send_to_leader)
        self.verification = TransactionVerification(self.broker, self.transactions)
        self.told_readers = ToldReaders()
        self.fetch_sessions = FetchSessions(config.fetch_session_slots, config.fetch_session_partitions, rng)
        self.share_fetching = ShareFetching(
            self.broker,
            self._share_state_keeper(),
            config.static,
            clock=clock,
            partitions_max=config.fetch_session_partitions,
        )
        self.metrics: NodeMetrics | None = None
        self.group_lags: GroupLags | None = None
        self._slow_requests: SlowRequestLog | None = None
        self._metrics_listener: MetricsListener | None = None
        self._set_up_metrics()
        self.listeners = Listeners(
            config,
            self.connections,
            networks=self.networks,
            authentication=self.authentication,
            clock=clock,
            executor=executor,
            new_dispatcher=self._new_dispatcher,
            is_timed=self.metrics is not None,
        )
        for follower in (
            PartitionSettings(self.broker),
            self.connections,
            self.files.deletions,
            self.broker.replication,
            self.broker.moves,
            self.broker.producers,
            self.groups,
            self.share_fetching,
            self.networks,
            self.logins,
            self.authentication,
            self.listeners,
        ):
            self._dynamic_configs.follow(follower)
        self.broker_watch = BrokerWatch(self, clock=clock, network=network, tasks=self.tasks)
        self.controller_registrations = ControllerRegistrations()
        self.failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.executor = executor
        self.replica_stops = ReplicaStops(
            config.node_id,
            fetch_settings.listener_name,
            lambda: None if self.active_controller is None else self.active_controller.leader_epoch,
            network=self.networks.to_brokers,
            security=self.logins.to_brokers,
            rng=rng,
            tasks=self.tasks,
        )
        self._disk = disk
        self._network = network
        self._executor = executor
        self.member: ClusterMember | None = None
        self._has_started = False
        self._not_ready: str | None = "it starts: its files are being opened"
        self._consistency_state = ConsistencyState(None, None)

    # What handlers ask.

    @property
    def cluster_id(self) -> ClusterId:
        return self.files.cluster_id

    @property
    def image(self) -> MetadataImage:
        """The metadata that this node answers from."""
        return self.broker.image

    @property
    def broker_settings(self) -> BrokerSettings:
        """What is set for this broker: its file, and what was changed since."""
        return self._dynamic_configs.in_force.broker

    @property
    def consistency_state(self) -> ConsistencyState:
        """What every answer is stamped with: how recent the metadata is that it reflects (KIP-1243)."""
        last_offset = self.broker.image.last_offset
        if self._consistency_state.token != last_offset:
            self._consistency_state = ConsistencyState(self.cluster_id, last_offset)
        return self._consistency_state

    @property
    def controller(self) -> Controller:
        """The active controller.

        Raises:
            KafkaError: NOT_CONTROLLER while there is none here.
        """
        controller = self.active_controller
        if controller is None:
            raise refusal(Code.NOT_CONTROLLER, "this node's controller is not active")
        return controller

    @property
    def not_ready(self) -> str | None:
        """Why this node does not serve at present, or no controller counts on it; None while all is well."""
        if self.failure.done():
            return self.failure.result()
        if self._not_ready is not None or self.member is None:
            return self._not_ready
        return self.member.why_uncontrolled(self.config.broker_session_timeout_ms)

    @property
    def active_controller(self) -> Controller | None:
        """As `controller`, for whoever can do without."""
        return None if self.member is None else self.member.active_controller

    @property
    def unclean_elections(self) -> int:
        """How many its controller held while it was active."""
        return 0 if self.member is None else self.member.controller.unclean_elections

    @property
    def metadata_received_end_offset(self) -> Offset:
        """Exclusive: so much of the metadata is known to be committed here, be it applied by the broker or not."""
        return Offset(0) if self.member is None else self.member.controller.journal.committed_end_offset

    @property
    def joined(self) -> ClusterMember:
        """As `member`, for whoever cannot do without.

        Raises:
            KafkaError: BROKER_NOT_AVAILABLE: this node only starts.
        """
        if self.member is None:
            raise refusal(Code.BROKER_NOT_AVAILABLE, "this node starts: it takes no part in a cluster yet")
        return self.member

    @property
    def quorum(self) -> MetadataQuorum:
        """Its share in the metadata quorum. Raises as `joined`."""
        return self.joined.quorum

    @property
    def kraft_version(self) -> int:
        """1 where the metadata log says who votes, and 0 where the settings do, or it is not known yet."""
        return 0 if self.member is None else self.member.quorum.kraft_version

    @property
    def voter_requests(self) -> VoterRequests:
        """Raises as `joined`."""
        return self.joined.voter_requests

    @property
    def channel(self) -> ControllerChannel:
        """To the active controller, wherever it is. Raises as `joined`."""
        return self.joined.channel

    @property
    def controller_id(self) -> BrokerId | None:
        """Whom clients take for the controller: a broker that they can reach, for any of them does what they ask.

        The node that leads the quorum where it is such a broker; else this one, or the first that there is.
        """
        leads, us = self.quorum.leader_id, self.config.node_id
        active = [broker.broker_id for broker in self.image.brokers.values() if broker.is_active]
        return next((one for one in (leads, us) if one in active), min(active, default=None))

    @property
    def broker_epoch(self) -> BrokerEpoch | None:
        """Of the broker's present incarnation; None before it is registered, and where there is no broker."""
        return None if self.member is None else self.member.broker_epoch

    async def next_producer_id(self) -> ProducerId:
        """An id that nobody was given before, over all restarts. Raises KafkaError: see `ProducerIds`."""
        return await self.joined.producer_ids.next()

    async def create_topics(
        self, topics: Sequence[TopicToCreate], context: RequestContext | None = None
    ) -> tuple[CreateTopicResult, ...]:
        """See `DataApi`. Raises KafkaError: as `create_topics_here`, but NOT_CONTROLLER."""
        return await forwarding.create_topics(self, topics, context)

    async def create_topics_here(
        self, topics: Sequence[TopicToCreate], *, validate_only: bool = False
    ) -> tuple[CreateTopicResult, ...]:
        """Create topics; what was created can be written to at this broker when this returns.

        Raises:
            KafkaError: NOT_CONTROLLER. KAFKA_STORAGE_ERROR: the disk is full. Their partitions would be offline from
                the first, and a node whose metadata finds no room ends.
        """
        if self.files.is_known_full:
            raise refusal(
                Code.KAFKA_STORAGE_ERROR,
                "the disk is full: no topic can be made until there is room; delete topics, shorten their retention, "
                "or enlarge the disk",
            )
        created: tuple[CreateTopicResult, ...] = await self.controller.request(
            lambda state: state.decide_create_topics(topics, rng=self.rng, validate_only=validate_only)
        )
        await self.caught_up()
        return created

    async def caught_up(self) -> None:
        """Return once this broker's image reflects all that the controller has answered it by now (own writes)."""
        controller, last_offset = self.active_controller, self.channel.last_offset
        if controller is not None:
            await self.broker.applied(controller.journal.committed_end_offset)
        if last_offset is not None:
            await self.broker.applied(Offset(last_offset + 1))

    async def _alter_partitions(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Send AlterPartition to the active controller."""
        from tidelog.wire.messages.api_56_alter_partition import AlterPartitionResponse

        return await self.channel.request(
            request, AlterPartitionResponse, timeout_ms=ALTER_PARTITIONS_TIMEOUT_MS, request_class="isr"
        )

    # Start and stop.

    async def start(self) -> None:
        """Return when this node serves. Should it fail meanwhile (`failure`), this may never return.

        Raises:
            TidelogError: it cannot; the text says why and what to do.
        """
        if not KERNEL_IS_COMPILED:
            logger.warning(
                "the interpreted kernel serves: to look at each record costs twenty times as much; "
                "install a C compiler and install tidelog again for the compiled one"
            )
        self._dynamic_configs.log_what_does_nothing()
        await self._start_metrics()
        await self._executor.run(self.files.open)
        self.listeners.bind()
        self._upkeep.start(self.networks.watch(self._executor))  # others may refuse the present certificate
        self._not_ready = "it starts: the metadata log is being read"
        self.member = member = await self._join()
        self.listeners.accept(CONTROLLER)  # the quorum's other nodes must reach this one before it can be elected
        await member.quorum.start()
        self._upkeep.start(member.voter_requests.keep_endpoints_published())
        self._upkeep.start(self.broker_watch.run())
        if member.registration is not None:
            self._upkeep.start(member.registration.watch_leader())
            self._upkeep.start(member.registration.run())
        if self.config.leader_balance_interval_seconds is not None:
            balancing = LeaderBalancing(self, interval_seconds=self.config.leader_balance_interval_seconds)
            self._upkeep.start(balancing.run())
        self._upkeep.start(TokenExpiry(self, BrokerSettings.of(self.config.static), self.clock).run())
        if member.lifecycle is not None:
            self._not_ready = "it starts: it waits for a controller to register it, or its logs are being opened"
            await member.lifecycle.start(lambda: self.listeners.accept(EARLY))
            self._dynamic_configs.log_what_does_not_count(self.image)
            self.listeners.accept(BROKER)  # at once: others count on it, and one whose port refuses is taken for dead
            await self.broker.set_strays_aside()
        self._upkeep.start(self.groups.begin())
        self._upkeep.start(self.transactions.begin())
        self._upkeep.start(self.share_states.begin())
        of_node = self.config, self.broker_settings, self.broker, self.files
        chores = LogChores(*of_node, disk=self._disk, clock=self.clock, executor=self._executor, rng=self.rng)
        chores.start(self._upkeep, self._dynamic_configs)
        self._upkeep.start(self.listeners.close_idle())
        self._has_started = True
        self._not_ready = None
        shortage = self.connections.limits.shortage(self._network.open_files())
        if shortage is not None:
            logger.warning("%s", shortage)
        logger.info(
            "node %s of cluster %s serves on port %s, metadata at offset %s, controller epoch %s",
            self.config.node_id,
            self.cluster_id,
            self.listeners.first.port,
            self.image.last_offset,
            self.quorum.leader_epoch,
        )

    async def stop(self) -> bool:
        """Stop cleanly: others lead, no new requests, answers to those under way, logs synced and marked as clean.

        Returns:
            Whether every log was closed; what was in the way is in the log.
        """
        self._not_ready = "it stops"
        is_clean = self._has_started and not self.failure.done()
        member = self.member
        lifecycle = None if member is None else member.lifecycle
        if lifecycle is not None and is_clean:
            await lifecycle.shut_down()
        self.listeners.close()
        await self._upkeep.end()
        if lifecycle is not None:
            await lifecycle.stop()
        await self.replica_stops.stop()
        await self._marker_sends.stop()
        await self.broker.stop()  # whoever waits is answered now
        await self.share_fetching.stop()
        if member is not None:
            await member.channel.close()
            await member.quorum.resign()
        await self.listeners.close_connections()
        if member is not None:
            await member.quorum.stop()
        if self._metrics_listener is not None:
            await self._metrics_listener.stop()
        await self.tasks.end()
        is_clean = is_clean and not self.failure.done()
        return await self.files.close(self.broker.partitions, self.broker_epoch if is_clean else None)

    def _fail(self, reason: str) -> None:
        if not self.failure.done():
            self.failure.set_result(reason)

    def _new_dispatcher(self, role: str) -> Dispatcher:
        requests = None if self.metrics is None else self.metrics.requests
        throttle = Throttle.at(role, self.connections.quotas, self.config)
        return Dispatcher(self, role, requests, self._slow_requests, throttle)

    def _share_state_keeper(self) -> KeepsShareStates:
        """How the leaders of share partitions reach share coordinators."""
        return self.share_persister

    def _set_up_metrics(self) -> None:
        """Make what counts, and what tells of slow requests, where somebody wants to know; load nothing otherwise."""
        config = self.config
        if config.metrics_listener is None and config.slow_request_log_ms is None:
            return
        from tidelog.server.settings.metrics import NodeMetrics

        self.metrics = NodeMetrics(config.metrics_topics_max)
        if config.metrics_listener is not None:
            from tidelog.server.groups.group_lags import GroupLags

            self.group_lags = GroupLags(self.groups, self.broker, self.clock, config.metrics_group_topics_max)
        if config.slow_request_log_ms is not None:
            from tidelog.server.api.slow_requests import SlowRequestLog

            self._slow_requests = SlowRequestLog(config.slow_request_log_ms)

    async def _start_metrics(self) -> None:
        """First of all, so that somebody who waits for this node can ask what it is doing."""
        listener = self.config.metrics_listener
        if listener is None or self.metrics is None:
            return
        from tidelog.server.observe.metrics_listener import MetricsListener

        self._metrics_listener = MetricsListener(self, self._executor, self.tasks)
        await self._metrics_listener.start(listener.host, listener.port)
        self._upkeep.start(self.metrics.watch_loop())

    async def _join(self) -> ClusterMember:
        """Make what takes part in the cluster, of what is on disk. Raises TidelogError: the files cannot be read."""
        config, node_id = self.config, self.config.node_id
        opened = await self._executor.run(self.files.open_metadata_log)
        first_metadata = await self._executor.run(self.files.metadata.read_first_metadata)
        told = [self.listeners.advertised(one.name) for one in config.controller_listeners]
        quorum = MetadataQuorum(
            node_id,
            self.cluster_id,
            config.quorum,
            opened,
            self.files.metadata,
            endpoints=tuple((one.name, one.host, one.port) for one in told),
            new_controller=lambda quorum: Controller(
                ControllerState(controller_settings(config, self.cluster_id)),
                quorum,
                on_committed=self.broker.on_committed,
                clock=self.clock,
                listeners=(self.broker_watch, self.replica_stops, self.controller_registrations),
                first_metadata=first_metadata,
            ),
            network=self.networks.to_controllers,
            security=self.logins.to_controllers,
            clock=self.clock,
            rng=self.rng,
            executor=self._executor,
            tasks=self.tasks,
            on_failed=self._fail,
        )
        if opened.snapshot is not None:
            await quorum.controller.on_snapshot(opened.snapshot)
        if self.files.incarnations.previous.registers is not None:
            self.broker.incarnation_id = self.files.incarnations.previous.registers
        channel = ControllerChannel(
            node_id,
            self.cluster_id,
            quorum,
            network=self.networks.to_controllers,
            security=self.logins.to_controllers,
            rng=self.rng,
        )
        return ClusterMember(
            quorum=quorum,
            controller=quorum.controller,
            voter_requests=VoterRequests(quorum, clock=self.clock),
            channel=channel,
            producer_ids=ProducerIds(node_id, lambda: self.broker_epoch, channel),
            lifecycle=self._new_lifecycle(channel) if config.broker_listeners else None,
            registration=None if config.broker_listeners else self._new_registration(quorum, channel),
            losses=self._new_loss_reports(channel) if config.broker_listeners else None,
        )

    def _new_registration(self, quorum: MetadataQuorum, channel: ControllerChannel) -> ControllerRegistration:
        registration = ControllerRegistration(
            self.config.node_id,
            self.broker.incarnation_id,
            self.listeners.endpoints(self.config.controller_listeners),
            image=self.broker.image,
            quorum=quorum,
            channel=channel,
        )
        self.broker.add_listener(registration)
        return registration

    def _new_lifecycle(self, channel: ControllerChannel) -> BrokerLifecycle:
        return BrokerLifecycle(
            self.config,
            self.cluster_id,
            self.listeners.endpoints(self.config.broker_listeners),
            broker=self.broker,
            files=self.files,
            channel=channel,
            rng=self.rng,
            on_failed=self._fail,
        )

    def _new_loss_reports(self, channel: ControllerChannel) -> LossReports:
        return LossReports(
            self.broker,
            lambda: self.broker_epoch,
            channel,
            clock=self.clock,
            disk=self._disk,
            executor=self._executor,
            rng=self.rng,
            tasks=self.broker.tasks,
            retention_check_interval_ms=self.config.retention_check_interval_ms,
        )
