"""`tidelog up` without users: what only nodes ask each other is refused to everybody else on the machine."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.clients.wire_client import WireClient
from support.fixtures.guarded_api import codes_in, request_of
from support.fixtures.waiting import wait_until
from support.nodes.background_command import BackgroundCommand
from support.nodes.cluster import Cluster
from support.nodes.forked_command import run_command
from support.nodes.listening_ports import listening_ports
from tidelog import (
    AclBinding,
    AclBindingFilter,
    Admin,
    Code,
    ConfigResource,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    SaslAuthenticationError,
    TopicPartition,
)
from tidelog.base.ids import PartitionIndex
from tidelog.cli.server import read_properties
from tidelog.metadata.acls import AclOperation
from tidelog.server.api.apis import APIS
from tidelog.server.api.needs import NEEDS
from tidelog.server.transport.listener_roles import BROKER
from tidelog.wire.api import ApiKey, api
from tidelog.wire.messages.api_05_stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from tidelog.wire.messages.api_10_find_coordinator import KEY_TYPE_SHARE
from tidelog.wire.messages.api_80_add_raft_voter import AddRaftVoterResponse

TOPIC = "orders"
PARTITION = TopicPartition(TOPIC, PartitionIndex(0))
REFUSED = {Code.CLUSTER_AUTHORIZATION_FAILED, Code.TOPIC_AUTHORIZATION_FAILED}
OTHERS_TOO = {ApiKey.OFFSET_FOR_LEADER_EPOCH}
"""A client asks it as well, and may."""
OF_NODES = sorted(
    ApiKey(key)
    for key, needs in NEEDS.items()
    if any(need.asks is not None and AclOperation.CLUSTER_ACTION in need.asks for need in needs)
    or key in (ApiKey.STOP_REPLICA, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.FIND_COORDINATOR)
)


class UpCluster:
    """What `tidelog up` has started.

    Attributes:
        settings: of each node, as they were written.
    """

    def __init__(self, home: Path, nodes: int) -> None:
        arguments = ["up", "--nodes", str(nodes), "--port", "0", "--data", str(home / "data")]
        self.command = BackgroundCommand(home / "up.log", *arguments)
        self.data = home / "data"
        self.settings = [read_properties(str(self.data / f"node-{number + 1}.properties")) for number in range(nodes)]

    @property
    def secret(self) -> str:
        quoted = re.compile(r'password="([^"]+)"')
        found: set[str] = {one for each in self.settings for one in quoted.findall("\n".join(each.values()))}
        (secret,) = found
        return secret

    @property
    def clients_port(self) -> int:
        return int(self.command.bootstrap.split(",")[0].rpartition(":")[2])

    @property
    def ports_of_nodes(self) -> set[int]:
        """All that they listen on, but those for clients."""
        found = {port for pid in self.command.pids.values() for port in listening_ports(pid)}
        return found - {int(address.rpartition(":")[2]) for address in self.command.bootstrap.split(",")}


@pytest.fixture(scope="module", params=[1, 3], ids=["one-node", "three-nodes"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpCluster]:
    """With a topic that has a record."""
    started = UpCluster(tmp_path_factory.mktemp("up"), request.param)
    try:
        with Admin(started.command.bootstrap) as admin:
            wait_until(lambda: len(admin.describe_cluster().brokers) == request.param, "all nodes are there")
            admin.create_topics([NewTopic(TOPIC, 1)])
        with Producer(started.command.bootstrap) as producer:
            producer.send(TOPIC, b"a", partition=0).result()
        yield started
        assert started.command.stop() == 0
    finally:
        started.command.close()


def forged(key: ApiKey) -> Any:
    """A request that only a node sends, of the newest version."""
    request = request_of(key, api(key).max_version)
    if key == ApiKey.FIND_COORDINATOR:
        request.key_type = KEY_TYPE_SHARE
    elif key == ApiKey.WRITE_TXN_MARKERS:
        for marker in request.markers:
            marker.transaction_result = True
    return request


def state_of(cluster: UpCluster) -> tuple[Any, ...]:
    """What a forged request might change."""
    with Admin(cluster.command.bootstrap) as admin:
        (partition,) = admin.describe_topics([TOPIC])[TOPIC].partitions
        quorum = admin.describe_quorum()
        brokers = sorted((one.broker_id, one.port) for one in admin.describe_cluster().brokers)
        return partition.leader, partition.leader_epoch, partition.isr, quorum.leader_epoch, brokers


def test_what_only_nodes_ask_is_refused_to_clients_and_changes_nothing(cluster: UpCluster) -> None:
    before = state_of(cluster)
    for key in set(OF_NODES) - OTHERS_TOO:
        with WireClient(cluster.clients_port) as client:
            if BROKER in APIS[key].roles:
                answer = client.ask(key, api(key).max_version, forged(key), api(key).response)
                assert {*codes_in(answer), getattr(answer, "error_code", 0)} & REFUSED, key
            else:
                with pytest.raises(ConnectionError):
                    client.ask(key, api(key).max_version, forged(key), api(key).response)
    stop = StopReplicaTopicState(
        topic_name=TOPIC,
        partition_states=[StopReplicaPartitionState(partition_index=0, leader_epoch=2**31 - 1, delete_partition=True)],
    )
    request = StopReplicaRequest(
        controller_id=1, controller_epoch=2**31 - 1, broker_epoch=-1, topic_states=[stop], is_kraft_controller=True
    )
    with WireClient(cluster.clients_port) as client, pytest.raises(ConnectionError):
        client.ask(ApiKey.STOP_REPLICA, 4, request, StopReplicaResponse)
    assert state_of(cluster) == before
    with Consumer(cluster.command.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([PARTITION])
        assert next(iter(consumer)).value == b"a"


def test_who_does_not_log_in_is_hung_up_on_where_nodes_listen(cluster: UpCluster) -> None:
    before = state_of(cluster)
    ports = cluster.ports_of_nodes
    assert len(ports) == 2 * len(cluster.settings)
    for port in ports:
        for key in OF_NODES:
            with WireClient(port) as client, pytest.raises(ConnectionError):
                client.ask(key, api(key).max_version, forged(key), api(key).response)
        login: dict[str, Any] = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "node",
        }
        with (
            pytest.raises(SaslAuthenticationError),
            Admin(f"127.0.0.1:{port}", **login, sasl_password="guessed") as admin,
        ):
            admin.describe_cluster()
    assert state_of(cluster) == before


def test_clients_and_operators_are_asked_nothing(cluster: UpCluster) -> None:
    bootstrap = cluster.command.bootstrap
    with Admin(bootstrap) as admin:
        told = {f"127.0.0.1:{one.port}" for one in admin.describe_cluster().brokers}
        assert told == set(bootstrap.split(",")), "clients are told of listeners for clients alone"
        for ask in (
            lambda: admin.describe_acls(AclBindingFilter()),
            lambda: admin.create_acls([AclBinding("topic", TOPIC, "User:alice", "read")]),
            lambda: admin.delete_acls([AclBindingFilter()]),
        ):
            with pytest.raises(KafkaError) as raised:
                ask()
            assert raised.value.code == Code.SECURITY_DISABLED
        admin.create_topics([NewTopic("another", 3)])
        admin.delete_topics(["another"])


def test_an_operator_does_not_become_a_node(cluster: UpCluster) -> None:
    """By a password that nodes would take, or by being a voter that nodes would log in to."""
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_node="mine";'
    key = "listener.name.nodes.plain.sasl.jaas.config"
    with Admin(cluster.command.bootstrap) as admin:
        for wanted in ({key: login}, {"listener.name.nodes.sasl.enabled.mechanisms": "SCRAM-SHA-256"}):
            for resource in (ConfigResource("broker", "1"), ConfigResource("broker", "")):
                with pytest.raises(KafkaError) as raised:
                    admin.alter_configs({resource: wanted})
                assert raised.value.code == Code.CLUSTER_AUTHORIZATION_FAILED
        admin.alter_configs({ConfigResource("broker", "1"): {"log.cleaner.backoff.ms": "10000"}})
    with WireClient(cluster.clients_port) as client:
        voter = request_of(ApiKey.ADD_RAFT_VOTER, 0)
        answer = client.ask(ApiKey.ADD_RAFT_VOTER, 0, voter, AddRaftVoterResponse)
    assert answer.error_code == Code.CLUSTER_AUTHORIZATION_FAILED


def test_the_secret_is_shown_nowhere(cluster: UpCluster) -> None:
    secret = cluster.secret
    assert secret not in cluster.command.said
    assert secret not in cluster.command.log
    with Admin(cluster.command.bootstrap) as admin:
        assert secret not in str(admin.describe_configs([ConfigResource("broker", "1")]))
    for pid in (*cluster.command.pids.values(), cluster.command.process.pid):
        assert secret.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    for file in cluster.data.iterdir():
        if file.is_file():
            assert not file.stat().st_mode & 0o077


@pytest.mark.parametrize("nodes", [1, 3])
def test_nodes_of_an_earlier_release_learn_to_log_in(tmp_path: Path, nodes: int) -> None:
    """Their listeners asked nobody anything, and the metadata log names these."""
    earlier = Cluster(tmp_path / "data", nodes)
    earlier.start()
    try:
        with Admin(earlier.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, 1)])
        with Producer(earlier.bootstrap) as producer:
            producer.send(TOPIC, b"a", partition=0).result()
        for node in earlier.running:
            node.signal(signal.SIGTERM)
        for node in list(earlier.nodes.values()):
            node.wait_until_stopped()
    finally:
        earlier.close()
    started = UpCluster(tmp_path, nodes)
    try:
        with Producer(started.command.bootstrap) as producer:
            producer.send(TOPIC, b"b", partition=0).result()
        with Consumer(started.command.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([PARTITION])
            records = iter(consumer)
            assert [next(records).value, next(records).value] == [b"a", b"b"]
        with Admin(started.command.bootstrap) as admin:
            wait_until(lambda: len(admin.describe_topics([TOPIC])[TOPIC].partitions[0].isr) == nodes, "all are in sync")
        assert started.command.stop() == 0
    finally:
        started.command.close()


def test_a_secured_cluster_says_how_to_be_its_admin_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography")
    monkeypatch.setenv("TIDELOG_CONFIG", str(tmp_path / "config.toml"))
    arguments = ["up", "--secure", "--host", "0.0.0.0", "--advertised-host", "localhost", "--port", "0"]
    started = BackgroundCommand(tmp_path / "up.log", *arguments, "--data", str(tmp_path / "data"))
    try:
        assert re.fullmatch(r"localhost:\d+", started.bootstrap)
        (command,) = re.findall(r"^profile tidelog (.*)$", started.said, re.MULTILINE)
        assert run_command(shlex.split(command), timeout=60).returncode == 0
        assert (tmp_path / "config.toml").stat().st_mode & 0o077 == 0
        made = run_command(["topics", "create", "t", "--profile", "local"], timeout=60)
        assert (made.returncode, made.stderr) == (0, "")
        assert started.stop() == 0
    finally:
        started.close()


def test_other_machines_are_let_in_without_security_on_purpose(tmp_path: Path) -> None:
    arguments = ["up", "--host", "0.0.0.0", "--advertised-host", "localhost", "--port", "0"]
    refused = run_command([*arguments, "--data", str(tmp_path / "data")], timeout=60)
    assert refused.returncode == 2
    assert "other machines reach it" in refused.stderr
    started = BackgroundCommand(tmp_path / "up.log", *arguments, "--insecure", "--data", str(tmp_path / "data"))
    try:
        with Admin(started.bootstrap) as admin:
            assert [one.host for one in admin.describe_cluster().brokers] == ["localhost"]
        assert "other machines reach port" in started.log
        assert started.stop() == 0
    finally:
        started.close()
