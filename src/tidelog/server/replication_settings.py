"""What a node's file says about the replication of its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from tidelog.metadata.configs import broker_values
from tidelog.metadata.listeners import PLAINTEXT

RACK_AWARE = "RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFetchSettings:
    """How followers on a node fetch from the leaders on others.

    Attributes:
        fetchers: `num.replica.fetchers`: connections to each of the other nodes, over which partitions are spread.
        wait_ms_max: how long a leader may hold a fetch back that finds nothing.
        bytes_min: how much must be there before it answers early.
        partition_bytes_max: of one partition in an answer, but for a first batch that is larger.
        response_bytes_max: of a whole answer, likewise.
        backoff_ms: the longest pause after a refusal, or no answer.
        timeout_ms: how long an answer may be overdue before its connection is given up.
        listener_name: where the others are asked.
        silence_ms_max: `broker.session.timeout.ms`: a follower that fetches nothing for so long is out of reach.
        selects_by_rack: whether consumers are sent to replicas in their own rack (`replica.selector.class`).
    """

    fetchers: int
    wait_ms_max: int
    bytes_min: int
    partition_bytes_max: int
    response_bytes_max: int
    backoff_ms: int
    timeout_ms: int
    listener_name: str
    silence_ms_max: int
    selects_by_rack: bool

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> ReplicaFetchSettings:
        """Read Kafka's keys. Raises ConfigError as the reading of the whole file does."""
        values = cast("Mapping[str, int]", broker_values(properties))
        return ReplicaFetchSettings(
            fetchers=values["num.replica.fetchers"],
            wait_ms_max=values["replica.fetch.wait.max.ms"],
            bytes_min=values["replica.fetch.min.bytes"],
            partition_bytes_max=values["replica.fetch.max.bytes"],
            response_bytes_max=values["replica.fetch.response.max.bytes"],
            backoff_ms=values["replica.fetch.backoff.ms"],
            timeout_ms=values["replica.socket.timeout.ms"],
            silence_ms_max=values["broker.session.timeout.ms"],
            listener_name=str(values["inter.broker.listener.name"] or PLAINTEXT),
            selects_by_rack=str(values["replica.selector.class"]).endswith(RACK_AWARE),
        )
