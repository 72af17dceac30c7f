"""One node: a broker and the controller of a quorum of one, in one process.

It starts in the order in which each part can be true: files, ports, metadata, registration, logs, leaderships; and
only then does it accept anyone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, NetworkError, refusal
from tidelog.base.ids import BrokerEpoch, ClusterId, Offset, ProducerId
from tidelog.base.ports import Clock, Disk, Executor, Listening, Network, Rng
from tidelog.controller import (
    BrokerChange,
    BrokerToRegister,
    ControllerSettings,
    ControllerState,
    CreatedTopic,
    NewTopic,
    ProducerIdBlock,
)
from tidelog.metadata import Endpoint, MetadataDelta, MetadataImage
from tidelog.metadata.configs import BrokerSettings, broker_settings
from tidelog.metadata.features import own_features
from tidelog.records import KERNEL_IS_COMPILED
from tidelog.server.broker import Broker
from tidelog.server.cleaner import Cleaner
from tidelog.server.config import Listener, NodeConfig
from tidelog.server.connections import ConnectionLimits, Connections
from tidelog.server.controller import Controller
from tidelog.server.dispatch import BROKER, CONTROLLER, Dispatcher
from tidelog.server.drive import Closed, ServerConnection
from tidelog.server.dynamic_configs import DynamicConfigs
from tidelog.server.fetch_sessions import FetchSessions
from tidelog.server.group_coordinators import GroupCoordinators
from tidelog.server.log_files import LogFiles
from tidelog.server.replication import Replication
from tidelog.server.replication_settings import ReplicaFetchSettings
from tidelog.wire import ConsistencyState

if TYPE_CHECKING:
    from tidelog.server.metrics import NodeMetrics
    from tidelog.server.metrics_listener import MetricsListener
    from tidelog.server.slow_requests import SlowRequestLog
    from tidelog.wire.messages.api_56_alter_partition import AlterPartitionRequest, AlterPartitionResponse

logger = logging.getLogger("tidelog.server.node")

STOP_SECONDS_MAX = 5.0
LISTEN_BACKLOG_MIN = 1024
IDLE_CHECKS_PER_LIMIT = 4
IDLE_CHECK_INTERVAL_MS_MIN = 10
IDLE_CHECK_INTERVAL_MS_MAX = 15_000
"""An idle connection lets go of its buffer when it is looked at for the second time."""
SWEPT_AT_ONCE = 500


class Node:
    """Everything of one process.

    To be made on its event loop.

    Args:
        disk: where all files lie.
        network: where it listens.
        executor: takes whatever may wait for the disk.

    Attributes:
        failure: done when this node cannot go on, be it while it starts or later, with the reason.
        metrics: what is counted; None unless somebody wants to know.
    """

    def __init__(
        self, config: NodeConfig, *, disk: Disk, network: Network, clock: Clock, rng: Rng, executor: Executor
    ) -> None:
        self.config = config
        self.clock = clock
        self.rng = rng
        self.files = LogFiles(config, disk=disk, clock=clock, rng=rng, executor=executor)
        replication = Replication(
            config.node_id,
            self.files,
            self._alter_partitions,
            ReplicaFetchSettings.from_properties(config.static),
            network=network,
            clock=clock,
            rng=rng,
        )
        self.broker = Broker(
            config.node_id, self.files, replication, clock=clock, executor=executor, on_failed=self._fail
        )
        self.broker.incarnation_id = rng.uuid()
        self.groups = GroupCoordinators(
            self.broker, config.static, clock=clock, executor=executor, rng=rng, create_topics=self.create_topics
        )
        self.broker.on_leadership_changed = self.groups.on_leadership_changed
        self.broker.on_image_changed = self._on_image_changed
        self.fetch_sessions = FetchSessions(config.fetch_session_slots, rng)
        self.connections = Connections(
            ConnectionLimits(
                config.connections_max,
                config.connections_per_ip_max,
                config.connections_per_ip_overrides,
                network.file_limit(),
            )
        )
        self._dynamic_configs = DynamicConfigs(config.static, self.broker, self.files, self.connections)
        self.metrics: NodeMetrics | None = None
        self._slow_requests: SlowRequestLog | None = None
        self._metrics_listener: MetricsListener | None = None
        self._set_up_metrics()
        self.failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._disk = disk
        self._network = network
        self._executor = executor
        self._controller: Controller | None = None
        self._acceptors: list[Listening] = []
        self._listeners: dict[str, Listener] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._producer_ids: ProducerIdBlock | None = None
        self._producer_ids_lock = asyncio.Lock()
        self._broker_epoch = BrokerEpoch(-1)
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
        return broker_settings(self.config.static, self.image.configs, self.config.node_id)

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
        if self._controller is None:
            raise refusal(Code.NOT_CONTROLLER, "this node's controller is not active")
        return self._controller

    @property
    def not_ready(self) -> str | None:
        """Why this node does not serve at present; None while it does."""
        return self.failure.result() if self.failure.done() else self._not_ready

    @property
    def active_controller(self) -> Controller | None:
        """As `controller`, for whoever can do without."""
        return self._controller

    @property
    def listener_names(self) -> tuple[str, ...]:
        return tuple(self._listeners)

    @property
    def client_port(self) -> int:
        """Of the first listener for clients."""
        return self._listeners[self.config.broker_listeners[0].name].port

    @property
    def client_address(self) -> str:
        """HOST:PORT as clients are told of the first listener for them: what is advertised is not what is bound."""
        told = self.listener(self.config.broker_listeners[0].name)
        return f"[{told.host}]:{told.port}" if ":" in told.host else f"{told.host}:{told.port}"

    def listener(self, name: str) -> Listener:
        """What clients are told of a listener, its real port included."""
        bound = self._listeners[name]
        told = self.config.advertised.get(name, bound)
        return Listener(name, told.host or "127.0.0.1", told.port or bound.port)

    async def create_topics(self, topics: list[NewTopic], *, validate_only: bool = False) -> tuple[CreatedTopic, ...]:
        """Create topics; what was created can be written to at this broker when this returns.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: the disk is full. Their partitions would be offline from the first, and
                a node whose metadata finds no room ends.
        """
        if self.files.is_known_full:
            raise refusal(
                Code.KAFKA_STORAGE_ERROR,
                "the disk is full: no topic can be made until there is room; delete topics, shorten their retention, "
                "or enlarge the disk",
            )
        created: tuple[CreatedTopic, ...] = await self.controller.request(
            lambda state: state.decide_create_topics(topics, rng=self.rng, validate_only=validate_only)
        )
        await self.caught_up()
        return created

    async def create_topics_with_defaults(self, names: list[str]) -> None:
        """As a metadata request asks for. Whatever is refused shows in the image: the topic is not there."""
        results = await self.create_topics([NewTopic(name) for name in names])
        refused = [one for one in results if one.code not in (Code.NONE, Code.TOPIC_ALREADY_EXISTS)]
        if refused:
            first = refused[0]
            more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
            logger.warning("topic %s%s was not created: %s: %s", first.name, more, first.code.name, first.message)

    async def caught_up(self) -> None:
        """Return once this broker's image reflects all that the controller has committed by now (own writes)."""
        await self.broker.applied(self.controller.journal.committed_end_offset)

    async def next_producer_id(self) -> ProducerId:
        """An id that nobody was given before, over all restarts."""
        async with self._producer_ids_lock:
            block = self._producer_ids
            if block is None or block.size == 0:
                block = await self.controller.request(
                    lambda state: state.decide_allocate_producer_ids(self.config.node_id, self._broker_epoch)
                )
            self._producer_ids = ProducerIdBlock(ProducerId(block.first + 1), block.size - 1)
            return block.first

    async def _alter_partitions(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Ask the active controller for ISRs."""
        raise refusal(Code.NOT_CONTROLLER, "a cluster of one has no ISR to change")

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
        await self._start_metrics()
        await self._executor.run(self.files.open)
        self._bind()
        self._not_ready = "it starts: the metadata log is being read"
        await self._start_controller()
        self._not_ready = "it starts: the logs are being opened, and recovered where they were not closed"
        await self._start_broker()
        for acceptor in self._acceptors:
            acceptor.start()
        self._start_task(self.files.keep(self.broker))
        self._start_task(self.groups.begin())
        cleaner = Cleaner(self.broker, self.config.static, disk=self._disk, clock=self.clock, executor=self._executor)
        self._start_task(cleaner.run())
        self._start_task(self._mind_idle(self.config.connection_idle_ms_max))
        self._has_started = True
        self._not_ready = None
        shortage = self.connections.limits.shortage(self._network.open_files())
        if shortage is not None:
            logger.warning("%s", shortage)
        logger.info(
            "node %s of cluster %s serves clients on port %s, metadata at offset %s, controller epoch %s",
            self.config.node_id,
            self.cluster_id,
            self.client_port,
            self.image.last_offset,
            self.controller.leader_epoch,
        )

    async def stop(self) -> bool:
        """Stop cleanly: no new requests, answers to those under way, logs synced and marked as clean.

        Returns:
            Whether every log was closed; what was in the way is in the log.
        """
        self._not_ready = "it stops"
        for acceptor in self._acceptors:
            acceptor.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.broker.stop()  # whoever waits is answered now
        await self._close_connections()
        if self._controller is not None:
            await self._controller.stop()
        if self._metrics_listener is not None:
            await self._metrics_listener.stop()
        is_clean = self._has_started and not self.failure.done()
        broker_epoch = self._broker_epoch if is_clean else None
        return await self.files.close(self.broker.partitions, broker_epoch)

    def _fail(self, reason: str) -> None:
        if not self.failure.done():
            self.failure.set_result(reason)

    def _start_task(self, work: Coroutine[object, object, None]) -> None:
        """Start what runs for as long as the node does; if it cannot, neither can the node."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._on_task_ended)
        self._tasks.append(task)

    def _on_task_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.critical("%s ended: a bug in Tidelog", task.get_coro(), exc_info=error)
            self._fail(f"its upkeep ended: {error}")

    def _set_up_metrics(self) -> None:
        """Make what counts, and what tells of slow requests, where somebody wants to know; load nothing otherwise."""
        config = self.config
        if config.metrics_listener is None and config.slow_request_log_ms is None:
            return
        from tidelog.server.metrics import NodeMetrics

        self.metrics = NodeMetrics(config.metrics_topics_max)
        if config.slow_request_log_ms is not None:
            from tidelog.server.slow_requests import SlowRequestLog

            self._slow_requests = SlowRequestLog(config.slow_request_log_ms)

    async def _start_metrics(self) -> None:
        """First of all, so that somebody who waits for this node can ask what it is doing."""
        listener = self.config.metrics_listener
        if listener is None or self.metrics is None:
            return
        from tidelog.server.metrics_listener import MetricsListener

        self._metrics_listener = MetricsListener(self, self._executor)
        await self._metrics_listener.start(listener.host, listener.port)
        self._start_task(self.metrics.watch_loop())

    def _bind(self) -> None:
        """Take the ports, so that they can be told; nobody is accepted yet."""
        roles = ((BROKER, self.config.broker_listeners), (CONTROLLER, self.config.controller_listeners))
        for role, listeners in roles:
            requests = None if self.metrics is None else self.metrics.requests
            dispatcher = Dispatcher(self, role, requests, self._slow_requests)
            for listener in listeners:
                make = partial(self._new_connection, dispatcher, listener.name)
                try:
                    acceptor = self._network.listen(
                        listener.host or None,
                        listener.port,
                        backlog=max(self.config.listen_backlog, LISTEN_BACKLOG_MIN),
                        admit=partial(self.connections.admit, make, role == BROKER),
                        on_trouble=self.connections.on_trouble,
                    )
                except NetworkError as error:
                    raise NetworkError(
                        f"listener {listener.name}: cannot listen on {listener.host}:{listener.port}: "
                        f"{error}; give it another port, or stop what uses it"
                    ) from error
                self._acceptors.append(acceptor)
                if role == BROKER:
                    self.connections.hold_up(acceptor)
                port = acceptor.port
                self._listeners[listener.name] = Listener(listener.name, listener.host, port)
                if role == BROKER and not listener.host and listener.name not in self.config.advertised:
                    logger.warning(
                        "listener %s: clients are told %s:%s, which is this machine for nobody but itself; "
                        "for others set advertised.listeners=%s://HOST:%s",
                        *(listener.name, self.listener(listener.name).host, port, listener.name, port),
                    )

    def _new_connection(
        self, dispatcher: Dispatcher, listener_name: str, on_closed: Callable[[Closed], None]
    ) -> ServerConnection:
        return ServerConnection(
            dispatcher.on_frame,
            listener_name=listener_name,
            frame_size_bytes_max=self.config.request_size_bytes_max,
            connections=self.connections.open,
            executor=self._executor,
            on_closed=on_closed,
            is_timed=self.metrics is not None,
        )

    async def _start_controller(self) -> None:
        config = self.config
        log = await self._executor.run(self.files.open_metadata_log)
        settings = ControllerSettings(
            cluster_id=self.cluster_id,
            num_partitions=config.num_partitions,
            replication_factor=config.default_replication_factor,
            delete_topic_enable=config.delete_topic_enable,
            broker=BrokerSettings.of(config.static),
            node_id=config.node_id,
        )
        controller = Controller(
            config.node_id,
            log,
            ControllerState(settings),
            clock=self.clock,
            executor=self._executor,
            on_committed=self._on_committed,
            on_failed=self._fail,
            persist=self.files.write_quorum_state,
        )
        await controller.become_active(await self._executor.run(self.files.read_quorum_state))
        self._controller = controller
        await controller.request(lambda state: state.decide_bootstrap())

    async def _start_broker(self) -> None:
        config = self.config
        incarnation_id = self.broker.incarnation_id
        assert incarnation_id is not None
        broker = BrokerToRegister(
            broker_id=config.node_id,
            incarnation_id=incarnation_id,
            endpoints=tuple(
                Endpoint(one.name, one.host, one.port)
                for one in (self.listener(listener.name) for listener in config.broker_listeners)
            ),
            cluster_id=self.cluster_id,
            rack=config.rack,
            log_dirs=self.files.directory_ids,
            features=own_features(),
        )
        controller = self.controller
        registered: BrokerChange = await controller.request(
            lambda state: state.decide_register_broker(broker, next_offset=controller.journal.next_offset)
        )
        self._broker_epoch = registered.broker_epoch
        await self.caught_up()  # it has seen its own registration (rule 6), and opened its logs
        await controller.request(lambda state: state.decide_unfence_broker(config.node_id, registered.broker_epoch))
        await self.caught_up()
        await self._executor.run(partial(self.files.set_strays_aside, self.image))

    def _on_image_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._dynamic_configs.on_image_changed(delta, image)
        self.groups.on_image_changed(delta, image)

    def _on_committed(self, records: tuple[object, ...], end_offset: Offset) -> None:
        self.broker.on_committed(records, end_offset)

    async def _close_connections(self) -> None:
        still_open = self.connections.open
        for connection in list(still_open):
            connection.close_when_answered()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STOP_SECONDS_MAX
        while still_open and loop.time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(still_open):
            connection.close()

    async def _mind_idle(self, idle_ms_max: int | None) -> None:
        """Close connections on which nothing came to its end for so long (`connections.max.idle.ms`)."""
        interval_ms, sweeps_max = IDLE_CHECK_INTERVAL_MS_MAX, None
        if idle_ms_max is not None:
            interval_ms = min(max(idle_ms_max // IDLE_CHECKS_PER_LIMIT, IDLE_CHECK_INTERVAL_MS_MIN), interval_ms)
            sweeps_max = max(-(-idle_ms_max // interval_ms), IDLE_CHECKS_PER_LIMIT)
        while True:
            await asyncio.sleep(interval_ms / 1000)
            for count, connection in enumerate(list(self.connections.open), start=1):
                connection.sweep(sweeps_max)
                if count % SWEPT_AT_ONCE == 0:
                    await asyncio.sleep(0)  # who has something to ask comes first
