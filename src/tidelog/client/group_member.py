"""The loop's side of a consumer's membership: sends what is due to the coordinator, and brings the consumer the news.

membership (pure) <-- requests, answers --> coordinator
     |  what changes for the caller
consumer: tells the caller, when that asks for records
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tidelog.base.errors import (
    Code,
    CommitFailedError,
    InvariantBrokenError,
    KafkaError,
    TidelogError,
    UnknownTopicError,
)
from tidelog.base.ports import Clock, Rng
from tidelog.client.cluster import Cluster, is_retriable
from tidelog.client.coordinators import Coordinators
from tidelog.client.core.classic_membership import ClassicMembership
from tidelog.client.core.consumer_membership import ConsumerMembership
from tidelog.client.core.group_metadata import GroupMetadata
from tidelog.client.core.membership import COORDINATOR_CODES, NO_EPOCH, KnownTopic, Membership, MembershipConfig
from tidelog.client.core.metadata_cache import MetadataChanges
from tidelog.client.core.values import Rebalance
from tidelog.client.group_offsets import GroupOffsets, commit_failed
from tidelog.client.options import ConsumerConfig
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_10_find_coordinator import KEY_TYPE_GROUP
from tidelog.wire.messages.api_11_join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.api_12_heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.api_13_leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.wire.messages.api_14_sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.wire.messages.api_68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

logger = logging.getLogger("tidelog.client")

MEMBERSHIP_REQUESTS = "group"
"""A connection of their own: a broker answers in turn, and a JoinGroup waits until all members have joined."""
JOIN_SLACK_MS = 5_000
"""How much longer than the group waits for others a member waits for the answer."""
LEAVE_MS = 2_000
"""How long whoever leaves waits until the coordinator has heard of it."""

_RESPONSES: dict[type, type[Any]] = {
    JoinGroupRequest: JoinGroupResponse,
    SyncGroupRequest: SyncGroupResponse,
    HeartbeatRequest: HeartbeatResponse,
    LeaveGroupRequest: LeaveGroupResponse,
    ConsumerGroupHeartbeatRequest: ConsumerGroupHeartbeatResponse,
}
_MISSING = frozenset((Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_TOPIC_EXCEPTION))


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """What a consumer subscribes to: topics by name, or by a pattern."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None


