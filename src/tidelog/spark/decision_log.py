"""Where exactly-once sinks keep what they decided: a compacted topic of the cluster that they write to.

Whoever changes the state of a sink holds its lock first, which is a transactional id: taking it over ends what the last
holder had under way, and fences it. So a change is made from the latest state, or not at all.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tidelog import Admin, ConfigResource, Consumer, NewTopic, Producer, TopicPartition
from tidelog.base.errors import (
    Code,
    KafkaError,
    ProducerFencedError,
    TidelogError,
    TimedOutError,
    TopicAlreadyExistsError,
    UnknownTopicError,
)
from tidelog.client.kafka_settings import admin_settings, client_arguments
from tidelog.spark.sink_decisions import Committable, SinkState, SinkStateError, run_of, transactional_id

if TYPE_CHECKING:
    from tidelog.client.admin.transaction_descriptions import TransactionDescription

logger = logging.getLogger("tidelog.spark")

TOPIC = "__tidelog_sink_decisions"
PARTITION = TopicPartition(TOPIC, 0)
TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    # A process that starts reads all that is not compacted yet; the active segment never is.
    "segment.bytes": str(1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}
REPLICAS_MAX = 3
"""Of the topic, where there are so many brokers: as many as the state of transactions has by default.

`default.replication.factor` of the brokers is 1 unless an operator has set it, and one lost disk would lose decisions.
"""
CHANGE_TIMEOUT_MS = 10_000
"""Of the transaction of a change. One that is left open hides what all sinks decide later from readers for so long."""
LOCK_SECONDS_MAX = 60.0
"""How long a change of a sink's state is tried while others take its lock away."""
LOCK_PAUSE_SECONDS = 0.05
READ_SECONDS_MAX = 60.0
ENDED_AT_ONCE = 16
"""Transactions that are being committed at a time."""

_COMMITTED = ("PrepareCommit", "CompleteCommit")
_GONE = (Code.TRANSACTIONAL_ID_NOT_FOUND, Code.INVALID_PRODUCER_ID_MAPPING)


