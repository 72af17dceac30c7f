"""A real cluster for tests, with faults to inject: see `Cluster`.

What takes long to import is imported where it is used: while it loads, so does the process that nodes are forked from.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol

from tidelog.base.errors import ConfigError
from tidelog.base.ids import TopicPartition
from tidelog.testing.errors import ClusterUsageError
from tidelog.testing.fork_server import ForkServer, fork_server
from tidelog.testing.forked_node import ForkedNode
from tidelog.testing.links import CLIENTS, Links
from tidelog.testing.node import Node

if TYPE_CHECKING:
    from tidelog.testing.truncation import LostRecords

SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
"""What differs from Kafka's defaults, beside what `tidelog up` sets: a silent node is missed after two seconds, and
what clients need first is made at once."""
OWN_KEYS: Final = frozenset({
    "node.id", "broker.id", "process.roles", "listeners", "advertised.listeners", "listener.security.protocol.map",
    "inter.broker.listener.name", "security.inter.broker.protocol", "controller.listener.names",
    "controller.quorum.voters", "controller.quorum.bootstrap.servers", "log.dirs", "log.dir", "metadata.log.dir",
})  # fmt: skip
"""What a cluster must say itself."""
NODES_MAX: Final = 9
_TORN_AWAY = ".failed"


class Cluster:
    """Real nodes on free ports of 127.0.0.1, in a temporary directory; nothing of them outlives the `with` block.

        with Cluster() as cluster:
            cluster.create_topic("orders")
            producer = Producer(cluster.bootstrap_servers)

    Each node is a broker and a controller, in a process of its own. They end with this process, however that ends.
    With three nodes, topics get three replicas and `min.insync.replicas` is 2, as with `tidelog up`. When the block is
    left by an exception, the files stay, and the exception says where the logs are.

    Args:
        nodes: how many, from 1 to 9; numbered from 1.
        config: Kafka's keys, for every node.
        disks: how many log directories each node has; with two or more, the node goes on when one fails.
        directory: where all files go, which is empty or missing; None for a temporary directory.

    Attributes:
        nodes: by number.
        directory: where the files are: `node-1.log`, `node-1.properties` and `node-1/` for the first node, and so on.
        keep_files: whether they stay when the cluster is closed; True where a directory was named, or a `with` block
            was left by an exception. May be changed.

    Raises:
        ClusterUsageError: such a cluster cannot be, or the directory is not empty.
        ConfigError: a setting is unknown (the closest known one is named), or its value is wrong.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        config: Mapping[str, str] | None = None,
        disks: int = 1,
        directory: str | Path | None = None,
    ) -> None:
        if not 1 <= nodes <= NODES_MAX:
            raise ClusterUsageError(f"nodes={nodes}: a cluster for tests has from 1 to {NODES_MAX} nodes")
        if disks < 1:
            raise ClusterUsageError(f"disks={disks}: a node needs a log directory at least")
        settings = SETTINGS | (_checked(config) if config else {})
        self.keep_files = directory is not None
        self.directory = Path(tempfile.mkdtemp(prefix="tidelog-") if directory is None else directory).absolute()
        if directory is not None and self.directory.exists() and any(self.directory.iterdir()):
            raise ClusterUsageError(f"directory={str(directory)!r} is not empty; name an empty one, or leave it out")
        server = fork_server()  # it loads what nodes need while this process loads what it needs itself
        from tidelog.testing.watch import ClusterWatch

        try:
            self._links = Links(self._made_directory() / "links", nodes, create=True)
            self.nodes = self._make_nodes(nodes, disks, settings, server)
        except BaseException:
            if not self.keep_files:
                shutil.rmtree(self.directory, ignore_errors=True)
            raise
        self._watch = ClusterWatch(self.nodes, self._links)
        self._is_closed = False

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
            self.keep_files = True
            error.add_note(f"The logs of the nodes are {self.directory}/node-*.log")
        self.close()

    def __repr__(self) -> str:
        return f"<Cluster of {len(self.nodes)} nodes in {self.directory}>"

    # Nodes.

    @property
    def bootstrap_servers(self) -> str:
        """`HOST:PORT,…` of all nodes, for any client. The same whatever happens to the nodes."""
        return ",".join(node.bootstrap_servers for node in self.nodes.values())

    @property
    def running(self) -> list[Node]:
        """The nodes whose processes are there, be they paused."""
        return [node for node in self.nodes.values() if node.is_running]

    def start(self) -> None:
        """Start all nodes that do not run, at once; return when each serves.

        Raises:
            ClusterUsageError: the cluster was closed.
            ClusterFailedError: a node ended, or does not serve in time; shows the end of its log.
        """
        self._check_open()
        starting = [node for node in self.nodes.values() if not node.is_running]
        for node in starting:
            node.start_soon()
        for node in starting:
            node.wait_until_serving()

    def close(self) -> None:
        """Kill all nodes, and remove their files unless they are to be kept. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        with ExitStack() as closing:
            if not self.keep_files:
                closing.callback(shutil.rmtree, self.directory, ignore_errors=True)
            closing.callback(self._links.close)
            for node in self.nodes.values():
                closing.callback(node.close)

    def logs(self, *, characters_max: int = 1_500) -> str:
        """The end of what each node logged, for whoever has to find out what went wrong."""
        return self._watch.logs(characters_max=characters_max)

    # Topics.

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; return when all its replicas are in sync.

        Args:
            replication_factor: None for three, or as many as there are nodes.
            config: the topic's settings, by Kafka's keys.

        Raises:
            ClusterUsageError: there are fewer nodes than replicas.
            KafkaError: refused; TopicAlreadyExistsError for one that is there.
            ConfigError: as for a cluster.
        """
        from tidelog.client.admin.descriptions import NewTopic
        from tidelog.metadata.configs import validate

        self._check_open()
        factor = min(3, len(self.nodes)) if replication_factor is None else replication_factor
        if not 1 <= factor <= len(self.nodes):
            raise ClusterUsageError(
                f"replication_factor={factor}: this cluster has {_count(len(self.nodes), 'node')}; ask for "
                f"Cluster(nodes={max(factor, 1)}), or for fewer replicas"
            )
        for key, value in (config or {}).items():
            validate("topic", key, value)
        with self._watch.admin() as admin:
            admin.create_topics([NewTopic(name, partitions, factor, dict(config or {}))])
        self.wait_until_in_sync(name)

    def leader_of(self, topic: str, partition: int = 0) -> Node:
        """The node that leads a partition; waits until one does that runs.

        Raises:
            ClusterUsageError: there is no such partition.
            ClusterFailedError: nobody comes to lead it within a minute.
        """
        self._check_open()

        def leader() -> Node | None:
            found = self._watch.partition(topic, partition).leader
            node = None if found is None else self.nodes.get(found)
            return node if node is not None and node.is_running and not node.is_paused else None

        return self._watch.wait(leader, f"{topic}-{partition} is led by a node that runs")

    def followers_of(self, topic: str, partition: int = 0) -> list[Node]:
        """The nodes that hold a partition and do not lead it. Raises as `leader_of`."""
        leader = self.leader_of(topic, partition)
        replicas = self._watch.partition(topic, partition).replicas
        return [self.nodes[one] for one in replicas if one != leader.node_id]

    def wait_until_in_sync(self, topic: str) -> None:
        """Until every replica of a topic is in sync, which needs all its nodes. Raises as `leader_of`."""
        self._check_open()
        self._watch.wait_until_in_sync(topic)

    # Faults.

    def partition(
        self, nodes: Iterable[Node | int], others: Iterable[Node | int] | None = None, *, one_way: bool = False
    ) -> None:
        """Cut the links between some nodes and others, in addition to what is cut: nothing arrives, and nobody is told.

            cluster.partition([1])  # node 1 and the other nodes; clients reach all of them
            cluster.partition([1], [2, CLIENTS])  # node 1 and node 2; and no client reaches node 1

        What was sent arrives after `heal`, unless an end gave up.

        Args:
            nodes: the ones, as nodes or their numbers.
            others: the others; CLIENTS stands for all clients. None for all other nodes.
            one_way: cut only what the first ones send.

        Raises:
            ClusterUsageError: there is no such node, or one is on both sides.
        """
        self._check_open()
        ones = {self._number(one) for one in nodes}
        rest = set(self.nodes) - ones if others is None else {self._number(one) for one in others}
        if not ones or not rest:
            raise ClusterUsageError("partition: nothing to cut; name a node on either side")
        if ones & rest:
            raise ClusterUsageError(f"partition: node {min(ones & rest)} is on both sides of the cut")
        for one in ones:
            for other in rest:
                self._links.cut(one, other)
                if not one_way:
                    self._links.cut(other, one)

    def heal(self) -> None:
        """Mend all links: what was held goes on."""
        self._check_open()
        self._links.mend()

    def fail_disk(self, node: Node | int, *, disk: int = 1) -> None:
        """Take a log directory from under a node; return when the node and the controller have noticed.

        The directory is renamed: whatever the node opens, lists or creates there fails, as where a disk was torn off.
        What lies in it goes offline, and others lead. A node that has no other disk ends. `mend_disk` puts it back.

        Args:
            disk: from 1; see `Cluster(disks=…)` and `disk_of`.

        Raises:
            ClusterUsageError: the node does not run, or has no such disk, or it failed before.
            ClusterFailedError: the node does not notice.
        """
        self._check_open()
        failing = self.nodes[self._number(node, is_client_allowed=False)]
        directory = self._disk(failing, disk)
        if not failing.is_running or failing.is_paused:
            raise ClusterUsageError(f"fail_disk: {failing} must run, or it notices nothing: start or resume it first")
        if not directory.exists():
            raise ClusterUsageError(f"fail_disk: disk {disk} of {failing} failed before: mend_disk puts it back")
        said = f"log directory {directory} failed"
        known = failing.log.count(said)
        directory.rename(directory.with_name(directory.name + _TORN_AWAY))
        self._watch.wait(
            lambda: failing.log.count(said) > known or not failing.is_running,
            f"{failing} notices that disk {disk} failed",
        )
        if len(failing.directories) == 1:
            self._watch.wait(lambda: not failing.is_running, f"{failing} ends without its only disk")
        else:
            lost = _partitions_in(directory.with_name(directory.name + _TORN_AWAY))
            self._watch.wait(
                lambda: all(
                    one.leader != failing.node_id
                    for topic, partitions in lost.items()
                    for one in self._watch.partitions(topic)
                    if one.partition in partitions
                ),
                f"{failing} leads nothing that lies on disk {disk}",
            )

    def mend_disk(self, node: Node | int) -> None:
        """Put back what `fail_disk` took, and start the node with it (again, if it runs); return when it serves.

        Raises:
            ClusterUsageError: no disk of it failed.
            ClusterFailedError: as `Node.start`.
        """
        self._check_open()
        mended = self.nodes[self._number(node, is_client_allowed=False)]
        torn = [path.with_name(path.name + _TORN_AWAY) for path in mended.directories]
        failed = [path for path in torn if path.exists()]
        if not failed:
            raise ClusterUsageError(f"mend_disk: no disk of {mended} failed")
        if mended.is_running:
            mended.kill()
        for path in failed:
            path.rename(path.with_name(path.name.removesuffix(_TORN_AWAY)))
        mended.start()

    def disk_of(self, node: Node | int, topic: str, partition: int = 0) -> int:
        """The number of the disk that a replica lies on. Raises ClusterUsageError: it lies on none of that node's."""
        holder = self.nodes[self._number(node, is_client_allowed=False)]
        for number, directory in enumerate(holder.directories, start=1):
            if (directory / f"{topic}-{partition}").is_dir():
                return number
        raise ClusterUsageError(f"disk_of: {holder} has no {topic}-{partition}: see followers_of and leader_of")

    def truncate(self, topic: str, partition: int = 0, *, records: int) -> LostRecords:
        """Lose the last records of a partition, which were acknowledged, by an unclean election.

        Every follower is stopped, loses the end of its log as by a loss of power, and comes back cut off from the
        leader. The leader stops; so none is left that holds what was acknowledged, and `Admin.elect_leaders("unclean")`
        makes a follower lead, in a new leader epoch. The old leader comes back, and truncates. When this returns, all
        replicas are in sync, and readers that had read further are about to be told.

        Producers may write meanwhile: what is acknowledged before the leader stops is lost as well.

        Args:
            records: how many offsets, from the end: markers of transactions count, and so do holes of compaction.

        Raises:
            ClusterUsageError: it has one replica, or fewer records; or a node is down, paused, or cut off.
            ClusterFailedError: a step does not come about; says which.
        """
        from tidelog.testing.truncation import Truncation

        self._check_open()
        return Truncation(self.nodes, self._watch, self._links, TopicPartition(topic, partition), records).run()

    # What it is made of.

    def _make_nodes(self, count: int, disks: int, settings: Mapping[str, str], server: ForkServer) -> dict[int, Node]:
        """Write what each node needs to start."""
        from tidelog.cli.local_certificates import LOOPBACK
        from tidelog.cli.local_cluster import LocalCluster
        from tidelog.cli.local_security import CONTROLLER, NODES, PLAINTEXT
        from tidelog.cli.ports import free_ports

        files = LocalCluster(str(self.directory), count, 0 if disks == 1 else disks)
        # A node alone is told its port, for the next start; those of several are chosen with the others' in mind.
        files.write(port=0 if count > 1 else free_ports(LOOPBACK, [None])[0], config=settings)
        written = {one: _read(files.properties_file(one)) for one in files.node_ids}
        ports = {one: _ports_of(of_node["listeners"]) for one, of_node in written.items()}
        brokers = {of_node[NODES]: one for one, of_node in ports.items()}
        controllers = {of_node[CONTROLLER]: one for one, of_node in ports.items()}
        nodes = {}
        for node_id in files.node_ids:
            forked = ForkedNode(
                properties=written[node_id],
                links_file=str(self.directory / "links"),
                node_id=node_id,
                node_count=count,
                brokers=brokers,
                controllers=controllers,
                clients_port=ports[node_id][PLAINTEXT],
            )
            directories = [Path(path) for path in files.log_directories(node_id)]
            log = Path(files.properties_file(node_id)).with_suffix(".log")
            nodes[node_id] = Node(forked, log, directories, server)
        return nodes

    def _made_directory(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        return self.directory

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClusterUsageError("the cluster is closed: use it within its `with` block, or make a new one")

    def _number(self, node: Node | int, *, is_client_allowed: bool = True) -> int:
        number = node.node_id if isinstance(node, Node) else node
        if number not in self.nodes and not (is_client_allowed and number == CLIENTS):
            raise ClusterUsageError(f"there is no node {number}: this cluster's are 1 to {len(self.nodes)}")
        return number

    def _disk(self, node: Node, disk: int) -> Path:
        if not 1 <= disk <= len(node.directories):
            raise ClusterUsageError(
                f"{node} has no disk {disk}: it has {_count(len(node.directories), 'disk')}; see Cluster(disks=...)"
            )
        return node.directories[disk - 1]


class ClusterFactory(Protocol):
    """Starts clusters: what the fixture `tidelog_cluster_factory` gives. See `Cluster` for the arguments."""

    def __call__(self, nodes: int = 3, *, config: Mapping[str, str] | None = None, disks: int = 1) -> Cluster: ...


def _checked(config: Mapping[str, str]) -> dict[str, str]:
    """Raises ConfigError: a setting is unknown or wrong, or a cluster says it itself."""
    from tidelog.metadata.configs import validate

    for key, value in config.items():
        if key in OWN_KEYS:
            raise ConfigError(f"{key}: a cluster for tests sets this key itself; leave it out")
        if not isinstance(value, str):
            raise ConfigError(f"{key}={value!r}: values are text, as in a .properties file; give {str(value)!r}")
        validate("broker", key, value)
    return dict(config)


def _read(path: str) -> dict[str, str]:
    from tidelog.cli.properties import parse_properties

    return parse_properties(Path(path).read_text(encoding="utf-8"), source=path)


def _partitions_in(directory: Path) -> dict[str, set[int]]:
    """The partitions whose logs lie in a log directory, by topic."""
    from tidelog.log.directory import parse_directory_name

    found: dict[str, set[int]] = {}
    for path in directory.iterdir():
        partition = parse_directory_name(path.name) if path.is_dir() else None
        if partition is not None:
            found.setdefault(partition.topic, set()).add(partition.partition)
    return found


def _ports_of(listeners: str) -> dict[str, int]:
    """By the names of the listeners."""
    found = {}
    for listener in listeners.split(","):
        name, _, address = listener.partition("://")
        found[name] = int(address.rpartition(":")[2])
    return found


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
