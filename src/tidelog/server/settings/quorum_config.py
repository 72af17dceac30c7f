"""What a node's file says of the metadata quorum: who votes or where to find who does, and how patient everybody is.

Kafka: `QuorumConfig`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tidelog.base.errors import ConfigError
from tidelog.base.ids import BrokerId
from tidelog.metadata.configs import ConfigValues
from tidelog.metadata.configs import broker as keys
from tidelog.metadata.configs import cluster as cluster_keys
from tidelog.net.address import Address
from tidelog.quorum.values import QuorumSettings, ReplicaKey, Voter, VoterSet

VOTERS = keys.CONTROLLER_QUORUM_VOTERS.name
BOOTSTRAP = keys.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS.name
LOOPBACK = ("localhost", "127.0.0.1", "::1")

FIRST_BOOTSTRAP_ID = -2
"""Servers to ask whose ids nobody knows yet have ids below zero, as in Kafka."""

Endpoints = tuple[tuple[str, str, int], ...]


class ControllerEndpoint(Protocol):
    """Where this node listens for controllers."""

    @property
    def name(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumConfig:
    """A node's share in the metadata quorum.

    Attributes:
        is_controller: whether it may vote; who may not follows all the same.
        listener_name: of the listener of controllers on which this node asks them.
        voters: as configured; empty where the log is to say who they are (KIP-853).
        bootstrap: where to ask for the leader while nothing else is known.
        is_standalone: nobody else is named: on empty files, this node is a cluster of its own.
        snapshot_after_bytes: a snapshot is made after so many bytes of the metadata log.
        snapshot_after_ms: or after so long, if anything changed; None for not.
    """

    is_controller: bool
    listener_name: str
    voters: tuple[Voter, ...]
    bootstrap: tuple[Address, ...]
    is_standalone: bool
    settings: QuorumSettings
    snapshot_after_bytes: int
    snapshot_after_ms: int | None

    def first_voters(self, node_id: BrokerId, endpoints: Endpoints) -> VoterSet:
        """Whom to take for the voters as long as the log does not say.

        Args:
            endpoints: where this node listens for controllers.
        """
        if self.is_standalone:
            return VoterSet((Voter(ReplicaKey(node_id), endpoints),))
        if self.voters:
            return VoterSet(self.voters)
        # Nobody knows who they are; but they can be asked, whatever their ids.
        return VoterSet(
            tuple(
                Voter(ReplicaKey(BrokerId(FIRST_BOOTSTRAP_ID - index)), (("", address.host, address.port),))
                for index, address in enumerate(self.bootstrap)
            )
        )


def read_quorum_config(
    values: ConfigValues, node_id: BrokerId, listeners: Sequence[ControllerEndpoint], listener_name: str
) -> QuorumConfig:
    """Read Kafka's keys.

    Args:
        listeners: this node's for controllers; empty if it is none.
        listener_name: of the controllers' listeners, everywhere.

    Raises:
        ConfigError: they contradict each other, or do not say where a voter is.
    """
    voters = _voters(values, listener_name)
    bootstrap = _bootstrap(values)
    if not voters and not bootstrap:
        raise ConfigError(
            f"{VOTERS} is missing: name the voters of the metadata quorum, such as {node_id}@127.0.0.1:9093"
        )
    ids = [voter.key.node_id for voter in voters]
    if voters and listeners and node_id not in ids:
        raise ConfigError(
            f"{VOTERS}={_text(values)}: this node, {node_id}, is a controller and not among them; "
            "correct node.id, add this node to the voters of every node, or take controller out of process.roles"
        )
    if not listeners and node_id in ids:
        raise ConfigError(
            f"{VOTERS}={_text(values)}: this node, {node_id}, is among them, but process.roles does not say controller"
        )
    if len(voters) > 1:
        _check_reachable(voters, values)
    is_alone = ids == [node_id] if voters else _is_itself(bootstrap, listeners)
    snapshot_ms = values[cluster_keys.METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS]
    return QuorumConfig(
        is_controller=bool(listeners),
        listener_name=listener_name,
        voters=voters,
        bootstrap=bootstrap,
        is_standalone=bool(listeners) and is_alone,
        settings=QuorumSettings(
            election_timeout_ms=values[cluster_keys.CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS],
            election_backoff_ms_max=values[cluster_keys.CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS],
            fetch_timeout_ms=values[cluster_keys.CONTROLLER_QUORUM_FETCH_TIMEOUT_MS],
            request_timeout_ms=values[cluster_keys.CONTROLLER_QUORUM_REQUEST_TIMEOUT_MS],
            retry_backoff_ms=values[cluster_keys.CONTROLLER_QUORUM_RETRY_BACKOFF_MS],
        ),
        snapshot_after_bytes=values[cluster_keys.METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS],
        snapshot_after_ms=snapshot_ms or None,
    )


def _text(values: ConfigValues) -> str:
    return ",".join(values[keys.CONTROLLER_QUORUM_VOTERS])


def _voters(values: ConfigValues, listener_name: str) -> tuple[Voter, ...]:
    voters: dict[BrokerId, Voter] = {}
    for text in values[keys.CONTROLLER_QUORUM_VOTERS]:
        voter_id, separator, address = text.partition("@")
        host, colon, port = address.rpartition(":")
        is_number = voter_id.isascii() and voter_id.isdecimal() and port.isascii() and port.isdecimal()
        if not (separator and colon and host and is_number) or int(port) > 65_535:
            raise ConfigError(f"{VOTERS}: {text!r} is not of the form ID@HOST:PORT")
        node_id = BrokerId(int(voter_id))
        if node_id in voters:
            raise ConfigError(f"{VOTERS}={_text(values)}: two voters have the id {node_id}; every node needs its own")
        voters[node_id] = Voter(ReplicaKey(node_id), ((listener_name, host.strip("[]"), int(port)),))
    return tuple(voters.values())


def _check_reachable(voters: tuple[Voter, ...], values: ConfigValues) -> None:
    taken: dict[tuple[str, int], BrokerId] = {}
    for voter in voters:
        _, host, port = voter.endpoints[0]
        if port == 0:
            raise ConfigError(
                f"{VOTERS}={_text(values)}: voter {voter.key.node_id} has no port; the others have to find it"
            )
        other = taken.setdefault((host, port), voter.key.node_id)
        if other != voter.key.node_id:
            raise ConfigError(
                f"{VOTERS}={_text(values)}: voters {other} and {voter.key.node_id} are both at {host}:{port}"
            )


def _bootstrap(values: ConfigValues) -> tuple[Address, ...]:
    found = []
    for text in values[keys.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS]:
        host, colon, port = text.rpartition(":")
        if not colon or not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) <= 65_535:
            raise ConfigError(f"{BOOTSTRAP}: {text!r} is not of the form HOST:PORT")
        found.append(Address(host.strip("[]"), int(port)))
    return tuple(dict.fromkeys(found))


def _is_itself(bootstrap: tuple[Address, ...], listeners: Sequence[ControllerEndpoint]) -> bool:
    """Whether the only server that is named is this node: Kafka's stock file is that of a cluster of one."""
    return len(bootstrap) == 1 and any(
        one.port in (0, bootstrap[0].port) and bootstrap[0].host in (one.host, *LOOPBACK) for one in listeners
    )
