"""Adding, removing and moving voters of the metadata quorum, at its leader (KIP-853).

A new set of voters counts from the moment it is in the log; who asked for it is answered once it is committed, by a
majority of the new set.

Kafka: `AddVoterHandler`, `RemoveVoterHandler`, `UpdateVoterHandler`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tidelog.base.errors import Code, KafkaError, TidelogError, refusal
from tidelog.base.ports import Clock
from tidelog.quorum import QuorumNode
from tidelog.quorum.values import ReplicaKey, Voter, VoterSet
from tidelog.quorum.voter_changes import (
    decide_add_voter,
    decide_remove_voter,
    decide_update_voter,
    decide_voters_in_log,
)
from tidelog.server.quorum.metadata_quorum import MetadataQuorum
from tidelog.server.storage.voter_records import KRAFT_VERSIONS
from tidelog.wire.primitives import ZERO_UUID

logger = logging.getLogger("tidelog.server.quorum")

AGAIN_MS = 50
TIMEOUT_MS = 30_000
"""For those requests that do not say how long they may take."""
UPDATE_AGAIN_MS = 2_000


class VoterRequests:
    """See the module."""

    def __init__(self, quorum: MetadataQuorum, *, clock: Clock) -> None:
        self._quorum = quorum
        self._clock = clock

    async def add(self, voter: Voter, *, timeout_ms: int, waits: bool) -> None:
        """Let one more node vote. It is given the time to catch up.

        Args:
            waits: return only when the new set is committed.

        Raises:
            KafkaError: see `decide_add_voter`; NOT_LEADER_OR_FOLLOWER if another node leads by now, and it may or may
                not have been done.
        """
        await self._change(
            lambda machine: decide_add_voter(machine, voter, self._clock.now_ms()), timeout_ms, waits=waits
        )

    async def remove(self, key: ReplicaKey) -> None:
        """Let a node vote no more; if it is this one, it resigns. Raises KafkaError: see `decide_remove_voter`."""
        await self._change(lambda machine: decide_remove_voter(machine, key), TIMEOUT_MS)

    async def update(self, voter: Voter) -> None:
        """A voter listens elsewhere. Raises KafkaError: see `decide_update_voter`."""
        await self._change(lambda machine: decide_update_voter(machine, voter), TIMEOUT_MS)

    def why_not_in_log(self) -> str | None:
        """Why `put_into_log` would be refused now; None if it would not."""
        try:
            self._quorum.decide_on_voters(decide_voters_in_log)
        except KafkaError as error:
            return str(error)
        return None

    async def put_into_log(self) -> None:
        """Let the log say who votes, in place of the configuration: kraft.version 1 of a running cluster.

        Raises:
            KafkaError: see `decide_voters_in_log`; REQUEST_TIMED_OUT if it was not committed.
        """
        await self._change(decide_voters_in_log, TIMEOUT_MS)

    async def _change(self, decide: Callable[[QuorumNode], VoterSet], timeout_ms: int, *, waits: bool = True) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while True:
            try:
                end_offset = self._quorum.append_voters(decide)
                break
            except KafkaError as error:
                if error.code is not Code.REQUEST_TIMED_OUT or loop.time() >= deadline:
                    raise
            await asyncio.sleep(AGAIN_MS / 1000)
        if not waits:
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._quorum.committed(end_offset)
        except TimeoutError:
            raise refusal(
                Code.REQUEST_TIMED_OUT, f"the new voters count, but were not committed within {timeout_ms} ms"
            ) from None

    async def keep_endpoints_published(self) -> None:
        """As long as this node votes, have the set of voters say where it listens, and in which directory."""
        quorum = self._quorum
        while True:
            us = quorum.voters.voter(quorum.node_id)
            is_published = us is None or us.endpoints == quorum.endpoints or not quorum.is_reconfigurable
            if us is None or is_published or us.key != quorum.key or quorum.leader_id is None:
                await quorum.leader_changed()
                continue
            try:
                await self._send_voter_update(Voter(quorum.key, quorum.endpoints))
            except TidelogError as error:
                logger.debug("the voters do not say yet where this node listens: %s", error)
            await asyncio.sleep(UPDATE_AGAIN_MS / 1000)

    async def _send_voter_update(self, voter: Voter) -> None:
        quorum = self._quorum
        if quorum.is_leader:
            await self.update(voter)
            return
        from tidelog.wire.messages import api_82_update_raft_voter as wire

        request = wire.UpdateRaftVoterRequest(
            cluster_id=quorum.cluster_id,
            current_leader_epoch=-1 if quorum.leader_epoch is None else quorum.leader_epoch,
            voter_id=voter.key.node_id,
            voter_directory_id=voter.key.directory_id or ZERO_UUID,
            listeners=[wire.Listener(*endpoint) for endpoint in voter.endpoints],
            kraft_version_feature=wire.KRaftVersionFeature(*KRAFT_VERSIONS),
        )
        answer = await quorum.send_to_leader(request, wire.UpdateRaftVoterResponse, timeout_ms=UPDATE_AGAIN_MS)
        if answer.error_code:
            raise KafkaError(code=Code(answer.error_code))
