"""What a node's file says about the replication of its partitions. Kafka: `ReplicationConfigs`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.base.errors import ConfigError
from tidelog.metadata.configs import ConfigValues, broker_values
from tidelog.metadata.configs import broker as keys
from tidelog.metadata.configs import cluster as cluster_keys
from tidelog.metadata.listeners import PLAINTEXT, PROTOCOL_MAP

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
        doubt_ms_max: for how long a leader whose connection closed is in doubt (`leader.in.doubt.max.ms`).
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
    doubt_ms_max: int
    selects_by_rack: bool

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> ReplicaFetchSettings:
        """Read Kafka's keys. Raises ConfigError as the reading of the whole file does."""
        values = broker_values(properties)
        return ReplicaFetchSettings(
            fetchers=values[keys.NUM_REPLICA_FETCHERS],
            wait_ms_max=values[cluster_keys.REPLICA_FETCH_WAIT_MAX_MS],
            bytes_min=values[cluster_keys.REPLICA_FETCH_MIN_BYTES],
            partition_bytes_max=values[cluster_keys.REPLICA_FETCH_MAX_BYTES],
            response_bytes_max=values[cluster_keys.REPLICA_FETCH_RESPONSE_MAX_BYTES],
            backoff_ms=values[cluster_keys.REPLICA_FETCH_BACKOFF_MS],
            timeout_ms=values[cluster_keys.REPLICA_SOCKET_TIMEOUT_MS],
            silence_ms_max=values[cluster_keys.BROKER_SESSION_TIMEOUT_MS],
            listener_name=inter_broker_listener_name(values),
            doubt_ms_max=values[cluster_keys.LEADER_IN_DOUBT_MAX_MS],
            selects_by_rack=(values[cluster_keys.REPLICA_SELECTOR_CLASS] or "").endswith(RACK_AWARE),
        )


def inter_broker_listener_name(values: ConfigValues) -> str:
    """Of the listener on which brokers ask each other. Raises ConfigError: two settings name one."""
    named, protocol = values[keys.INTER_BROKER_LISTENER_NAME], values[keys.SECURITY_INTER_BROKER_PROTOCOL]
    if named and protocol != PLAINTEXT:
        raise ConfigError(
            f"inter.broker.listener.name is {named} and security.inter.broker.protocol is {protocol}: set one of them. "
            f"{PROTOCOL_MAP} says which protocol {named} speaks"
        )
    return named or protocol
