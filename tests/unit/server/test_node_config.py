"""What a .properties file may ask of a node, and what it is told when it asks for something else."""

from __future__ import annotations

import pytest

from tidelog.base.authorizers import STANDARD_AUTHORIZER
from tidelog.base.errors import ConfigError
from tidelog.metadata.configs import BrokerSettings
from tidelog.metadata.listeners import Listener
from tidelog.server.settings.config import NodeConfig
from tidelog.server.transport.connections import ConnectionLimits

GOOD = {
    "node.id": "7",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "7@localhost:9093",
    "log.dirs": "/srv/log",
}


def test_a_file_as_kafkas_quick_start_has_it() -> None:
    config = NodeConfig.from_properties(GOOD | {"num.partitions": "3", "advertised.listeners": "PLAINTEXT://name:1"})
    assert config.node_id == 7
    assert config.broker_listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092),)
    assert config.controller_listeners == (Listener("CONTROLLER", "::1", 9093),)
    assert config.advertised == {"PLAINTEXT": Listener("PLAINTEXT", "name", 1)}
    assert (config.log_directories, config.metadata_log_directory) == (("/srv/log",), "/srv/log")
    assert config.num_partitions == 3
    assert config.connection_idle_ms_max == 600_000


def test_what_is_said_of_the_controllers_listener_is_not_for_clients() -> None:
    """Kafka 4's stock file advertises it."""
    config = NodeConfig.from_properties(
        GOOD | {"advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"}
    )
    assert config.advertised == {"PLAINTEXT": Listener("PLAINTEXT", "localhost", 9092)}


