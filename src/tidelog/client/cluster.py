"""What every client shares: connections to the brokers of a cluster, its metadata kept fresh, retries until a deadline.

Belongs to one event loop. Metadata is asked for when somebody misses something, at most once at a time and with
back-off in between, and in any case when it has become old. `BrokerChoice` says whom to ask, and `SeenMetadata` whether
an answer is recent enough.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from tidelog.base.errors import ClientClosedError, Code, KafkaError, NetworkError, TidelogError, TimedOutError, refusal
from tidelog.base.ids import BrokerId, TopicId, TopicPartition
from tidelog.base.ports import Clock, Network, Rng
from tidelog.client.broker_choice import PATIENCE_MS_MIN, BrokerChoice
from tidelog.client.core.metadata_cache import MetadataCache, MetadataChanges
from tidelog.client.options import CommonConfig
from tidelog.client.seen_metadata import SeenMetadata
from tidelog.net.address import Address
from tidelog.net.backoff import Backoff
from tidelog.net.connection import Connection, ConnectionSettings
from tidelog.net.pool import CONTROL_REQUESTS, ConnectionPool
from tidelog.wire import ConsistencyState
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

R = TypeVar("R")
T = TypeVar("T")

PROMPT_ANSWERS = 20
"""While something is missing, so many answers are asked for in quick succession."""
_FIRST_BY_ID = 12
logger = logging.getLogger("tidelog.client")


@dataclass(frozen=True, slots=True)
class World:
    """What clients reach the world through; the simulator passes its own."""

    network: Network
    clock: Clock
    rng: Rng


def real_world() -> World:
    """The machine's own network, clocks and randomness."""
    from tidelog.io.clock import SystemClock
    from tidelog.io.network import RealNetwork
    from tidelog.io.rng import SystemRng

    return World(RealNetwork(), SystemClock(), SystemRng())


class Answer(NamedTuple, Generic[R]):
    """What a broker said.

    Attributes:
        token: the last offset of the metadata log that it reflects; None where the broker does not say.
    """

    connection: Connection
    response: R
    token: int | None


