"""`tidelog storage`: prepare the directory of a node that is not alone in its cluster."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

import click

from tidelog.base.ids import BrokerId, ClusterId, uuid_text
from tidelog.cli.command import UsageError, log_level_option, option, output_option
from tidelog.cli.node_directories import format_directory
from tidelog.cli.output import Row, Rows
from tidelog.cli.server import read_properties


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatStorage:
    """Say whose a node's empty log directory is: which node's, of which cluster.

    `tidelog up`, and `tidelog server` where the node is the only voter, do this by themselves. All nodes of a cluster
    need the same cluster id; `tidelog storage random-uuid` makes one up.

    Examples:

        tidelog storage format --cluster-id jtxwXpv4Sgyz09Nvdi2SYg --config-file server.properties
        tidelog storage format --cluster-id jtxwXpv4Sgyz09Nvdi2SYg --data /srv/tidelog --node-id 1
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
        "--node-id", type=click.IntRange(min=0), default=None, metavar="N", help="The node, if there is no file."
    )
    ignore_formatted: bool = option("--ignore-formatted", "-g", is_flag=True, help="It is no failure if it was done.")
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        if not self.cluster_id or any(character.isspace() or character in "=\\" for character in self.cluster_id):
            raise UsageError(
                f"--cluster-id {self.cluster_id!r}: give an id, such as one of `tidelog storage random-uuid`"
            )
        node_id, directories = self._node()
        return Rows([self._format(directory, node_id) for directory in directories])

    def _node(self) -> tuple[BrokerId, list[str]]:
        """The node, and the directories that it keeps its logs in."""
        if self.config_file is None:
            if self.data is None or self.node_id is None:
                raise UsageError("give --config-file FILE, or both --data DIR and --node-id N")
            return BrokerId(self.node_id), [self.data]
        if self.data is not None or self.node_id is not None:
            raise UsageError("--config-file says what --data and --node-id would; leave those out")
        from tidelog.server.config import NodeConfig

        config = NodeConfig.from_properties(read_properties(self.config_file))
        return config.node_id, list(dict.fromkeys([*config.log_directories, config.metadata_log_directory]))

    def _format(self, path: str, node_id: BrokerId) -> Row:
        found = format_directory(path, node_id, ClusterId(self.cluster_id), ignore_formatted=self.ignore_formatted)
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
