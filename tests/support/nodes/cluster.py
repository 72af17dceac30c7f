"""A cluster of real nodes, one process each behind `tidelog server FILE`: to stop, kill and restart one by one."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from support.clients.wire_client import WireClient
from support.fixtures.waiting import wait_until
from support.nodes.server_process import ServerProcess
from support.nodes.without_secret import without_secret
from tidelog.base.errors import TidelogError
from tidelog.base.ids import BrokerId
from tidelog.cli.local_cluster import LocalCluster
from tidelog.cli.node_directories import format_directory, owner_of
from tidelog.cli.properties import parse_properties
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.descriptions import NewTopic, PartitionDescription
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_10_find_coordinator import (
    KEY_TYPE_GROUP,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.wire.messages.api_60_describe_cluster import (
    ENDPOINT_CONTROLLERS,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

PROMPT = {
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "200",
    "replica.lag.time.max.ms": "4000",
    "offsets.topic.num.partitions": "4",
}
"""Times that make silence noticed sooner than by default, so that tests do not wait for it."""

SIGNS_OF_A_BUG = ("Traceback", "a bug in Tidelog", "Task exception", "never retrieved", "CRITICAL")

SETTLE_SECONDS_MAX = 60.0
ASK_SECONDS_MAX = 5.0


class ClusterNode(ServerProcess):
    """One node. `directory` holds its files."""

    def __init__(self, cluster: LocalCluster, node_id: int, *, is_secured: bool = False) -> None:
        super().__init__(Path(cluster.data), node_id=node_id)
        file = Path(cluster.properties_file(node_id))
        settings = parse_properties(file.read_text(), source=str(file))
        self.settings = dict(settings) if is_secured else without_secret(settings)
        self.node_id = node_id
        self.is_paused = False
        self.directory = Path(cluster.directory(node_id))
        ports = [int(listener.rpartition(":")[2]) for listener in self.settings["listeners"].split(",")]
        self.port, self.controller_port = ports[0], ports[-1]

    def __repr__(self) -> str:
        return f"node {self.node_id}"

    @property
    def directories(self) -> list[Path]:
        """All that hold its files, that of the metadata log first."""
        return [Path(directory) for directory in self.settings["log.dirs"].split(",")]

    def ask(self, port: int) -> WireClient:
        """A connection to one of its ports. Raises OSError if there is none to be had."""
        return WireClient(port, timeout_seconds=ASK_SECONDS_MAX, host=self.host)

    def kill(self) -> None:
        """`kill -9`: its written data stays, as the system has it."""
        self.end(signal.SIGKILL)
        self.is_paused = False

    def stop(self) -> None:
        """SIGTERM: it hands over what it leads."""
        self.signal(signal.SIGTERM)
        self.wait_until_stopped()

    def wait_until_stopped(self) -> None:
        """After a SIGTERM, which it is to obey cleanly."""
        status = self.wait()
        assert status == 0, f"{self} ended with status {status}: {self.log[-2_000:]}"

    def pause(self) -> None:
        """SIGSTOP: nothing is heard of it, and nothing it has open is closed."""
        self.signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """SIGCONT: it goes on as if no time had passed."""
        self.signal(signal.SIGCONT)
        self.is_paused = False

    def lose_disk(self) -> None:
        """All its files are gone; it gets an empty directory, as `tidelog storage format --lost` makes it."""
        assert not self.is_running
        owner = owner_of(str(self.directory))
        assert owner is not None
        shutil.rmtree(self.directory)
        format_directory(str(self.directory), BrokerId(self.node_id), owner.cluster_id, is_replacement=True)

    def restart(self) -> None:
        """Stop it if it runs; return when it serves again."""
        if self.is_running:
            self.stop()
        self.start()


class Cluster:
    """Nodes 1 to `size`, which are brokers and voters alike; with three, two in sync are needed for acks=all.

    Args:
        home: where all files go.
        config: Kafka's keys, for every node.
        is_secured: as by `tidelog up --secure`. What asks for an admin client is not for such a cluster.

    Attributes:
        nodes: by id.
    """

    def __init__(
        self, home: Path, size: int = 3, *, config: dict[str, str] | None = None, is_secured: bool = False
    ) -> None:
        files = LocalCluster(str(home), size)
        files.write(port=0, config=config or {}, is_secured=is_secured)
        self._files = files
        self.nodes = {node_id: ClusterNode(files, node_id, is_secured=is_secured) for node_id in files.node_ids}

    @property
    def bootstrap(self) -> str:
        """All of them, for clients."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def running(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.is_running]

    def another(self, node_id: int) -> ClusterNode:
        """One more process with the settings of a node; for whoever gives it other places before it starts."""
        return ClusterNode(self._files, node_id)

    def start(self) -> None:
        """Start all that do not run, at once; return when each serves."""
        down = [node for node in self.nodes.values() if not node.is_running]
        for node in down:
            node.start_soon()
        for node in down:
            node.wait_until_serving()

    def stop(self) -> None:
        """Stop all that run, at once, as Ctrl-C stops a local cluster."""
        running = self.running
        for node in running:
            node.signal(signal.SIGTERM)
        for node in running:
            node.wait_until_stopped()

    def kill(self) -> None:
        """`kill -9` of all that run, at once."""
        running = self.running
        for node in running:
            node.signal(signal.SIGKILL)
        for node in running:
            node.close()

    def close(self) -> None:
        """Leave nothing running."""
        for node in self.nodes.values():
            node.close()

    def logs(self) -> str:
        """The end of what each node says, for whoever has to find out what went wrong."""
        return "\n".join(f"== {node}\n{node.log[-1_500:]}" for node in self.nodes.values())

    def check_logs(self, *excused: str) -> None:
        """Raises AssertionError if a node reported a bug of its own, but for lines with something that is excused."""
        for node in self.nodes.values():
            lines = [
                line
                for line in node.log.splitlines()
                if any(sign in line for sign in SIGNS_OF_A_BUG) and not any(known in line for known in excused)
            ]
            assert not lines, f"{node}: {lines[:3]}\n{node.log[-3_000:]}"

    # Topics.

    def create_topic(self, topic: str, partitions: int = 1, *, replication_factor: int = 3, **configs: str) -> None:
        """Create it, with settings that have `_` for `.`; returns when every node knows that all replicas are in sync.

        One that does not know the topic yet answers UNKNOWN_TOPIC_OR_PARTITION, over which some clients give up.
        """
        named = {key.replace("_", "."): value for key, value in configs.items()}
        with Admin(self.bootstrap) as admin:
            admin.create_topics([NewTopic(topic, partitions, replication_factor, named)])
        for node in self.running:
            if not node.is_paused:
                self.wait_until_in_sync(topic, through=node)

    def describe(self, topic: str, *, through: ClusterNode | None = None) -> list[PartitionDescription]:
        """Its partitions, as one node knows them (by default any). Raises TidelogError if none can say."""
        node = through or self.running[0]
        with Admin(node.bootstrap, default_api_timeout_ms=int(ASK_SECONDS_MAX * 1_000)) as admin:
            return sorted(admin.describe_topics([topic])[topic].partitions, key=lambda one: one.partition)

    def wait_until_in_sync(
        self, topic: str, *, without: Collection[int] = (), through: ClusterNode | None = None
    ) -> None:
        """Until every replica is in the ISR, and every partition is led: all but what the nodes in `without` hold.

        Args:
            through: whoever is asked; any node by default.
        """

        def is_in_sync(one: PartitionDescription) -> bool:
            return one.leader is not None and set(one.isr) == set(one.replicas) - set(without)

        self._wait(topic, lambda found: all(map(is_in_sync, found)), f"{topic} is in sync", through=through)

    def leader_of(self, topic: str, partition: int = 0) -> ClusterNode:
        """Who leads it now; waits until somebody does who runs."""

        def leader() -> ClusterNode | None:
            with suppress(TidelogError):
                found = self.describe(topic)[partition].leader
                node = self.nodes.get(-1 if found is None else found)
                return node if node is not None and node.is_running else None
            return None

        node = wait_until(leader, self.logs, seconds=SETTLE_SECONDS_MAX)
        assert node is not None
        return node

    def wait_until_led_by_another(self, topic: str, node: ClusterNode) -> None:
        """Until the node leads nothing of the topic, as the others know it."""
        other = next(one for one in self.running if one is not node)
        self._wait(
            topic,
            lambda found: all(one.leader not in (None, node.node_id) for one in found),
            f"{topic} is led by others than {node}",
            through=other,
        )

    def follower_of(self, topic: str, partition: int = 0) -> ClusterNode:
        """A replica in sync that does not lead, and is not the active controller if there is another."""
        leader, controller = self.leader_of(topic, partition), self.active_controller()
        in_sync = self.describe(topic)[partition].isr
        followers = [self.nodes[node_id] for node_id in in_sync if node_id != leader.node_id]
        return next((node for node in followers if node is not controller), followers[0])

    def coordinator_of(self, key: str, *, key_type: int = KEY_TYPE_GROUP) -> ClusterNode:
        """Who coordinates a group (or a transactional id) now; waits until somebody does who runs."""
        request = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)

        def coordinator() -> ClusterNode | None:
            for asked in self.running:
                with suppress(OSError, TidelogError), asked.ask(asked.port) as client:
                    answer = client.ask(ApiKey.FIND_COORDINATOR, 4, request, FindCoordinatorResponse)
                    (row,) = answer.coordinators
                    found = self.nodes.get(row.node_id)
                    if not row.error_code and found is not None and found.is_running:
                        return found
            return None

        node = wait_until(coordinator, self.logs, seconds=SETTLE_SECONDS_MAX)
        assert node is not None
        return node

    def _wait(
        self,
        topic: str,
        is_so: Callable[[list[PartitionDescription]], bool],
        what: str,
        *,
        through: ClusterNode | None = None,
    ) -> None:
        def asked() -> bool:
            with suppress(TidelogError):
                return is_so(self.describe(topic, through=through))
            return False

        def how_it_is() -> str:
            try:
                return f"{what}: {self.describe(topic, through=through)}\n{self.logs()}"
            except TidelogError as error:
                return f"{what}: {error}\n{self.logs()}"

        wait_until(asked, how_it_is, seconds=SETTLE_SECONDS_MAX)

    # The quorum.

    def active_controller(self) -> ClusterNode:
        """Who leads the quorum now, as it says itself; waits until somebody does who runs."""
        request = DescribeClusterRequest(endpoint_type=ENDPOINT_CONTROLLERS)

        def leader() -> ClusterNode | None:
            for node in self.running:
                with suppress(OSError), node.ask(node.controller_port) as client:
                    answer = client.ask(ApiKey.DESCRIBE_CLUSTER, 1, request, DescribeClusterResponse)
                    if answer.controller_id == node.node_id:
                        return node
            return None

        node = wait_until(leader, self.logs, seconds=SETTLE_SECONDS_MAX)
        assert node is not None
        return node
