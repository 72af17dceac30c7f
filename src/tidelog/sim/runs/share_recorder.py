"""Keeps what members of a share group were told, and holds it against what they are told later."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import count
from typing import NamedTuple

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition
from tidelog.base.invariant import invariant
from tidelog.server.node import Node
from tidelog.share import AcknowledgeType
from tidelog.sim.checkers.share_groups import AcceptedOnce, Acquisition, NoRecordSkipped, OneMemberAtATime
from tidelog.sim.checkers.views import Record
from tidelog.sim.node import SimulatedNode
from tidelog.sim.runs.cluster_plan import OFFSETS
from tidelog.sim.runs.cluster_recorder import ClusterRecorder
from tidelog.sim.runs.cluster_views import running
from tidelog.sim.runs.share_plan import SHARE_STATE, SharePlan
from tidelog.sim.runs.stored import Control

SHARE_GROUP_MAKES_PROGRESS = "ShareGroupMakesProgress"
NOT_DONE = frozenset((Code.INVALID_RECORD_STATE, Code.SHARE_SESSION_NOT_FOUND))
"""An acknowledgement that is refused with one of these does not count."""
DELIVERED_WAS_WRITTEN = "DeliveredStaysDeliverable"


class AskedLeader(NamedTuple):
    """A fetch, as it is sent to a leader.

    Attributes:
        tick: counts what is sent and told.
        leaders: of the partitions that are fetched, by the committed metadata.
        sources: the share partitions that the broker has of them.
        session: that the broker has with the member.
    """

    tick: int
    now_ms: int
    leaders: Mapping[TopicPartition, tuple[BrokerId, LeaderEpoch] | None]
    sources: Mapping[TopicPartition, object]
    session: object


class GivenRecords(NamedTuple):
    """What the answer to a fetch gives a member of one partition.

    Attributes:
        acquired: (offset, record, delivery count).
    """

    partition: TopicPartition
    acquired: Collection[tuple[int, Record, int]]


class ShareRecorder:
    """See the module.

    Args:
        cluster: sees all else.
        nodes: all of them.
        group_id: of the group.
        plan: of the group.
        now_ms: the clock of the run.
    """

    def __init__(
        self,
        cluster: ClusterRecorder,
        nodes: Mapping[BrokerId, SimulatedNode],
        group_id: str,
        plan: SharePlan,
        now_ms: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._group_id = group_id
        self._plan = plan
        self._now_ms = now_ms
        self._ticks = count(1)
        self._one_at_a_time = OneMemberAtATime()
        self._accepted_once = AcceptedOnce()
        self._none_skipped = NoRecordSkipped(plan.delivery_count_max)
        self._forgotten_at = 0
        self._forgotten: dict[BrokerId, tuple[Node, int]] = {}
        cluster.keep_promises_of([SHARE_STATE])
        cluster.listeners.append(self._on_listened)

    def expect(self, holds: bool, invariant: str, what: str | Callable[[], str]) -> None:
        """As of the cluster's."""
        self._cluster.expect(holds, invariant, what)

    # What members ask and are told.

    def asked(self, member_id: str, broker: BrokerId, partitions: Collection[TopicPartition]) -> AskedLeader:
        """A member is about to ask the leader of some partitions."""
        leaders = {each: self._leader(each) for each in partitions}
        sources = {each: self._source(broker, each) for each in partitions}
        return AskedLeader(next(self._ticks), self._now_ms(), leaders, sources, self._session(broker, member_id))

    def on_given(self, member_id: str, given: GivenRecords, asked: AskedLeader, broker: BrokerId) -> list[Acquisition]:
        """It was given records. Returns what it has by that."""
        partition, now_ms = given.partition, self._now_ms()
        source = self._source(broker, partition)
        session = self._session(broker, member_id)
        is_known = source is not None and source is asked.sources.get(partition)
        goes_on = session is not None and session is asked.session  # else others may have them by now
        found = []
        for offset, record, delivery_count in given.acquired:
            one = Acquisition(
                member_id,
                partition,
                offset,
                record,
                delivery_count,
                asked_at=asked.tick,
                until_ms=asked.now_ms + self._plan.lock_ms,
                source=source if is_known and goes_on else None,
                session=session,
            )
            found.append(one)
            self._cluster.facts["record acquired"] += 1
            self._check_written(one)
            others = [
                each
                for each in self._one_at_a_time.others(one, now_ms)
                if each.session is not None and each.session is self._session(broker, each.member_id)
            ]
            broken = self._one_at_a_time.on_acquired(one, others, now_ms)
            self._cluster.note([self._one_at_a_time.name], broken)
            self._none_skipped.on_acquired(one)
            again = list(self._accepted_once.check(one, 0))
            leader = self._leader(partition)
            is_of_the_day = leader is not None and leader == asked.leaders.get(partition) and leader[0] == broker
            if again and not is_of_the_day:
                self._cluster.facts["delivered again by a deposed leader"] += 1
            elif again and not self._keeps():
                self._cluster.facts["delivered again after its state was lost"] += 1
            else:
                told = list(self._accepted_once.check(one, self._forgotten_at))
                if again and not told:
                    self._cluster.facts["delivered again and told"] += 1
                self._cluster.note([self._accepted_once.name], told)
        return found

    def on_untold(self, partitions: Collection[TopicPartition]) -> None:
        """A fetch had no answer: whatever there is may have been delivered by it."""
        for partition in partitions:
            self._cluster.look(partition)
            ends = [len(one.records) for one in self._cluster.watched[partition].stored.values()]
            self._none_skipped.on_untold(partition, max(ends, default=0))

    def on_acknowledged(self, one: Acquisition, type_: AcknowledgeType, code: Code | None) -> None:
        """A member said what became of a record, and was told what came of that; None where nobody knows."""
        is_done = type_ in (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)
        if code is Code.NONE and is_done:
            self._accepted_once.on_done(one, next(self._ticks))
            self._cluster.facts["record done"] += 1
        if is_done and code not in NOT_DONE:
            self._none_skipped.on_may_be_done(one)
        if code is Code.INVALID_RECORD_STATE:
            self._cluster.facts["acknowledgement refused"] += 1
        if code is Code.NONE and type_ is AcknowledgeType.RENEW:
            self._cluster.facts["record renewed"] += 1

    # What is checked at the end.

    def end_offset(self, partition: TopicPartition) -> int | None:
        """Where the log of a partition ends; None while nobody leads it."""
        records = self._cluster.watched[partition].to_be_read()
        return None if records is None else len(records)

    def check_books(self, partitions: Collection[TopicPartition]) -> None:
        """The group has come to the end of all logs."""
        for partition in partitions:
            self._cluster.look(partition)
            records = self._cluster.watched[partition].to_be_read()
            invariant(records is not None, "nobody leads {}", partition)
            shown = [None if isinstance(one[1], Control) else one for one in records or ()]
            broken = self._none_skipped.check_settled(partition, shown)
            self._cluster.note([NoRecordSkipped.name, NoRecordSkipped.name_of_new], broken)

    def is_known_everywhere(self, group_id: str) -> bool:
        """Whether every node has heard how a group is set up."""
        images = [node.node.broker.image for node in self._nodes.values() if node.node is not None]
        return len(images) == len(self._nodes) and all(image.group_configs(group_id) for image in images)

    # How.

    def _keeps(self) -> bool:
        """Whether all that the group was told to be kept must still be there."""
        return self._cluster.keeps(SHARE_STATE) and self._cluster.keeps(OFFSETS)

    def _check_written(self, one: Acquisition) -> None:
        known, (leader_epoch, value) = self._cluster.watched[one.partition], one.record
        if known.unique.written(leader_epoch, one.offset) is None:
            self._cluster.look(one.partition)
        written = known.unique.written(leader_epoch, one.offset)
        what = f"{one.member_id} was given {one.name}, where {written!r} was written"
        self._cluster.expect(written == value, DELIVERED_WAS_WRITTEN, what)

    def _leader(self, partition: TopicPartition) -> tuple[BrokerId, LeaderEpoch] | None:
        state = self._cluster.latest.partition(partition.topic, partition.partition)
        return None if state is None or state.leader is None else (state.leader, state.leader_epoch)

    def _source(self, broker: BrokerId, partition: TopicPartition) -> object:
        """The share partition that a broker has."""
        process = running(self._nodes[broker])
        topic = self._cluster.latest.topics_by_name.get(partition.topic)
        if process is None or topic is None:
            return None
        driver = process.share_fetching.find(self._group_id, (TopicId(topic.topic_id), partition.partition))
        return None if driver is None else driver.serving

    def _session(self, broker: BrokerId, member_id: str) -> object:
        """The session that a broker has with a member."""
        process = running(self._nodes[broker])
        return None if process is None else process.share_fetching.sessions.find(self._group_id, member_id)

    def _on_listened(self, node_id: BrokerId, process: Node) -> None:
        """A node took a step: has it said that it forgets what a group has done?"""
        forgotten = process.share_fetching.forgotten_records
        known = self._forgotten.get(node_id)
        if forgotten and (known is None or known != (process, forgotten)):
            self._forgotten[node_id] = process, forgotten
            self._forgotten_at = next(self._ticks)
            self._cluster.facts["share group forgot"] += 1
