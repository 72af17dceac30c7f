"""The loop's side of a producer: does what the sender machine says, and brings it the answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial

from tidelog.base.errors import (
    ClientClosedError,
    Code,
    KafkaError,
    NetworkError,
    RecordsLostError,
    TidelogError,
    TimedOutError,
    TransactionAbortedError,
    refusal,
)
from tidelog.base.ids import BrokerId, TopicId, TopicPartition
from tidelog.client.broker_choice import PATIENCE_MS_MIN, SILENT_SECONDS
from tidelog.client.cluster import Cluster, World, is_retriable
from tidelog.client.core.accumulator import Accumulator, PendingBatch
from tidelog.client.core.metadata_cache import MetadataChanges
from tidelog.client.core.partitioner import check_partition
from tidelog.client.core.produce_messages import (
    LEFT_OUT,
    produce_request,
    produce_versions,
    read_answers,
    unencodable,
)
from tidelog.client.core.sender import ProduceSend, Sender, SenderSettings
from tidelog.client.core.transaction import ProducerTransactions, ProducerTransactionState
from tidelog.client.core.values import ProducerStatistics, code_of
from tidelog.client.options import ProducerConfig
from tidelog.client.record_appender import RecordAppender
from tidelog.client.transaction_driver import TransactionDriver
from tidelog.net.connection import Connection
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_00_produce import ProduceResponse
from tidelog.wire.messages.api_22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

logger = logging.getLogger("tidelog.client")

_PRODUCE_REQUESTS = "produce"
"""A broker answers the requests of a connection in turn, and may let both Produce and Metadata wait."""
_BROKERS_SHARE_OF_TIME = 0.9  # the broker gives up waiting for replicas before we give up waiting for the broker
_OF_NO_TRANSACTION = (Code.INVALID_TXN_STATE, Code.TRANSACTION_ABORTABLE)
"""Codes that refuse a call because of the state that the transactions are in: no transaction lacks what it gave."""
_FAILED_BATCHES_MAX = 1_000  # remembered until the next flush


class SenderTask:
    """See the module. Belongs to the event loop that it runs on; only its `appender` may be used from any thread.

    Args:
        config: the producer's; `settings` of the sender follow from it.
        settings: idempotence and acks, already decided.
        cluster: closed together with this.
        world: clock and randomness.
        call_soon: how to reach the event loop from where records come from.

    Attributes:
        appender: where records come in.
        transactions: of the producer; None if it has none.
        driver: asks their coordinators.
    """

    def __init__(
        self,
        config: ProducerConfig,
        settings: SenderSettings,
        cluster: Cluster,
        world: World,
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._config = config
        self._settings = settings
        self._cluster = cluster
        self._clock = world.clock
        self._call_soon = call_soon
        self._accumulator = Accumulator(
            batch_size_bytes=config.batch_size, buffer_size_bytes=config.buffer_memory, linger_ms=config.linger_ms
        )
        transactional_id = config.transactional_id
        self.transactions = None if transactional_id is None else ProducerTransactions(transactional_id)
        self._sender = Sender(
            self._accumulator, cluster.metadata, settings, cluster.backoff.delay_ms, self.transactions
        )
        self.appender = RecordAppender(
            config,
            self._accumulator,
            self._sender,
            metadata=cluster.metadata,
            world=world,
            wake=partial(call_soon, self.pump),
        )
        self.lock = self._lock = self.appender.lock
        self.driver = (
            None
            if self.transactions is None
            else TransactionDriver(config, self.transactions, cluster, self._lock, self.on_transactions)
        )
        self._acks_ms = int(config.request_timeout_ms * _BROKERS_SHARE_OF_TIME)
        self._is_fetching_id = False
        self._timer: asyncio.TimerHandle | None = None
        self._connecting: set[BrokerId] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unanswered: dict[
            asyncio.Future[ProduceResponse], tuple[ProduceSend, float]
        ] = {}  # and since when; oldest first
        self._silence_timer: asyncio.TimerHandle | None = None
        self._progress = asyncio.Event()
        self._failed: list[PendingBatch] = []
        cluster.on_changes(self._on_metadata)

    # On the loop.
    async def until_ready(self, topic: str, partition: int | None = None) -> None:
        """Return when a record of `topic` can be taken.

        Args:
            partition: for which the record is, if the caller chose one. Where metadata shows fewer, it is asked for
                once more: the partitions may have been added since.

        Raises:
            TimedOutError: not within `max_block_ms`; says what was missing.
            TidelogError: never: the producer is closed or cannot go on, or the topic cannot be.
        """
        what = f"topic {topic!r} is not known"
        is_asked = False
        try:
            async with asyncio.timeout(self._config.max_block_ms / 1000):
                self._cluster.forget_refusals([topic])
                self._cluster.want([topic], create=self._config.allow_auto_create_topics)
                while True:
                    self.appender.check_open()
                    view = self._cluster.metadata.topics.get(topic)
                    if view is None:
                        what = f"topic {topic!r} is not known"
                        await self._cluster.refreshed(lambda: topic in self._cluster.metadata.topics)
                        self._check_topic(topic)
                    elif partition is not None and partition >= view.partition_count:
                        if is_asked:
                            check_partition(topic, partition, view.partition_count)
                        what = f"partition {partition} of topic {topic!r} is not known"
                        await self._cluster.refreshed()
                        self._check_topic(topic)
                        is_asked = self._cluster.last_error is None
                    elif self.appender.is_full or self.appender.refuses():
                        what = f"the buffer of {self._config.buffer_memory} bytes (buffer_memory) is full"
                        self.pump()
                        if self.appender.refuses():  # else the pump has made room, and nothing more may happen
                            await self._progress.wait()
                    else:
                        return
        except TimeoutError as error:
            if isinstance(error, TidelogError):
                raise
            last = self._cluster.last_error
            code = self._cluster.metadata.errors.get(topic)
            if last is None and code is not None:
                last = refusal(code, f"{code.meaning} ({code.name})")
            raise TimedOutError(
                f"{what} after {self._config.max_block_ms} ms (max_block_ms)" + (f"; last: {last}" if last else "")
            ) from None

    def pump(self) -> None:
        """Do what there is to do now."""
        appender = self.appender
        now_ms = self._clock.now_ms()
        with self._lock:
            appender.is_woken = False
            is_urgent = appender.flushing > 0 or appender.is_full
            sends = self._sender.take_sends(now_ms, flushing=is_urgent, ready=self._is_ready)
            appender.pumps_at_ms = deadline_ms = self._sender.next_deadline_ms(now_ms)
        for send in sends:
            self._transmit(send)
        self._process_ready()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None and not self.appender.is_closed:
            delay_s = max(deadline_ms - now_ms, 1) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.pump)

    async def flush(self) -> None:
        """Return when everything that was taken before has been delivered or has failed.

        Raises:
            TidelogError: the first failure of a record whose future nobody asked, since the last flush.
        """
        await self.drain()
        self.raise_failures()

    async def drain(self) -> None:
        """As `flush`, whatever failed."""
        with self._lock:
            end = self._accumulator.next_number
        self.appender.flushing += 1
        try:
            self.pump()
            while not self.appender.is_closed:
                with self._lock:
                    oldest = self._accumulator.oldest_number()
                if oldest >= end:
                    break
                await self._progress.wait()
        finally:
            self.appender.flushing -= 1

    def raise_failures(self) -> None:
        """Raise the first failure that nobody has seen, if there is one."""
        failed, self._failed = self._failed, []
        unseen = [batch for batch in failed if not batch.is_observed]
        if unseen:
            error = unseen[0].outcome
            assert isinstance(error, TidelogError)
            count = sum(batch.record_count for batch in unseen)
            error = error.with_traceback(None)
            error.add_note(f"{count} records were not delivered; this is the first reason.")
            raise error

    def statistics(self) -> ProducerStatistics:
        """How the producer stands. From any thread."""
        with self._lock:
            return self._sender.statistics(self._clock.now_ms())

    async def close(self) -> None:
        """Drop what is not delivered, and disconnect."""
        if self.appender.is_closed:
            return
        self.appender.is_closed = True
        error = ClientClosedError("the producer was closed before this was delivered")
        with self._lock:
            self._sender.fail_all(error)
            self._sender.abort_in_flight(error)
        self._process_ready()
        for timer in (self._timer, self._silence_timer):
            if timer is not None:
                timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.driver is not None:
            await self.driver.close()
        await self._cluster.close()

    # Transactions.
    def close_open(self) -> None:
        """What was sent before is all that belongs to the transaction. Under the lock."""
        self._sender.close_open()

    def drop_waiting(self) -> None:
        """The transaction is aborted: what is not under way is not sent. Under the lock."""
        self._sender.drop_waiting(TransactionAbortedError("not delivered: its transaction was aborted first"))

    def forget_failures(self) -> None:
        """Whoever waits for the end of the transaction was told of them."""
        self._failed.clear()

    def on_send_raised(self, error: BaseException) -> None:
        """A `send` did not take its record. From any thread; a transaction that lacks it is not to be committed."""
        if self.transactions is None:
            return
        if isinstance(error, KafkaError) and error.code in _OF_NO_TRANSACTION:
            return  # another thread may have begun the next one meanwhile
        if not isinstance(error, TidelogError):
            wrapped = TidelogError(f"send raised {type(error).__name__}: {error}")
            wrapped.__cause__ = error
            error = wrapped
        with self._lock:
            if self.transactions.state is not ProducerTransactionState.IN_TRANSACTION:
                return
            self.transactions.on_send_failed(error, is_counted=False)
            self.drop_waiting()
        self._call_soon(self.pump)

    def on_transactions(self) -> None:
        """A coordinator has answered, or will not."""
        transactions = self.transactions
        assert transactions is not None
        with self._lock:
            if transactions.state is ProducerTransactionState.FATAL_ERROR and transactions.error is not None:
                self._sender.fail_all(transactions.error)
            elif transactions.state is ProducerTransactionState.ABORTABLE_ERROR:
                self.drop_waiting()
        self.pump()

    # Sending.
    def _is_ready(self, broker_id: BrokerId) -> bool:
        if self._cluster.pool.ready(broker_id, _PRODUCE_REQUESTS) is not None:
            return True
        if broker_id not in self._connecting and not self.appender.is_closed:
            self._connecting.add(broker_id)
            self._start(self._connect(broker_id))
        return False

    async def _connect(self, broker_id: BrokerId) -> None:
        try:
            await self._cluster.reached(broker_id, _PRODUCE_REQUESTS)
        except NetworkError as error:
            logger.debug("%s: %s", self._config.client_id, error)
            self._cluster.last_error = error
            self._cluster.refresh_soon()
            await asyncio.sleep(self._cluster.backoff.delay_ms(1) / 1000)
        except TidelogError as error:
            with self._lock:
                self._sender.fail_all(error)
        finally:
            self._connecting.discard(broker_id)
        self.pump()

    def _transmit(self, send: ProduceSend) -> None:
        connection = self._cluster.pool.ready(send.broker_id, _PRODUCE_REQUESTS)
        try:
            if connection is None:
                raise NetworkError(f"the connection to broker {send.broker_id} was closed")
            metadata, compression = self._cluster.metadata, self._config.compression_type
            request, names = produce_request(
                send.batches,
                metadata,
                self._settings.acks,
                self._acks_ms,
                compression,
                transactional_id=self._config.transactional_id,
            )
            lowest, highest = produce_versions(names, self.transactions)
            version = connection.versions.version(ApiKey.PRODUCE, min_version=lowest, max_version=highest)
            if not self._settings.acks:
                connection.send_unanswered(request, version=version)
                self._start(self._leave(connection, send))
                return
            future = connection.send(
                request, ProduceResponse, timeout_ms=self._config.request_timeout_ms, version=version
            )
        except TidelogError as error:
            self._on_lost(send, error, sent=False)
        except ValueError as error:
            beside = NetworkError(f"not sent: a batch beside it cannot be encoded: {error}")
            reasons = unencodable(send.batches, self._cluster.metadata, self._config.compression_type)
            self._on_lost(send, beside, sent=False, reasons=reasons)
        except Exception as error:
            logger.exception("%s: a bug in Tidelog: a request could not be made", self._config.client_id)
            bug = refusal(Code.UNKNOWN_SERVER_ERROR, f"a bug in Tidelog's producer: {type(error).__name__}: {error}")
            self._on_lost(send, bug, sent=False)  # so that nobody waits for it for ever
        else:
            future.add_done_callback(partial(self._on_response, send, names))
            self._unanswered[future] = (send, asyncio.get_running_loop().time())
            self._watch_silence()

    async def _leave(self, connection: Connection, send: ProduceSend) -> None:
        """A request that nobody answers is done with once it has left: a slow broker is waited for."""
        await connection.drain()
        with self._lock:
            self._sender.on_request_ended(send.broker_id)
            for batch in send.batches:
                if batch.outcome is None:
                    self._sender.on_unacknowledged(batch)
        self.pump()

    def _on_lost(
        self,
        send: ProduceSend,
        error: TidelogError,
        *,
        sent: bool,
        reasons: Mapping[TopicPartition, TidelogError] | None = None,
    ) -> None:
        now_ms = self._clock.now_ms()
        with self._lock:
            self._sender.on_request_ended(send.broker_id)
            for batch in send.batches:
                if batch.outcome is None:
                    self._sender.on_lost(batch, (reasons or {}).get(batch.topic_partition, error), now_ms, sent=sent)
        self._call_soon(self.pump)

    def _on_response(
        self, send: ProduceSend, names: dict[TopicId, str] | None, future: asyncio.Future[ProduceResponse]
    ) -> None:
        self._unanswered.pop(future, None)
        if future.cancelled():
            why = f"broker {send.broker_id} has not answered, and another leads in its place by now"
            self._on_lost(send, NetworkError(why), sent=True)
            return
        error = future.exception()
        if error is not None:
            if not isinstance(error, TidelogError):
                error = NetworkError(f"{type(error).__name__}: {error}")
            self._on_lost(send, error, sent=True)
            return
        answers = read_answers(future.result(), names)
        now_ms = self._clock.now_ms()
        with self._lock:
            self._sender.on_request_ended(send.broker_id)
            for batch in send.batches:
                if batch.outcome is None:
                    self._sender.on_answer(batch, answers.get(batch.topic_partition, LEFT_OUT), now_ms)
        self.pump()

    # Silence.
    def _watch_silence(self) -> None:
        if self._silence_timer is None and self._unanswered and not self.appender.is_closed:
            self._silence_timer = asyncio.get_running_loop().call_later(SILENT_SECONDS, self._on_silence)

    def _on_silence(self) -> None:
        """A broker that has not answered for a while may lead no more: ask who does, and turn to them.

        With sequences only: the next leader tells what it has already. A late answer of the former one is not waited
        for. Java's producer and librdkafka wait for it until `request.timeout.ms` is over.
        """
        self._silence_timer = None
        if self._give_up_silent():
            self._cluster.refresh_soon()
        self._watch_silence()

    def _give_up_silent(self) -> bool:
        """Wait no longer for those who are silent and lead no more. Returns whether anybody was silent."""
        if not self._settings.idempotent:
            return False
        before = asyncio.get_running_loop().time() - PATIENCE_MS_MIN / 1000
        silent = [(future, send) for future, (send, since) in self._unanswered.items() if since <= before]
        for future, send in silent:
            if any(self._is_led_elsewhere(batch, send.broker_id) for batch in send.batches):
                future.cancel()
        return bool(silent)

    def _is_led_elsewhere(self, batch: PendingBatch, broker_id: BrokerId) -> bool:
        view = self._cluster.metadata.partition(batch.topic_partition)
        return view is not None and view.leader_id not in (None, broker_id)

    # What follows from it.
    def _process_ready(self) -> None:
        with self._lock:
            done = self._sender.take_done()
            losses = self._sender.take_losses()
            topics, self._sender.needs_metadata = self._sender.needs_metadata, set()
            wants_id = self._sender.needs_producer_id and not self.appender.is_closed and not self._is_fetching_id
            has_due = self.transactions is not None and self.transactions.has_due
            self.appender.on_room()
        for loss in losses:
            self._report_loss(loss)
        failed = [batch for batch in done if isinstance(batch.outcome, TidelogError)]
        if self.transactions is not None:  # of what was aborted, the abort's reason is all there is to say
            failed = [batch for batch in failed if not isinstance(batch.outcome, TransactionAbortedError)]
        if failed:
            self._failed += failed[: _FAILED_BATCHES_MAX - len(self._failed)]
            count = sum(batch.record_count for batch in failed)
            logger.error("%s: %d records failed; the first: %s", self._config.client_id, count, failed[0].outcome)
        for batch in done:
            self.appender.outcomes.on_done(batch)
        if done:
            self._progress.set()  # wakes who waits now
            self._progress.clear()
        if topics and not self.appender.is_closed:
            self._cluster.want(topics)
            self._cluster.refresh_soon()
        if self.driver is not None:
            self.driver.tell()
            if has_due and not self.appender.is_closed:
                self.driver.wake()
        if wants_id:
            self._is_fetching_id = True
            self._start(self._fetch_producer_id())

    def _report_loss(self, loss: RecordsLostError) -> None:
        logger.error("%s: %s", self._config.client_id, loss)
        if self._config.on_records_lost is not None:
            try:
                self._config.on_records_lost(loss)
            except Exception:
                logger.exception("on_records_lost failed")

    async def _fetch_producer_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=self._config.request_timeout_ms)

        async def send_request() -> InitProducerIdResponse:
            connection, answer = await self._cluster.first_answer(lambda _: request, InitProducerIdResponse)
            if answer.error_code:
                raise refusal(code_of(answer.error_code), f"{connection.address} refused a producer id")
            return answer

        try:
            answer = await self._cluster.retrying("a producer id", send_request)
        except TidelogError as error:
            if not isinstance(error, TimedOutError) and not is_retriable(error):  # else the pump sees it is missing
                with self._lock:
                    self._sender.fail_all(error)
        else:
            with self._lock:
                self._sender.on_producer_id(answer.producer_id, answer.producer_epoch)
        finally:
            self._is_fetching_id = False
        self.pump()

    def _on_metadata(self, changes: MetadataChanges) -> None:
        with self._lock:
            self.appender.forget_routes(changes.topics | {partition.topic for partition in changes.leaders})
            self._sender.on_topics_changed(changes.topics)
        if changes.leaders:
            self._give_up_silent()
        self.pump()

    def _check_topic(self, topic: str) -> None:
        """Raise if waiting for the topic will not help."""
        code = self._cluster.metadata.errors.get(topic)
        if code is not None and not code.retriable:
            raise KafkaError(f"topic {topic!r}: {code.meaning} ({code.name})", code=code)
        last = self._cluster.last_error
        if last is not None and not is_retriable(last) and not isinstance(last, TimedOutError):
            raise last.with_traceback(None)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