class GroupMember:
    """See the module. Belongs to the event loop that it runs on.

    Args:
        config: the consumer's, with a group id.
        cluster: closed by the consumer.
        on_news: called when the caller has something to be told, or may go on.
        progress: how much of what it was handed the caller has taken.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        clock: Clock,
        rng: Rng,
        *,
        on_news: Callable[[], None],
        progress: Callable[[], int],
    ) -> None:
        assert config.group_id is not None
        self.subscription = TopicSubscription()
        self._config = config
        self._cluster = cluster
        self._clock = clock
        self._on_news = on_news
        self._progress = progress
        member_config = MembershipConfig(
            group_id=config.group_id,
            instance_id=config.group_instance_id,
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            strategies=tuple(config.partition_assignment_strategy),
            remote_assignor=config.group_remote_assignor,
            rack=config.client_rack or None,
        )
        delay_ms = cluster.backoff.delay_ms
        self.membership: Membership = (
            ConsumerMembership(member_config, delay_ms, member_id=rng.uuid())
            if config.group_protocol == "consumer"
            else ClassicMembership(member_config, delay_ms)
        )
        self._coordinators = Coordinators(cluster, KEY_TYPE_GROUP, noun="group")
        self.offsets = GroupOffsets(
            cluster,
            self._coordinators,
            config.group_id,
            member=self.metadata,
            is_moving=lambda: not self.membership.is_stable and self.membership.rebalance is None,
            request_timeout_ms=config.request_timeout_ms,
        )
        self.is_subscribed = False
        self._was_member = False
        self._error: TidelogError | None = None
        self._missing_since: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._follower: asyncio.Task[None] | None = None
        self._polled_ms = clock.now_ms()
        self._is_polling = False
        self._progress_then = 0
        cluster.on_changes(self._on_metadata)

    # What the caller wants.
    def subscribe(self, subscription: TopicSubscription) -> None:
        """Be a member that reads this."""
        before, self.subscription = self.subscription, subscription
        self.is_subscribed = True
        self._error = None
        self._missing_since.clear()
        self._polled_ms = self._clock.now_ms()
        if subscription.pattern is None:
            self._cluster.forget_refusals(subscription.topics)
            self._cluster.want(subscription.topics, create=self._config.allow_auto_create_topics)
            self.membership.subscribe(subscription.topics)
        elif isinstance(self.membership, ConsumerMembership):
            self.membership.subscribe_to_pattern(subscription.pattern.pattern)
        elif before.pattern != subscription.pattern:
            self.membership.subscribe(())
        self._on_metadata(None)
        if self._follower is not None:
            self._follower.cancel()
            self._follower = None
        if subscription.pattern is not None and isinstance(self.membership, ClassicMembership):
            self._follower = self._start(self._follow_pattern())
        if self._runner is None or self._runner.done():
            self._runner = self._start(self._run())
        self._changed.set()

    def metadata(self) -> GroupMetadata:
        """Who commits. Raises CommitFailedError while it is to be a member, and is none."""
        member, config = self.membership, self._config
        assert config.group_id is not None
        if not self.is_subscribed:
            return GroupMetadata(config.group_id)
        if member.epoch == NO_EPOCH:
            what = f"group {config.group_id!r}: the consumer is no member at the moment"
            if not self._was_member:
                raise CommitFailedError(f"{what}: it has not joined yet. Ask for records first")
            raise commit_failed(what, Code.UNKNOWN_MEMBER_ID)
        return GroupMetadata(config.group_id, member.epoch, member.member_id, config.group_instance_id)

    @property
    def has_news(self) -> bool:
        """Whether the caller has something to be told before it is given records."""
        return self.is_subscribed and (self.membership.rebalance is not None or self._why() is not None)

    @property
    def is_lost(self) -> bool:
        """Whether it is no member any more, and the caller was not told yet."""
        return self.membership.epoch == NO_EPOCH

    def take_rebalance(self) -> Rebalance | None:
        """What the caller has to be told next."""
        return self.membership.take_rebalance() if self.is_subscribed else None

    def on_told(self, rebalance: Rebalance) -> None:
        """The caller was told."""
        self.membership.on_told(rebalance)
        self._changed.set()

    def check(self) -> None:
        """Raise why it cannot be a member, or what it subscribes to is not there."""
        error, self._error = self._error, None
        error = self.membership.take_error(self._clock.now_ms()) or error
        if error is not None:
            self._changed.set()
            self._cluster.refresh_soon()  # what it says of a topic may have changed when the caller asks again
            raise error.with_traceback(None)

    def on_poll(self, *, is_begin: bool) -> None:
        """The caller asks for records, or has got them."""
        self._is_polling = is_begin
        self._polled_ms = self._clock.now_ms()
        if is_begin:
            self.membership.come_back()
            self._changed.set()

    async def unsubscribe(self) -> None:
        """Be no member any more. The caller was told of it."""
        self.is_subscribed = False
        self.subscription = TopicSubscription()
        tasks = [task for task in (self._runner, self._follower) if task is not None]
        self._runner = self._follower = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks:
            await self._leave(self.membership.leaving)

    # How.
    def _why(self) -> TidelogError | None:
        return self.membership.error or self._error

    def _on_metadata(self, changes: MetadataChanges | None) -> None:
        if not self.is_subscribed:
            return
        now_ms = self._clock.now_ms()
        metadata = self._cluster.metadata
        known: dict[str, KnownTopic | None] = {
            name: KnownTopic(view.topic_id, view.partition_count) for name, view in metadata.topics.items()
        }
        known |= {name: None for name, code in metadata.errors.items() if code in _MISSING or not code.retriable}
        pattern = self.subscription.pattern
        if pattern is not None and isinstance(self.membership, ClassicMembership):
            found = [one for one, view in metadata.topics.items() if pattern.fullmatch(one) and not view.is_internal]
            self.membership.change_topics(found)
        for topic in self.subscription.topics:
            code = metadata.errors.get(topic) if topic not in metadata.topics else None
            if code is None:
                self._missing_since.pop(topic, None)
            elif not code.retriable:
                self._error = KafkaError(f"topic {topic!r}: {code.meaning} ({code.name})", code=code)
            elif code is Code.UNKNOWN_TOPIC_OR_PARTITION:
                self._cluster.refresh_soon()
                since_ms = self._missing_since.setdefault(topic, now_ms)
                if now_ms - since_ms >= self._config.default_api_timeout_ms:
                    self._missing_since[topic] = now_ms
                    what = f"for {self._config.default_api_timeout_ms} ms brokers have known no topic {topic!r}"
                    self._error = UnknownTopicError(f"{what}: create it, or subscribe to others")
        self.membership.on_topics(known)
        if isinstance(self.membership, ClassicMembership) and not known.keys() >= self._to_divide(self.membership):
            self._cluster.refresh_soon()
        self._changed.set()
        if self._error is not None:
            self._on_news()

    async def _run(self) -> None:
        """Send what is due, for as long as it is a member."""
        while True:
            self._changed.clear()
            if isinstance(self.membership, ClassicMembership):
                self._cluster.want(self._to_divide(self.membership))
            elif isinstance(self.membership, ConsumerMembership) and self.membership.unnamed:
                await self._name_topics(self.membership)
            now_ms = self._clock.now_ms()
            if self._is_away(now_ms):
                await self._leave(self.membership.on_away)
            request = self.membership.request(now_ms)
            if self.has_news:
                self._on_news()
            if request is not None:
                await self._ask(request)
                self._on_news()
                continue
            due = [self.membership.next_due_ms(now_ms), self._away_ms()]
            delay_s = min((each - now_ms for each in due if each is not None), default=60_000) / 1000
            with suppress(TimeoutError):
                async with asyncio.timeout(max(delay_s, 0)):
                    await self._changed.wait()

    @staticmethod
    def _to_divide(membership: ClassicMembership) -> frozenset[str]:
        return membership.topics_to_divide or frozenset()

    async def _ask(self, request: object) -> None:
        config, membership = self._config, self.membership
        assert config.group_id is not None
        is_waiting = isinstance(request, JoinGroupRequest | SyncGroupRequest)
        timeout_ms = config.max_poll_interval_ms + JOIN_SLACK_MS if is_waiting else config.request_timeout_ms
        try:
            response = await self._coordinators.answer(
                config.group_id,
                lambda connection: connection.send(
                    request, _RESPONSES[type(request)], timeout_ms=max(timeout_ms, config.request_timeout_ms)
                ),
                MEMBERSHIP_REQUESTS,
            )
        except TidelogError as error:
            self._coordinators.forget(config.group_id)
            if is_retriable(error):
                logger.debug("%s: group %s: %s", config.client_id, config.group_id, error)
                self._cluster.last_error = error
                membership.on_no_answer(request, self._clock.now_ms())
            else:
                membership.on_refused(error)
                self._on_news()
            return
        code = membership.on_response(request, response, self._clock.now_ms())
        self._was_member = self._was_member or membership.epoch != NO_EPOCH
        if code in COORDINATOR_CODES:
            self._coordinators.forget(config.group_id)

    async def _name_topics(self, membership: ConsumerMembership) -> None:
        """Learn the names of what the coordinator gave by id."""
        try:
            self._cluster.want(await self._cluster.fetch_topic_names(membership.unnamed))
        except TidelogError as error:
            logger.debug("%s: topics cannot be looked up: %s", self._config.client_id, error)
            self._cluster.last_error = error
        await asyncio.sleep(self._cluster.backoff.delay_ms(1) / 1000)  # for the metadata of those names

    async def _follow_pattern(self) -> None:
        """Find topics that match: now, and those that come later."""
        while (pattern := self.subscription.pattern) is not None:
            try:
                await self._cluster.fetch_metadata(None)
                found = [name for name in self._cluster.metadata.topics if pattern.fullmatch(name)]
                self._cluster.want(found)
                delay_ms = self._config.metadata_max_age_ms
            except TidelogError as error:
                logger.debug("%s: topics cannot be listed: %s", self._config.client_id, error)
                self._cluster.last_error = error
                delay_ms = self._cluster.backoff.delay_ms(1)
            await asyncio.sleep(delay_ms / 1000)

    # Whether the caller comes back.
    def _away_ms(self) -> int | None:
        """When the caller will have been away too long; None while it is here."""
        if self._is_polling or self.membership.epoch == NO_EPOCH:
            return None
        return self._polled_ms + self._config.max_poll_interval_ms

    def _is_away(self, now_ms: int) -> bool:
        away_ms = self._away_ms()
        if away_ms is None or now_ms < away_ms:
            return False
        taken, self._progress_then = self._progress(), self._progress_then
        if taken != self._progress_then:  # it is in a loop, and takes one record after the other
            self._progress_then, self._polled_ms = taken, now_ms
            return False
        logger.warning(
            "%s: group %s: nobody has asked for records for %d ms (max_poll_interval_ms): the consumer leaves the"
            " group, and its partitions go to others; it joins again at the next poll",
            self._config.client_id,
            self._config.group_id,
            self._config.max_poll_interval_ms,
        )
        return True

    async def _leave(self, leaving: Callable[[int], object | None]) -> None:
        """Say so, once. Who does not hear it finds out when the session is over."""
        group_id = self._config.group_id
        assert group_id is not None
        try:
            async with asyncio.timeout(LEAVE_MS / 1000):
                _, connection = await self._coordinators.connection(group_id)
                request = leaving(connection.versions.version(ApiKey.LEAVE_GROUP))
                if request is not None:
                    await connection.request(request, _RESPONSES[type(request)], timeout_ms=LEAVE_MS)
        except (TidelogError, TimeoutError) as error:
            leaving(0)
            logger.info("%s: group %s: leaving was not heard: %s", self._config.client_id, group_id, error)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            logger.error("%s: a member's task failed", self._config.client_id, exc_info=error)
            what = f"a bug in Tidelog's consumer: {type(error).__name__}: {error}"
            self.membership.on_refused(InvariantBrokenError(what))
            self._on_news()