class DecisionLog:
    """The states of sinks, as one process sees them, and its connections to change them. Used by one thread.

    Args:
        settings: of a producer, as `tidelog.spark.options` gives them.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._producer_settings = {**client_arguments(settings), "acks": "all", "enable_idempotence": True}
        timeout_ms = min(settings.get("transaction_timeout_ms", CHANGE_TIMEOUT_MS), CHANGE_TIMEOUT_MS)
        self._change_settings = {**self._producer_settings, "transaction_timeout_ms": timeout_ms}
        self._admin_settings = admin_settings(settings)
        self._consumer: Consumer | None = None
        self._admin: Admin | None = None
        self._states: dict[str, bytes] = {}  # as written: that of another sink may be of another version
        self._keeps_all = False

    def close(self) -> None:
        """Disconnect. The next use connects anew."""
        clients = (self._consumer, self._admin)
        self._consumer = self._admin = None
        self._states = {}
        self._keeps_all = False
        for client in clients:
            if client is not None:
                with suppress(TidelogError):
                    client.close()

    # The states.
    def state(self, scope: str) -> SinkState | None:
        """A committed state of a sink; None if there is none, as far as the broker that was asked knows.

        A later one may lie behind a transaction that is open. What is decided from it needs `change`.
        """
        if self._consumer is None and not self._has_topic():
            return None
        return self._state(scope)

    def _state(self, scope: str, *, is_latest: bool = False) -> SinkState | None:
        """The same; a topic that was just created is waited for, and so are open transactions for the latest state."""
        try:
            if self._consumer is None:
                self._consumer = Consumer(
                    **self._admin_settings, isolation_level="read_committed", auto_offset_reset="none"
                )
                self._consumer.assign([PARTITION], start="earliest")
            self._read_on(self._consumer, is_latest=is_latest)
        except TidelogError:
            self.close()
            raise
        text = self._states.get(scope)
        return None if text is None else SinkState.from_json(text)

    def _read_on(self, consumer: Consumer, *, is_latest: bool) -> None:
        deadline = time.monotonic() + READ_SECONDS_MAX
        if is_latest:
            # The end of what is committed is where the first open transaction begins, be it another sink's.
            end = self._connected_admin.list_offsets({PARTITION: "latest"})[PARTITION]
            assert end is not None, "a partition has an end"
        else:
            end = consumer.end_offsets([PARTITION])[PARTITION]
        while consumer.position(PARTITION).offset < end.offset:
            if time.monotonic() > deadline:
                raise TimedOutError(
                    f"{PARTITION}, which holds what sinks decided, was not read to its end at {end.offset} within"
                    f" {READ_SECONDS_MAX:.0f} s. Are the brokers up, and is no transaction on it open"
                    " (`tidelog transactions list`)?"
                )
            for record in consumer.poll(timeout_ms=1_000):
                scope = (record.key or b"").decode(errors="replace")
                if record.value is None:
                    self._states.pop(scope, None)
                else:
                    self._states[scope] = record.value

    def change(self, scope: str, to: Callable[[SinkState | None], SinkState | None]) -> SinkState | None:
        """Change the state of a sink, under its lock.

        Args:
            scope: the sink.
            to: what the state becomes, given what it is; what it is given leaves it unchanged. May raise. It is called
                again with a later state where somebody else had the lock.

        Returns:
            The state, as it is now.

        Raises:
            TimedOutError: others hold the lock for too long.
        """
        deadline = time.monotonic() + LOCK_SECONDS_MAX
        while True:
            with suppress(ProducerFencedError):
                return self._change_once(scope, to)
            if time.monotonic() > deadline:
                raise TimedOutError(
                    f"sink {scope}: for {LOCK_SECONDS_MAX:.0f} s others have changed what it decided: does one sinkId"
                    " serve several queries?"
                )
            time.sleep(LOCK_PAUSE_SECONDS)

    def _change_once(self, scope: str, to: Callable[[SinkState | None], SinkState | None]) -> SinkState | None:
        with Producer(**self._change_settings, transactional_id=f"{scope}/decisions") as producer:
            producer.init_transactions()
            if self.state(scope) is None and not self._has_topic():
                self._create_topic()
            before = self._state(scope, is_latest=True)
            after = to(before)
            if after is not None and after != before:
                with producer.transaction() as transaction:
                    transaction.send(TOPIC, after.to_json(), scope, partition=0)
            return after

    def _has_topic(self) -> bool:
        try:
            self._connected_admin.describe_topics([TOPIC])
        except UnknownTopicError:
            return False
        if not self._keeps_all:
            self._check_policy()
            self._keeps_all = True
        return True

    def _check_policy(self) -> None:
        """Refuse a topic from which the brokers delete what is old: a batch whose decision is gone is written again.

        Raises:
            SinkStateError: `[SINK_DECISIONS_NOT_KEPT]`.
        """
        resource = ConfigResource("topic", TOPIC)
        try:
            said = self._connected_admin.describe_configs([resource])[resource].get("cleanup.policy")
        except KafkaError as error:
            if error.retriable:
                raise
            said, why = None, str(error)
        else:
            why = "the brokers' answer does not say"
        policy = None if said is None else said.value
        if policy is None:
            logger.warning(
                "whether topic %s keeps what sinks decide is not known: %s. It must have cleanup.policy=compact; with"
                " the right to DescribeConfigs of it the sink checks that",
                TOPIC,
                why,
            )
            return
        if "delete" in policy or "compact" not in policy:
            raise SinkStateError(
                f"[SINK_DECISIONS_NOT_KEPT] topic {TOPIC} has cleanup.policy={policy}, so brokers delete what sinks"
                " decided, and a batch whose decision is gone is written a second time. Run"
                f" `tidelog topics alter {TOPIC} --config cleanup.policy=compact`, or Kafka's"
                f" `kafka-configs --alter --topic {TOPIC} --add-config cleanup.policy=compact`, then restart the query"
            )

    def _create_topic(self) -> None:
        replicas = min(REPLICAS_MAX, len(self._connected_admin.describe_cluster().brokers))
        configs = {**TOPIC_CONFIGS, "min.insync.replicas": str(max(1, replicas - 1))}
        topic = NewTopic(TOPIC, num_partitions=1, replication_factor=replicas, configs=configs)
        with suppress(TopicAlreadyExistsError):
            self._connected_admin.create_topics([topic])

    # The transactions of tasks.
    def commit(self, scope: str, state: SinkState) -> list[Committable]:
        """Commit all that was decided. It may have been committed before.

        Returns:
            Those that the brokers have aborted, or know nothing of any more.

        Raises:
            TidelogError: not all could be ended; what was decided stays so, and this may be called again.
        """
        if not state.committables:
            return []
        assert state.decided_run_id is not None
        run_id = state.decided_run_id
        with Producer(**self._producer_settings) as producer:

            def commit(one: Committable) -> bool:
                name = transactional_id(scope, run_id, one.partition, one.attempt)
                try:
                    producer.resume_transaction(name, one.producer_id, one.producer_epoch).commit()
                except TimedOutError:
                    raise
                except KafkaError as error:
                    logger.info("transaction %s is not committed now: %s", name, error)
                    found = self._describe(name)
                    if _is_open(found, one):
                        raise
                    # Nothing but this commit ends a decided transaction so, and no later one has begun under its id.
                    return found is not None and found.state in _COMMITTED
                return True

            are_committed = self._each(commit, state.committables)
        return [one for one, is_committed in zip(state.committables, are_committed, strict=True) if not is_committed]

    def ended(self, scope: str, run_id: str, transactions: Sequence[Committable]) -> list[Committable]:
        """Those of the transactions of a run that are not open any more as their tasks left them."""

        def is_open(one: Committable) -> bool:
            return _is_open(self._describe(transactional_id(scope, run_id, one.partition, one.attempt)), one)

        return [one for one, was in zip(transactions, self._each(is_open, transactions), strict=True) if not was]

    def _each(self, ask: Callable[[Committable], bool], transactions: Sequence[Committable]) -> list[bool]:
        if not transactions:
            return []
        _ = self._connected_admin  # the threads share it
        with ThreadPoolExecutor(min(ENDED_AT_ONCE, len(transactions))) as pool:
            return list(pool.map(ask, transactions))

    def _describe(self, name: str) -> TransactionDescription | None:
        try:
            return self._connected_admin.describe_transactions([name])[name]
        except KafkaError as error:
            if error.code in _GONE:
                return None
            raise

    def abort(self, scope: str, run_id: str, transactions: Iterable[Committable]) -> None:
        """Abort what some attempts of a run have left open, as far as it goes: the brokers abort the rest in time."""
        with Producer(**self._producer_settings) as producer:
            for one in transactions:
                name = transactional_id(scope, run_id, one.partition, one.attempt)
                try:
                    producer.resume_transaction(name, one.producer_id, one.producer_epoch).abort()
                except TidelogError as error:
                    logger.info("transaction %s is not aborted now: %s", name, error)

    def abort_leftovers(
        self, scope: str, state: SinkState, batch_id: int, run_ids: Iterable[str] | None = None
    ) -> None:
        """Abort what attempts have left open that do not count, so that readers wait no longer, as far as it goes.

        Args:
            scope: the sink.
            state: what it decided for this batch is left alone.
            batch_id: that is being written, or committed: what was decided before it is committed.
            run_ids: whose attempts; None for all but the latest.
        """
        counted = {
            transactional_id(scope, state.decided_run_id or "", one.partition, one.attempt)
            for one in (state.committables if state.is_decided(batch_id) else ())
        }
        try:
            leftovers = [
                listing.transactional_id
                for listing in self._connected_admin.list_transactions(["Ongoing"])
                if (run_id := run_of(scope, listing.transactional_id)) is not None
                and listing.transactional_id not in counted
                and (run_id in run_ids if run_ids is not None else run_id != state.run_ids[-1])
            ]
            if leftovers:
                logger.info("sink %s: %d transactions that do not count are aborted", scope, len(leftovers))
                self._connected_admin.fence_producers(leftovers)
        except TidelogError as error:
            logger.warning("sink %s: transactions are left to the brokers to abort: %s", scope, error)

    @property
    def _connected_admin(self) -> Admin:
        if self._admin is None:
            self._admin = Admin(**self._admin_settings)
        return self._admin


def _is_open(found: TransactionDescription | None, one: Committable) -> bool:
    return (
        found is not None
        and found.state == "Ongoing"
        and (found.producer_id, found.producer_epoch) == (one.producer_id, one.producer_epoch)
    )


_kept: dict[tuple[int, str], DecisionLog] = {}


def decision_log(settings: Mapping[str, Any]) -> DecisionLog:
    """The log of this process, kept from task to task."""
    key = (os.getpid(), repr(sorted(settings.items())))
    if key not in _kept:
        _kept[key] = DecisionLog(settings)
    return _kept[key]
