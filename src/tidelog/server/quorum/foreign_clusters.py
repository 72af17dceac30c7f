"""Nodes that speak for another cluster, or know other voters: refused, and the operator is told, once in a while."""

from __future__ import annotations

import logging

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import ClusterId
from tidelog.base.ports import Clock
from tidelog.quorum.values import VoterSet
from tidelog.server.settings.log_lines import Seldom

logger = logging.getLogger("tidelog.server.quorum")

LOG_SECONDS = 60.0


class ForeignClusters:
    """See the module.

    Args:
        cluster_id: this node's.
    """

    def __init__(self, cluster_id: ClusterId, *, clock: Clock) -> None:
        self._cluster_id = cluster_id
        self._seldom = Seldom(LOG_SECONDS, lambda: clock.now_ms() / 1000)
        self._seldom_of_voters = Seldom(LOG_SECONDS, lambda: clock.now_ms() / 1000)

    def check(self, cluster_id: str | None, peer: str) -> None:
        """Raises KafkaError: INCONSISTENT_CLUSTER_ID. Who names no cluster passes."""
        if cluster_id in (None, self._cluster_id):
            return
        suppressed = self._seldom.suppressed()
        if suppressed is not None:
            more = f" ({suppressed} more were refused since the last line)" if suppressed else ""
            logger.error(
                "%s is of cluster %s, this node of %s: it is refused; correct its controller.quorum.voters, or the "
                "cluster id that its directory was formatted with%s",
                *(peer, cluster_id, self._cluster_id, more),
            )
        raise refusal(Code.INCONSISTENT_CLUSTER_ID, f"this is cluster {self._cluster_id}, not {cluster_id}")

    def check_claimant(self, node_id: int, voters: VoterSet, peer: str) -> None:
        """Where the configuration says who votes, nobody else can lead: two majorities could be of different nodes.

        Raises:
            KafkaError: INCONSISTENT_VOTER_SET.
        """
        if node_id in voters.ids:
            return
        known = ", ".join(map(str, voters.ids))
        if self._seldom_of_voters.suppressed() is not None:
            logger.error(
                "%s asks to be led by node %s, which is none of the voters here (%s): it is refused; make "
                "controller.quorum.voters the same at every node",
                *(peer, node_id, known),
            )
        raise refusal(Code.INCONSISTENT_VOTER_SET, f"node {node_id} is none of the voters, which are {known}")
