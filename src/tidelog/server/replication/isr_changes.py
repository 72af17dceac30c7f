"""Puts the ISRs that leaders propose to the controller: those of all partitions together, one request at a time.

An answer changes nothing here. What was granted comes with the metadata, which settles it (rule 4); what was refused,
or not answered, is proposed anew by its leader.

Kafka: `AlterPartitionManager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID

from tidelog.base.errors import Code, TidelogError
from tidelog.base.ids import BrokerEpoch, BrokerId
from tidelog.replica import IsrProposal
from tidelog.server.replication.leader_driver import LeaderDriver
from tidelog.server.tasks import Tasks
from tidelog.wire.messages.api_56_alter_partition import (
    RECOVERED,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
)

logger = logging.getLogger("tidelog.server.replication")

PARTITIONS_PER_REQUEST_MAX = 500
"""So many that the controller answers well within the time that it is given, be it busy: what it does not answer is
proposed once more, and is worked out once more."""

AlterPartitions = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]
"""Asks the active controller, wherever it is. Raises `TidelogError` if it does not answer in time."""


class IsrChanges:
    """See the module.

    Args:
        broker_id: this broker.
        broker_epoch: of this incarnation, as far as it is known; None before it is registered.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        alter_partitions: AlterPartitions,
        tasks: Tasks,
        *,
        broker_epoch: Callable[[], BrokerEpoch | None],
    ) -> None:
        self._broker_id = broker_id
        self._alter_partitions = alter_partitions
        self._broker_epoch = broker_epoch
        self._tasks = tasks
        self._proposed: dict[LeaderDriver, IsrProposal] = {}
        self._asked: dict[LeaderDriver, IsrProposal] = {}  # just now
        self._sending: asyncio.Task[None] | None = None

    def propose(self, leading: LeaderDriver, proposal: IsrProposal) -> None:
        """Queue a proposal of an ISR; a later one for the same partition replaces one that was not sent yet."""
        self._proposed[leading] = proposal
        if self._sending is None:
            self._sending = self._tasks.start(self._send_all(), on_bug=self._on_bug)

    def stop(self) -> None:
        """Send no more AlterPartition requests."""
        self._proposed.clear()
        if self._sending is not None:
            self._sending.cancel()

    async def _send_all(self) -> None:
        try:
            await asyncio.sleep(0)  # what is proposed in one step goes together
            while self._proposed:
                self._asked = dict(list(self._proposed.items())[:PARTITIONS_PER_REQUEST_MAX])
                for leading in self._asked:
                    del self._proposed[leading]
                await self._send(self._asked)
                self._asked = {}
        finally:
            self._sending = None

    def _on_bug(self, error: Exception) -> None:
        """Whatever ended the sending, no leader waits for ever: each proposes anew after a while."""
        unanswered = self._asked | self._proposed
        self._asked, self._proposed = {}, {}
        for leading in unanswered:
            leading.on_proposal_unanswered()

    async def _send(self, proposed: Mapping[LeaderDriver, IsrProposal]) -> None:
        codes: dict[tuple[UUID, int], int] = {}
        otherwise: int = Code.UNKNOWN_SERVER_ERROR
        broker_epoch = self._broker_epoch()
        if broker_epoch is not None:
            try:
                answer = await self._alter_partitions(self._request(proposed, broker_epoch))
            except TidelogError as error:
                logger.warning("the controller did not answer AlterPartition: %s", error)
            else:
                otherwise = answer.error_code or otherwise
                codes = {
                    (topic.topic_id, row.partition_index): row.error_code
                    for topic in answer.topics
                    for row in topic.partitions
                }
        refused: Counter[int] = Counter()
        for leading in proposed:
            partition = leading.partition
            code = codes.get((partition.topic_id, partition.topic_partition.partition), otherwise)
            if code == Code.NONE:
                continue  # the metadata will say so
            refused[code] += 1
            leading.on_proposal_unanswered()
        if refused and refused.keys() != {otherwise}:
            refusals = ", ".join(f"{count} with {Code(code).name}" for code, count in refused.items())
            logger.info("of %d proposals of in-sync replicas the controller refused %s", len(proposed), refusals)

    def _request(
        self, proposed: Mapping[LeaderDriver, IsrProposal], broker_epoch: BrokerEpoch
    ) -> AlterPartitionRequest:
        topics: dict[UUID, AlterPartitionTopic] = {}
        for leading, proposal in proposed.items():
            partition = leading.partition
            topic = topics.setdefault(partition.topic_id, AlterPartitionTopic(partition.topic_id, []))
            topic.partitions.append(
                AlterPartitionData(
                    partition_index=partition.topic_partition.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[_member(proposal, each) for each in sorted(proposal.isr)],
                    leader_recovery_state=RECOVERED,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(broker_id=self._broker_id, broker_epoch=broker_epoch, topics=list(topics.values()))


def _member(proposal: IsrProposal, broker_id: BrokerId) -> BrokerState:
    broker_epoch = proposal.broker_epoch(broker_id)
    return BrokerState(broker_id, -1 if broker_epoch is None else broker_epoch)
