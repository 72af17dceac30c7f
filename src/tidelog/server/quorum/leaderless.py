"""While nobody leads the metadata quorum: every node waits, and says now and then what for and what can be done.

A node that ended instead would be missing when those that it waits for come.

Kafka: no counterpart; a broker that nobody takes in ends (`initial.broker.registration.timeout.ms`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import BrokerId
from tidelog.quorum.values import VoterSet
from tidelog.server.tasks import unless

logger = logging.getLogger("tidelog.server.quorum")

FIRST_SECONDS = 5.0
"""An election takes less, where it can succeed."""
AGAIN_SECONDS = 30.0


class FollowsQuorum(Protocol):
    """A node's share in the quorum."""

    @property
    def leader_id(self) -> BrokerId | None: ...
    @property
    def voters(self) -> VoterSet: ...
    @property
    def is_lost(self) -> bool:
        """Whether this node lost what it kept for the quorum, and has not recovered."""
        ...

    async def leader_changed(self) -> None:
        """Return at the next change of the leader."""
        ...


async def warn_while_leaderless(quorum: FollowsQuorum, unanswered: Mapping[BrokerId, str]) -> None:
    """Log a warning when nobody has led for a while, and again in long intervals. Does not return.

    Args:
        unanswered: whoever did not answer this node's last request to it, with what was in the way; kept up to date.
    """
    while True:
        await unless(_warn(quorum, unanswered), _led(quorum, True))
        await _led(quorum, False)


async def _warn(quorum: FollowsQuorum, unanswered: Mapping[BrokerId, str]) -> None:
    loop = asyncio.get_running_loop()
    since = loop.time()
    await asyncio.sleep(FIRST_SECONDS)
    while True:
        logger.warning(
            "nobody has led the metadata quorum for %.0f s: %s; %s. This node waits, as long as it takes: start the "
            "voters that are down, and see docs/cluster.md, When the metadata log is lost, if too many lost it",
            *(loop.time() - since, _needs(quorum), _silence(quorum, unanswered)),
        )
        await asyncio.sleep(AGAIN_SECONDS)


def nobody_else_has_it(directory: str) -> CorruptLogError:
    """Of a node that lost what it kept for the quorum, and knows of no other voter."""
    return CorruptLogError(
        f"{directory}: what this node kept for the metadata quorum is lost, and it is the only voter that it knows of. "
        "If there are others, which it knew of by what is lost, they have it: format an empty directory with --lost "
        "for this node, and start again. Else nobody has it: Put back a copy of this directory that is whole; or, to "
        "go on without what only this node had, set tidelogIsLost to false in its quorum-state and start again"
    )


async def _led(quorum: FollowsQuorum, expected: bool) -> None:
    """Return as soon as somebody leads, or nobody."""
    while (quorum.leader_id is not None) is not expected:
        await quorum.leader_changed()


def _needs(quorum: FollowsQuorum) -> str:
    ids = quorum.voters.ids
    if any(node_id < 0 for node_id in ids):  # the servers to ask
        return "no server of controller.quorum.bootstrap.servers has said yet who votes"
    needs = f"{len(ids) // 2 + 1} of its voters ({', '.join(map(str, ids))}) have to run and to reach each other"
    if quorum.is_lost:
        return f"{needs}, without this node, which lost what it kept for the quorum"
    return f"{needs}; one that lost what it kept for the quorum does not count"


def _silence(quorum: FollowsQuorum, unanswered: Mapping[BrokerId, str]) -> str:
    silent = [
        f"{'a server' if node_id < 0 else f'node {node_id}'} does not answer ({why})"
        for node_id, why in sorted(unanswered.items())
        if node_id in quorum.voters.ids
    ]
    return ", ".join(silent) or "all that were asked answer"