def test_protocols_of_listeners_that_are_not_there_do_not_matter() -> None:
    stock = {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL"}
    assert NodeConfig.from_properties(GOOD | stock).node_id == 7


def test_without_a_map_listeners_of_controllers_speak_plaintext_whatever_their_name() -> None:
    other = {"listeners": "PLAINTEXT://127.0.0.1:9092,QUORUM://[::1]:9093", "controller.listener.names": "QUORUM"}
    assert NodeConfig.from_properties(GOOD | other).controller_listener_name == "QUORUM"
    with pytest.raises(ConfigError, match="does not say what listener QUORUM speaks"):
        NodeConfig.from_properties(GOOD | other | {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"})


def test_what_controllers_elsewhere_speak_is_served_too() -> None:
    """Else a node that is only a broker would ask them in plain text."""
    broker = GOOD | {"process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:9092"}
    for protocols, says in (
        ("CONTROLLER:SASL_SSL", "sasl.mechanism.controller.protocol: GSSAPI"),
        ("SSL:SSL", "what listener CONTROLLER speaks"),
    ):
        mapped = {"listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{protocols}"}
        with pytest.raises(ConfigError, match=says):
            NodeConfig.from_properties(broker | mapped)


def test_the_defaults_of_what_is_not_served_may_be_spelled_out() -> None:
    spelled = {"authorizer.class.name": "", "security.inter.broker.protocol": "PLAINTEXT", "ssl.client.auth": "none"}
    assert NodeConfig.from_properties(GOOD | spelled | {"broker.id": "-1"}).node_id == 7


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SASL = GOOD | {
    "listener.security.protocol.map": "CONTROLLER:SASL_SSL,PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f'{PLAIN} username="n" password="p" user_n="p";',
    "listener.name.controller.plain.sasl.jaas.config": f'{PLAIN} username="n" password="p" user_n="p";',
}


def test_listeners_with_sasl() -> None:
    assert NodeConfig.from_properties(SASL).protocols["CONTROLLER"] == "SASL_SSL"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sasl.enabled.mechanisms": None}, r"listener\.name\.plaintext\.sasl\.enabled\.mechanisms: GSSAPI .Kerberos"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "offers OAUTHBEARER, and has no keys"),
        (
            {"listener.name.controller.sasl.enabled.mechanisms": "SCRAM-SHA-256"},
            "controllers cannot offer SCRAM-SHA-256 on listener CONTROLLER",
        ),
        ({"listener.name.controller.sasl.enabled.mechanisms": "OAUTHBEARER"}, "controllers cannot offer OAUTH"),
        ({"listener.name.plaintext.plain.sasl.jaas.config": None}, "offers PLAIN, and knows no user"),
        (
            {"listener.name.controller.plain.sasl.jaas.config": f'{PLAIN} user_n="p";'},
            "no username and password for this node, which asks other nodes on listener CONTROLLER",
        ),
        ({"sasl.mechanism.inter.broker.protocol": None}, "sasl.mechanism.inter.broker.protocol: GSSAPI"),
        ({"sasl.mechanism.controller.protocol": None}, "sasl.mechanism.controller.protocol: GSSAPI"),
        ({"sasl.mechanism.controller.protocol": "SCRAM-SHA-256"}, "is not allowed; allowed: PLAIN"),
        (
            {
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
                "listener.name.plaintext.scram-sha-512.sasl.jaas.config": (
                    'ScramLoginModule required username="n" password="p";'
                ),
            },
            "SCRAM-SHA-512 is not offered on listener PLAINTEXT, which is PLAIN",
        ),
    ],
)
def test_what_a_listener_with_sasl_needs(change: dict[str, str | None], says: str) -> None:
    properties = {key: value for key, value in (SASL | change).items() if value is not None}
    with pytest.raises(ConfigError, match=says):
        NodeConfig.from_properties(properties)


def test_the_prefix_of_a_listener_is_in_small_letters() -> None:
    with pytest.raises(ConfigError, match=r"small letters: listener\.name\.plaintext\.ssl\.client\.auth$"):
        NodeConfig.from_properties(GOOD | {"listener.name.PLAINTEXT.ssl.client.auth": "required"})


def test_the_directory_of_logs_may_be_named_in_either_way() -> None:
    plain = {key: value for key, value in GOOD.items() if key != "log.dirs"}
    assert NodeConfig.from_properties(plain).log_directories == ("/tmp/kafka-logs",)
    assert NodeConfig.from_properties(plain | {"log.dir": "/a,/b"}).log_directories == ("/a", "/b")


def test_every_interface_will_do_if_clients_are_told_a_name() -> None:
    outside = {"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093"}
    config = NodeConfig.from_properties(GOOD | outside | {"advertised.listeners": "PLAINTEXT://name:9092"})
    assert config.broker_listeners[0].host == "0.0.0.0"


def test_minus_one_means_never() -> None:
    assert NodeConfig.from_properties(GOOD | {"connections.max.idle.ms": "-1"}).connection_idle_ms_max is None


def test_what_is_shown_and_who_may_connect() -> None:
    plain = NodeConfig.from_properties(GOOD)
    assert (plain.metrics_listener, plain.slow_request_log_ms, plain.logging_format) == (None, None, "text")
    limits = ConnectionLimits.of(BrokerSettings.of(plain.static), None)
    assert (limits.connections_max, limits.per_ip_max) == (2**31 - 1, 20_000)
    config = NodeConfig.from_properties(
        GOOD
        | {"metrics.listener": "http://[::1]:9464", "slow.request.log.ms": "0", "max.connections": "5"}
        | {"max.connections.per.ip.overrides": "10.0.0.7:100,[::1]:3,0:0:0:0:0:0:0:2:4"}
    )
    assert config.metrics_listener == Listener("http", "::1", 9464)
    limits = ConnectionLimits.of(BrokerSettings.of(config.static), None)
    assert (config.slow_request_log_ms, limits.connections_max) == (0, 5)
    assert limits.per_ip_overrides == {"10.0.0.7": 100, "::1": 3, "::2": 4}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"metrics.listener": "127.0.0.1:9464"}, "NAME://HOST:PORT"),
        ({"metrics.listener": "HTTPS://127.0.0.1:9464"}, "HTTP://HOST:PORT; nothing else"),
        ({"max.connections.per.ip.overrides": "a.host:7"}, "ADDRESS:LIMIT"),
        ({"max.connections.per.ip.overrides": "10.0.0.7"}, "ADDRESS:LIMIT"),
        ({"max.connections": "-1"}, "max.connections"),
        ({"logging.format": "xml"}, "text, json"),
        ({"node.id": None}, "node.id is missing"),
        ({"broker.id": "8"}, "they must agree"),
        ({"node.id": None, "broker.id": "-1"}, "node.id is missing"),
        ({"process.roles": None}, "process.roles is missing"),
        ({"process.roles": "broker"}, "CONTROLLER is for controllers, and this node is none"),
        ({"process.roles": "controller"}, "PLAINTEXT is for clients, and this node is no broker"),
        (
            {"process.roles": "broker", "listeners": "PLAINTEXT://:9092"},
            "this node, 7, is among them, but process.roles does not say controller",
        ),
        ({"controller.listener.names": None}, "controller.listener.names is missing"),
        ({"listeners": "CONTROLLER://:9093"}, "there is none for clients"),
        ({"listeners": "PLAINTEXT://:9092"}, "none is named CONTROLLER"),
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9093"}, "stands there twice"),
        ({"listeners": "127.0.0.1:9092"}, "NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://127.0.0.1:70000"}, "NAME://HOST:PORT"),
        (
            {"listener.security.protocol.map": "PLAINTEXT:SSL"},
            "what listener CONTROLLER speaks: add CONTROLLER:PROTOCOL",
        ),
        (
            {"listeners": "SSL://127.0.0.1:9092,CONTROLLER://:9093"},
            "brokers would ask this one on SSL by PLAINTEXT, and SSL speaks SSL",
        ),
        ({"listeners": "OUTSIDE://127.0.0.1:9092,CONTROLLER://:9093"}, "OUTSIDE:PROTOCOL"),
        ({"advertised.listeners": "PLAINTXT://name:9092"}, "PLAINTXT is none of the listeners.*PLAINTEXT"),
        ({"advertised.listeners": "CONTROLER://name:9093"}, "CONTROLER is none of the listeners"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"}, "no client can connect to 0.0.0.0"),
        ({"advertised.listeners": "PLAINTEXT://[::]:9092"}, "no client can connect"),
        ({"controller.quorum.voters": None}, "controller.quorum.voters is missing"),
        ({"controller.quorum.voters": None, "controller.quorum.bootstrap.servers": "a"}, "HOST:PORT"),
        ({"controller.quorum.voters": "1@a:1,2@b:1,3@c:1"}, "this node, 7, is a controller and not among them"),
        ({"controller.quorum.voters": "7@a:1,8@b:1,7@c:1"}, "two voters have the id 7"),
        ({"controller.quorum.voters": "7@a:1,8@b:0"}, "voter 8 has no port"),
        ({"controller.quorum.voters": "7@a:1,8@a:1"}, "voters 7 and 8 are both at a:1"),
        ({"controller.quorum.voters": "a:9093"}, "ID@HOST:PORT"),
        ({"log.dirs": "/a,/b,/a/"}, "/a stands there twice"),
        ({"log.segment.byte": "100"}, "log.segment.bytes"),
        ({"num.partitions": "0"}, "num.partitions"),
        ({"authorizer.class.name": "a.b.Authorizer"}, "authorizer.class.name: 'a.b.Authorizer' is not allowed"),
        ({"early.start.listeners": "ADMIN"}, "early.start.listeners: ADMIN is none of the listeners of this node"),
        (
            {
                "early.start.listeners": "PLAINTEXT",
                "authorizer.class.name": STANDARD_AUTHORIZER,
                "super.users": "User:ANONYMOUS",
            },
            "early.start.listeners: CONTROLLER is missing",
        ),
        ({"super.users": "User:admin"}, "super.users: there is no authorizer that would go by it"),
        (
            {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"},
            "super.users: nodes ask each other on listener CONTROLLER as User:ANONYMOUS",
        ),
        ({"security.inter.broker.protocol": "SSL"}, "on PLAINTEXT by SSL, and PLAINTEXT speaks PLAINTEXT"),
        ({"remote.log.storage.system.enable": "true"}, "no tiered storage"),
        ({"create.topic.policy.class.name": "a.b.Policy"}, "policies would be Java classes"),
        ({"socket.request.max.bytes": "lots"}, "socket.request.max.bytes"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(change: dict[str, str | None], said: str) -> None:
    properties = {key: value for key, value in (GOOD | change).items() if value is not None}
    with pytest.raises(ConfigError, match=said):
        NodeConfig.from_properties(properties)


def test_a_node_among_several_voters() -> None:
    config = NodeConfig.from_properties(
        GOOD
        | {"controller.quorum.voters": "6@a:9093,7@[::1]:9093,8@c:9093"}
        | {"controller.quorum.election.timeout.ms": "300", "metadata.log.max.snapshot.interval.ms": "0"}
    ).quorum
    assert [(one.key.node_id, one.endpoints) for one in config.voters] == [
        (6, (("CONTROLLER", "a", 9093),)),
        (7, (("CONTROLLER", "::1", 9093),)),
        (8, (("CONTROLLER", "c", 9093),)),
    ]
    assert (config.is_controller, config.is_standalone) == (True, False)
    assert (config.settings.election_timeout_ms, config.settings.fetch_timeout_ms) == (300, 2_000)
    assert (config.snapshot_after_bytes, config.snapshot_after_ms) == (20_971_520, None)


@pytest.mark.parametrize(
    ("servers", "is_alone"),
    [("127.0.0.1:9093", True), ("localhost:9093", True), ("localhost:9094", False), ("::1:9093,other:9093", False)],
)
def test_who_names_only_itself_is_a_cluster_of_its_own(servers: str, is_alone: bool) -> None:
    settings = GOOD | {"controller.quorum.bootstrap.servers": servers}
    del settings["controller.quorum.voters"]
    assert NodeConfig.from_properties(settings).quorum.is_standalone == is_alone


def test_a_broker_alone_and_a_controller_alone() -> None:
    voters = {"controller.quorum.voters": "7@a:9093,8@b:9093"}
    controller = GOOD | voters | {"process.roles": "controller", "listeners": "CONTROLLER://:9093"}
    assert NodeConfig.from_properties(controller).broker_listeners == ()
    broker = GOOD | voters | {"process.roles": "broker", "listeners": "PLAINTEXT://:9092", "node.id": "1"}
    config = NodeConfig.from_properties(broker)
    assert (config.controller_listeners, config.quorum.is_controller) == ((), False)


@pytest.mark.parametrize(
    ("named", "early"),
    [
        (None, set()),
        ("", set()),
        ("CONTROLLER", set()),
        ("PLAINTEXT, CONTROLLER", {"PLAINTEXT"}),
        ("PLAINTEXT", {"PLAINTEXT"}),
    ],
)
def test_which_listeners_open_before_the_broker_may_lead(named: str | None, early: set[str]) -> None:
    settings = GOOD if named is None else GOOD | {"early.start.listeners": named}
    assert NodeConfig.from_properties(settings).early_listeners == early


def test_nodes_that_log_in_have_to_be_super_users() -> None:
    authorized = SASL | {"authorizer.class.name": STANDARD_AUTHORIZER}
    assert NodeConfig.from_properties(authorized | {"super.users": "User:n"}).node_id == 7
    with pytest.raises(ConfigError, match=r"on listener CONTROLLER as User:n, who is not among them"):
        NodeConfig.from_properties(authorized | {"super.users": "User:ANONYMOUS;User:admin"})


def test_a_controller_alone_asks_brokers_too() -> None:
    apart = SASL | {"process.roles": "controller", "listeners": "CONTROLLER://:9093"}
    assert NodeConfig.from_properties(apart).quorum.is_controller
    for missing, says in (
        ("listener.name.plaintext.plain.sasl.jaas.config", "asks other nodes on listener PLAINTEXT"),
        ("sasl.mechanism.inter.broker.protocol", "GSSAPI .* asks others on listener PLAINTEXT"),
    ):
        with pytest.raises(ConfigError, match=says):
            NodeConfig.from_properties({key: value for key, value in apart.items() if key != missing})
    authorized = apart | {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:n"}
    unnamed = authorized | {"listener.security.protocol.map": "CONTROLLER:SASL_SSL"}
    with pytest.raises(ConfigError, match=r"on listener PLAINTEXT as User:ANONYMOUS.*inter\.broker\.listener\.name"):
        NodeConfig.from_properties(unnamed)
    assert NodeConfig.from_properties(authorized).quorum.is_controller
