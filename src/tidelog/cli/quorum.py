"""`tidelog quorum`: who keeps the cluster's metadata, and who votes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.base.errors import ConfigError
from tidelog.cli.command import (
    UsageError,
    WholeNumber,
    bootstrap_option,
    log_level_option,
    open_admin,
    option,
    output_option,
    timeout_option,
)
from tidelog.cli.output import Row, Rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.client.admin.cluster_descriptions import Endpoint, QuorumDescription, QuorumReplica


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuorum:
    """Show who leads the metadata quorum, who votes and who only follows; or how far each of them is.

    Examples:

        tidelog quorum describe
        tidelog quorum describe --replication
    """

    replication: bool = option("--replication", is_flag=True, help="Each node's copy of the metadata log, in a row.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            quorum = admin.describe_quorum()
            return Rows(_replicas(quorum)) if self.replication else Rows([_summary(quorum)])


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoter:
    """Let one more node vote in the metadata quorum. It must run already, and follow.

    The quorum must be one whose voters are in its log, as `tidelog storage format --standalone` or
    `--initial-controllers` makes it. With the node's own .properties file, nothing else need be said.

    Examples:

        tidelog quorum add-voter --config-file node-4.properties
        tidelog quorum add-voter --node-id 4 --directory-id k3p9yTn3S2m6S9Qb0r0KQQ --endpoint CONTROLLER://10.0.0.4:9093
    """

    config_file: str | None = option(
        "--config-file", "-c", default=None, metavar="FILE", help="Of the node that is to vote; read on its machine."
    )
    node_id: int | None = option(
        "--node-id", type=WholeNumber(), default=None, metavar="N", help="The node, if there is no file."
    )
    directory_id: str | None = option(
        "--directory-id", default=None, metavar="ID", help="Of its metadata log, as its meta.properties says."
    )
    endpoint: tuple[str, ...] = option(
        "--endpoint",
        multiple=True,
        metavar="NAME://HOST:PORT",
        help="A listener of it for controllers. May be repeated.",
    )
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        node_id, directory_id, endpoints = self._voter()
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            admin.add_raft_voter(node_id, directory_id, endpoints)
            return Rows(_voters(admin.describe_quorum()))

    def _voter(self) -> tuple[int, str, list[Endpoint]]:
        if self.config_file is not None:
            if self.node_id is not None or self.directory_id is not None or self.endpoint:
                raise UsageError(
                    "--config-file says what --node-id, --directory-id and --endpoint would; leave those out"
                )
            return _voter_of(self.config_file)
        if self.node_id is None or self.directory_id is None or not self.endpoint:
            raise UsageError("give --config-file FILE, or all of --node-id, --directory-id and --endpoint")
        _check_directory_id(self.directory_id)
        return self.node_id, self.directory_id, [_endpoint(text) for text in self.endpoint]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoter:
    """Let a node vote in the metadata quorum no more. It follows on, if it runs.

    Example:

        tidelog quorum remove-voter --node-id 4
    """

    node_id: int = option("--node-id", type=WholeNumber(), required=True, metavar="N", help="The node.")
    directory_id: str | None = option(
        "--directory-id", default=None, metavar="ID", help="Of its metadata log; else that of the voter with this id."
    )
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        if self.directory_id is not None:
            _check_directory_id(self.directory_id)
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            directory_id = self.directory_id or self._directory_in(admin.describe_quorum())
            admin.remove_raft_voter(self.node_id, directory_id)
            return Rows(_voters(admin.describe_quorum()), nothing="nobody votes")

    def _directory_in(self, quorum: QuorumDescription) -> str:
        voter = next((voter for voter in quorum.voters if voter.node_id == self.node_id), None)
        if voter is None:
            known = ", ".join(str(each.node_id) for each in quorum.voters)
            raise ConfigError(f"--node-id {self.node_id}: no voter has this id; there are {known}")
        if voter.directory_id is None:
            raise ConfigError(
                f"--node-id {self.node_id}: the voters of this quorum are in its configuration "
                "(controller.quorum.voters): change it there, and start the nodes again"
            )
        return voter.directory_id


def _summary(quorum: QuorumDescription) -> Row:
    leader_end = _leader_end(quorum)
    behind = [
        max(0, leader_end - each.log_end_offset)
        for each in quorum.voters
        if leader_end is not None and each.log_end_offset is not None
    ]
    return {
        "leader": quorum.leader_id,
        "leader_epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "voters": [each.node_id for each in quorum.voters],
        "observers": [each.node_id for each in quorum.observers],
        "lag_max": max(behind, default=None),
    }


def _replicas(quorum: QuorumDescription) -> Iterable[Row]:
    leader_end = _leader_end(quorum)
    for role, replicas in (("voter", quorum.voters), ("observer", quorum.observers)):
        for each in replicas:
            is_leader = each.node_id == quorum.leader_id and role == "voter"
            yield {
                "node": each.node_id,
                "role": "leader" if is_leader else role,
                "log_end_offset": each.log_end_offset,
                "lag": (
                    None
                    if leader_end is None or each.log_end_offset is None
                    else max(0, leader_end - each.log_end_offset)
                ),
                "last_fetch": _time(each.last_fetch_ms),
                "last_caught_up": _time(each.last_caught_up_ms),
                "directory_id": each.directory_id,
            }


def _voters(quorum: QuorumDescription) -> list[Row]:
    return [
        {
            "node": each.node_id,
            "directory_id": each.directory_id,
            "endpoints": [f"{one.name}://{one.host}:{one.port}" for one in quorum.endpoints.get(each.node_id, ())],
        }
        for each in quorum.voters
    ]


def _leader_end(quorum: QuorumDescription) -> int | None:
    replicas: tuple[QuorumReplica, ...] = quorum.voters
    return next((each.log_end_offset for each in replicas if each.node_id == quorum.leader_id), None)


def _time(ms: int | None) -> str | None:
    """In words that sort."""
    if ms is None:
        return None
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def _voter_of(file: str) -> tuple[int, str, list[Endpoint]]:
    """What a node's settings and its directory say of it."""
    from tidelog.cli.node_directories import owner_of
    from tidelog.cli.server import read_properties
    from tidelog.client.admin.cluster_descriptions import Endpoint
    from tidelog.server.settings.config import NodeConfig

    config = NodeConfig.from_properties(read_properties(file))
    owner = owner_of(config.metadata_log_directory)
    if owner is None or not owner.directory_id:
        raise ConfigError(
            f"{file}: {config.metadata_log_directory} has no directory id yet: start the node first, on this machine"
        )
    endpoints = [Endpoint(one.name, one.host or "127.0.0.1", one.port) for one in config.controller_listeners]
    for one in endpoints:
        if one.port == 0:
            raise ConfigError(f"{file}: listener {one.name} takes a free port at each start; give it one of its own")
    return config.node_id, owner.directory_id, endpoints


def _check_directory_id(text: str) -> None:
    from tidelog.base.ids import parse_uuid

    try:
        parse_uuid(text)
    except ValueError as error:
        raise UsageError(f"--directory-id: {error}") from None


def _endpoint(text: str) -> Endpoint:
    from tidelog.client.admin.cluster_descriptions import Endpoint

    name, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not (separator and name and colon and host and port.isdecimal() and 0 < int(port) <= 65_535):
        raise UsageError(f"--endpoint {text!r} is not of the form NAME://HOST:PORT, such as CONTROLLER://10.0.0.4:9093")
    return Endpoint(name, host.strip("[]"), int(port))
