"""The share partitions that this broker leads, and the members that fetch from them (KIP-932).

A share partition is loaded when a member of its group first fetches. It ends with the leadership, with its topic, when
the coordinator fences it, or when nobody of the group fetches from here any more and all is kept.

Kafka: `SharePartitionManager`, `SharePartitionCache`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import TopicId
from tidelog.base.ports import Clock
from tidelog.metadata import ResourceType
from tidelog.metadata.configs import BrokerSettings
from tidelog.metadata.configs.share_groups import GROUP_SHARE_MAX_SHARE_SESSIONS
from tidelog.server.broker.broker import Broker
from tidelog.server.broker.listeners import BrokerListener
from tidelog.server.replication.deadlines import ReplicationDeadlines
from tidelog.server.replication.partition import Partition
from tidelog.server.settings.in_force import SettingsInForce
from tidelog.server.share_fetching.kept_states import KeepsShareStates
from tidelog.server.share_fetching.share_driver import ShareDriver
from tidelog.server.share_fetching.share_sessions import PartitionId, ShareSession, ShareSessions
from tidelog.server.share_fetching.share_settings import ShareFetchSettings, share_settings
from tidelog.server.transport.server_connection import ServerConnection
from tidelog.server.transport.turns import in_turns
from tidelog.share import AcknowledgedRecords


class ShareFetching(BrokerListener):
    """See the module.

    Args:
        persister: the share coordinators.
        partitions_max: how many partitions all sessions together may have.

    Attributes:
        sessions: of the members that fetch.
        forgotten_records: how many records that were delivered were taken back by truncations, for whoever counts.
    """

    def __init__(
        self,
        broker: Broker,
        persister: KeepsShareStates,
        properties: Mapping[str, str],
        *,
        clock: Clock,
        partitions_max: int,
    ) -> None:
        self.broker = broker
        self.clock = clock
        self.persister = persister
        self.tasks = broker.tasks.branch("share groups")
        self.deadlines = ReplicationDeadlines(clock)
        self.sessions = ShareSessions(partitions_max)
        self.forgotten_records = 0
        self._by_group: dict[str, dict[PartitionId, ShareDriver]] = {}
        self._by_partition: dict[PartitionId, dict[str, ShareDriver]] = {}
        self._connections: dict[ServerConnection, dict[ShareSession, None]] = {}
        self._settings_of_all = BrokerSettings.of(properties)
        self._settings_of_groups: dict[str, Mapping[str, str]] = {}
        self._parsed: dict[str, ShareFetchSettings] = {}
        broker.add_listener(self)

    def __len__(self) -> int:
        """How many share partitions are here."""
        return sum(map(len, self._by_group.values()))

    # What handlers ask.

    def settings_of(self, group_id: str) -> ShareFetchSettings:
        """What is in force for a group."""
        own = self._settings_of_groups.get(group_id)
        name = "" if own is None else group_id  # those of nobody's own are the same
        found = self._parsed.get(name)
        if found is None:
            found = self._parsed[name] = share_settings(self._settings_of_all, own or {})
        return found

    def find(self, group_id: str, key: PartitionId) -> ShareDriver | None:
        """The share partition, if there is one."""
        return self._by_group.get(group_id, {}).get(key)

    def driver(self, group_id: str, partition: Partition) -> ShareDriver:
        """The share partition, which may still be loading.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER.
        """
        key = partition.topic_id, partition.topic_partition.partition
        driver = self.find(group_id, key)
        if driver is not None:
            driver.is_used = True
            return driver
        leader_epoch = partition.leader().leader_epoch
        driver = ShareDriver(group_id, partition, leader_epoch, self.settings_of(group_id), self)
        self._by_group.setdefault(group_id, {})[key] = driver
        self._by_partition.setdefault(key, {})[group_id] = driver
        driver.begin()
        return driver

    def acknowledge(
        self, group_id: str, member_id: str, key: PartitionId, batches: Sequence[AcknowledgedRecords]
    ) -> asyncio.Future[Code]:
        """A member says what became of records: see `ShareDriver.acknowledge`.

        Raises:
            KafkaError: as it does; and where this broker does not lead the partition.
        """
        topic_id, index = key
        partition = self.broker.partition_by_id(TopicId(topic_id), index)
        partition.leader()
        driver = self.find(group_id, key)
        if driver is None:
            raise refusal(
                Code.INVALID_RECORD_STATE, f"member {member_id} has no records of {partition.topic_partition} any more"
            )
        return driver.acknowledge(member_id, batches)

    def use_on(self, session: ShareSession, connection: ServerConnection) -> None:
        """A session was used on a connection: it ends with it."""
        if session.connection is connection:
            return
        self._leave_connection(session)
        session.connection = connection
        here = self._connections.get(connection)
        if here is None:
            here = self._connections[connection] = {}
            before = connection.on_disconnected
            connection.on_disconnected = partial(self._on_disconnected, connection, before)
        here[session] = None

    def end_session(self, session: ShareSession) -> None:
        """A member fetches from here no more: others may have its records."""
        if self.sessions.remove(session):
            self.let_go()
            self._leave_connection(session)
            self._leave(session.group_id, session.member_id)

    def let_go(self) -> None:
        """Have the sessions that ended part with what they watch, with turns for others in between."""
        if self.sessions.let_go():
            asyncio.get_running_loop().call_soon(self.let_go)

    def _leave_connection(self, session: ShareSession) -> None:
        before = session.connection
        session.connection = None
        if isinstance(before, ServerConnection):
            self._connections.get(before, {}).pop(session, None)

    def _on_disconnected(self, connection: ServerConnection, before: Callable[[], None] | None) -> None:
        for session in list(self._connections.pop(connection, ())):
            self.end_session(session)
        if before is not None:
            before()

    def _leave(self, group_id: str, member_id: str) -> None:
        drivers = list(self._by_group.get(group_id, {}).values())
        if drivers:
            self.tasks.start(self._take_from(member_id, drivers))

    async def _take_from(self, member_id: str, drivers: Iterable[ShareDriver]) -> None:
        async for driver in in_turns(drivers):
            if self.sessions.find(driver.group_id, member_id) is None:  # it may have come again
                driver.is_used = self.sessions.members(driver.group_id) > 0
                driver.on_member_left(member_id)

    # What happens to the broker.

    def on_leadership_changed(self, partition: Partition) -> None:
        """See `BrokerListener`. One that leads again does so in another epoch."""
        key = partition.topic_id, partition.topic_partition.partition
        for driver in list(self._by_partition.get(key, {}).values()):
            self._end(
                driver,
                refusal(Code.NOT_LEADER_OR_FOLLOWER, f"{partition.topic_partition}: the leadership has changed"),
            )

    def on_settings(self, old: SettingsInForce | None, new: SettingsInForce) -> None:
        """See `FollowsSettings`."""
        own = {resource.name: one for resource, one in new.configs.items() if resource.type == ResourceType.GROUP}
        self.sessions.count_max = new.broker[GROUP_SHARE_MAX_SHARE_SESSIONS]
        if old is not None and new.broker == self._settings_of_all and own == self._settings_of_groups:
            return
        self._settings_of_all, self._settings_of_groups, self._parsed = new.broker, own, {}
        for group_id, drivers in self._by_group.items():
            settings = self.settings_of(group_id)
            for driver in drivers.values():
                if driver.settings != settings:
                    driver.on_settings(settings)

    async def stop(self) -> None:
        """Serve no more."""
        self.deadlines.stop()
        await self.tasks.end()

    # What share partitions say: see `ShareHost`.

    def on_ended(self, driver: ShareDriver) -> None:
        """See `ShareHost`."""
        self._end(
            driver,
            refusal(
                Code.NOT_LEADER_OR_FOLLOWER,
                f"{driver.partition.topic_partition}: another broker may deliver its records",
            ),
        )

    def on_forgotten(self, count: int) -> None:
        """See `ShareHost`."""
        self.forgotten_records += count

    def _end(self, driver: ShareDriver, error: KafkaError) -> None:
        key = driver.partition.topic_id, driver.partition.topic_partition.partition
        of_group = self._by_group.get(driver.group_id, {})
        if of_group.get(key) is driver:
            del of_group[key], self._by_partition[key][driver.group_id]
            if not of_group:
                del self._by_group[driver.group_id]
            if not self._by_partition[key]:
                del self._by_partition[key]
        driver.end(error)
