"""The files that `tidelog up` writes: what its nodes are told, and what of it is kept over restarts."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tidelog.base.authorizers import CLUSTER_ACTION_AUTHORIZER, STANDARD_AUTHORIZER
from tidelog.base.errors import ConfigError, DiskError
from tidelog.cli import ports
from tidelog.cli.command import UsageError
from tidelog.cli.node_directories import owner_of
from tidelog.cli.ports import free_ports
from tidelog.cli.server import read_properties
from tidelog.cli.up import Up
from tidelog.io.disk import RealDisk
from tidelog.server.settings.config import NodeConfig

HOST = "127.0.0.1"


def up_with(data: Path, **flags: Any) -> Up:
    plain: dict[str, Any] = {
        "nodes": None,
        "port": 0,
        "host": HOST,
        "advertised_host": None,
        "insecure": False,
        "config": (),
        "racks": None,
        "disks": None,
        "metrics_port": None,
        "secure": False,
        "log_level": "info",
        "log_format": None,
    }
    return Up(**({"data": str(data), "parent_fd": None} | plain | flags))


def settings_of(data: Path, **flags: Any) -> list[dict[str, str]]:
    """What the nodes are told."""
    return [read_properties(file) for file in up_with(data, **flags).write_files()]


def let_run(data: Path, *node_ids: int) -> None:
    """Leave what nodes that ran leave."""
    for node_id in node_ids:
        directory = data / f"node-{node_id}" / "__cluster_metadata-0"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "quorum-state").write_text("{}")


def port_in(settings: dict[str, str], listener: str) -> int:
    for text in settings["listeners"].split(","):
        name, _, address = text.partition("://")
        if name == listener:
            return int(address.rpartition(":")[2])
    raise AssertionError(f"no listener {listener} in {settings['listeners']}")


def secrets_in(settings: dict[str, str]) -> set[str]:
    """The passwords of a node: what it shows others, and what it takes, on each of its listeners."""
    return {
        password for text in settings.values() for password in re.findall(r'(?:password|user_node)="([^"]+)"', text)
    }


def but_for_secret(settings: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in settings.items() if not key.endswith("jaas.config")}


def test_up_writes_settings_that_server_reads(tmp_path: Path) -> None:
    [settings] = settings_of(tmp_path / "a b", config=(("log.segment.bytes", "1"),))
    assert settings["log.dirs"] == str(tmp_path / "a b" / "node-1")
    assert settings["node.id"] == "1"
    assert settings["log.segment.bytes"] == "1"
    assert "metrics.listener" not in settings
    assert "default.replication.factor" not in settings


def test_flags_of_up_become_settings(tmp_path: Path) -> None:
    one, two, three = settings_of(tmp_path, nodes=3, metrics_port=9464, log_format="json", racks=2)
    assert [each["metrics.listener"] for each in (one, two, three)] == [
        f"HTTP://127.0.0.1:{port}" for port in (9464, 9465, 9466)
    ]
    assert [each["broker.rack"] for each in (one, two, three)] == ["r1", "r2", "r1"]
    assert one["logging.format"] == "json"


def test_up_leaves_the_settings_of_a_node_that_runs_alone(tmp_path: Path) -> None:
    [file] = up_with(tmp_path).write_files()
    before = Path(file).read_text()
    (tmp_path / "node-1").mkdir()
    held = RealDisk().lock(str(tmp_path / "node-1" / ".lock"))
    again = up_with(tmp_path, port=1, config=(("num.partitions", "7"),))
    try:
        with pytest.raises(DiskError, match=r"node-1/.lock: another process holds it"):
            again.run()
    finally:
        held.release()
    assert Path(file).read_text() == before


def test_the_nodes_of_a_cluster_agree_on_its_id_and_its_voters(tmp_path: Path) -> None:
    nodes = settings_of(tmp_path, nodes=3)
    controllers = [port_in(each, "CONTROLLER") for each in nodes]
    clients = [port_in(each, "PLAINTEXT") for each in nodes]
    assert len({*controllers, *clients}) == 6
    for each in nodes:
        assert each["controller.quorum.voters"] == ",".join(
            f"{node_id}@{HOST}:{port}" for node_id, port in enumerate(controllers, start=1)
        )
        assert each["default.replication.factor"] == "3"
        assert each["offsets.topic.replication.factor"] == "3"
        assert each["min.insync.replicas"] == "2"
    owners = [owner_of(str(tmp_path / f"node-{node_id}")) for node_id in (1, 2, 3)]
    assert len({owner.cluster_id for owner in owners if owner}) == 1
    assert [owner.node_id for owner in owners if owner] == [1, 2, 3]
    assert len({owner.directory_id for owner in owners if owner}) == 3


def test_two_nodes_keep_two_copies_and_write_on_with_one(tmp_path: Path) -> None:
    for settings in settings_of(tmp_path, nodes=2):
        assert settings["default.replication.factor"] == settings["offsets.topic.replication.factor"] == "2"
        assert "min.insync.replicas" not in settings


def test_the_ports_for_clients_follow_the_first(tmp_path: Path) -> None:
    nodes = settings_of(tmp_path, nodes=3, port=9092)
    assert [port_in(each, "PLAINTEXT") for each in nodes] == [9092, 9093, 9094]
    assert not {9092, 9093, 9094} & {port_in(each, "CONTROLLER") for each in nodes}


def test_ids_and_ports_are_kept_over_restarts(tmp_path: Path) -> None:
    before = settings_of(tmp_path, nodes=3)
    owners = [owner_of(str(tmp_path / f"node-{node_id}")) for node_id in (1, 2, 3)]
    let_run(tmp_path, 1, 2, 3)
    assert [but_for_secret(each) for each in settings_of(tmp_path)] == [but_for_secret(each) for each in before]
    assert [owner_of(str(tmp_path / f"node-{node_id}")) for node_id in (1, 2, 3)] == owners


def test_a_port_that_somebody_else_took_meanwhile_is_replaced_for_everybody(tmp_path: Path) -> None:
    before = settings_of(tmp_path, nodes=3)
    taken = port_in(before[1], "CONTROLLER")
    with socket.create_server((HOST, taken)):
        after = settings_of(tmp_path, nodes=3)
    assert port_in(after[1], "CONTROLLER") != taken
    assert [port_in(each, "CONTROLLER") for each in (after[0], after[2])] == [
        port_in(each, "CONTROLLER") for each in (before[0], before[2])
    ]
    assert {each["controller.quorum.voters"] for each in after} == {after[0]["controller.quorum.voters"]}
    assert f"2@{HOST}:{taken}" not in after[0]["controller.quorum.voters"]


def test_another_number_of_nodes_than_there_are_is_refused(tmp_path: Path) -> None:
    settings_of(tmp_path, nodes=3)
    let_run(tmp_path, 1, 2, 3)
    with pytest.raises(UsageError, match=r"--nodes 1: .* holds the files of 3 nodes \(node-1 to node-3\)"):
        up_with(tmp_path, nodes=1).write_files()
    with pytest.raises(UsageError, match="start it with --nodes 3, or name another directory"):
        up_with(tmp_path, nodes=5).write_files()


def test_a_node_alone_stays_alone(tmp_path: Path) -> None:
    settings_of(tmp_path)
    let_run(tmp_path, 1)
    with pytest.raises(UsageError, match="holds the files of one node"):
        up_with(tmp_path, nodes=3).write_files()


def test_a_cluster_that_never_ran_binds_nobody(tmp_path: Path) -> None:
    settings_of(tmp_path, nodes=3)
    assert len(settings_of(tmp_path, nodes=5)) == 5
    owners = [owner_of(str(tmp_path / f"node-{node_id}")) for node_id in range(1, 6)]
    assert len({owner.cluster_id for owner in owners if owner}) == 1


def test_a_directory_that_has_gone_is_not_made_up_for(tmp_path: Path) -> None:
    settings_of(tmp_path, nodes=3)
    let_run(tmp_path, 1, 3)
    owner = owner_of(str(tmp_path / "node-2"))
    assert owner is not None
    (tmp_path / "node-2" / "meta.properties").unlink()
    with pytest.raises(ConfigError) as raised:
        up_with(tmp_path).write_files()
    assert "node-2 is missing, or has no meta.properties, though node 1 has run" in str(raised.value)
    assert f"tidelog storage format --cluster-id {owner.cluster_id} --node-id 2" in str(raised.value)


def test_directories_that_were_swapped_are_told_apart(tmp_path: Path) -> None:
    settings_of(tmp_path, nodes=3)
    (tmp_path / "node-1").rename(tmp_path / "x")
    (tmp_path / "node-2").rename(tmp_path / "node-1")
    (tmp_path / "x").rename(tmp_path / "node-2")
    with pytest.raises(ConfigError, match="node-1 belongs to node 2: were directories swapped"):
        up_with(tmp_path, nodes=3).write_files()


def test_a_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    settings_of(tmp_path / "ours", nodes=3)
    settings_of(tmp_path / "theirs", nodes=3)
    (tmp_path / "ours" / "node-3").rename(tmp_path / "x")
    (tmp_path / "theirs" / "node-3").rename(tmp_path / "ours" / "node-3")
    with pytest.raises(ConfigError, match="node-3 belongs to cluster"):
        up_with(tmp_path / "ours", nodes=3).write_files()


def test_disks_lie_apart_from_the_metadata(tmp_path: Path) -> None:
    nodes = settings_of(tmp_path, nodes=3, disks=2)
    for node_id, settings in enumerate(nodes, start=1):
        assert settings["metadata.log.dir"] == str(tmp_path / f"node-{node_id}")
        disks = settings["log.dirs"].split(",")
        assert disks == [str(tmp_path / f"node-{node_id}.disk-{number}") for number in (1, 2)]
        owners = [owner_of(path) for path in (settings["metadata.log.dir"], *disks)]
        assert [owner.node_id for owner in owners if owner] == [node_id] * 3
        assert len({owner.directory_id for owner in owners if owner}) == 3
        assert len({owner.cluster_id for owner in owners if owner}) == 1
    let_run(tmp_path, 1, 2, 3)
    assert [but_for_secret(each) for each in settings_of(tmp_path)] == [but_for_secret(each) for each in nodes]


def test_a_node_alone_may_have_disks(tmp_path: Path) -> None:
    [settings] = settings_of(tmp_path, disks=1)
    assert settings["log.dirs"] == str(tmp_path / "node-1.disk-1")
    assert owner_of(settings["metadata.log.dir"]) is not None


def test_a_disk_that_is_missing_is_not_made_up_for(tmp_path: Path) -> None:
    settings_of(tmp_path, nodes=3, disks=2)
    let_run(tmp_path, 1, 2, 3)
    (tmp_path / "node-2.disk-1").rename(tmp_path / "away")
    assert len(settings_of(tmp_path)[1]["log.dirs"].split(",")) == 2
    assert not (tmp_path / "node-2.disk-1").exists()


@pytest.mark.parametrize(("there", "disks"), [(2, 1), (2, 0), (0, 2)])
def test_another_number_of_disks_than_there_are_is_refused(tmp_path: Path, there: int, disks: int) -> None:
    settings_of(tmp_path, nodes=3, disks=there)
    let_run(tmp_path, 1, 2, 3)
    with pytest.raises(UsageError, match=f"--disks {disks}: .* ran with {there}"):
        up_with(tmp_path, disks=disks).write_files()


def test_free_ports_keep_what_is_free_and_avoid_what_is_not() -> None:
    with socket.create_server((HOST, 0)) as server:
        taken = server.getsockname()[1]
        found = free_ports(HOST, [taken, None, None])
        assert len({taken, *found}) == 4
    kept = found[1]
    assert free_ports(HOST, [kept, None])[0] == kept
    assert free_ports(HOST, [kept], avoid=[kept]) != [kept]


def test_a_port_of_a_node_that_is_down_is_not_given_to_another_process() -> None:
    mine = free_ports(HOST, [None, None])
    program = (
        "import sys; from tidelog.cli import ports; "
        "ports.LOWEST, below = int(sys.argv[1]), int(sys.argv[1]) + 1; ports._ephemeral_start = lambda: below; "
        "print(*ports.free_ports('127.0.0.1', [None]), *ports.free_ports('127.0.0.1', [int(sys.argv[1])]))"
    )
    for port in mine:
        others = subprocess.run([sys.executable, "-c", program, str(port)], capture_output=True, check=True, text=True)
        new, kept = map(int, others.stdout.split())
        assert new != port, "the only one that is free was claimed here"
        assert kept == port, "a cluster that had it before has it again"


def test_where_no_claim_can_be_kept_ports_are_given_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    monkeypatch.setattr(ports, "_claims", ports._Claims())
    assert len(set(free_ports(HOST, [None, None]))) == 2


@pytest.mark.parametrize("nodes", [1, 3])
def test_each_start_has_a_secret_that_its_nodes_share_and_their_owner_alone_reads(tmp_path: Path, nodes: int) -> None:
    tmp_path.joinpath("node-1.properties.tmp").touch(mode=0o644)
    first, second = settings_of(tmp_path, nodes=nodes), settings_of(tmp_path, nodes=nodes)
    (secret,) = {secret for each in first for secret in secrets_in(each)}
    (another,) = {secret for each in second for secret in secrets_in(each)}
    assert len(secret) >= 32
    assert secret != another
    assert {file.stat().st_mode & 0o077 for file in tmp_path.glob("*.properties")} == {0}
    for settings in first:
        NodeConfig.from_properties(settings)
        assert settings["authorizer.class.name"] == CLUSTER_ACTION_AUTHORIZER
        assert settings["super.users"] == "User:node"


def test_an_authorizer_of_the_users_choice_lets_nodes_pass_as_well(tmp_path: Path) -> None:
    rules = (("authorizer.class.name", STANDARD_AUTHORIZER), ("super.users", "User:ANONYMOUS"))
    [settings] = settings_of(tmp_path, config=rules)
    assert settings["authorizer.class.name"] == STANDARD_AUTHORIZER
    assert settings["super.users"] == "User:node;User:ANONYMOUS"
    NodeConfig.from_properties(settings)


def test_a_cluster_of_an_earlier_release_keeps_its_ports(tmp_path: Path) -> None:
    """Its nodes had two listeners each."""
    owned = settings_of(tmp_path, nodes=3)
    clients = free_ports(HOST, [None] * 3)
    for node_id, settings in enumerate(owned, start=1):
        listeners = f"PLAINTEXT://{HOST}:{clients[node_id - 1]},CONTROLLER://{HOST}:{port_in(settings, 'CONTROLLER')}"
        text = f"listeners={listeners}\ncontroller.quorum.voters={settings['controller.quorum.voters']}\n"
        file = tmp_path / f"node-{node_id}.properties"
        file.write_text(text)
        file.chmod(0o644)
    let_run(tmp_path, 1, 2, 3)
    nodes = settings_of(tmp_path)
    assert [port_in(each, "PLAINTEXT") for each in nodes] == clients
    assert [each["controller.quorum.voters"] for each in nodes] == [each["controller.quorum.voters"] for each in owned]
    assert len({port_in(each, name) for each in nodes for name in ("PLAINTEXT", "NODES", "CONTROLLER")}) == 9
    assert {file.stat().st_mode & 0o077 for file in tmp_path.glob("*.properties")} == {0}


@pytest.mark.parametrize(
    "key", ["listeners", "listener.security.protocol.map", "inter.broker.listener.name", "advertised.listeners"]
)
def test_what_up_says_itself_is_not_said_by_config(tmp_path: Path, key: str) -> None:
    with pytest.raises(UsageError, match=f"--config {key}: `up` sets this key itself"):
        settings_of(tmp_path, config=((key, "x"),))


def test_other_machines_are_let_in_by_name(tmp_path: Path) -> None:
    for given, listens, told in (
        ({"host": "0.0.0.0", "advertised_host": "log.example.org"}, "0.0.0.0", "log.example.org"),
        ({"host": "0.0.0.0"}, "0.0.0.0", socket.gethostname()),
        ({"host": "::", "advertised_host": "fd00::7"}, "[::]", "[fd00::7]"),
    ):
        for settings in settings_of(tmp_path, nodes=3, insecure=True, **given):
            port = port_in(settings, "PLAINTEXT")
            of_clients, *of_nodes = settings["listeners"].split(",")
            assert of_clients == f"PLAINTEXT://{listens}:{port}"
            assert all(listener.partition("://")[2].startswith(f"{HOST}:") for listener in of_nodes)
            assert settings["advertised.listeners"].split(",")[0] == f"PLAINTEXT://{told}:{port}"
            config = NodeConfig.from_properties(settings)
            assert config.advertised["NODES"].host == HOST


def test_an_address_of_this_machine_alone_needs_nothing_more(tmp_path: Path) -> None:
    [settings] = settings_of(tmp_path, host="localhost")
    assert settings["listeners"].startswith("PLAINTEXT://localhost:0,")
    assert "advertised.listeners" not in settings


def test_other_machines_are_let_in_on_purpose_alone(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--host 0\.0\.0\.0: other machines reach it.*--secure.*--insecure"):
        settings_of(tmp_path, host="0.0.0.0")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"host": "a b"}, "--host 'a b' is no name or address"),
        ({"host": "a..b"}, r"--host a\.\.b: no address is known for it"),
        ({"host": "tür"}, "--host 'tür' is no name or address"),
        ({"host": "0.0.0.0", "advertised_host": "0.0.0.0"}, "no client can connect to it"),
        ({"advertised_host": "a,b"}, "--advertised-host 'a,b' is no name or address"),
    ],
)
def test_a_host_that_cannot_be_meant_is_refused(tmp_path: Path, given: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        settings_of(tmp_path, insecure=True, **given)


def names_in(security: Path) -> set[str]:
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate((security / "nodes.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in names}


def test_certificates_name_the_host_that_clients_are_told(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    security = tmp_path / "security"
    settings_of(tmp_path, secure=True)
    assert names_in(security) == {"localhost", HOST}
    (security / "nodes.names").unlink()  # as an earlier release left it
    before = (security / "authority.pem").read_bytes()
    settings_of(tmp_path, secure=True)
    assert (security / "authority.pem").read_bytes() == before
    settings_of(tmp_path, secure=True, host="0.0.0.0", advertised_host="log.example.org")
    assert names_in(security) == {"localhost", HOST, "log.example.org"}
    before = (security / "authority.pem").read_bytes()
    settings_of(tmp_path, secure=True)
    assert (security / "authority.pem").read_bytes() == before, "the name is kept, so clients need no new file"


def test_a_secured_cluster_has_secrets_that_its_owner_alone_reads(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    one, two, three = settings_of(tmp_path, nodes=3, secure=True)
    assert "CLIENTS:SASL_SSL,NODES:SASL_SSL,CONTROLLER:SASL_SSL" in one["listener.security.protocol.map"]
    ports = [port_in(each, listener) for each in (one, two, three) for listener in ("CLIENTS", "NODES", "CONTROLLER")]
    assert len(set(ports)) == 9
    files = [*(tmp_path / "security").iterdir(), *tmp_path.glob("*.properties")]
    assert {file.name for file in files} >= {"authority.pem", "nodes.pem", "secrets.properties", "admin.properties"}
    assert {file.stat().st_mode & 0o077 for file in files} == {0}
    assert settings_of(tmp_path, nodes=3, secure=True) == [one, two, three], "all of it is kept"
    with pytest.raises(UsageError, match="the cluster there is secured, and without --secure"):
        settings_of(tmp_path, nodes=3)