class Cluster:
    """See the module.

    Args:
        bootstrap: where to start; one that answers is enough.
        config: the client's.
        world: network, clock, randomness.

    Raises:
        ConfigError: a file with certificates cannot be used.
    """

    def __init__(
        self,
        bootstrap: tuple[Address, ...],
        config: CommonConfig,
        world: World,
    ) -> None:
        self.metadata = MetadataCache()
        self.backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, world.rng)
        security = None
        if config.security_protocol != "PLAINTEXT":
            from tidelog.client.security import connection_security

            security = connection_security(config, world.clock, world.rng)
        settings = ConnectionSettings(
            client_id=config.client_id,
            connect_timeout_ms=config.socket_connection_setup_timeout_ms,
            response_size_bytes_max=config.receive_message_max_bytes,
            consistency=config.consistency_context_store,
            security=security,
        )
        reconnect = Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, world.rng)
        self.pool = ConnectionPool(world.network, settings, reconnect)
        self.seen = SeenMetadata(config.consistency_context_store)
        self._choice = BrokerChoice(bootstrap, self.metadata, self.pool, world.rng)
        self.last_error: TidelogError | None = None
        self.fatal: KafkaError | None = None
        """The brokers are of another cluster than the consistency context: this client will never be answered."""
        self._config = config
        self._wanted: set[str] = set()
        self._to_create: set[str] = set()
        self._stale = asyncio.Event()
        self._refreshed: asyncio.Future[None] | None = None
        self._listeners: list[Callable[[MetadataChanges], None]] = []
        self._keeper: asyncio.Task[None] | None = None
        self._unchanged = 0  # answers in a row that brought nothing new
        self._changed = asyncio.Event()
        self._closed = False

    # What was seen (KIP-1243).
    def see(self, connection: Connection, offset: int, before: int | None) -> None:
        """See `SeenMetadata.see`. A broker that is behind is asked after the others for a while."""
        try:
            self.seen.see(connection.address, offset, before)
        except KafkaError:
            self._choice.on_requested(connection.address)
            raise

    async def caught_up(self, connection: Connection) -> None:
        """Return when a broker has the metadata that was seen, before a request whose header has no room for a token.

        Raises:
            NetworkError, KafkaError: as `fetch_metadata`.
        """
        if self.seen.token is not None:
            request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
            timeout_ms = self._config.request_timeout_ms
            self._choice.on_requested(connection.address)
            response = await connection.request(request, MetadataResponse, timeout_ms=timeout_ms)
            self.seen.check(connection.address, response)

    # Connections.
    async def broker(self, broker_id: BrokerId, request_class: str = CONTROL_REQUESTS) -> Connection:
        """The connection to a broker. Raises `NetworkError` after one attempt."""
        return await self.pool.connection(broker_id, request_class)

    async def reached(self, broker_id: BrokerId, request_class: str = CONTROL_REQUESTS) -> Connection:
        """As `broker`; metadata is asked for while that takes long: another may lead by then in its place."""
        connecting = asyncio.ensure_future(self.pool.connection(broker_id, request_class))
        try:
            while True:
                done, _ = await asyncio.wait({connecting}, timeout=self.backoff.delay_ms(1) / 1000)
                if done:
                    return connecting.result()
                self.refresh_soon()
        finally:
            connecting.cancel()

    async def any_broker(self) -> Connection:
        """A connection to whichever broker answers first: one that is open, else each that is known, in random order.

        Once this client has asked for a change, it is the one that passed it on: that one has seen it. One that was
        behind what this client has seen (STALE_METADATA) is asked after the others for a while.

        Raises:
            NetworkError: none can be reached; names all addresses, and the last reason.
            UnsupportedVersionError: what answers is too old, or too new.
            KafkaError: INCONSISTENT_CLUSTER_ID: it is of another cluster than the consistency context.
        """
        return await self._verified(await self._some_broker())

    async def _some_broker(self) -> Connection:
        self._check_open()
        return await self._choice.any_broker()

    async def _verified(self, connection: Connection) -> Connection:
        """A broker that may be of another cluster is asked for its metadata first: few other answers can say so."""
        if not self.metadata.brokers and self.seen.is_of_a_cluster:
            await self._fetch_metadata([], connection, create=False)
            if self._choice.is_foreign(connection):
                return await self._some_broker()
        return connection

    async def controller(self) -> Connection:
        """A connection to the broker that metadata calls the controller, else to any: brokers pass requests on."""
        connection = await self._choice.controller()
        if connection is None:
            connection = await self.any_broker()
            self._choice.on_change_requested(connection)
        return connection

    async def leader(self, partition: TopicPartition, request_class: str = CONTROL_REQUESTS) -> Connection:
        """The connection to a partition's leader.

        Raises:
            KafkaError: retriable; it has none that is known. Metadata is being asked for.
            NetworkError: it cannot be reached. Metadata is being asked for.
        """
        self.want([partition.topic])
        view = self.metadata.partition(partition)
        if view is None or view.leader_id is None:
            self.refresh_soon()
            raise refusal(self.metadata.why_missing(partition), f"{partition} has no leader that is known")
        try:
            return await self.pool.connection(view.leader_id, request_class)
        except NetworkError:
            self.refresh_soon()
            raise

    # Metadata.
    def want(self, topics: Iterable[str], *, create: bool = False) -> None:
        """Keep these topics in the metadata, from now on.

        Args:
            topics: by name.
            create: let the broker make those that are not there, if it is set up to. Once they were there, nobody
                makes them again: whoever deletes a topic means it.
        """
        requested = set(topics)
        if create:
            self._to_create |= requested - self.metadata.topics.keys()
        if requested - self._wanted:
            self._wanted |= requested
            self.refresh_soon()

    def forget_refusals(self, topics: Iterable[str]) -> None:
        """The caller names these topics anew: what was refused before may be granted by now, so ask again."""
        if self.metadata.forget_refusals(topics):
            self.refresh_soon()

    def on_changes(self, listener: Callable[[MetadataChanges], None]) -> None:
        """Have `listener` called after every answer, with what it changed, which may be nothing."""
        self._listeners.append(listener)

    def refresh_soon(self) -> None:
        """Metadata looks stale: ask for it in the background, as soon as back-off allows."""
        self._stale.set()
        if self._keeper is None and not self._closed and self.fatal is None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep_fresh())
            self._keeper.add_done_callback(self._on_keeper_done)

    async def refreshed(self, is_there: Callable[[], bool] = lambda: False) -> None:
        """Ask for metadata, and return when the answer is there, or the failure in `last_error`.

        A request that is under way does not count: the caller may have seen something since it was sent.

        Args:
            is_there: whether what is missing is there after all, from whichever answer; then that is enough.
        """
        self._check_open()
        if self._refreshed is None:
            self._refreshed = asyncio.get_running_loop().create_future()
        self.refresh_soon()
        refreshed = self._refreshed
        while not refreshed.done() and not is_there():
            changed = asyncio.ensure_future(self._changed.wait())
            either: set[asyncio.Future[Any]] = {refreshed, changed}
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()

    async def fetch_metadata(self, topics: Iterable[str] | None, *, create: bool = False) -> MetadataResponse:
        """Ask any broker once, and take over what it says.

        Args:
            topics: those to ask for; None for all.
            create: let the broker make those that are not there.

        Raises:
            NetworkError, KafkaError: worth a retry if `is_retriable` says so.
        """
        return await self._fetch_metadata(topics, await self._some_broker(), create=create)

    async def fetch_topic_names(self, topic_ids: Iterable[TopicId]) -> list[str]:
        """Ask any broker once for the names of topics. Those that it does not know are left out.

        Raises:
            NetworkError, KafkaError: as `fetch_metadata`.
            UnsupportedVersionError: the broker knows topics by name alone.
        """
        request = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids],
            allow_auto_topic_creation=False,
        )
        connection = await self.any_broker()
        response = await connection.request(
            request, MetadataResponse, timeout_ms=self._config.request_timeout_ms, min_version=_FIRST_BY_ID
        )
        self.seen.check(connection.address, response)
        return [topic.name for topic in response.topics if topic.name is not None and not topic.error_code]

    async def _fetch_metadata(
        self, topics: Iterable[str] | None, informant: Connection, *, create: bool
    ) -> MetadataResponse:
        requested = None if topics is None else sorted(set(topics))
        request = MetadataRequest(
            topics=None if requested is None else [MetadataRequestTopic(name=name) for name in requested],
            allow_auto_topic_creation=create,
        )
        while True:
            before = self.seen.reflects
            try:
                answer = await self._first_answer(lambda _: request, MetadataResponse, informant, min_version=4)
                self.seen.check(answer.connection.address, answer.response)
            except KafkaError as error:
                if error.code is not Code.INCONSISTENT_CLUSTER_ID:
                    raise
                self._on_foreign(error)
                informant = await self._some_broker()
                continue
            if self.seen.takes_over(answer.connection.address, answer.token, before):
                break
            informant = answer.connection  # it was overtaken; the next request bears the newer token
        response = answer.response
        changes = self.metadata.on_metadata(response, requested=requested)
        if changes:
            self._unchanged = 0
            self._choice.on_changes()
            self._changed.set()
            self._changed.clear()
        else:
            self._unchanged += 1
        brokers = self.metadata.brokers
        self.pool.set_addresses({id_: Address(broker.host, broker.port) for id_, broker in brokers.items()})
        self._tell_all(changes)
        return response

    def _on_foreign(self, error: KafkaError) -> None:
        """The broker that this task asked is of another cluster than the consistency context: skip it from now on.

        Raises:
            KafkaError: so are all others.
        """
        skipped = self._choice.on_last_foreign()
        if skipped is None:
            if self.metadata.cluster_id is None:
                self.fatal = error
            raise error
        what = "is of another cluster than the consistency context, and is skipped"
        logger.warning("%s: %s %s: %s", self._config.client_id, skipped, what, error)

    def _tell_all(self, changes: MetadataChanges) -> None:
        for listener in self._listeners:
            listener(changes)

    async def first_answer(
        self, request: Callable[[Connection], object], response: type[R], *, min_version: int = 0
    ) -> tuple[Connection, R]:
        """Of the first broker that answers, for what any broker may be asked, and several without harm.

        A broker that is cut off from the controller keeps who asks it waiting.

        Args:
            request: makes what is sent to a broker, which may be older than the next.
            response: the class of its answer.
            min_version: what the request needs at least.

        Raises:
            TidelogError: what the last of them failed with.
        """
        self._check_open()
        informant = await self._informant()
        if self._choice.is_behind(informant):
            informant = await self._choice.ahead()
        informant = await self._verified(informant)
        connection, found, _ = await self._first_answer(request, response, informant, min_version=min_version)
        return connection, found

    def on_in_vain(self, connection: Connection) -> None:
        """A broker could not say what it was asked for: for a while the others are asked first."""
        self._choice.on_behind(connection.address)

    async def _first_answer(
        self,
        request: Callable[[Connection], object],
        response: type[R],
        connection: Connection,
        *,
        min_version: int = 0,
    ) -> Answer[R]:
        """Of the first that answers: this one, then one after the other, each beside those that have not answered yet.

        Raises:
            TidelogError: what the last of them failed with.
        """
        requested: dict[asyncio.Future[R], Connection] = {}
        states: dict[Connection, ConsistencyState | None] = {}
        patience_ms = PATIENCE_MS_MIN
        try:
            while True:
                if connection not in requested.values():
                    future = connection.send(
                        request(connection),
                        response,
                        timeout_ms=self._config.request_timeout_ms,
                        min_version=min_version,
                        on_state=partial(states.__setitem__, connection),
                    )
                    requested[future] = connection
                done, _ = await asyncio.wait(requested, timeout=patience_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
                for future in done:
                    if len(requested) == 1 or future.exception() is None:
                        self._choice.on_requested(requested[future].address)
                        state = states.get(requested[future])
                        return Answer(requested[future], future.result(), None if state is None else state.token)
                    del requested[future]
                self._choice.on_in_vain(connection.address)
                patience_ms *= 2
                connection = await self._informant()
        finally:
            for future in requested:
                future.cancel()  # nobody waits for it any more

    async def _informant(self) -> Connection:
        """Whom to ask for metadata: one that was not asked in vain since it changed last, if there is any."""
        return await self._choice.informant() or await self._some_broker()

    async def _keep_fresh(self) -> None:
        failures = 0
        loop = asyncio.get_running_loop()
        while not self._closed:
            self._stale.clear()
            before, self._refreshed = self._refreshed, None
            requested_at = loop.time()
            try:
                async with asyncio.timeout(self._config.request_timeout_ms / 1000):
                    await self._fetch_wanted()
            except (TidelogError, TimeoutError) as error:
                failures += 1
                self._on_failure(error, failures)
            except Exception as error:  # of a store of the user's own, or a bug: tried again, but not at once
                failures += 1
                logger.error("%s: keeping metadata failed", self._config.client_id, exc_info=error)
                found = TidelogError(f"metadata cannot be had: {type(error).__name__}: {error}")
                found.__cause__ = error
                self._on_failure(found, failures)
            else:
                failures = 0
                self.last_error = None
            finally:
                if before is not None and not before.done():
                    before.set_result(None)
            if self.fatal is not None:
                self._tell_all(MetadataChanges())
                return
            if failures:
                await asyncio.sleep(self.backoff.delay_ms(failures) / 1000)
                continue
            try:
                async with asyncio.timeout(self._config.metadata_max_age_ms / 1000):
                    await self._stale.wait()
            except TimeoutError:
                continue
            # Whatever made it stale may need a moment to heal; asking at once, again and again, heals nothing.
            delay_ms = self.backoff.delay_ms(1 if self._unchanged < PROMPT_ANSWERS else self._unchanged)
            wait_s = requested_at + delay_ms / 1000 - loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)

    def _on_keeper_done(self, task: asyncio.Task[None]) -> None:
        self._keeper = None
        if self._refreshed is not None and not self._refreshed.done():
            self._refreshed.set_result(None)
            self._refreshed = None
        if not task.cancelled() and task.exception() is not None:
            logger.error("%s: keeping metadata failed", self._config.client_id, exc_info=task.exception())
            self._stale.clear()

    async def _fetch_wanted(self) -> None:
        self._to_create -= self.metadata.topics.keys()
        missing = set(self._to_create)
        unchanged = self._unchanged
        if missing:
            await self._fetch_metadata(missing, await self._informant(), create=True)
        if self._wanted - missing or not missing:
            await self._fetch_metadata(self._wanted - missing, await self._informant(), create=False)
        if self._unchanged > unchanged and self._choice.last_requested is not None:
            self._choice.on_in_vain(self._choice.last_requested)

    def _is_behind(self, error: BaseException) -> bool:
        """Whether an error says that the broker which was asked has older metadata than this client: note it."""
        if not isinstance(error, KafkaError) or error.code is not Code.STALE_METADATA:
            return False
        self._choice.on_last_behind()
        return True

    def _on_failure(self, error: TidelogError | TimeoutError, failures: int) -> None:
        self._is_behind(error)
        if isinstance(error, TidelogError):
            self.last_error = error
        else:
            self.last_error = NetworkError(f"no metadata came within {self._config.request_timeout_ms} ms")
        if not is_retriable(self.last_error) and not isinstance(self.last_error, TimedOutError):
            for listener in self._listeners:  # whoever waits for records looks why there are none
                listener(MetadataChanges())
        level = logging.WARNING if failures in (3, 10) or failures % 50 == 0 else logging.DEBUG
        logger.log(level, "%s: metadata cannot be had (attempt %d): %s", self._config.client_id, failures, error)

    # Retries.
    async def retrying(self, what: str, attempt: Callable[[], Awaitable[T]], *, timeout_ms: int | None = None) -> T:
        """Repeat `attempt` until it succeeds, with back-off.

        Args:
            what: named in errors, as in "listing offsets".
            attempt: raises a retriable error, or one that ends it all.
            timeout_ms: for all attempts together; by default `default_api_timeout_ms`.

        Raises:
            TimedOutError: names what was not done, and the last reason.
        """
        limit_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        last: BaseException | None = None
        failures = 0
        try:
            async with asyncio.timeout(limit_ms / 1000):
                while True:
                    try:
                        return await attempt()
                    except TidelogError as error:
                        if not is_retriable(error):
                            raise
                        last = error
                        failures += 1
                        if not self._is_behind(error) and isinstance(error, KafkaError):
                            self.refresh_soon()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self.backoff.delay_ms(failures) / 1000):
                            await self._changed.wait()
        except TimeoutError as error:
            if isinstance(error, TidelogError):
                raise
            reason = last or self.last_error or self._silence()
            raise TimedOutError(f"{what}: not done within {limit_ms} ms; last: {reason}") from None

    def _silence(self) -> str:
        silent = sorted({str(one.address) for one in self.pool.open_connections() if one.in_flight})
        return f"no answer came from {', '.join(silent)}" if silent else "no answer came"

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        self._stale.set()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._refreshed is not None and not self._refreshed.done():
            self._refreshed.set_result(None)
        await self.pool.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosedError("the client is closed")
        if self.fatal is not None:
            raise self.fatal.with_traceback(None)


def is_retriable(error: BaseException) -> bool:
    """Whether trying again may help: connections break, and many refusals pass."""
    return isinstance(error, NetworkError) or (isinstance(error, KafkaError) and error.retriable)
