"""Which voters of the metadata quorum live, as far as one node knows.

The leader knows by their fetches. While nobody leads, every node asks for a leader, and knows who answers it. A node
that follows a leader asks nobody else, and does not know.

Kafka: no counterpart; DescribeQuorum tells when each voter fetched last, while there is a leader to ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.ids import BrokerId

if TYPE_CHECKING:
    from tidelog.server.quorum.metadata_quorum import MetadataQuorum


def known_voters(quorum: MetadataQuorum) -> tuple[BrokerId, ...] | None:
    """The ids of those who vote; None before this node has learnt them."""
    ids = quorum.voters.ids
    return None if any(node_id < 0 for node_id in ids) else ids  # below 0: the servers to ask


def living_voters(quorum: MetadataQuorum, now_ms: int) -> tuple[BrokerId, ...] | None:
    """Those that fetch from this leader, or answer while nobody leads; None where this node does not know.

    A voter that lost what it kept for the quorum does not count itself: it cannot vote.

    Args:
        now_ms: monotonic.
    """
    ids = known_voters(quorum)
    if ids is None:
        return None
    if quorum.is_leader:
        since_ms = now_ms - quorum.config.settings.fetch_timeout_ms
        voters = quorum.describe().voters
        return tuple(
            one.key.node_id for one in voters if one.last_fetch_ms is not None and one.last_fetch_ms >= since_ms
        )
    if not quorum.leaderless_ms:
        return None
    answering = quorum.peers.answering
    return tuple(
        node_id for node_id in ids if (not quorum.is_lost if node_id == quorum.node_id else node_id in answering)
    )


def voters_heard(quorum: MetadataQuorum, now_ms: int) -> str:
    """How many voters answer, in words: for whoever waits for a controller, and has to find out why there is none."""
    ids, living = known_voters(quorum), living_voters(quorum, now_ms)
    if ids is None:
        return "no server of controller.quorum.bootstrap.servers has said yet who votes"
    if living is None and quorum.leader_id is None:
        return "this node knows of no leader of the metadata quorum yet"
    if living is None:
        return f"node {quorum.leader_id} leads the metadata quorum, and does not answer this node"
    silent = [
        f"node {node_id} does not answer ({quorum.peers.unanswered.get(node_id, 'it was not asked yet')})"
        for node_id in ids
        if node_id not in living and node_id != quorum.node_id
    ]
    if quorum.is_lost and quorum.node_id in ids:
        silent.append(f"node {quorum.node_id}, this one, lost what it kept for the quorum and does not count")
    named = f" ({', '.join(map(str, living))})" if living else ""
    verb = "answers" if len(living) == 1 else "answer"
    voters = f"{len(living)} of the {len(ids)} voters of the metadata quorum {verb} node {quorum.node_id}{named}"
    return "; ".join([f"{voters}, and {quorum.voters.majority_size} are needed", *silent])
