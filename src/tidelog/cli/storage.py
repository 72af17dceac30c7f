"""`tidelog storage`: prepare the directory of a node that is not alone in its cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import click

from tidelog.base.errors import ConfigError
from tidelog.base.ids import BrokerId, ClusterId, parse_uuid, uuid_text
from tidelog.cli.command import KeyValue, UsageError, WholeNumber, log_level_option, option, output_option
from tidelog.cli.node_directories import format_directory, write_first_metadata
from tidelog.cli.output import Row, Rows
from tidelog.cli.server import read_properties

if TYPE_CHECKING:
    from tidelog.controller.values import FirstMetadata
    from tidelog.quorum.values import Voter
    from tidelog.server.settings.config import NodeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatStorage:
    """Say whose a node's empty log directory is: which node's, of which cluster; and who votes in it at first.

    `tidelog up`, and `tidelog server` where the node is the only voter, do this by themselves. All nodes of a cluster
    need the same cluster id; `tidelog storage random-uuid` makes one up.

    Who votes in the metadata quorum stands either in the settings of every node (controller.quorum.voters), and changes
    when all of them are started anew; or in the metadata log, where `tidelog quorum add-voter` and `remove-voter`
    change it while nodes run. For the latter leave that key out, name servers to ask in
    controller.quorum.bootstrap.servers, and format with one of --standalone (this node alone votes at first),
    --initial-controllers (these do; the same list at each of them) or --no-initial-controllers (this node is to join
    those that do).

    A node whose directory was lost, with the votes that it cast, is formatted with --lost: else it could vote a second
    time, or elect a leader that lacks what the lost directory had.

    A cluster whose listeners ask for SCRAM needs users before anybody can connect to make them: --add-scram puts them
    into the first metadata (KIP-900). In place of password=…, password-file=FILE keeps it out of the history of a
    shell, and salt=… with saltedpassword=…, both in base64, keep it out of everything.

    Examples:

        tidelog storage format --cluster-id jtxwXpv4Sgyz09Nvdi2SYg --config-file server.properties
        tidelog storage format --cluster-id jtxwXpv4Sgyz09Nvdi2SYg --data /srv/tidelog --node-id 1
        tidelog storage format --cluster-id jtxwXpv4Sgyz09Nvdi2SYg --config-file node-1.properties --standalone
        tidelog storage format --cluster-id jtxwXpv4Sgyz09Nvdi2SYg --config-file node-2.properties -N
    """

    cluster_id: str = option("--cluster-id", "-t", required=True, metavar="ID", help="Of the cluster.")
    config_file: str | None = option(
        "--config-file",
        "-c",
        default=None,
        metavar="FILE",
        help="Take directories and node id from this .properties file.",
    )
    data: str | None = option("--data", "-d", default=None, metavar="DIR", help="The directory, if there is no file.")
    node_id: int | None = option(
        "--node-id", type=WholeNumber(), default=None, metavar="N", help="The node, if there is no file."
    )
    standalone: bool = option("--standalone", "-s", is_flag=True, help="This node alone votes at first.")
    initial_controllers: str | None = option(
        "--initial-controllers",
        "-I",
        default=None,
        metavar="ID@HOST:PORT:DIRECTORY-ID,…",
        help="These vote at first, with these ids for the directories of their metadata logs.",
    )
    no_initial_controllers: bool = option(
        "--no-initial-controllers", "-N", is_flag=True, help="This node learns from the others who votes."
    )
    feature: tuple[tuple[str, str], ...] = option(
        "--feature",
        type=KeyValue(),
        multiple=True,
        metavar="NAME=LEVEL",
        help="The level that a new cluster begins at; else the highest that this release knows. May be repeated.",
    )
    add_scram: tuple[str, ...] = option(
        "--add-scram",
        "-S",
        multiple=True,
        metavar="SCRAM-SHA-256=[name=USER,password=…]",
        help="A user that a new cluster begins with, by Kafka's notation. May be repeated.",
    )
    lost: bool = option(
        "--lost",
        is_flag=True,
        help="This node had a directory, which is lost: it votes once it has caught up with the others.",
    )
    ignore_formatted: bool = option("--ignore-formatted", "-g", is_flag=True, help="It is no failure if it was done.")
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        if not self.cluster_id or any(character.isspace() or character in "=\\" for character in self.cluster_id):
            raise UsageError(
                f"--cluster-id {self.cluster_id!r}: give an id, such as one of `tidelog storage random-uuid`"
            )
        config, first = (
            self._config(),
            self._first_metadata(),
        )  # all that may be wrong is found before anything is written
        if config is None:
            assert self.data is not None
            assert self.node_id is not None
            found = self._format(self.data, BrokerId(self.node_id))
            write_first_metadata(self.data, None, first)
            return Rows([found])
        return Rows(self._format_all(config, first))

    def _config(self) -> NodeConfig | None:
        """What the file says, if there is one. Raises UsageError, ConfigError."""
        of_voters = [
            flag
            for flag, is_given in (
                ("--standalone", self.standalone),
                ("--initial-controllers", self.initial_controllers is not None),
                ("--no-initial-controllers", self.no_initial_controllers),
            )
            if is_given
        ]
        if self.lost and of_voters and of_voters != ["--no-initial-controllers"]:
            raise UsageError(f"--lost and {of_voters[0]} exclude each other: the others know who votes")
        if len(of_voters) > 1:
            raise UsageError(f"{of_voters[0]} and {of_voters[1]} exclude each other")
        if self.config_file is None:
            if self.data is None or self.node_id is None:
                raise UsageError("give --config-file FILE, or both --data DIR and --node-id N")
            if of_voters:
                raise UsageError(f"{of_voters[0]} needs --config-file FILE, which says where this node listens")
            return None
        if self.data is not None or self.node_id is not None:
            raise UsageError("--config-file says what --data and --node-id would; leave those out")
        from tidelog.server.settings.config import NodeConfig

        config = NodeConfig.from_properties(read_properties(self.config_file))
        if of_voters and config.quorum.voters:
            raise ConfigError(
                f"{self.config_file}: controller.quorum.voters says who votes; take it out, and name servers to ask in "
                f"controller.quorum.bootstrap.servers, or leave {of_voters[0]} out"
            )
        if of_voters and of_voters[0] != "--no-initial-controllers" and not config.quorum.is_controller:
            raise ConfigError(f"{self.config_file}: {of_voters[0]}: process.roles does not say controller")
        if (
            not of_voters
            and config.quorum.is_controller
            and not config.quorum.voters
            and not config.quorum.is_standalone
        ):
            flags = "--standalone, --initial-controllers or --no-initial-controllers"
            if self.lost:
                flags = "--no-initial-controllers, since the others know"
            raise UsageError(f"{self.config_file} does not say who votes: give {flags}")
        return config

    def _format_all(self, config: NodeConfig, first: FirstMetadata) -> list[Row]:
        from tidelog.quorum.values import ReplicaKey, Voter

        voters = self._initial_voters(config)
        endpoints = _endpoints(config) if self.standalone else None
        metadata = config.metadata_log_directory
        own = next((voter for voter in voters or () if voter.key.node_id == config.node_id), None)
        directory_id = uuid4() if own is None else own.key.directory_id
        rows = [
            self._format(path, config.node_id, directory_id if path == metadata else None, is_metadata=path == metadata)
            for path in dict.fromkeys([*config.log_directories, metadata])
        ]
        if endpoints is not None:
            row = next(row for row in rows if row["directory"] == metadata)
            voters = [Voter(ReplicaKey(config.node_id, parse_uuid(str(row["directory_id"]))), endpoints)]
        write_first_metadata(metadata, voters, first)
        return rows

    def _initial_voters(self, config: NodeConfig) -> list[Voter] | None:
        if self.initial_controllers is None:
            return None
        voters = [_voter(text, config.controller_listener_name) for text in self.initial_controllers.split(",")]
        ids = [voter.key.node_id for voter in voters]
        if config.node_id not in ids:
            raise UsageError(f"--initial-controllers: this node, {config.node_id}, is not among them")
        twice = next((node_id for node_id in ids if ids.count(node_id) > 1), None)
        if twice is not None:
            raise UsageError(f"--initial-controllers: {twice} stands there twice; every node needs an id of its own")
        return voters

    def _first_metadata(self) -> FirstMetadata:
        """What a new cluster begins with. Raises UsageError."""
        from tidelog.cli.scram import read_first_users
        from tidelog.controller.values import FirstMetadata
        from tidelog.metadata.features import METADATA_VERSION, METADATA_VERSION_FEATURE, SCRAM_SINCE

        levels = self._levels()
        level = levels.get(METADATA_VERSION_FEATURE, METADATA_VERSION)
        if self.add_scram and level < SCRAM_SINCE:
            raise UsageError(f"--add-scram: users need {METADATA_VERSION_FEATURE} {SCRAM_SINCE}, not {level}")
        return FirstMetadata(levels, read_first_users(self.add_scram))

    def _levels(self) -> dict[str, int]:
        """The levels to begin at. Raises UsageError: one that this release does not know."""
        from tidelog.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES, unmet_need

        levels = {}
        for name, text in self.feature:
            if name not in SUPPORTED_FEATURES:
                raise UsageError(
                    f"--feature {name}: there is no such feature; there are {', '.join(SUPPORTED_FEATURES)}"
                )
            lowest, highest = SUPPORTED_FEATURES[name]
            if not (text.isascii() and text.isdecimal() and lowest <= int(text) <= highest):
                at = f"levels {lowest} to {highest}" if highest else "level 0 alone, since it does not serve it"
                raise UsageError(f"--feature {name}={text}: this release works at {at}")
            levels[name] = int(text)
        in_log = self.standalone or self.initial_controllers is not None or self.no_initial_controllers
        if levels.get(KRAFT_VERSION, int(in_log)) != int(in_log):
            raise UsageError(
                f"--feature {KRAFT_VERSION}={levels[KRAFT_VERSION]}: "
                + (
                    "the metadata log is to say who votes, which is level 1"
                    if in_log
                    else "say who votes, by one of --standalone, --initial-controllers and --no-initial-controllers"
                )
            )
        unmet = unmet_need(levels)
        if unmet is not None:
            raise UsageError(f"--feature: {unmet[1]}")
        return levels

    def _format(
        self, path: str, node_id: BrokerId, directory_id: UUID | None = None, *, is_metadata: bool = True
    ) -> Row:
        found = format_directory(
            path,
            node_id,
            ClusterId(self.cluster_id),
            directory_id=directory_id,
            ignore_formatted=self.ignore_formatted,
            is_replacement=self.lost and is_metadata,
        )
        return {
            "directory": path,
            "cluster_id": found.cluster_id,
            "node_id": found.node_id,
            "directory_id": found.directory_id,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomUuid:
    """Make up an id for a cluster.

    Example:

        tidelog storage random-uuid
    """

    output: str = option(
        "--output", "-o", type=click.Choice(["value", "table", "json"]), default="value", help="How to print it."
    )

    def run(self) -> Rows:
        return Rows([{"uuid": uuid_text(uuid4())}])


def _voter(text: str, listener_name: str) -> Voter:
    from tidelog.quorum.values import ReplicaKey, Voter

    head, colon, directory = text.strip().rpartition(":")
    node_id, at, address = head.partition("@")
    host, port_colon, port = address.rpartition(":")
    is_number = node_id.isascii() and node_id.isdecimal() and port.isascii() and port.isdecimal()
    if not (colon and at and port_colon and host and is_number and 0 < int(port) <= 65_535):
        raise UsageError(f"--initial-controllers: {text!r} is not of the form ID@HOST:PORT:DIRECTORY-ID")
    try:
        directory_id = parse_uuid(directory)
    except ValueError as error:
        raise UsageError(f"--initial-controllers: {text!r}: {error}") from None
    return Voter(ReplicaKey(BrokerId(int(node_id)), directory_id), ((listener_name, host.strip("[]"), int(port)),))


def _endpoints(config: NodeConfig) -> tuple[tuple[str, str, int], ...]:
    """Where others find this voter."""
    endpoints = tuple((one.name, one.host or "127.0.0.1", one.port) for one in config.controller_listeners)
    for name, _, port in endpoints:
        if port == 0:
            raise ConfigError(f"listeners: {name} has no port of its own; others are to find this voter there")
    return endpoints
