"""The cluster as a planner sees it: through a Consumer and an Admin of ours, with patience for what passes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog import Admin, ConfigResource, Consumer, UnsupportedVersionError
from tidelog.base.errors import Code, KafkaError, NetworkError, TidelogError, TimedOutError, UnknownTopicError, refusal
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition, parse_uuid
from tidelog.client.core.positions import EpochEnd, Questions
from tidelog.client.kafka_settings import admin_settings, client_arguments
from tidelog.spark.options import PLAN_PATIENCE_MS, SourceOptions
from tidelog.spark.plan import ClusterFacts
from tidelog.spark.truncation import PartitionFacts

if TYPE_CHECKING:
    from tidelog.spark.planner import Resumption

R = TypeVar("R")
logger = logging.getLogger("tidelog.spark")

MISSING_BELIEVED_MS = 5_000
"""How long all brokers must say that a topic does not exist: one that just started may not have heard of it yet."""
CONFIGS_AGE_MS_MAX = 10_000
CALL_MS_MAX = 10_000
PAUSE_MS_MAX = 1_000


class RealCluster:
    """Implements `tidelog.spark.planner.Cluster`. Connects when first asked.

    Args:
        options: of the source.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._clients: tuple[Consumer, Admin] | None = None
        self._missing_since_ms: dict[str, int] = {}
        self._compacted: dict[str, tuple[int, bool]] = {}
        self._awaited: dict[TopicPartition, Offset] = {}

    def facts(self, expected: Collection[str] = ()) -> ClusterFacts:
        names = self._names(expected)
        described = {name: topic for name, topic in self._describe(names).items() if topic is not None}
        partitions = [
            key
            for name, topic in described.items()
            for row in topic.partitions
            if self._options.topics.includes(key := TopicPartition(name, PartitionIndex(row.partition)))
        ]
        begins = self._consumer.beginning_offsets(partitions)
        ends = self._consumer.end_offsets(partitions)
        return ClusterFacts(
            topic_ids={name: topic.topic_id for name, topic in described.items()},
            partitions={
                key: PartitionFacts(
                    None if (epoch := ends[key].leader_epoch) is None else LeaderEpoch(epoch),
                    Offset(begins[key].offset),
                    Offset(ends[key].offset),
                )
                for key in partitions
            },
            with_gaps=frozenset(name for name in described if self._has_gaps(name)),
        )

    def offsets_at(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset | None]:
        found = self._consumer.offsets_for_times(timestamps_ms)
        return {key: None if at is None else Offset(at.offset) for key, at in found.items()}

    def ask(self, questions: Mapping[TopicPartition, Questions[R]], facts: ClusterFacts) -> dict[TopicPartition, R]:
        answers: dict[TopicPartition, R] = {}
        asked: dict[TopicPartition, LeaderEpoch] = {}

        def go_on(key: TopicPartition, answer: EpochEnd, *, is_first: bool = False) -> None:
            try:
                asked[key] = next(questions[key]) if is_first else questions[key].send(answer)
            except StopIteration as stop:
                asked.pop(key, None)
                answers[key] = stop.value

        for key in questions:
            go_on(key, None, is_first=True)
        while asked:
            wanted = {key: (facts.partitions[key].leader_epoch, epoch) for key, epoch in asked.items()}
            for key, end in self._admin.offsets_for_leader_epoch(wanted).items():
                if isinstance(end, KafkaError):
                    raise end
                go_on(key, None if end is None else (LeaderEpoch(end.leader_epoch), Offset(end.end_offset)))
        return answers

    def patiently(self, what: str, work: Callable[[], R]) -> R:
        """Do `work`, again and again while errors are passing ones.

        Raises:
            TimedOutError: they did not pass in two minutes, or in the number of tries that the options give.
        """
        retries = self._options.retries
        began = time.monotonic()
        failures = 0
        while True:
            try:
                return work()
            except (NetworkError, TimedOutError, KafkaError) as error:
                if isinstance(error, KafkaError) and not error.retriable:
                    raise
                failures += 1
                waited_ms = (time.monotonic() - began) * 1000
                if waited_ms > PLAN_PATIENCE_MS if retries.tries is None else failures >= retries.tries:
                    raise TimedOutError(
                        f"{what}: given up after {failures} tries in {waited_ms:.0f} ms: {error}. Are the brokers "
                        "up? fetchOffset.numRetries says how often to try"
                    ) from error
                logger.info("%s: trying again, since %s", what, error)
                pause_ms = retries.pause_ms * (failures if retries.tries is None else 1)
                self.pause(min(pause_ms, PAUSE_MS_MAX))

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def pause(self, pause_ms: int) -> None:
        time.sleep(pause_ms / 1000)

    def wait_for_records(self, offsets: Mapping[TopicPartition, Offset], wait_ms: int) -> None:
        # A fetch is parked at the leaders until there is something: no polling. From one wait to the next it stays so.
        try:
            if offsets != self._awaited:
                self._consumer.assign(offsets)
                for key, offset in offsets.items():
                    self._consumer.seek(key, offset)
                self._awaited = dict(offsets)
            if self._consumer.poll_batches(timeout_ms=wait_ms):
                self._stop_waiting()
        except TidelogError as error:
            # The next look at the cluster will tell what is the matter, and be patient about it.
            logger.debug("waiting for records: %s", error)
            self._stop_waiting()
            self.pause(wait_ms)

    def report(self, resumed: Mapping[TopicPartition, Resumption], policy: str) -> None:
        from tidelog.client.admin.loss_administration import ReaderResumption

        known = {key: at for key, at in resumed.items() if at.loss.topic_id is not None}
        try:
            self._admin.report_resumptions(
                ReaderResumption(
                    key,
                    TopicId(parse_uuid(str(at.loss.topic_id))),
                    position=at.loss.position.offset,
                    leader_epoch=at.loss.position.leader_epoch,
                    divergent_offset=at.loss.resume_offset,
                    resumed_offset=at.offset,
                    policy=policy,
                )
                for key, at in known.items()
            )
        except UnsupportedVersionError:
            pass  # Apache Kafka keeps no account of losses
        except TidelogError as error:
            logger.warning("the account of losses was not told that this query went on: %s", error)

    def _stop_waiting(self) -> None:
        self._awaited = {}
        self._consumer.assign([])

    def close(self) -> None:
        clients, self._clients = self._clients, None
        for client in clients or ():
            client.close()

    @property
    def _consumer(self) -> Consumer:
        return self._connected()[0]

    @property
    def _admin(self) -> Admin:
        return self._connected()[1]

    def _connected(self) -> tuple[Consumer, Admin]:
        if self._clients is None:
            options: dict[str, Any] = {"default_api_timeout_ms": CALL_MS_MAX, **self._options.client}
            shared = admin_settings(options)
            options = client_arguments(options)
            # What is fetched only says that there is something: the tasks fetch it for themselves.
            options |= {"auto_offset_reset": "none", "max_partition_fetch_bytes": 1, "fetch_max_bytes": 1}
            self._clients = Consumer(**options), Admin(**shared)
        return self._clients

    def _names(self, expected: Collection[str]) -> list[str]:
        topics = self._options.topics
        if topics.pattern is None:
            return topics.select([])
        return sorted(
            {*topics.select([row.name for row in self._admin.list_topics() if not row.is_internal]), *expected}
        )

    def _describe(self, names: Collection[str]) -> dict[str, Any]:
        """The topics, None for one that does not exist.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION: one seems not to exist; ask again, until it is believed.
        """
        try:
            found: dict[str, Any] = dict(self._admin.describe_topics(names)) if names else {}
        except UnknownTopicError:
            existing = {topic.name for topic in self._admin.list_topics()}
            found = dict(self._admin.describe_topics([name for name in names if name in existing]))
        for name in names:
            if name in found:
                self._missing_since_ms.pop(name, None)
                continue
            since_ms = self._missing_since_ms.setdefault(name, self.now_ms())
            if self.now_ms() - since_ms < MISSING_BELIEVED_MS:
                raise refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist, or not yet")
            found[name] = None
        return found

    def _has_gaps(self, topic: str) -> bool:
        """Whether offsets may be missing, since compaction removes records. If it cannot be told, they may."""
        looked_ms, compacted = self._compacted.get(topic, (None, True))
        if looked_ms is None or self.now_ms() - looked_ms > CONFIGS_AGE_MS_MAX:
            resource = ConfigResource("topic", topic)
            try:
                policy = self._admin.describe_configs([resource])[resource].get("cleanup.policy")
                compacted = policy is None or policy.value is None or "compact" in policy.value
            except KafkaError as error:
                if error.retriable:
                    raise
                compacted = True
            self._compacted[topic] = self.now_ms(), compacted
        return compacted
