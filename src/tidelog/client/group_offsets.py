"""What a consumer commits for its group, and asks of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from tidelog.base.errors import Code, CommitFailedError, KafkaError, TidelogError, UnknownTopicError
from tidelog.base.ids import BrokerId, TopicPartition
from tidelog.client.cluster import Cluster
from tidelog.client.coordinators import Coordinators
from tidelog.client.core.group_metadata import GroupMetadata
from tidelog.client.core.offset_messages import (
    LAST_WITH_NAMES,
    TopicIds,
    commit_codes,
    commit_request,
    fetched_offsets,
    offset_fetch_request,
)
from tidelog.client.core.values import CommittedOffset
from tidelog.net.connection import Connection
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_08_offset_commit import OffsetCommitResponse
from tidelog.wire.messages.api_09_offset_fetch import OffsetFetchResponse

T = TypeVar("T")

_MOVING = frozenset((Code.REBALANCE_IN_PROGRESS, Code.STALE_MEMBER_EPOCH, Code.ILLEGAL_GENERATION))
"""What a member is answered that has another epoch by now, or will soon."""
_UNKNOWN = frozenset((Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID))
_OUT = frozenset((Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH, Code.FENCED_INSTANCE_ID))


class GroupOffsets:
    """See the module.

    Args:
        group_id: whose.
        member: who asks, as of now. Raises CommitFailedError while it is to be a member and is none.
        is_moving: whether its epoch is about to change without the caller's doing.
        request_timeout_ms: of one request; `cluster` knows how long all attempts may take together.
    """

    def __init__(
        self,
        cluster: Cluster,
        coordinators: Coordinators,
        group_id: str,
        *,
        member: Callable[[], GroupMetadata],
        is_moving: Callable[[], bool],
        request_timeout_ms: int,
    ) -> None:
        self._cluster = cluster
        self._coordinators = coordinators
        self._group_id = group_id
        self._member = member
        self._is_moving = is_moving
        self._request_timeout_ms = request_timeout_ms

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit, and try again what may pass.

        Raises:
            CommitFailedError: the member does not have the partitions any more.
            TimedOutError: not within the time. Whether it is done is not known.
            KafkaError: it was refused for another reason.
        """
        left = dict(offsets)
        self._member()

        async def send_request(_: BrokerId, connection: Connection) -> None:
            member = self._member()
            topic_ids, version = self._ids_for(left, connection, ApiKey.OFFSET_COMMIT)
            response = await connection.request(
                commit_request(member, left, topic_ids),
                OffsetCommitResponse,
                timeout_ms=self._request_timeout_ms,
                version=version,
            )
            error: TidelogError | None = None
            codes = commit_codes(response, topic_ids)
            for key in list(left):
                code = codes.get(key, Code.UNKNOWN_SERVER_ERROR)
                if code is Code.NONE:
                    del left[key]
                elif error is None or not _is_final(error):
                    error = self._refused(code, key, member)
            if error is not None:
                raise error

        if left:
            await self._coordinators.request(
                f"commit offsets of group {self._group_id!r}", self._group_id, send_request
            )

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group has committed, in each partition; None for nothing.

        Raises:
            TimedOutError: not within the time, as while a transaction is about to commit some.
            KafkaError: it was refused.
        """
        wanted = list(dict.fromkeys(partitions))

        async def send_request(_: BrokerId, connection: Connection) -> dict[TopicPartition, CommittedOffset | None]:
            found: dict[TopicPartition, CommittedOffset | None] = {}
            for key, row in (await self._fetch(wanted, connection)).items():
                if isinstance(row, KafkaError):
                    raise row
                found[key] = row
            return found

        return await self._asking(wanted, send_request)

    async def starts(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | KafkaError | None]:
        """As `committed`, but what is refused of a partition stands beside the others. Raises as that does."""
        wanted = list(dict.fromkeys(partitions))

        async def send_request(
            _: BrokerId, connection: Connection
        ) -> dict[TopicPartition, CommittedOffset | KafkaError | None]:
            return await self._fetch(wanted, connection)

        return await self._asking(wanted, send_request)

    async def _asking(
        self,
        wanted: list[TopicPartition],
        send_request: Callable[[BrokerId, Connection], Awaitable[dict[TopicPartition, T]]],
    ) -> dict[TopicPartition, T]:
        if not wanted:
            return {}
        return await self._coordinators.request(f"offsets of group {self._group_id!r}", self._group_id, send_request)

    async def _fetch(
        self, wanted: list[TopicPartition], connection: Connection
    ) -> dict[TopicPartition, CommittedOffset | KafkaError | None]:
        topic_ids, version = self._ids_for(wanted, connection, ApiKey.OFFSET_FETCH)
        request = offset_fetch_request(self._group_id, wanted, topic_ids, version=version, require_stable=True)
        response = await connection.request(
            request, OffsetFetchResponse, timeout_ms=self._request_timeout_ms, version=version
        )
        code, rows = fetched_offsets(response, topic_ids)
        what = f"group {self._group_id!r}"
        if code is not Code.NONE:
            raise KafkaError(f"{what}: {code.meaning} ({code.name})", code=code)
        found: dict[TopicPartition, CommittedOffset | KafkaError | None] = {}
        for key in wanted:
            row = rows.get(key)
            if isinstance(row, Code):
                found[key] = KafkaError(f"{what}: {key}: {row.meaning} ({row.name})", code=row).about(key)
            else:
                found[key] = row
        return found

    def _ids_for(
        self, partitions: Iterable[TopicPartition], connection: Connection, api_key: ApiKey
    ) -> tuple[TopicIds | None, int]:
        """The ids of the topics, and the version; without ids that of names."""
        version = connection.versions.version(api_key)
        if version <= LAST_WITH_NAMES:
            return None, version
        found = {key.topic: self._cluster.metadata.topic_id(key.topic) for key in partitions}
        ids = {name: topic_id for name, topic_id in found.items() if topic_id is not None}
        if len(ids) == len(found):
            return ids, version
        return None, connection.versions.version(api_key, max_version=LAST_WITH_NAMES)

    def _refused(self, code: Code, partition: TopicPartition, member: GroupMetadata) -> TidelogError:
        what = f"group {member.group_id!r}: {partition}: {code.meaning} ({code.name})"
        now = self._member()
        if code in _MOVING and (now.generation != member.generation or self._is_moving()):
            return _TryAgainError(what, code=code).about(partition)
        if code is Code.REBALANCE_IN_PROGRESS:
            advice = "the group rebalances, and waits for this consumer: ask for records, then commit"
            return CommitFailedError(f"{what}: {advice}", code=code).about(partition)
        if code in _MOVING or code in _OUT:
            return commit_failed(what, code).about(partition)
        if code in _UNKNOWN and partition.topic not in self._cluster.metadata.topics:
            return UnknownTopicError(f"{what}: there is no such topic any more").about(partition)
        return KafkaError(what, code=code).about(partition)


class _TryAgainError(KafkaError):
    """The member moves on to another epoch: in that, it can commit."""

    @property
    def retriable(self) -> bool:
        return True


def _is_final(error: TidelogError) -> bool:
    """Whether trying again cannot help."""
    return not (isinstance(error, KafkaError) and error.retriable)


def commit_failed(what: str, code: Code) -> CommitFailedError:
    """The error of who is no member any more."""
    return CommitFailedError(
        f"{what}. The consumer is no member of the group any more, and its partitions are another's: what was read"
        " since the last commit is read again there. If it took too long from one poll to the next, raise"
        " max_poll_interval_ms or take fewer records (max_poll_records).",
        code=code,
    )
