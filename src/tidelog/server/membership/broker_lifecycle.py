"""How a broker lives in its cluster: it is taken in, it is heard of, it takes its leave.

```
 starts ──registers──► fenced ──has seen its own registration──► unfenced ──wants to stop──► leads nothing ──► stops
    ▲                    ▲                                          │ ▲
    │                    └──────────── silent for a session ────────┘ └─ the next heartbeat, as soon as it is heard of
    └── the controller knows nothing of it any more: unregistered, or another process has its id
```
Order: every log directory says, synced, which incarnation is about to register; registered; then its broker epoch is
written there, synced; then what it has lost of its logs, by the metadata up to its registration, is told and committed;
then it says that it may lead. So whatever it writes as a leader lies where the next start can
tell whether it is still there (rule 7), and who is killed while it registers is the same incarnation at the next start.

Kafka: `BrokerLifecycleManager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.base.errors import (
    Code,
    ConfigError,
    DiskError,
    InvariantBrokenError,
    KafkaError,
    TidelogError,
    TimedOutError,
)
from tidelog.base.ids import BrokerEpoch, ClusterId, Offset
from tidelog.base.ports import Rng
from tidelog.metadata import MetadataDelta, MetadataImage, RegisteredEndpoint
from tidelog.metadata.features import own_features, unsupported
from tidelog.server.broker.broker import Broker
from tidelog.server.broker.listeners import BrokerListener
from tidelog.server.membership.controller_channel import ControllerChannel
from tidelog.server.membership.directory_assignments import DirectoryAssignments
from tidelog.server.settings.config import NodeConfig
from tidelog.server.storage.log_files import LogFiles
from tidelog.server.tasks import unless

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.server.replication.partition import Partition
    from tidelog.wire.messages.api_62_broker_registration import BrokerRegistrationRequest
    from tidelog.wire.messages.api_63_broker_heartbeat import BrokerHeartbeatResponse

logger = logging.getLogger("tidelog.server.lifecycle")

REQUEST_CLASS = "lifecycle"
"""A connection of its own: no heartbeat waits behind a request that takes long."""
RETRY_MS = 100
LEARN_MS_MAX = 2_000
CONTROLLED_SHUTDOWN_MS_MAX = 5_000
CONTROLLER_ABSENT_MS_MAX = 1_500
"""A broker that stops waits no longer for a controller: whoever could elect one may be stopping too."""
SHUTDOWN_HEARTBEAT_INTERVAL_MS = 50
REGISTRATION_AGAIN = (Code.STALE_BROKER_EPOCH, Code.BROKER_ID_NOT_REGISTERED)


class BrokerLifecycle(BrokerListener):
    """The broker of one node.

    Args:
        endpoints: where clients and brokers reach it.
        on_failed: told why this broker cannot go on; the node has to stop.

    Attributes:
        broker_epoch: of this incarnation; None before it is registered.
        heard_at: when a controller answered last, on the clock of the event loop.
    """

    def __init__(
        self,
        config: NodeConfig,
        cluster_id: ClusterId,
        endpoints: Sequence[RegisteredEndpoint],
        *,
        broker: Broker,
        files: LogFiles,
        channel: ControllerChannel,
        rng: Rng,
        on_failed: Callable[[str], None],
    ) -> None:
        self.broker_epoch: BrokerEpoch | None = None
        self.heard_at = asyncio.get_running_loop().time()
        self._config = config
        self._cluster_id = cluster_id
        self._endpoints = endpoints
        self._broker = broker
        self._files = files
        self._channel = channel
        self._rng = rng
        self._on_failed = on_failed
        self._tasks = broker.tasks.branch("lifecycle", self._on_ended)
        self._directories = DirectoryAssignments(
            config.node_id, files, lambda: self.broker_epoch, channel, rng=rng, tasks=self._tasks
        )
        self._presents: BrokerEpoch | None = None  # of the incarnation that lost nothing since
        self._has_shown = False  # it registered as one that lost nothing
        self._has_noted = False  # its directories say which broker epoch writes to them
        self._wants_shut_down = False
        self._let_in: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._let_go: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wake = asyncio.Event()
        broker.add_listener(self)

    async def start(self, on_known: Callable[[], None] | None = None) -> None:
        """Register, and return once this broker may lead.

        Args:
            on_known: called before, when the image has all up to its registration.

        Raises:
            TidelogError: it is not taken in; the text says why and what to do.
        """
        if not self._files.opening.serves_what_is_left:
            self._presents = self._files.incarnations.previous_broker_epoch
        await self._register(self._config.broker_registration_timeout_ms)
        self._tasks.start(self._live())
        self._tasks.start(self._watch_leader())
        if on_known is not None:
            self._tasks.start(self._tell_known(on_known))
        await self._let_in

    async def _tell_known(self, on_known: Callable[[], None]) -> None:
        assert self.broker_epoch is not None
        await self._broker.applied(Offset(self.broker_epoch + 1))
        on_known()

    async def shut_down(self) -> None:
        """Have all that this broker leads led by others; return when they do, or when nobody can see to it in time."""
        if not self._let_in.done() or not self._config.controlled_shutdown_enable or not self._others():
            return
        self._wants_shut_down = True
        self._wake.set()
        try:
            async with asyncio.timeout(CONTROLLED_SHUTDOWN_MS_MAX / 1000):
                await self._let_go
        except TimeoutError:
            logger.warning("others do not lead yet what this broker led: it stops all the same")

    async def stop(self) -> None:
        """Send no more heartbeats, and report no more directories."""
        await self._tasks.end()

    def on_image_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """To be called on the loop, before `image` is published, when what this broker is to lead it leads.

        What is about this broker, the controller hears of at once; so it does of others that stop: they wait until
        everybody knows who leads in their place.
        """
        self._directories.on_image_changed(delta, image)
        for broker_id in delta.changed_brokers:
            broker = image.brokers.get(broker_id)
            if broker is None:
                continue
            if broker_id == self._config.node_id:
                self._wake.set()
                if broker.broker_epoch == self.broker_epoch and not broker.is_fenced:
                    _resolve(self._let_in)
            elif broker.in_controlled_shutdown:
                self._wake.set()

    def on_moved(self, partition: Partition) -> None:
        self._directories.on_moved(partition)

    def on_directory_failed(self) -> None:
        self._wake.set()  # the controller should hear of it at once

    def _others(self) -> bool:
        """Whether anybody else could lead."""
        us = self._config.node_id
        return any(one.is_active and one.broker_id != us for one in self._broker.image.brokers.values())

    # Registration.

    async def _register(self, timeout_ms: int | None) -> None:
        """Return with the broker epoch of this incarnation.

        While nobody leads the metadata quorum this waits, as long as it takes: this node may be one of those that are
        needed to elect a leader.

        Args:
            timeout_ms: after which to give up, once somebody leads; None for never.

        Raises:
            TidelogError: no controller took it in within its time, or one refused it for good.
        """
        from tidelog.wire.messages.api_62_broker_registration import BrokerRegistrationResponse

        incarnation_id = self._broker.incarnation_id
        await self._files.incarnations.write_registering(self._presents, incarnation_id)
        loop = asyncio.get_running_loop()
        started = loop.time()
        duplicate_since: float | None = None
        reason = ""
        while True:
            if self._channel.is_leaderless:
                await self._channel.leaderless(False)
                started = loop.time()
            left_ms = self._config.broker_session_timeout_ms
            if timeout_ms is not None:
                left_ms = timeout_ms - int((loop.time() - started) * 1000)
                if left_ms <= 0:
                    raise TimedOutError(
                        f"no controller took this broker in within {timeout_ms} ms "
                        f"(initial.broker.registration.timeout.ms): {reason}"
                    )
            try:
                request = self._channel.request(
                    self._registration(), BrokerRegistrationResponse, timeout_ms=left_ms, request_class=REQUEST_CLASS
                )
                answer = await unless(request, self._channel.leaderless())
            except KafkaError as error:
                if error.code != Code.REQUEST_TIMED_OUT:
                    raise
                reason = str(error)
                if timeout_ms is None:
                    logger.warning("this broker is not registered: %s", reason)
                continue
            if answer is None:
                continue
            self.heard_at = loop.time()
            code = Code(answer.error_code)
            if code == Code.NONE:
                break
            if code == Code.DUPLICATE_BROKER_REGISTRATION:
                if duplicate_since is None:
                    duplicate_since = loop.time()
                    logger.warning(
                        "another process was heard of as broker %s within its session: this one waits for that to end",
                        self._config.node_id,
                    )
                if loop.time() - duplicate_since > self._session_end_ms / 1000:
                    raise self._refused(code)
            elif not code.retriable:
                await self._learn_why()
                raise self._refused(code)
            reason = f"{code.name}: {code.meaning}"
            await asyncio.sleep(RETRY_MS / 1000)
        self._has_shown = self._presents is not None
        self.broker_epoch = self._presents = BrokerEpoch(answer.broker_epoch)
        self._has_noted = False
        logger.info("broker %s is registered at broker epoch %s", self._config.node_id, self.broker_epoch)

    @property
    def _session_end_ms(self) -> int:
        """By when a process that is gone must have been found out."""
        return 2 * self._config.broker_session_timeout_ms + RETRY_MS

    def _registration(self) -> BrokerRegistrationRequest:
        from tidelog.wire.messages.api_62_broker_registration import BrokerRegistrationRequest, Feature, Listener

        config, incarnation_id = self._config, self._broker.incarnation_id
        return BrokerRegistrationRequest(
            broker_id=config.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=incarnation_id,
            listeners=[
                Listener(one.listener_name, one.host, one.port, one.security_protocol) for one in self._endpoints
            ],
            features=[Feature(*one) for one in own_features()],
            rack=config.rack,
            log_dirs=list(self._files.directory_ids),
            previous_broker_epoch=-1 if self._presents is None else self._presents,
        )

    async def _learn_why(self) -> None:
        """The metadata that the refusal rests on says more than its code, if it comes soon."""
        last_offset = self._channel.last_offset
        try:
            async with asyncio.timeout(LEARN_MS_MAX / 1000):
                if last_offset is not None:
                    await self._broker.applied(Offset(last_offset + 1))
        except TimeoutError:
            pass

    def _refused(self, code: Code) -> TidelogError:
        us = self._config.node_id
        match code:
            case Code.DUPLICATE_BROKER_REGISTRATION:
                why = (
                    f"another process serves as broker {us} of this cluster: every node needs a node.id of its own; "
                    "give this one another, or stop that one"
                )
            case Code.INCONSISTENT_CLUSTER_ID:
                why = (
                    f"the log directories of this node are of cluster {self._cluster_id}, and the controller is of "
                    "another: correct the addresses of the controllers, or log.dirs"
                )
            case Code.UNSUPPORTED_VERSION:
                known = unsupported(self._broker.image.features)
                why = (
                    f"{known or 'the cluster works at features that this node does not support'}: run the release that "
                    "the others run"
                )
            case _:
                why = f"the controller refuses this broker: {code.name}: {code.meaning}"
        return ConfigError(why)

    # Heartbeats.

    async def _live(self) -> None:
        """Until this node stops, or the controller will not have this broker any more."""
        try:
            await self._beat()
        except InvariantBrokenError:
            raise
        except TidelogError as error:
            self._on_ended(error)

    async def _beat(self) -> None:
        """Send heartbeats, and do what their answers order, until this node stops."""
        while True:
            await self._prepare()
            self._wake.clear()
            answer = await self._heartbeat()
            if answer is None:
                continue
            code = Code(answer.error_code)
            if code in REGISTRATION_AGAIN:
                logger.warning("the controller knows this broker no more (%s): it registers anew", code.name)
                await self._register(None)
                continue
            if code != Code.NONE:
                logger.warning("a heartbeat was refused: %s: %s", code.name, code.meaning)
            elif answer.should_shut_down and self._wants_shut_down:
                _resolve(self._let_go)
                return
            interval_ms = self._config.broker_heartbeat_interval_ms
            if self._wants_shut_down:
                interval_ms = min(interval_ms, SHUTDOWN_HEARTBEAT_INTERVAL_MS)
            await self._woken(interval_ms)

    async def _watch_leader(self) -> None:
        """A new controller does not know who lives: it suspects nobody before it has heard of everybody else."""
        while True:
            await self._channel.leader_changed()
            self._wake.set()

    async def _prepare(self) -> None:
        """Before it may lead: its registration is in its image, its logs are open, its files say who it is, and what it
        has lost is known to the controller.

        To open logs may take longer than a session: it is heard of meanwhile.
        """
        assert self.broker_epoch is not None
        if not self._has_noted:
            await self._files.incarnations.write_incarnation(self.broker_epoch, self._broker.incarnation_id)
            self._has_noted = True
        if not self._has_seen_itself:
            try:
                async with asyncio.timeout(self._config.broker_heartbeat_interval_ms / 1000):
                    await self._broker.applied(Offset(self.broker_epoch + 1))
            except TimeoutError:
                return
        if self._broker.lost or self._files.opening.has_lost_list:
            await self._resolve_losses()

    async def _resolve_losses(self) -> None:
        """Before it may lead: that it lost replicas is committed, and only then they begin anew.

        A controller of a release that does not know of that takes it for a broker that may have lost anything.
        """
        lost = list(self._broker.lost)
        is_noted = await self._directories.report_lost(lost, timeout_ms=self._config.broker_heartbeat_interval_ms)
        if is_noted is None:
            return
        if not is_noted and self._has_shown:
            logger.error(
                "the controller knows nothing of lost replicas: this broker registers as one that lost records"
            )
            self._presents, self._broker.incarnation_id = None, self._rng.uuid()
            await self._register(None)
            return
        try:
            for partition in await self._broker.begin_anew(lost):
                self._directories.on_moved(partition)
        except DiskError as error:
            logger.error("replicas that were lost cannot begin anew, so this broker does not lead: %s", error)

    @property
    def _has_seen_itself(self) -> bool:
        us = self._broker.image.brokers.get(self._config.node_id)
        return us is not None and us.broker_epoch == self.broker_epoch

    async def _heartbeat(self) -> BrokerHeartbeatResponse | None:
        """The controller's answer; None if none gave any for a session, or, to one that stops, for a little."""
        from tidelog.wire.messages.api_63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

        assert self.broker_epoch is not None
        last_offset = self._broker.image.last_offset
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=-1 if last_offset is None else last_offset,
            want_fence=not self._has_seen_itself or bool(self._broker.lost),
            want_shut_down=self._wants_shut_down,
            offline_log_dirs=[one.directory_id for one in self._files.directories if one.failure is not None],
        )
        timeout_ms = self._config.broker_session_timeout_ms
        if self._wants_shut_down:
            timeout_ms = CONTROLLER_ABSENT_MS_MAX
        try:
            answer = await self._channel.request(
                request, BrokerHeartbeatResponse, timeout_ms=timeout_ms, request_class=REQUEST_CLASS
            )
        except KafkaError as error:
            if error.code != Code.REQUEST_TIMED_OUT:
                raise
            logger.warning("no controller hears this broker: %s", error)
            if self._wants_shut_down:
                _resolve(self._let_go)
            return None
        self.heard_at = asyncio.get_running_loop().time()
        return answer

    async def _woken(self, timeout_ms: int) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _on_ended(self, error: Exception) -> None:
        """Of the heartbeats: the node has to stop."""
        if self._let_in.done():
            self._on_failed(str(error))
        else:
            self._let_in.set_exception(error)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
