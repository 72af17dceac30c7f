"""What leaders are asked: offsets, ends of epochs, to delete records; until every partition has its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from tidelog.base.errors import Code, KafkaError, NetworkError, TidelogError, UnknownTopicError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from tidelog.client.broker_choice import PATIENCE_MS_MIN
from tidelog.client.cluster import Cluster, is_retriable
from tidelog.client.core.fetch_messages import (
    epoch_end_rows,
    list_offsets_request,
    list_offsets_rows,
    offset_for_leader_epoch_request,
)
from tidelog.client.core.values import IsolationLevel, OffsetAndEpoch, code_of
from tidelog.net.connection import Connection
from tidelog.wire.messages.api_02_list_offsets import MAX_TIMESTAMP, ListOffsetsResponse
from tidelog.wire.messages.api_23_offset_for_leader_epoch import OffsetForLeaderEpochResponse

A = TypeVar("A")
Answers = dict[TopicPartition, A | KafkaError]


class Leaders:
    """Sends requests to the leaders of partitions.

    Args:
        cluster: whose metadata says who leads.
        request_timeout_ms: of one request.
        timeout_ms: for all there is to ask, retries included.
    """

    def __init__(self, cluster: Cluster, *, request_timeout_ms: int, timeout_ms: int) -> None:
        self._cluster = cluster
        self._request_timeout_ms = request_timeout_ms
        self._timeout_ms = timeout_ms
        self._times_unknown = 0

    async def find(self, partition: TopicPartition) -> None:
        """Return when metadata says who leads a partition.

        Raises:
            UnknownTopicError: there is no such partition.
            TimedOutError: not within the time; names the last reason.
        """
        await self._cluster.retrying(
            "find the leader", lambda: self._by_leader([partition]), timeout_ms=self._timeout_ms
        )

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetAndEpoch | None]:
        """The offset at a time (ms since 1970), or at one of ListOffsets' special timestamps, in each partition.

        Returns:
            None where no record is at or after the time.

        Raises:
            TimedOutError: not within the time; names the last reason.
            KafkaError: what will not pass, as a topic that may not be read.
        """

        min_version = _MAX_TIMESTAMP_VERSION if MAX_TIMESTAMP in timestamps.values() else 0

        async def send_request(
            connection: Connection, requested: list[TopicPartition]
        ) -> Answers[OffsetAndEpoch | None]:
            epochs = {partition: self._leader_epoch(partition) for partition in requested}
            wanted = {partition: timestamps[partition] for partition in requested}
            response = await connection.request(
                list_offsets_request(wanted, epochs, isolation_level),
                ListOffsetsResponse,
                timeout_ms=self._request_timeout_ms,
                min_version=min_version,
            )
            found: Answers[OffsetAndEpoch | None] = {}
            rows = list_offsets_rows(response)
            for partition in requested:
                row = rows.get(partition)
                code = Code.UNKNOWN_SERVER_ERROR if row is None else code_of(row.error_code)
                if row is None or code is not Code.NONE:
                    found[partition] = refusal_of("list offsets", partition, code)
                elif row.offset < 0:
                    found[partition] = None
                else:
                    epoch = row.leader_epoch if row.leader_epoch >= 0 else None
                    timestamp = row.timestamp if row.timestamp >= 0 else None
                    found[partition] = OffsetAndEpoch(row.offset, epoch, timestamp)
            return found

        answers = await self.request_all("list offsets", timestamps, send_request)
        found: dict[TopicPartition, OffsetAndEpoch | None] = {}
        for partition in timestamps:
            answer = answers[partition]
            if isinstance(answer, KafkaError):
                raise answer
            found[partition] = answer
        return found

    async def epoch_ends(
        self, questions: Mapping[TopicPartition, tuple[LeaderEpoch | None, LeaderEpoch]]
    ) -> dict[TopicPartition, tuple[LeaderEpoch, Offset] | KafkaError | None]:
        """Where epochs end: for each partition (current leader epoch, or None for what metadata says; epoch).

        Returns:
            The largest epoch that is not newer than the asked one, and its end offset (exclusive); None if the leader
            cannot tell; an error where the leader refused, FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH included if
            the current leader epoch was given.

        Raises:
            TimedOutError: not within the time; names the last reason.
        """

        async def send_request(
            connection: Connection, requested: list[TopicPartition]
        ) -> Answers[tuple[LeaderEpoch, Offset] | None]:
            wanted = {}
            for partition in requested:
                current, epoch = questions[partition]
                wanted[partition] = (self._leader_epoch(partition) if current is None else current, epoch)
            response = await connection.request(
                offset_for_leader_epoch_request(wanted),
                OffsetForLeaderEpochResponse,
                timeout_ms=self._request_timeout_ms,
            )
            rows = epoch_end_rows(response)
            found: Answers[tuple[LeaderEpoch, Offset] | None] = {}
            for partition in requested:
                code, answer = rows.get(partition, (Code.UNKNOWN_SERVER_ERROR, None))
                found[partition] = (
                    answer if code is Code.NONE else refusal_of("offset for leader epoch", partition, code)
                )
            return found

        fenced = {partition for partition, (current, _) in questions.items() if current is not None}
        answers = await self.request_all("offset for leader epoch", questions, send_request, fenced=fenced)
        return {partition: answers[partition] for partition in questions}

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """Delete what lies below an offset (-1: below the high watermark) in each partition.

        Returns:
            Where each log starts now.

        Raises:
            TimedOutError: not within the time; names the last reason.
            KafkaError: one was refused, as OFFSET_OUT_OF_RANGE. Of others the records may be gone.
        """
        from tidelog.wire.messages.api_21_delete_records import (
            DeleteRecordsPartition,
            DeleteRecordsRequest,
            DeleteRecordsResponse,
            DeleteRecordsTopic,
        )

        async def send_request(connection: Connection, requested: list[TopicPartition]) -> Answers[Offset]:
            by_topic: dict[str, list[DeleteRecordsPartition]] = {}
            for partition in requested:
                row = DeleteRecordsPartition(partition.partition, before[partition])
                by_topic.setdefault(partition.topic, []).append(row)
            topics = [DeleteRecordsTopic(name, rows) for name, rows in by_topic.items()]
            response = await connection.request(
                DeleteRecordsRequest(topics=topics, timeout_ms=self._request_timeout_ms),
                DeleteRecordsResponse,
                timeout_ms=self._request_timeout_ms,
            )
            rows = {(topic.name, row.partition_index): row for topic in response.topics for row in topic.partitions}
            found: Answers[Offset] = {}
            for partition in requested:
                answer = rows.get((partition.topic, partition.partition))
                code = Code.UNKNOWN_SERVER_ERROR if answer is None else code_of(answer.error_code)
                if answer is None or code is not Code.NONE:
                    found[partition] = refusal_of("delete records", partition, code)
                else:
                    found[partition] = Offset(answer.low_watermark)
            return found

        answers = await self.request_all("delete records", before, send_request)
        found: dict[TopicPartition, Offset] = {}
        for partition in before:
            answer = answers[partition]
            if isinstance(answer, KafkaError):
                raise answer
            found[partition] = answer
        return found

    async def request_all(
        self,
        what: str,
        partitions: Iterable[TopicPartition],
        send_request: Callable[[Connection, list[TopicPartition]], Awaitable[Answers[A]]],
        *,
        fenced: Iterable[TopicPartition] = (),
    ) -> Answers[A]:
        """Send to every leader, and again what was refused for a reason that passes.

        Args:
            what: named in errors.
            send_request: asks one leader for some of the partitions, and answers for each of them.
            fenced: partitions whose sender gave a leader epoch: what is wrong with that is the answer.

        Raises:
            TimedOutError: not within the time; names the last reason.
        """
        left = list(dict.fromkeys(partitions))
        own_fence = set(fenced)
        answers: Answers[A] = {}

        async def attempt() -> None:
            last: TidelogError | None = None
            by_leader = await self._by_leader(left)
            requested = [self._request_one(broker_id, group, send_request) for broker_id, group in by_leader.items()]
            for found in await asyncio.gather(*requested):
                if isinstance(found, TidelogError):
                    last = found
                    continue
                for partition, answer in found.items():
                    if isinstance(answer, KafkaError) and is_retriable(answer):
                        is_the_answer = partition in own_fence and answer.code in _EPOCH_ERRORS
                        if not is_the_answer:
                            last = answer
                            continue
                    answers[partition] = answer
                    left.remove(partition)
            if last is not None:
                raise last

        if left:
            await self._cluster.retrying(what, attempt, timeout_ms=self._timeout_ms)
        return answers

    async def _request_one(
        self,
        broker_id: BrokerId,
        partitions: list[TopicPartition],
        send_request: Callable[[Connection, list[TopicPartition]], Awaitable[Answers[A]]],
    ) -> Answers[A] | TidelogError:
        async def send_to_leader() -> Answers[A]:
            return await send_request(await self._cluster.broker(broker_id), partitions)

        request_task = asyncio.ensure_future(send_to_leader())
        patience_ms: float = PATIENCE_MS_MIN
        try:
            while not (await asyncio.wait({request_task}, timeout=patience_ms / 1000))[0]:
                if not any(self._leads(broker_id, partition) for partition in partitions):
                    raise NetworkError(f"broker {broker_id} has not answered, and others lead in its place by now")
                self._cluster.refresh_soon()
                patience_ms = self._cluster.backoff.delay_ms(1)
            return request_task.result()
        except TidelogError as error:
            if not is_retriable(error):
                raise
            self._cluster.refresh_soon()
            return error
        finally:
            request_task.cancel()

    def _leads(self, broker_id: BrokerId, partition: TopicPartition) -> bool:
        view = self._cluster.metadata.partition(partition)
        return view is not None and view.leader_id == broker_id

    async def _by_leader(self, partitions: list[TopicPartition]) -> dict[BrokerId, list[TopicPartition]]:
        metadata = self._cluster.metadata
        # Whatever taught us who leads them (a description, a list of all topics): from now on it is kept up to date.
        self._cluster.want({partition.topic for partition in partitions})
        if any(metadata.partition(partition) is None for partition in partitions):
            await self._cluster.refreshed()
            if self._cluster.last_error is not None:
                raise self._cluster.last_error.with_traceback(None)
        found: dict[BrokerId, list[TopicPartition]] = {}
        for partition in partitions:
            view = metadata.partition(partition)
            if view is None or view.leader_id is None:
                raise self._missing(partition)
            found.setdefault(view.leader_id, []).append(partition)
        return found

    def _missing(self, partition: TopicPartition) -> KafkaError:
        """Why there is nobody to ask. A topic that nobody has heard of may be on its way, but not for long."""
        code = self._cluster.metadata.why_missing(partition)
        if code is Code.UNKNOWN_TOPIC_OR_PARTITION:
            self._times_unknown += 1
            if self._times_unknown >= _TIMES_UNKNOWN_MAX:
                return UnknownTopicError(f"there is no partition {partition}").about(partition)
        return refusal_of("metadata", partition, code)

    def _leader_epoch(self, partition: TopicPartition) -> LeaderEpoch | None:
        view = self._cluster.metadata.partition(partition)
        return None if view is None else view.leader_epoch


_MAX_TIMESTAMP_VERSION = 7  # before, a broker would take it for a time
_TIMES_UNKNOWN_MAX = 6  # with the back-off between them that is a second or two
_EPOCH_ERRORS = (Code.FENCED_LEADER_EPOCH, Code.UNKNOWN_LEADER_EPOCH)


def refusal_of(what: str, partition: TopicPartition, code: Code) -> KafkaError:
    """The error of a leader's answer about one partition."""
    return KafkaError(f"{what}: {partition}: {code.meaning} ({code.name})", code=code).about(partition)
